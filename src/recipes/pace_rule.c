/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes/pace_rule.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lua counts exactly up to here, and sums of some such numbers fit into 64 bits. */
#define TIME_MAX (INT64_C(1) << 53)

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- the history ---- */

static int64_t last_end(const struct pace_history *h)
{
    return h->ends[h->n - 1];
}

/* From when on a reservation with this end no longer matters. */
static int64_t over_at(const struct pace_history *h, int64_t end)
{
    return h->terms.burst ? end : end + h->terms.per_us;
}

static void forget_old(struct pace_history *h, int64_t now)
{
    uint32_t old = 0;
    while (old < h->n && over_at(h, h->ends[old]) <= now)
        old++;
    h->n -= old;
    memmove(h->ends, h->ends + old, h->n * sizeof *h->ends);
}

/* A server whose clock went back by a little waits until it is right again. If it went back by
 * more than a window, all that is stored goes back with it: up to a window before the latest
 * reservation, which is never too early, since time has passed since then. */
static int64_t read_clock(struct pace_history *h, int64_t clock_us)
{
    int64_t now = clock_us + h->ahead_us, least = h->seen_us - h->terms.per_us;
    if (h->n == 0 || now >= least)
        return now;
    h->ahead_us += least - now;
    return least;
}

static void add_end(struct pace_history *h, int64_t end)
{
    uint32_t most = h->terms.burst ? 1 : h->terms.count;
    if (h->n == most) {
        h->n--;
        memmove(h->ends, h->ends + 1, h->n * sizeof *h->ends);
    }
    h->ends[h->n++] = end;
}

/* ---- the rules ---- */

/* Of any count + 1 reservations, the last one begins a window after the first one has ended. */
static int64_t next_in_window(const struct pace_history *h, int64_t now)
{
    return h->n < h->terms.count ? now : later(now, h->ends[0] + h->terms.per_us);
}

static int64_t interval_of(const struct pace_terms *terms)
{
    return (terms->per_us + terms->count - 1) / terms->count;
}

/* The generic cell rate algorithm. */
static int64_t next_in_burst(const struct pace_history *h, int64_t now)
{
    int64_t early = (h->terms.burst - 1) * interval_of(&h->terms);
    return h->n == 0 ? now : later(now, last_end(h) - early);
}

static void store(struct pace_history *h, const struct pace_request *r)
{
    int64_t last = h->n ? last_end(h) : 0;
    h->seen_us = later(h->seen_us, r->now_us);
    if (h->terms.burst)
        add_end(h, later(r->start_us, last) + interval_of(&h->terms));
    else
        add_end(h, later(r->end_us, last));
}

static bool same_terms(const struct pace_terms *a, const struct pace_terms *b)
{
    return a->count == b->count && a->burst == b->burst && a->per_us == b->per_us;
}

void pace_reserve(struct pace_history *h, struct pace_request *r, int64_t clock_us)
{
    int64_t now = read_clock(h, clock_us);
    forget_old(h, now);
    if (h->n == 0) {
        now = clock_us;
        *h = (struct pace_history){.terms = r->terms, .seen_us = now};
    }
    r->now_us = now;
    r->used = h->terms;
    if (h->n > 0 && !same_terms(&h->terms, &r->terms)) {
        r->outcome = PACE_OTHER_TERMS;
        r->start_us = over_at(h, last_end(h));
        return;
    }
    r->start_us = h->terms.burst ? next_in_burst(h, now) : next_in_window(h, now);
    r->end_us = later(r->start_us + r->tolerance_us, now + r->answer_us);
    r->outcome = r->start_us - now > r->wait_us ? PACE_FAR : PACE_RESERVED;
    if (r->outcome == PACE_RESERVED)
        store(h, r);
}

int64_t pace_lasts_us(const struct pace_history *h)
{
    return later(over_at(h, last_end(h)) - h->seen_us, 0) + h->terms.per_us;
}

/* ---- its form ---- */

#define FORM "stile pace 1"

size_t pace_write(char text[PACE_TEXT_MAX], const struct pace_history *h)
{
    int len = sprintf(text, FORM " %" PRIu32 " %" PRId64 " %" PRIu32 " %" PRId64 " %" PRId64,
                      h->terms.count, h->terms.per_us, h->terms.burst, h->seen_us, h->ahead_us);
    for (uint32_t i = 0; i < h->n; i++)
        len += sprintf(text + len, " %" PRId64, h->ends[i]);
    return (size_t)len;
}

static bool read_number(int64_t *number, const char **at, int64_t most)
{
    char *end;
    if (**at != ' ' || (*at)[1] < '0' || (*at)[1] > '9')
        return false;
    unsigned long long read = strtoull(*at + 1, &end, 10);
    *number = (int64_t)read;
    *at = end;
    return read <= (unsigned long long)most;
}

static bool read_terms(struct pace_terms *terms, const char **at)
{
    int64_t count, burst;
    if (!read_number(&count, at, STILE_PACE_COUNT_MAX) ||
        !read_number(&terms->per_us, at, PACE_PER_MAX_US) ||
        !read_number(&burst, at, STILE_PACE_COUNT_MAX))
        return false;
    terms->count = (uint32_t)count;
    terms->burst = (uint32_t)burst;
    return count > 0 && terms->per_us >= PACE_PER_MIN_US;
}

static bool read_ends(struct pace_history *h, const char *at)
{
    uint32_t most = h->terms.burst ? 1 : h->terms.count;
    for (h->n = 0; *at; h->n++) {
        if (h->n == most || !read_number(&h->ends[h->n], &at, TIME_MAX) ||
            (h->n > 0 && h->ends[h->n] < h->ends[h->n - 1]))
            return false;
    }
    return h->n > 0;
}

bool pace_read(struct pace_history *h, const char *text, size_t size)
{
    const char *at = text + strlen(FORM);
    char again[PACE_TEXT_MAX];
    if (size >= PACE_TEXT_MAX || strlen(text) != size || strncmp(text, FORM, strlen(FORM)) != 0)
        return false;
    return read_terms(&h->terms, &at) && read_number(&h->seen_us, &at, TIME_MAX) &&
           read_number(&h->ahead_us, &at, TIME_MAX) && read_ends(h, at) &&
           pace_write(again, h) == size && memcmp(again, text, size) == 0;
}
