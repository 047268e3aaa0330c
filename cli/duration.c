/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Durations: a whole number and a unit, as `10s`. */
#include "cli.h"

#include <inttypes.h>
#include <string.h>

/* A hundred years: long enough, and its nanoseconds still fit 63 bits. */
#define DURATION_MAX_MS (INT64_C(36500) * 86400 * 1000)

static int64_t unit_ms(const char *unit)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(unit, units[i].name) == 0)
            return units[i].ms;
    }
    return 0;
}

const char *duration_parse(int64_t *ms, const char *text)
{
    const char *at = text;
    int64_t number = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (number <= DURATION_MAX_MS)
            number = number * 10 + (*at - '0');
    }
    if (at == text)
        return "not a duration; write a number and ms, s, m, h or d, as in 10s";
    if (*at == '\0')
        return "a duration needs its unit; write 10s for ten seconds, or ms, m, h, d";
    int64_t unit = unit_ms(at);
    if (unit == 0)
        return "not a unit of time; write a whole number and ms, s, m, h or d, as in 10s";
    if (number > DURATION_MAX_MS / unit)
        return "too long; 36500d is the most";
    *ms = number * unit;
    return NULL;
}

const char *duration_format(char out[DURATION_TEXT_MAX], int64_t ms)
{
    if (ms < 0)
        ms = 0;
    int64_t s = ms / 1000;
    if (ms < 1000)
        snprintf(out, DURATION_TEXT_MAX, "%" PRId64 "ms", ms);
    else if (s < 60)
        snprintf(out, DURATION_TEXT_MAX, "%" PRId64 "s", s);
    else if (s < 3600)
        snprintf(out, DURATION_TEXT_MAX, "%" PRId64 "m%02" PRId64 "s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, DURATION_TEXT_MAX, "%" PRId64 "h%02" PRId64 "m", s / 3600, s / 60 % 60);
    else
        snprintf(out, DURATION_TEXT_MAX, "%" PRId64 "d%02" PRId64 "h", s / 86400, s / 3600 % 24);
    return out;
}
