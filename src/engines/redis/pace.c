/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Starts at a rate: stile:pace:{NAME} holds the latest reservations, and one script reads the
 * server's clock and adds the next one. */
#include <inttypes.h>
#include <stdio.h>

#include "engines/redis/errors.h"
#include "engines/redis/redis.h"

#define PACE_ARGS 6

/* Later times would not have come from the script. */
#define TIME_MAX_US (INT64_C(1) << 53)

static void end(struct cell_request *request, const struct stile_error *err)
{
    struct stile_error why;
    if (err && err->native == REDIS_ERROR_WRONG_TYPE) {
        error_set(&why, STILE_REFUSED, err->native,
                  "the key " PACE_STEM "{...} holds something else: another program uses it");
        err = &why;
    }
    request->engine->events->cell_done(request, err);
}

static bool is_time(const redisReply *reply, size_t i)
{
    return is_number(element_at(reply, i)) && number_at(reply, i) > 0 &&
           number_at(reply, i) <= TIME_MAX_US;
}

static bool take_terms(struct pace_terms *terms, const char *text)
{
    return text && sscanf(text, "%" SCNu32 " %" SCNd64 " %" SCNu32, &terms->count, &terms->per_us,
                          &terms->burst) == 3;
}

/* {outcome, now, start, terms} */
static bool take(struct pace_request *pace, const redisReply *reply)
{
    static const enum pace_outcome outcomes[] = {PACE_RESERVED, PACE_FAR, PACE_OTHER_TERMS};
    long long outcome = number_at(reply, 0);
    if (!is_array(reply, 3) || outcome < 0 || outcome > 2 || !is_time(reply, 1) ||
        !is_time(reply, 2) || number_at(reply, 2) < number_at(reply, 1))
        return false;
    pace->outcome = outcomes[outcome];
    pace->now_us = number_at(reply, 1);
    pace->start_us = number_at(reply, 2);
    pace->end_us = pace->start_us + pace->tolerance_us;
    if (pace->end_us < pace->now_us + pace->answer_us)
        pace->end_us = pace->now_us + pace->answer_us;
    return outcome != 2 || take_terms(&pace->used, text_at(reply, 3));
}

static void on_answer(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct cell_request *request = data;
    struct stile_error why;
    if (!err && !take(request->pace, reply)) {
        error_set(
            &why, STILE_CORRUPT, 0,
            "the server's answer has an unexpected form, or the pace is damaged: HGETALL " PACE_STEM
            "{...} shows it, DEL starts it anew");
        err = &why;
    }
    end(request, err);
}

void redis_pace(struct cell_request *request)
{
    const struct pace_request *pace = request->pace;
    uint64_t numbers[PACE_ARGS] = {pace->terms.count,         (uint64_t)pace->terms.per_us,
                                   pace->terms.burst,         (uint64_t)pace->tolerance_us,
                                   (uint64_t)pace->answer_us, (uint64_t)pace->wait_us};
    struct conn_arg args[1 + PACE_ARGS];
    char room[RESOURCE_ROOM], texts[PACE_ARGS][NUMBER_MAX];
    struct stile_error err;
    redis_key_of_resource(&args[0], room, PACE_STEM, request->key, request->key_len);
    for (size_t i = 0; i < PACE_ARGS; i++) {
        redis_number_write(texts[i], numbers[i]);
        args[1 + i] = CONN_TEXT(texts[i]);
    }
    if (redis_node_eval(redis_route_to_key(redis_of(request->engine), args), &redis_script_pace,
                        args, 1, 1 + PACE_ARGS, on_answer, request, &err))
        end(request, &err);
}
