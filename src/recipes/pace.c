/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A start is reserved on the engine's clock and awaited on ours.
 *
 *     ASKING ──► (WRITING) ──► AWAITING ──► ENDED        (WRITING: engines without CELL_PACE)
 *       ▲  ◄── PAUSING ◄── others were faster, or no answer came
 *       └────────────────────────────── too late to start
 *
 * The engine read its clock between our sending and our receiving. So it is not yet past the
 * reservation's end at sent + (end - now), and surely past its start at received + (start - now):
 * between these two the call may start. A process that wakes up later must not start, because the
 * windows of others count on it; it reserves again. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/name.h"
#include "base/options.h"
#include "core/cancellable.h"
#include "core/cell_call.h"
#include "recipes/pace_rule.h"

#define KEY_STEM "pace:"
/* How late a start may be: a part of the window. */
#define TOLERANCE_PART     100
#define TRIPS_IN_TOLERANCE 2
/* How long the engine's answer may take, if the start is now and none has come before. */
#define ANSWER_PART     20 /* of the window */
#define ANSWER_NS       (100 * NS_PER_MS)
#define TRIPS_IN_ANSWER 3
/* Of both. */
#define LEAST_NS  NS_PER_MS
#define WIDEST_US (INT64_C(10) * 1000000) /* or the window */
#define TRIP_PART 40 /* of the window: the longest trip before this call that counts */

#define CALLER_PART     4 /* of the tolerance: from our return to what the caller does */
#define FASTER_FIRST_NS NS_PER_MS
#define FASTER_MAX_NS   (20 * NS_PER_MS)
#define FASTER_TRIES    500
#define DOWN_FIRST_NS   (100 * NS_PER_MS)
#define DOWN_MAX_NS     NS_PER_SEC
#define DOUBTS_MAX      3 /* without a wait: how often an answer may be lost */

static const struct options_kind kind = {
    .name = "pace options",
    .macro = "STILE_PACE_OPTIONS",
    .size = sizeof(struct stile_pace_options),
    .least = OPTIONS_UP_TO(struct stile_pace_options, tolerance_ms),
};

enum phase { ASKING, WRITING, PAUSING, AWAITING, ENDED };

/* What is read from a cell and written to it. */
struct exchange {
    struct pace_history history;
    uint64_t version;
    char text[PACE_TEXT_MAX];
};

struct pace {
    struct cell_call call;
    struct stile_client *client;
    struct timer timer; /* PAUSING, AWAITING */
    enum phase phase;
    bool cancelled; /* the engine is not asked again */
    struct pace_request ask;
    struct exchange *exchange; /* NULL: the engine has CELL_PACE */
    int64_t wait_ms;
    uint64_t began_ns, deadline_ns; /* NEVER: it waits forever */
    uint64_t sent_ns, received_ns;  /* of the request that read the engine's clock */
    uint64_t until_ns;              /* when it must have started */
    uint64_t spare_ns;              /* what the caller needs of this */
    unsigned faster, failures;
    struct stile_pace_start start;
    struct stile_error error; /* its outcome */
    struct follower follower; /* of a blocking call */

    /* async */
    struct cancellable cancellable;
    struct callback callback;
    stile_pace_fn *done; /* NULL: it blocks */
    void *data;

    char key[STILE_NAME_MAX + 1]; /* KEY_STEM, and the name */
};

static const char *name_of(const struct pace *pace)
{
    return pace->key + strlen(KEY_STEM);
}

/* ---- the end ---- */

/* The outcome is in pace->error. */
static void end(struct pace *pace)
{
    loop_disarm(pace->client->loop, &pace->timer);
    pace->phase = ENDED;
    if (pace->done)
        callback_queue(pace->client, &pace->callback);
    else
        drive_done(&pace->follower);
}

static void end_cancelled(struct pace *pace)
{
    error_set(&pace->error, STILE_CANCELLED, 0, "%s", stile_status_text(STILE_CANCELLED));
    end(pace);
}

/* What the engine was asked can't be taken back: its answer ends the call. */
static void cancel(struct pace *pace)
{
    pace->cancelled = true;
    if (pace->phase == PAUSING || pace->phase == AWAITING)
        end_cancelled(pace);
}

/* ---- when to start ---- */

/* At least so much of both. */
static void widen(struct pace *pace, uint64_t tolerance_ns, uint64_t answer_ns)
{
    struct pace_request *ask = &pace->ask;
    int64_t limit = ask->terms.per_us > WIDEST_US ? ask->terms.per_us : WIDEST_US;
    int64_t tolerance = (int64_t)(tolerance_ns / 1000), answer = (int64_t)(answer_ns / 1000);
    tolerance = tolerance < limit ? tolerance : limit;
    answer = answer < limit ? answer : limit;
    ask->tolerance_us = tolerance > ask->tolerance_us ? tolerance : ask->tolerance_us;
    ask->answer_us = answer > ask->answer_us ? answer : ask->answer_us;
}

/* After a trip to the engine that took this long. */
static void widen_for(struct pace *pace, uint64_t trip_ns)
{
    widen(pace, TRIPS_IN_TOLERANCE * trip_ns, TRIPS_IN_ANSWER * trip_ns);
}

static void widen_twice(struct pace *pace)
{
    widen(pace, 2000 * (uint64_t)pace->ask.tolerance_us, 2000 * (uint64_t)pace->ask.answer_us);
}

static bool is_late(const struct pace *pace)
{
    return loop_now(pace->client->loop) + pace->spare_ns > pace->until_ns;
}

static void arm(struct pace *pace, enum phase phase, uint64_t at_ns)
{
    pace->phase = phase;
    loop_arm(pace->client->loop, &pace->timer, at_ns);
}

static void await_start(struct pace *pace)
{
    const struct pace_request *ask = &pace->ask;
    pace->client->pace_answer_ns = loop_now(pace->client->loop) - pace->sent_ns;
    uint64_t delay_ns = (uint64_t)(ask->start_us - ask->now_us) * 1000;
    uint64_t from_ns = pace->received_ns + delay_ns;
    pace->until_ns = pace->sent_ns + (uint64_t)(ask->end_us - ask->now_us) * 1000;
    pace->spare_ns = (uint64_t)(ask->end_us - ask->start_us) * 1000 / CALLER_PART;
    if (from_ns <= loop_now(pace->client->loop))
        end(pace);
    else
        arm(pace, AWAITING, from_ns);
}

static void refuse_far(struct pace *pace)
{
    double seconds = (double)pace->start.delay_ms / 1000;
    error_set(&pace->error, pace->wait_ms == 0 ? STILE_HELD : STILE_TIMEOUT, 0,
              "the next start is in %.10g s", seconds);
    end(pace);
}

static void refuse_terms(struct pace *pace)
{
    const struct pace_terms *used = &pace->ask.used;
    char burst[40] = "";
    if (used->burst)
        snprintf(burst, sizeof burst, " and a burst of %" PRIu32, used->burst);
    error_set(&pace->error, STILE_CONFLICT, 0,
              "it is used with the rate %" PRIu32 "/%.10gs%s: give the same, or change it when no "
              "start is pending, in %.10g s at the earliest",
              used->count, (double)used->per_us / 1e6, burst, (double)pace->start.delay_ms / 1000);
    end(pace);
}

static void judge(struct pace *pace)
{
    const struct pace_request *ask = &pace->ask;
    pace->start.delay_ms = (ask->start_us - ask->now_us + 999) / 1000;
    if (ask->outcome == PACE_RESERVED)
        await_start(pace);
    else if (ask->outcome == PACE_FAR)
        refuse_far(pace);
    else
        refuse_terms(pace);
}

/* ---- asking ---- */

static void on_answer(struct cell_call *call);
static void on_abandoned(struct cell_call *call);

static void ask_engine(struct pace *pace, const struct cell_request *request)
{
    pace->call =
        (struct cell_call){.cell = *request, .answered = on_answer, .abandoned = on_abandoned};
    pace->call.cell.key_len = strlen(request->key);
    pace->call.cell.issuer = "";
    cell_call_start(&pace->call, pace->client);
}

static int64_t wait_left_us(const struct pace *pace)
{
    uint64_t now = loop_now(pace->client->loop);
    if (pace->deadline_ns <= now)
        return 0;
    uint64_t left = (pace->deadline_ns - now) / 1000;
    return left < (uint64_t)PACE_PER_MAX_US ? (int64_t)left : PACE_PER_MAX_US;
}

static void ask(struct pace *pace)
{
    pace->phase = ASKING;
    pace->ask.wait_us = wait_left_us(pace);
    pace->sent_ns = loop_now(pace->client->loop);
    if (pace->exchange)
        ask_engine(pace, &(struct cell_request){.verb = CELL_GET, .key = pace->key, .clock = true});
    else
        ask_engine(pace, &(struct cell_request){
                             .verb = CELL_PACE, .key = name_of(pace), .pace = &pace->ask});
}

static void on_timer(struct timer *timer)
{
    struct pace *pace = container_of(timer, struct pace, timer);
    if (pace->phase == AWAITING)
        end(pace);
    else
        ask(pace);
}

/* ---- answers ---- */

static void write_back(struct pace *pace)
{
    struct exchange *exchange = pace->exchange;
    bool keeps = pace->client->engine->caps.keeps;
    uint64_t keep_ns = (uint64_t)pace_lasts_us(&exchange->history) * 1000;
    pace->phase = WRITING;
    ask_engine(pace, &(struct cell_request){.verb = CELL_PUT,
                                            .key = pace->key,
                                            .value = exchange->text,
                                            .size = pace_write(exchange->text, &exchange->history),
                                            .if_version = exchange->version,
                                            .keep_ns = keeps ? keep_ns : 0});
}

/* False: the cell holds something else. */
static bool read_cell(struct exchange *exchange, const struct stile_cell *cell)
{
    exchange->history.n = 0;
    exchange->version = cell->version;
    return cell->version == 0 || pace_read(&exchange->history, cell->value, cell->size);
}

static void take_cell(struct pace *pace)
{
    const struct stile_cell *cell = &pace->call.cells[0];
    bool sound = cell->time_us > 0 && read_cell(pace->exchange, cell);
    int64_t clock_us = cell->time_us;
    cell_call_free_cells(&pace->call);
    if (!sound) {
        error_set(&pace->error, STILE_CORRUPT, 0,
                  "the cell %s holds something else, or is damaged: remove it (stile cell rm)",
                  pace->key);
        end(pace);
        return;
    }
    pace_reserve(&pace->exchange->history, &pace->ask, clock_us);
    if (pace->ask.outcome == PACE_RESERVED)
        write_back(pace);
    else
        judge(pace);
}

/* The next reservation has room for a trip that takes as long. */
static void note_trip(struct pace *pace)
{
    uint64_t unit_ns = (uint64_t)pace->client->engine->class->cells->clock_unit_us * 1000;
    uint64_t now_ns = loop_now(pace->client->loop);
    pace->received_ns = now_ns + unit_ns; /* its clock may only now be where it was rounded to */
    pace->client->pace_trip_ns = now_ns - pace->sent_ns;
    widen_for(pace, pace->client->pace_trip_ns + unit_ns);
}

static void fail(struct pace *pace, const struct stile_error *err)
{
    pace->error = *err;
    /* Nothing was started, so nothing is in doubt. */
    if (pace->error.status == STILE_UNCERTAIN)
        pace->error.status = STILE_UNREACHABLE;
    end(pace);
}

static void pause_for(struct pace *pace, uint64_t first_ns, uint64_t max_ns, unsigned tried)
{
    struct loop *loop = pace->client->loop;
    arm(pace, PAUSING, loop_now(loop) + loop_backoff(loop, first_ns, max_ns, tried));
}

static bool may_pass(const struct pace *pace, enum stile_status status)
{
    bool doubt = status == STILE_UNCERTAIN;
    if (doubt && pace->failures < DOUBTS_MAX)
        return true;
    return (doubt || status == STILE_UNREACHABLE) && wait_left_us(pace) > 0;
}

static void take_failure(struct pace *pace, const struct stile_error *err)
{
    if (err->status == STILE_CONFLICT && pace->phase == WRITING && pace->faster < FASTER_TRIES)
        pause_for(pace, FASTER_FIRST_NS, FASTER_MAX_NS, pace->faster++);
    else if (may_pass(pace, err->status))
        pause_for(pace, DOWN_FIRST_NS, DOWN_MAX_NS, pace->failures++);
    else
        fail(pace, err);
}

static void on_answer(struct cell_call *call)
{
    struct pace *pace = container_of(call, struct pace, call);
    struct stile_error err = call->error;
    if (pace->cancelled || err.status || pace->phase == WRITING || !pace->exchange)
        cell_call_free_cells(call);
    if (pace->phase == ASKING && !err.status)
        note_trip(pace);
    if (pace->cancelled)
        end_cancelled(pace);
    else if (err.status)
        take_failure(pace, &err);
    else if (pace->phase == ASKING && pace->exchange)
        take_cell(pace);
    else
        judge(pace);
}

/* ---- beginning ---- */

static enum stile_status check_options(const struct stile_pace_options *o, struct stile_error *err)
{
    if (o->count < 1 || o->count > STILE_PACE_COUNT_MAX)
        return error_set(err, STILE_MISUSE, 0,
                         "a rate has 1 to %d starts, not %" PRIu32
                         ": for more, give a shorter time",
                         STILE_PACE_COUNT_MAX, o->count);
    if (o->per_ms < PACE_PER_MIN_US / 1000 || o->per_ms > PACE_PER_MAX_US / 1000)
        return error_set(err, STILE_MISUSE, 0, "the time of a rate is 10 ms to 366 days");
    if (o->burst > STILE_PACE_COUNT_MAX ||
        o->burst * (o->per_ms / o->count) > PACE_PER_MAX_US / 1000)
        return error_set(err, STILE_MISUSE, 0,
                         "a burst is at most %d starts, and as many as are due in 366 days",
                         STILE_PACE_COUNT_MAX);
    if (o->tolerance_ms < 0 || o->tolerance_ms > PACE_PER_MAX_US / 1000)
        return error_set(err, STILE_MISUSE, 0, "the tolerance is 0 to 366 days");
    return STILE_OK;
}

static enum stile_status check_name(const char *name, struct stile_error *err)
{
    if (!name)
        return error_set(err, STILE_MISUSE, 0, "no name given");
    if (strlen(name) > STILE_PACE_NAME_MAX)
        return error_set(err, STILE_MISUSE, 0, "the name has %zu bytes, %d is the limit",
                         strlen(name), STILE_PACE_NAME_MAX);
    return name_check(name, strlen(name), err);
}

static enum stile_status check_engine(const struct engine *engine, struct stile_error *err)
{
    if (engine->class->cells && engine->class->caps.paces)
        return STILE_OK;
    return error_set(err, STILE_UNSUPPORTED, 0,
                     "%s has no clock that its clients could go by: use redis, postgres, mysql, "
                     "zookeeper or local (stile caps URL prints it)",
                     engine->caps.engine);
}

/* The timer and the memory that it needs. */
static enum stile_status equip(struct pace *pace, struct stile_client *client,
                               struct stile_error *err)
{
    bool whole = client->engine->class->cells->paces;
    pace->exchange = whole ? NULL : malloc(sizeof *pace->exchange);
    if ((whole || pace->exchange) && !loop_reserve(client->loop, 1))
        return STILE_OK;
    free(pace->exchange);
    return error_set(err, STILE_NOMEM, 0, "out of memory");
}

static void strip(struct pace *pace)
{
    loop_unreserve(pace->client->loop, 1);
    free(pace->exchange);
}

/* A trip that took long once may have been an accident: it would delay all callers. */
static void set_tolerance(struct pace *pace, const struct stile_pace_options *o)
{
    uint64_t per_ns = (uint64_t)o->per_ms * NS_PER_MS;
    uint64_t most_ns = per_ns / TRIP_PART;
    uint64_t trip_ns = pace->client->pace_trip_ns, answer_ns = pace->client->pace_answer_ns;
    uint64_t unknown_ns = per_ns / ANSWER_PART < ANSWER_NS ? per_ns / ANSWER_PART : ANSWER_NS;
    widen(pace, o->tolerance_ms ? (uint64_t)o->tolerance_ms * NS_PER_MS : per_ns / TOLERANCE_PART,
          answer_ns ? 0 : unknown_ns);
    widen(pace, LEAST_NS, LEAST_NS);
    widen(pace, TRIPS_IN_TOLERANCE * (trip_ns < most_ns ? trip_ns : most_ns),
          TRIPS_IN_ANSWER * (answer_ns < most_ns ? answer_ns : most_ns));
}

/* Checks all, and enters the client. */
static enum stile_status enter(struct pace *pace, struct stile_client *client, const char *name,
                               const struct stile_pace_options *options, struct stile_error *err)
{
    struct stile_pace_options o;
    enum stile_status status = options_read(&o, options, &kind, err);
    if (!status)
        status = check_options(&o, err);
    if (!status)
        status = check_name(name, err);
    if (!status)
        status = client_enter_for_locks(client, err);
    if (status)
        return status;
    status = check_engine(client->engine, err);
    if (!status)
        status = equip(pace, client, err);
    if (status) {
        client_leave(client);
        return status;
    }
    pace->client = client;
    pace->ask.terms = (struct pace_terms){o.count, o.burst, o.per_ms * 1000};
    strcpy(stpcpy(pace->key, KEY_STEM), name);
    pace->timer.fn = on_timer;
    set_tolerance(pace, &o);
    return STILE_OK;
}

static void begin(struct pace *pace, int64_t wait_ms)
{
    pace->wait_ms = wait_ms;
    pace->began_ns = loop_now(pace->client->loop);
    pace->deadline_ns = wait_ms < 0 ? NEVER : client_after_ms(pace->client, wait_ms);
    ask(pace);
}

/* Whether this is the end: a start that is late is not one. */
static bool has_ended(struct pace *pace)
{
    while (pace->phase == ENDED && !pace->error.status && is_late(pace)) {
        if (pace->cancelled) {
            end_cancelled(pace);
        } else {
            widen_twice(pace);
            ask(pace);
        }
    }
    return pace->phase == ENDED;
}

static void conclude(struct pace *pace)
{
    if (pace->error.status) {
        error_wrap(&pace->error, pace->error.status, "pacing '%s'", name_of(pace));
        return;
    }
    pace->start.delay_ms = (int64_t)((loop_now(pace->client->loop) - pace->began_ns) / NS_PER_MS);
    pace->start.until_ns = pace->until_ns;
}

/* ---- blocking ---- */

static void interrupt(struct follower *follower)
{
    cancel(container_of(follower, struct pace, follower));
}

enum stile_status stile_pace(struct stile_pace_start *start, struct stile_client *client,
                             const char *name, const struct stile_pace_options *options,
                             int64_t wait_ms, struct stile_error *err)
{
    struct pace pace = {.follower.interrupt = interrupt};
    enum stile_status status = enter(&pace, client, name, options, err);
    if (status)
        return error_wrap(err, status, "pacing");
    begin(&pace, wait_ms);
    while (!has_ended(&pace)) {
        pace.follower.done = false;
        drive_until(client, &pace.follower);
    }
    conclude(&pace);
    strip(&pace);
    client_leave(client);
    if (start)
        *start = pace.start;
    if (pace.error.status && err)
        *err = pace.error;
    return pace.error.status;
}

/* ---- async ---- */

static void report(struct pace *pace)
{
    enum stile_status status = pace->error.status;
    conclude(pace);
    pace->done(&pace->start, status, status ? &pace->error : NULL, pace->data);
    free(pace);
}

static void deliver(struct callback *callback)
{
    struct pace *pace = container_of(callback, struct pace, callback);
    struct stile_client *client = pace->client;
    pthread_mutex_lock(&client->mutex);
    bool ended = has_ended(pace);
    if (ended) {
        callback_cancel(client, callback); /* it may have ended again inside has_ended() */
        cancellable_remove(&pace->cancellable);
        strip(pace);
    }
    pthread_mutex_unlock(&client->mutex);
    if (ended)
        report(pace);
}

/* The client was closed before the engine had answered. */
static void on_abandoned(struct cell_call *call)
{
    struct pace *pace = container_of(call, struct pace, call);
    error_set(&pace->error, STILE_CANCELLED, 0, "%s", stile_status_text(STILE_CANCELLED));
    cell_call_free_cells(call);
    cancellable_remove(&pace->cancellable);
    strip(pace);
    report(pace);
}

static void cancel_async(struct cancellable *cancellable)
{
    cancel(container_of(cancellable, struct pace, cancellable));
}

enum stile_status stile_pace_async(uint64_t *number, struct stile_client *client, const char *name,
                                   const struct stile_pace_options *options, int64_t wait_ms,
                                   stile_pace_fn *done, void *data)
{
    struct pace *pace = done ? calloc(1, sizeof *pace) : NULL;
    if (!pace)
        return done ? STILE_NOMEM : STILE_MISUSE;
    enum stile_status status = enter(pace, client, name, options, NULL);
    if (status) {
        free(pace);
        return status;
    }
    pace->done = done;
    pace->data = data;
    pace->callback.fn = deliver;
    pace->cancellable.cancel = cancel_async;
    cancellable_add(client, &pace->cancellable);
    if (number)
        *number = pace->cancellable.number;
    begin(pace, wait_ms);
    client_leave(client);
    return STILE_OK;
}

enum stile_status stile_pace_cancel(struct stile_client *client, uint64_t number)
{
    enum stile_status status = client_enter(client, NULL);
    if (status)
        return status;
    cancellable_cancel(client, number);
    client_leave(client);
    return STILE_OK;
}
