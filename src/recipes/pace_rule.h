/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* When the next start of a pace may be: arithmetic, without an engine or a clock of its own. The
 * same rules are in engines/redis/scripts/pace.lua. */
#ifndef STILE_PACE_RULE_H
#define STILE_PACE_RULE_H

#include <stdbool.h>
#include <stddef.h>

#include "engines/engine.h"

#define PACE_PER_MIN_US INT64_C(10000)
#define PACE_PER_MAX_US (INT64_C(366) * 24 * 3600 * 1000000)
#define PACE_TEXT_MAX   (32 + (STILE_PACE_COUNT_MAX + 5) * 20)

/* What is stored of one pace. */
struct pace_history {
    struct pace_terms terms;
    int64_t seen_us;  /* the time of the latest reservation */
    int64_t ahead_us; /* times are so far ahead of the server's clock, which has gone back */
    uint32_t n;       /* of ends; 0: all that was reserved is long over */
    int64_t ends[STILE_PACE_COUNT_MAX]; /* when each reservation ends, oldest first, and none before
                                         * an older one. With a burst: only one, when the next
                                         * start is due if all are evenly spread */
};

/* Fills what the engine fills of the request. The history is to be stored if it is RESERVED. */
void pace_reserve(struct pace_history *history, struct pace_request *request, int64_t clock_us);
/* How long the history is of use. */
int64_t pace_lasts_us(const struct pace_history *history);

/* As it is stored in a cell. There is one way to write it, and no other is read. */
size_t pace_write(char text[PACE_TEXT_MAX], const struct pace_history *history);
bool pace_read(struct pace_history *history, const char *text, size_t size);

#endif
