/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A duration is accepted exactly by its rule, and has the value that a slower reader finds. */
#include "fuzz.h"

#include <inttypes.h>

#include "../../cli/cli.h"

#define MOST_MS (INT64_C(36500) * 24 * 60 * 60 * 1000)

/* -1: not a duration. In floating point, which can't overflow here. */
static double read_slowly(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    static const char *const units[] = {"ms", "s", "m", "h", "d"};
    static const double ms[] = {1, 1e3, 60e3, 3600e3, 86400e3};
    double value = 0;

    for (size_t i = 0; i < digits; i++)
        value = value * 10 + (text[i] - '0');
    for (size_t i = 0; digits > 0 && i < 5; i++)
        if (strcmp(text + digits, units[i]) == 0 && value * ms[i] <= (double)MOST_MS)
            return value * ms[i];
    return -1;
}

static void check_format(int64_t ms)
{
    char out[DURATION_TEXT_MAX];

    MUST(duration_format(out, ms) == out);
    MUST(fuzz_is_line(out) && strlen(out) < 12);
    MUST(strspn(out, "0123456789dhms") == strlen(out));
}

static void check_round_trip(int64_t ms)
{
    char text[32];
    int64_t again;

    snprintf(text, sizeof(text), "%" PRId64 "ms", ms);
    MUST(!duration_parse(&again, text) && again == ms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size);
    int64_t ms = -42;
    const char *wrong = duration_parse(&ms, text);
    double expected = read_slowly(text);

    if (wrong) {
        MUST(expected < 0 && ms == -42 && fuzz_is_line(wrong));
    } else {
        MUST((double)ms == expected && ms >= 0 && ms <= MOST_MS);
        check_format(ms);
        check_round_trip(ms);
    }
    free(text);
    return 0;
}
