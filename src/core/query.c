#include "core/query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "core/client.h"

/* A stile_info with everything it points to, in one allocation. */
struct answer {
    struct answer *next;
    struct stile_info info;
};

struct asking {
    struct question q;
    struct answer *first, **last;
    struct timer timer; /* watch: nothing has changed for so long */
};

/* ---- a question ---- */

void question_put(struct question *q, struct stile_client *client, const char *name)
{
    *q = (struct question){
        .query = {.engine = client->engine, .core = q, .name = name, .name_len = strlen(name)}};
}

void query_done(struct query *query, const struct stile_error *err)
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

/* ---- what is told of names ---- */

static size_t text_size(const char *text)
{
    return text ? strlen(text) + 1 : 1;
}

static size_t answer_size(const struct stile_info *info)
{
    size_t size = sizeof(struct answer) + text_size(info->name);
    for (size_t i = 0; i < info->holders + info->waiters; i++) {
        const struct stile_claim_info *c = &info->claims[i];
        size += sizeof *c + text_size(c->host) + text_size(c->command) + text_size(c->owner) +
                text_size(c->proclaimed);
    }
    return size;
}

static const char *copy_text(char **at, const char *text)
{
    char *copy = *at;
    size_t size = text_size(text);
    memcpy(copy, text ? text : "", size);
    *at += size;
    return copy;
}

static struct answer *answer_copy(const struct stile_info *info)
{
    size_t n = info->holders + info->waiters;
    struct answer *a = malloc(answer_size(info));
    if (!a)
        return NULL;
    struct stile_claim_info *claims = (struct stile_claim_info *)(a + 1);
    char *text = (char *)(claims + n);
    *a = (struct answer){.info = *info};
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

void query_info(struct query *query, const struct stile_info *info)
{
    struct asking *asking = query->core;
    struct answer *a = answer_copy(info);
    if (a) {
        *asking->last = a;
        asking->last = &a->next;
    }
    asking->q.out_of_memory |= !a;
    if (asking->timer.fn) /* watching: each change is handed out as it comes */
        drive_done(&asking->q.follower);
}

static void watched_long_enough(struct timer *timer)
{
    struct asking *asking = (struct asking *)((char *)timer - offsetof(struct asking, timer));
    error_set(&asking->q.error, STILE_TIMEOUT, 0, "nothing has changed in that time");
    drive_done(&asking->q.follower);
}

static void ask(struct asking *asking, struct stile_client *client, const char *name)
{
    *asking = (struct asking){.last = &asking->first};
    question_put(&asking->q, client, name);
}

/* Hands out what has been collected, without the mutex. True: the user has seen enough. */
static bool hand_out(struct asking *asking, struct stile_client *client, stile_info_fn *fn,
                     void *data)
{
    struct answer *a = asking->first;
    bool stop = false;
    asking->first = NULL;
    asking->last = &asking->first;
    pthread_mutex_unlock(&client->mutex);
    for (struct answer *next; a; a = next) {
        next = a->next;
        if (fn && !stop)
            stop = fn(&a->info, data) != 0;
        free(a);
    }
    pthread_mutex_lock(&client->mutex);
    return stop;
}

enum stile_status stile_list(struct stile_client *client, const char *prefix, stile_info_fn *fn,
                             void *data, struct stile_error *err)
{
    struct asking asking;
    prefix = prefix ? prefix : "";
    enum stile_status status = *prefix ? name_check(prefix, strlen(prefix), err) : STILE_OK;
    if (!status)
        status = client_enter_for_locks(client, err);
    if (status)
        return error_wrap(err, status, "listing locks");
    ask(&asking, client, prefix);
    client->engine->class->list(client->engine, &asking.q.query);
    drive_until(client, &asking.q.follower);
    hand_out(&asking, client, fn, data);
    status = question_outcome(&asking.q, err);
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
    struct asking asking;
    enum stile_status status = enter_named(client, name, err);
    if (status)
        return error_wrap(err, status, "showing a lock");
    ask(&asking, client, name);
    client->engine->class->show(client->engine, &asking.q.query);
    drive_until(client, &asking.q.follower);
    hand_out(&asking, client, fn, data);
    status = question_outcome(&asking.q, err);
    client_leave(client);
    return status ? error_wrap(err, status, "showing '%s'", name) : STILE_OK;
}

enum stile_status stile_break(struct stile_client *client, const char *name, uint64_t token,
                              struct stile_error *err)
{
    struct asking asking;
    enum stile_status status = enter_named(client, name, err);
    if (status)
        return error_wrap(err, status, "breaking a lock");
    ask(&asking, client, name);
    asking.q.query.token = token;
    client->engine->class->break_(client->engine, &asking.q.query);
    drive_until(client, &asking.q.follower);
    status = question_outcome(&asking.q, err);
    client_leave(client);
    return status ? error_wrap(err, status, "breaking '%s'", name) : STILE_OK;
}

/* Waits for the next change, the end, or the time. */
static void await_change(struct asking *asking, struct stile_client *client, int64_t wait_ms)
{
    uint64_t until = wait_ms < 0 ? NEVER : client_after_ms(client, wait_ms);
    if (until != NEVER)
        loop_arm(client->loop, &asking->timer, until);
    asking->q.follower.done = asking->q.ended || asking->first || asking->q.out_of_memory;
    drive_until(client, &asking->q.follower);
    loop_disarm(client->loop, &asking->timer);
}

static enum stile_status watch(struct stile_client *client, struct asking *asking, int64_t wait_ms,
                               stile_info_fn *fn, void *data, struct stile_error *err)
{
    const struct engine_push *push = client->engine->class->push;
    bool enough = false;
    if (!push)
        return error_set(err, STILE_UNSUPPORTED, 0, "%s does not report changes",
                         client->engine->caps.engine);
    asking->timer.fn = watched_long_enough;
    push->watch(client->engine, &asking->q.query);
    while (!enough && !asking->q.out_of_memory &&
           (asking->first || (!asking->q.ended && !asking->q.error.status))) {
        await_change(asking, client, wait_ms);
        if (asking->first && asking->q.error.status == STILE_TIMEOUT)
            asking->q.error.status = STILE_OK; /* a change came together with the end of the time */
        enough = hand_out(asking, client, fn, data);
    }
    if (!asking->q.ended)
        push->unwatch(client->engine, &asking->q.query);
    hand_out(asking, client, NULL, NULL);
    return enough ? STILE_OK : question_outcome(&asking->q, err);
}

enum stile_status stile_watch(struct stile_client *client, const char *name, int64_t wait_ms,
                              stile_info_fn *fn, void *data, struct stile_error *err)
{
    struct asking asking;
    if (!fn)
        return error_set(err, STILE_MISUSE, 0, "watching: no callback given");
    enum stile_status status = enter_named(client, name, err);
    if (status)
        return error_wrap(err, status, "watching a lock");
    if (loop_reserve(client->loop, 1)) {
        client_leave(client);
        return error_set(err, STILE_NOMEM, 0, "watching '%s': out of memory", name);
    }
    ask(&asking, client, name);
    status = watch(client, &asking, wait_ms, fn, data, err);
    loop_unreserve(client->loop, 1);
    client_leave(client);
    return status ? error_wrap(err, status, "watching '%s'", name) : STILE_OK;
}
