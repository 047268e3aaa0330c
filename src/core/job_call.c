/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job_call.h"

#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/text.h"
#include "core/retry.h"

/* If the engine reports new jobs, this polling only finds those it has missed. */
#define REPORTED_ASK_NS     (10 * NS_PER_SEC)
#define UNREPORTED_FIRST_NS (20 * NS_PER_MS)
#define UNREPORTED_MAX_NS   NS_PER_SEC
#define DOWN_FIRST_NS       (100 * NS_PER_MS)
#define DUE_MIN_NS          (10 * NS_PER_MS)

static struct job_call *call_of(struct job_request *job)
{
    return container_of(job, struct job_call, job);
}

/* ---- copies ---- */

static bool copy_job(struct stile_job *to, const struct stile_job *from)
{
    size_t payload = from->payload ? from->payload_size : 0;
    char *text = malloc(payload + text_size(from->queue) + text_size(from->key) +
                        text_size(from->last_error) + text_size(from->host) + 1);
    if (!text)
        return false;
    *to = *from;
    to->memory = text;
    if (from->payload) {
        memcpy(text, from->payload, payload);
        to->payload = text;
        text += payload;
    }
    to->queue = text_pack(&text, from->queue);
    to->key = text_pack(&text, from->key);
    to->last_error = text_pack(&text, from->last_error);
    to->host = text_pack(&text, from->host);
    return true;
}

/* True: there is room for one more of so many bytes. */
static bool make_room(void **items, size_t n, size_t *room, size_t size)
{
    if (n < *room)
        return true;
    size_t more = *room ? *room * 2 : 8;
    void *grown = realloc(*items, more * size);
    if (!grown)
        return false;
    *items = grown;
    *room = more;
    return true;
}

void job_call_free_jobs(struct stile_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(jobs[i].memory);
    free(jobs);
}

void job_call_free_queues(struct stile_queue *queues, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free((char *)queues[i].name);
    free(queues);
}

/* ---- the end ---- */

static void deliver(struct callback *callback)
{
    struct job_call *call = container_of(callback, struct job_call, callback);
    call->answered(call);
}

static void finish(struct job_call *call, const struct stile_error *err)
{
    struct stile_client *client = call->client;
    error_copy(&call->error, err);
    if (!call->error.status && call->out_of_memory)
        error_set(&call->error, STILE_NOMEM, 0, "out of memory");
    loop_disarm(client->loop, &call->timer);
    *call->link = call->next;
    if (call->next)
        call->next->link = call->link;
    call->link = NULL;
    if (!call->answered) {
        drive_done(&call->follower);
        return;
    }
    call->callback.fn = deliver;
    callback_queue(client, &call->callback);
}

static void finish_with(struct job_call *call, enum stile_status status, const char *why)
{
    struct stile_error err;
    error_set(&err, status, 0, "%s", why);
    finish(call, &err);
}

/* ---- the end of a wait ---- */

static bool waits_for(const struct job_call *call, const char *queue)
{
    return call->job.verb == JOB_CLAIM && (!queue || strcmp(queue, call->job.queue) == 0);
}

/* A report that reached a client without a waiting claim would be lost for workers elsewhere: the
 * engine passes it on. */
static void pass_on(struct stile_client *client, const struct job_call *but, const char *queue)
{
    struct engine *engine = client->engine;
    for (struct job_call *call = client->job_calls; call; call = call->next)
        if (call != but && call->job.listen && waits_for(call, queue))
            return;
    if (engine->class->jobs->left)
        engine->class->jobs->left(engine, queue);
}

static void finish_claim(struct job_call *call, const struct stile_error *err)
{
    if (call->looks > 0 && call->job.listening)
        pass_on(call->client, call, call->job.queue);
    finish(call, err);
}

static void finish_claim_with(struct job_call *call, enum stile_status status, const char *why)
{
    struct stile_error err;
    error_set(&err, status, 0, "%s", why);
    finish_claim(call, &err);
}

/* ---- sending and repeating ---- */

static void ask(struct job_call *call)
{
    struct engine *engine = call->client->engine;
    call->asked = true;
    call->arrived = false;
    call->job.due_ms = -1;
    call->job.sent_ns = 0;
    memset(call->job.state, 0, sizeof call->job.state);
    engine->class->jobs->run(engine, &call->job);
}

static void finish_empty(struct job_call *call)
{
    finish_claim_with(call, STILE_TIMEOUT, "there was nothing to be claimed in that time");
}

static void look_again(struct timer *timer)
{
    struct job_call *call = container_of(timer, struct job_call, timer);
    if (call->until_ns > loop_now(call->client->loop))
        ask(call);
    else if (call->last.status)
        finish_claim(call, &call->last);
    else
        finish_empty(call);
}

static uint64_t at_most(uint64_t ns, uint64_t most)
{
    return ns < most ? ns : most;
}

/* How long until the request is repeated, unless the engine reports something earlier. */
static uint64_t pause_of(struct job_call *call)
{
    struct loop *loop = call->client->loop;
    uint64_t random = 0, pause = REPORTED_ASK_NS;
    unsigned doubles = call->looks < 8 ? call->looks : 8;
    /* A due job that could not be claimed is locked by another transaction, perhaps for long. The
     * engine does not report its end, and repeating at once would only keep the database busy. */
    bool locked = call->job.due_ms == 0;
    if (!call->job.listening || locked)
        pause = at_most(UNREPORTED_FIRST_NS << doubles, UNREPORTED_MAX_NS);
    loop_random(loop, &random, sizeof random);
    pause = pause / 2 + random % (pause / 2);
    if (call->job.due_ms > 0) {
        uint64_t due = at_most((uint64_t)call->job.due_ms, 60000) * NS_PER_MS;
        pause = at_most(pause, due > DUE_MIN_NS ? due : DUE_MIN_NS);
    }
    return pause;
}

static void wait(struct job_call *call, uint64_t pause)
{
    struct loop *loop = call->client->loop;
    uint64_t now = loop_now(loop), at = at_most(now + pause, call->until_ns);
    call->looks++;
    loop_arm(loop, &call->timer, at);
}

static bool passes(const struct stile_error *err)
{
    return err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
}

static void claim_answered(struct job_call *call, const struct stile_error *err)
{
    bool over = call->until_ns <= loop_now(call->client->loop);
    if (err && call->job.n > 0)
        over = true; /* whether the marks were acknowledged is not known: its owner decides */
    call->job.n = 0;
    error_copy(&call->last, err);
    if (call->n > 0 || call->out_of_memory || (err && (over || !passes(err))))
        finish_claim(call, err);
    else if (call->cancelled)
        finish_claim_with(call, STILE_CANCELLED, stile_status_text(STILE_CANCELLED));
    else if (over)
        finish_empty(call);
    else if (err)
        wait(call, retry_pause(call->client->loop, DOWN_FIRST_NS, call->looks));
    else if (call->arrived)
        ask(call);
    else
        wait(call, pause_of(call));
}

/* ---- what the engine reports ---- */

void job_call_job(struct job_request *job, const struct stile_job *given)
{
    struct job_call *call = call_of(job);
    struct stile_job copy;
    if (!make_room((void **)&call->jobs, call->n, &call->room, sizeof *call->jobs) ||
        !copy_job(&copy, given)) {
        call->out_of_memory = true;
        return;
    }
    if (job->verb == JOB_CLAIM)
        copy.deadline_ns = lease_deadline(job->sent_ns, (uint64_t)job->lease_ms * NS_PER_MS);
    call->jobs[call->n++] = copy;
}

void job_call_mark(struct job_request *job, uint64_t token)
{
    struct job_call *call = call_of(job);
    for (size_t i = 0; i < job->n; i++) {
        if (call->given[i].token != token)
            continue;
        call->given[i].status = STILE_OK;
        if (job->verb == JOB_EXTEND)
            call->given[i].deadline_ns =
                lease_deadline(job->sent_ns, (uint64_t)job->lease_ms * NS_PER_MS);
    }
}

void job_call_queue(struct job_request *job, const struct stile_queue *given)
{
    struct job_call *call = call_of(job);
    char *name = strdup(given->name);
    if (!name || !make_room((void **)&call->queues, call->n_queues, &call->room_queues,
                            sizeof *call->queues)) {
        free(name);
        call->out_of_memory = true;
        return;
    }
    call->queues[call->n_queues] = *given;
    call->queues[call->n_queues++].name = name;
}

void job_call_done(struct job_request *job, const struct stile_error *err)
{
    struct job_call *call = call_of(job);
    call->asked = false;
    if (job->verb == JOB_CLAIM)
        claim_answered(call, err);
    else
        finish(call, err);
}

void job_call_arrived(struct engine *engine, const char *queue)
{
    struct stile_client *client = engine->core;
    bool wanted = false;
    for (struct job_call *call = client->job_calls, *next; call; call = next) {
        next = call->next;
        if (!waits_for(call, queue))
            continue;
        wanted = wanted || (call->job.listen && !call->cancelled);
        call->arrived = true;
        call->looks = call->looks > 0;
        if (!call->asked)
            loop_arm(client->loop, &call->timer, loop_now(client->loop));
    }
    if (queue && !wanted)
        pass_on(client, NULL, queue);
}

/* ---- the beginning ---- */

void job_call_start(struct job_call *call, struct stile_client *client, int64_t wait_ms)
{
    call->client = client;
    call->job.engine = client->engine;
    call->timer.fn = look_again;
    call->until_ns = wait_ms == 0 ? 0 : wait_ms < 0 ? NEVER : client_after_ms(client, wait_ms);
    call->job.listen = wait_ms != 0;
    call->next = client->job_calls;
    call->link = &client->job_calls;
    if (call->next)
        call->next->link = &call->next;
    client->job_calls = call;
    ask(call);
}

static void cancel(struct job_call *call)
{
    call->cancelled = true;
    if (!call->asked)
        finish_claim_with(call, STILE_CANCELLED, stile_status_text(STILE_CANCELLED));
}

void job_call_cancel_all(struct stile_client *client)
{
    for (struct job_call *call = client->job_calls, *next; call; call = next) {
        next = call->next;
        cancel(call);
    }
}

void job_call_interrupt(struct follower *follower)
{
    cancel(container_of(follower, struct job_call, follower));
}

void job_call_abandon_all(struct stile_client *client)
{
    while (client->job_calls) {
        struct job_call *call = client->job_calls;
        finish_with(call, STILE_UNCERTAIN, "the client was closed before the engine had answered");
        callback_cancel(client, &call->callback);
        call->answered(call);
    }
}
