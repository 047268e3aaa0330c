/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What is stored of a pace is read and written back as it was, or refused; and a start is reserved
 * behind it, whatever the clock says. A cell that holds a leader's value is read inside its bounds.
 */
#include "fuzz.h"
#include "recipes/elect_value.h"
#include "recipes/pace_rule.h"

#define CLOCK_BITS INT64_C(0x7ffffffffffff) /* microseconds: 71 years */

static void reserve(struct pace_history *history, const uint8_t *data, size_t size)
{
    char text[PACE_TEXT_MAX];
    int64_t clock_us = 0;
    struct pace_request request = {.terms = history->terms, .wait_us = PACE_PER_MAX_US};
    memcpy(&clock_us, data, size < sizeof clock_us ? size : sizeof clock_us);
    pace_reserve(history, &request, clock_us & CLOCK_BITS);
    if (request.outcome != PACE_RESERVED)
        return;
    struct pace_history again;
    MUST(history->n <= STILE_PACE_COUNT_MAX && pace_lasts_us(history) >= 0);
    MUST(pace_read(&again, text, pace_write(text, history)));
}

static void read_value(const char *text, size_t size)
{
    uint64_t token;
    struct stile_cell cell = {.value = text, .size = size};
    const char *value = elect_value_read(&token, &cell);
    MUST(!token || (value >= text && value <= text + size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pace_history history;
    char out[PACE_TEXT_MAX], *text = fuzz_string(data, size);
    if (pace_read(&history, text, size)) {
        MUST(pace_write(out, &history) == size && memcmp(out, text, size) == 0);
        reserve(&history, data, size);
    }
    read_value(text, size);
    free(text);
    return 0;
}
