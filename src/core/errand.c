#include "core/errand.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "core/retry.h"
#include "mutant.h"

/* Where the engine tells what comes, looking is for what it may have missed. */
#define HEARING_LOOK_NS (10 * NS_PER_SEC)
#define DEAF_FIRST_NS   (20 * NS_PER_MS)
#define DEAF_LAST_NS    NS_PER_SEC
#define DOWN_FIRST_NS   (100 * NS_PER_MS)
#define DUE_MIN_NS      (10 * NS_PER_MS)

static struct errand *errand_of(struct job_errand *job)
{
    return (struct errand *)((char *)job - offsetof(struct errand, job));
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

void errand_free_jobs(struct stile_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(jobs[i].memory);
    free(jobs);
}

void errand_free_queues(struct stile_queue *queues, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free((char *)queues[i].name);
    free(queues);
}

/* ---- the end ---- */

static void deliver(struct note *note)
{
    struct errand *e = (struct errand *)((char *)note - offsetof(struct errand, note));
    e->answered(e);
}

static void finish(struct errand *e, const struct stile_error *err)
{
    struct stile_client *client = e->client;
    error_copy(&e->error, err);
    if (!e->error.status && e->out_of_memory)
        error_set(&e->error, STILE_NOMEM, 0, "out of memory");
    loop_disarm(client->loop, &e->timer);
    *e->link = e->next;
    if (e->next)
        e->next->link = e->link;
    e->link = NULL;
    if (!e->answered) {
        drive_done(&e->follower);
        return;
    }
    e->note.fn = deliver;
    client_note(client, &e->note);
}

static void finish_with(struct errand *e, enum stile_status status, const char *why)
{
    struct stile_error err;
    error_set(&err, status, 0, "%s", why);
    finish(e, &err);
}

/* ---- waiting no more ---- */

static bool waits_for(const struct errand *e, const char *queue)
{
    return e->job.verb == JOB_CLAIM && (!queue || strcmp(queue, e->job.queue) == 0);
}

/* What the engine told a client where nobody waits would be lost for those that wait elsewhere. */
static void leave(struct stile_client *client, const struct errand *but, const char *queue)
{
    struct engine *engine = client->engine;
    for (struct errand *e = client->errands; e; e = e->next)
        if (e != but && e->job.listen && waits_for(e, queue))
            return;
    if (engine->class->jobs->left)
        engine->class->jobs->left(engine, queue);
}

static void finish_claim(struct errand *e, const struct stile_error *err)
{
    if (e->looks > 0 && e->job.hearing)
        leave(e->client, e, e->job.queue);
    finish(e, err);
}

static void finish_claim_with(struct errand *e, enum stile_status status, const char *why)
{
    struct stile_error err;
    error_set(&err, status, 0, "%s", why);
    finish_claim(e, &err);
}

/* ---- asking, and asking again ---- */

static void ask(struct errand *e)
{
    struct engine *engine = e->client->engine;
    e->asked = true;
    e->stirred = false;
    e->job.due_ms = -1;
    e->job.sent_ns = 0;
    memset(e->job.state, 0, sizeof e->job.state);
    engine->class->jobs->run(engine, &e->job);
}

static void finish_in_vain(struct errand *e)
{
    finish_claim_with(e, STILE_TIMEOUT, "there was nothing to be claimed in that time");
}

static void look_again(struct timer *timer)
{
    struct errand *e = (struct errand *)((char *)timer - offsetof(struct errand, timer));
    if (e->until_ns > loop_now(e->client->loop))
        ask(e);
    else if (e->last.status)
        finish_claim(e, &e->last);
    else
        finish_in_vain(e);
}

static uint64_t at_most(uint64_t ns, uint64_t most)
{
    return ns < most ? ns : most;
}

/* How long until it is worth looking, if nothing is told before. */
static uint64_t pause_of(struct errand *e)
{
    struct loop *loop = e->client->loop;
    uint64_t random = 0, pause = HEARING_LOOK_NS;
    unsigned doubles = e->looks < 8 ? e->looks : 8;
    /* What is due and could not be claimed is locked by somebody, perhaps for long: nobody will
     * report the end of that, and asking at once again would keep the database busy for nothing. */
    bool locked = e->job.due_ms == 0;
    if (!e->job.hearing || locked)
        pause = at_most(DEAF_FIRST_NS << doubles, DEAF_LAST_NS);
    loop_random(loop, &random, sizeof random);
    pause = pause / 2 + random % (pause / 2);
    if (e->job.due_ms > 0) {
        uint64_t due = at_most((uint64_t)e->job.due_ms, 60000) * NS_PER_MS;
        pause = at_most(pause, due > DUE_MIN_NS ? due : DUE_MIN_NS);
    }
    return pause;
}

static void wait(struct errand *e, uint64_t pause)
{
    struct loop *loop = e->client->loop;
    uint64_t now = loop_now(loop), at = at_most(now + pause, e->until_ns);
    e->looks++;
    loop_arm(loop, &e->timer, at);
}

static bool passes(const struct stile_error *err)
{
    return err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
}

static void claim_answered(struct errand *e, const struct stile_error *err)
{
    bool over = e->until_ns <= loop_now(e->client->loop);
    if (err && e->job.n > 0)
        over = true; /* what was to be finished with it may be or not: that is for its owner */
    e->job.n = 0;
    error_copy(&e->last, err);
#ifdef MUTANT_CORE_STIR_MISSED
    e->stirred = false;
#endif
#ifdef MUTANT_CORE_CLAIM_DROPPED
    if (e->cancelled) {
        finish_with(e, STILE_CANCELLED, stile_status_text(STILE_CANCELLED));
        return;
    }
#endif
    if (e->n > 0 || e->out_of_memory || (err && (over || !passes(err))))
        finish_claim(e, err);
    else if (e->cancelled)
        finish_claim_with(e, STILE_CANCELLED, stile_status_text(STILE_CANCELLED));
    else if (over)
        finish_in_vain(e);
    else if (err)
        wait(e, retry_pause(e->client->loop, DOWN_FIRST_NS, e->looks));
    else if (e->stirred)
        ask(e);
    else
        wait(e, pause_of(e));
}

/* ---- what the engine tells ---- */

void errand_job(struct job_errand *job, const struct stile_job *told)
{
    struct errand *e = errand_of(job);
    struct stile_job copy;
    if (!make_room((void **)&e->jobs, e->n, &e->room, sizeof *e->jobs) || !copy_job(&copy, told)) {
        e->out_of_memory = true;
        return;
    }
#ifdef MUTANT_CORE_JOB_DEADLINE_LATE
    job->sent_ns = loop_now(e->client->loop);
#endif
    if (job->verb == JOB_CLAIM)
        copy.deadline_ns = keeper_deadline(job->sent_ns, (uint64_t)job->lease_ms * NS_PER_MS);
    e->jobs[e->n++] = copy;
}

void errand_mark(struct job_errand *job, uint64_t token)
{
    struct errand *e = errand_of(job);
    for (size_t i = 0; i < job->n; i++) {
        if (e->given[i].token != token)
            continue;
        e->given[i].status = STILE_OK;
        if (job->verb == JOB_EXTEND)
            e->given[i].deadline_ns =
                keeper_deadline(job->sent_ns, (uint64_t)job->lease_ms * NS_PER_MS);
    }
}

void errand_queue(struct job_errand *job, const struct stile_queue *told)
{
    struct errand *e = errand_of(job);
    char *name = strdup(told->name);
    if (!name || !make_room((void **)&e->queues, e->n_queues, &e->room_queues, sizeof *e->queues)) {
        free(name);
        e->out_of_memory = true;
        return;
    }
    e->queues[e->n_queues] = *told;
    e->queues[e->n_queues++].name = name;
}

void errand_done(struct job_errand *job, const struct stile_error *err)
{
    struct errand *e = errand_of(job);
    e->asked = false;
    if (job->verb == JOB_CLAIM)
        claim_answered(e, err);
    else
        finish(e, err);
}

void errand_stir(struct engine *engine, const char *queue)
{
    struct stile_client *client = engine->core;
    bool heard = false;
    for (struct errand *e = client->errands, *next; e; e = next) {
        next = e->next;
        if (!waits_for(e, queue))
            continue;
        heard = heard || (e->job.listen && !e->cancelled);
        e->stirred = true;
        e->looks = e->looks > 0;
        if (!e->asked)
            loop_arm(client->loop, &e->timer, loop_now(client->loop));
    }
    if (queue && !heard)
        leave(client, NULL, queue);
}

/* ---- the beginning ---- */

void errand_start(struct errand *e, struct stile_client *client, int64_t wait_ms)
{
    e->client = client;
    e->job.engine = client->engine;
    e->timer.fn = look_again;
    e->until_ns = wait_ms == 0 ? 0 : wait_ms < 0 ? NEVER : client_after_ms(client, wait_ms);
    e->job.listen = wait_ms != 0;
    e->next = client->errands;
    e->link = &client->errands;
    if (e->next)
        e->next->link = &e->next;
    client->errands = e;
    ask(e);
}

void errand_cancel_all(struct stile_client *client)
{
    for (struct errand *e = client->errands, *next; e; e = next) {
        next = e->next;
        e->cancelled = true;
        if (!e->asked)
            finish_claim_with(e, STILE_CANCELLED, stile_status_text(STILE_CANCELLED));
    }
}

void errand_abandon_all(struct stile_client *client)
{
    while (client->errands) {
        struct errand *e = client->errands;
        finish_with(e, STILE_UNCERTAIN, "the client was closed before the engine had answered");
        client_forget_note(client, &e->note);
        e->answered(e);
    }
}
