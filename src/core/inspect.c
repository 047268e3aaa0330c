#include "core/inspect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/name.h"
#include "base/text.h"
#include "core/client.h"

/* A stile_info with everything it points to, in one allocation. */
struct result {
    struct result *next;
    struct stile_info info;
};

struct inspection {
    struct question q;
    struct result *first, **last;
    struct timer timer; /* watch: ends after this long without a change */
};

/* ---- a query ---- */

void question_init(struct question *q, struct stile_client *client, const char *name)
{
    *q = (struct question){
        .query = {.engine = client->engine, .core = q, .name = name, .name_len = strlen(name)}};
}

void inspect_done(struct query *query, const struct stile_error *err)
{
    struct question *q = query->core;
    error_copy(&q->error, err);
    q->ended = true;
    drive_done(&q->follower);
}

enum stile_status question_outcome(const struct question *q, struct stile_error *err)
{
    if (!q->error.status && q->out_of_memory)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    if (q->error.status && err)
        *err = q->error;
    return q->error.status;
}

/* ---- results ---- */

static size_t copy_size(const char *text)
{
    return text_size(text ? text : "");
}

static size_t result_size(const struct stile_info *info)
{
    size_t size = sizeof(struct result) + copy_size(info->name);
    for (size_t i = 0; i < info->holders + info->waiters; i++) {
        const struct stile_claim_info *c = &info->claims[i];
        size += sizeof *c + copy_size(c->host) + copy_size(c->command) + copy_size(c->owner) +
                copy_size(c->proclaimed);
    }
    return size;
}

/* Missing texts become "". */
static const char *copy_text(char **at, const char *text)
{
    return text_pack(at, text ? text : "");
}

static struct result *result_copy(const struct stile_info *info)
{
    size_t n = info->holders + info->waiters;
    struct result *a = malloc(result_size(info));
    if (!a)
        return NULL;
    struct stile_claim_info *claims = (struct stile_claim_info *)(a + 1);
    char *text = (char *)(claims + n);
    *a = (struct result){.info = *info};
    a->info.claims = claims;
    a->info.name = copy_text(&text, info->name);
    for (size_t i = 0; i < n; i++) {
        claims[i] = info->claims[i];
        claims[i].host = copy_text(&text, info->claims[i].host);
        claims[i].command = copy_text(&text, info->claims[i].command);
        claims[i].owner = copy_text(&text, info->claims[i].owner);
        claims[i].proclaimed = copy_text(&text, info->claims[i].proclaimed);
    }
    return a;
}

void inspect_info(struct query *query, const struct stile_info *info)
{
    struct inspection *inspection = query->core;
    struct result *a = result_copy(info);
    if (a) {
        *inspection->last = a;
        inspection->last = &a->next;
    }
    inspection->q.out_of_memory |= !a;
    if (inspection->timer.fn) /* watching: each change is handed out as it comes */
        drive_done(&inspection->q.follower);
}

static void watched_long_enough(struct timer *timer)
{
    struct inspection *inspection = container_of(timer, struct inspection, timer);
    error_set(&inspection->q.error, STILE_TIMEOUT, 0, "nothing has changed in that time");
    drive_done(&inspection->q.follower);
}

static void interrupt_watch(struct follower *follower)
{
    struct question *q = container_of(follower, struct question, follower);
    error_set(&q->error, STILE_CANCELLED, 0, "%s", stile_status_text(STILE_CANCELLED));
    drive_done(follower);
}

static void inspection_init(struct inspection *inspection, struct stile_client *client,
                            const char *name)
{
    *inspection = (struct inspection){.last = &inspection->first};
    question_init(&inspection->q, client, name);
}

/* Reports what has been collected, without the mutex. True: the callback asked to stop. */
static bool hand_out(struct inspection *inspection, struct stile_client *client, stile_info_fn *fn,
                     void *data)
{
    struct outside outside;
    struct result *a = inspection->first;
    bool stop = false;
    inspection->first = NULL;
    inspection->last = &inspection->first;
    client_step_out(client, &outside);
    for (struct result *next; a; a = next) {
        next = a->next;
        if (fn && !stop)
            stop = fn(&a->info, data) != 0;
        free(a);
    }
    client_step_in(client, &outside);
    return stop;
}

enum stile_status stile_list(struct stile_client *client, const char *prefix, stile_info_fn *fn,
                             void *data, struct stile_error *err)
{
    struct inspection inspection;
    prefix = prefix ? prefix : "";
    enum stile_status status = *prefix ? name_check(prefix, strlen(prefix), err) : STILE_OK;
    if (!status)
        status = client_enter_for_locks(client, err);
    if (status)
        return error_wrap(err, status, "listing locks");
    inspection_init(&inspection, client, prefix);
    client->engine->class->list(client->engine, &inspection.q.query);
    drive_until(client, &inspection.q.follower);
    hand_out(&inspection, client, fn, data);
    status = question_outcome(&inspection.q, err);
    client_leave(client);
    return status ? error_wrap(err, status, "listing locks") : STILE_OK;
}

static enum stile_status enter_named(struct stile_client *client, const char *name,
                                     struct stile_error *err)
{
    if (!name)
        return error_set(err, STILE_MISUSE, 0, "no name given");
    enum stile_status status = name_check(name, strlen(name), err);
    return status ? status : client_enter_for_locks(client, err);
}

enum stile_status stile_show(struct stile_client *client, const char *name, stile_info_fn *fn,
                             void *data, struct stile_error *err)
{
    struct inspection inspection;
    enum stile_status status = enter_named(client, name, err);
    if (status)
        return error_wrap(err, status, "showing a lock");
    inspection_init(&inspection, client, name);
    client->engine->class->show(client->engine, &inspection.q.query);
    drive_until(client, &inspection.q.follower);
    hand_out(&inspection, client, fn, data);
    status = question_outcome(&inspection.q, err);
    client_leave(client);
    return status ? error_wrap(err, status, "showing '%s'", name) : STILE_OK;
}

enum stile_status stile_break(struct stile_client *client, const char *name, uint64_t token,
                              struct stile_error *err)
{
    struct inspection inspection;
    enum stile_status status = enter_named(client, name, err);
    if (status)
        return error_wrap(err, status, "breaking a lock");
    inspection_init(&inspection, client, name);
    inspection.q.query.token = token;
    client->engine->class->break_(client->engine, &inspection.q.query);
    drive_until(client, &inspection.q.follower);
    status = question_outcome(&inspection.q, err);
    client_leave(client);
    return status ? error_wrap(err, status, "breaking '%s'", name) : STILE_OK;
}

/* Waits for the next change, the end, or the time. */
static void await_change(struct inspection *inspection, struct stile_client *client,
                         int64_t wait_ms)
{
    uint64_t until = wait_ms < 0 ? NEVER : client_after_ms(client, wait_ms);
    if (until != NEVER)
        loop_arm(client->loop, &inspection->timer, until);
    inspection->q.follower.done =
        inspection->q.ended || inspection->first || inspection->q.out_of_memory;
    drive_until(client, &inspection->q.follower);
    loop_disarm(client->loop, &inspection->timer);
}

static enum stile_status watch(struct stile_client *client, struct inspection *inspection,
                               int64_t wait_ms, stile_info_fn *fn, void *data,
                               struct stile_error *err)
{
    const struct engine_push *push = client->engine->class->push;
    bool enough = false;
    if (!push)
        return error_set(err, STILE_UNSUPPORTED, 0, "%s does not report changes",
                         client->engine->caps.engine);
    inspection->timer.fn = watched_long_enough;
    inspection->q.follower.interrupt = interrupt_watch;
    push->watch(client->engine, &inspection->q.query);
    while (!enough && !inspection->q.out_of_memory &&
           (inspection->first || (!inspection->q.ended && !inspection->q.error.status))) {
        await_change(inspection, client, wait_ms);
        if (inspection->first && inspection->q.error.status == STILE_TIMEOUT)
            inspection->q.error.status =
                STILE_OK; /* a change came together with the end of the time */
        enough = hand_out(inspection, client, fn, data);
    }
    if (!inspection->q.ended)
        push->unwatch(client->engine, &inspection->q.query);
    hand_out(inspection, client, NULL, NULL);
    return enough ? STILE_OK : question_outcome(&inspection->q, err);
}

enum stile_status stile_watch(struct stile_client *client, const char *name, int64_t wait_ms,
                              stile_info_fn *fn, void *data, struct stile_error *err)
{
    struct inspection inspection;
    if (!fn)
        return error_set(err, STILE_MISUSE, 0, "watching: no callback given");
    enum stile_status status = enter_named(client, name, err);
    if (status)
        return error_wrap(err, status, "watching a lock");
    if (loop_reserve(client->loop, 1)) {
        client_leave(client);
        return error_set(err, STILE_NOMEM, 0, "watching '%s': out of memory", name);
    }
    inspection_init(&inspection, client, name);
    status = watch(client, &inspection, wait_ms, fn, data, err);
    loop_unreserve(client->loop, 1);
    client_leave(client);
    return status ? error_wrap(err, status, "watching '%s'", name) : STILE_OK;
}
