/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Installs the guard: FUNCTION LOAD REPLACE on every primary. Replicas get it from those. No client
 * is open, so this is an engine of its own, with a loop that only it drives. Every step ends within
 * a bounded time: opening as for any client, a request as for any connection. */
#include <unistd.h>

#include "engines/redis/errors.h"
#include "engines/redis/guard/texts.h"
#include "engines/redis/redis.h"

struct installation {
    struct redis redis; /* the first member */
    bool answered;
    struct stile_error error; /* status OK unless it failed */
};

static void answer(struct installation *in, const struct stile_error *err)
{
    in->answered = true;
    error_copy(&in->error, err);
}

static enum stile_status await(struct installation *in)
{
    struct loop *loop = in->redis.engine.loop;
    while (!in->answered) {
        loop_prepare(loop);
        loop_wait(loop, true);
        loop_run(loop);
    }
    return in->error.status;
}

static void on_opened(struct engine *engine, const struct stile_error *err)
{
    answer((struct installation *)redis_of(engine), err);
}

static void on_loaded(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct stile_error why;
    (void)reply;
    if (err && err->native == REDIS_ERROR_UNKNOWN_COMMAND) {
        error_set(&why, STILE_UNSUPPORTED, err->native,
                  "the server has no functions, which came with Redis 7: use the scripts instead "
                  "(stile guard lua --script NAME)");
        err = &why;
    }
    answer(data, err);
}

static enum stile_status load(struct installation *in, struct node *node)
{
    struct conn_arg args[] = {CONN_TEXT("FUNCTION"),
                              CONN_TEXT("LOAD"),
                              CONN_TEXT("REPLACE"),
                              {redis_guard_library.source, redis_guard_library.len}};
    in->answered = false;
    enum stile_status status = redis_node_send(node, args, 4, on_loaded, in, &in->error);
    return status ? status : await(in);
}

static enum stile_status load_everywhere(struct installation *in)
{
    enum stile_status status = STILE_OK;
    struct node *node = redis_route_next(&in->redis, NULL);
    for (; node && !status; node = redis_route_next(&in->redis, node))
        status = load(in, node);
    return status;
}

enum stile_status redis_install(const struct engine_class *class, const struct url *url,
                                struct stile_error *err)
{
    static const struct engine_events events = {.opened = on_opened};
    struct installation in = {.redis.engine = {.class = class,
                                               .events = &events,
                                               .caps = class->caps,
                                               .label = "stile guard install",
                                               .pid = getpid()}};
    struct engine *engine = &in.redis.engine;
    int rc = loop_epoll_new(&engine->loop);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "epoll");
    class->open(engine, url);
    enum stile_status status = await(&in);
    if (!status) {
        status = load_everywhere(&in);
        class->close(engine);
    }
    loop_free(engine->loop);
    if (status && err)
        *err = in.error;
    return status;
}
