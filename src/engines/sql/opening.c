/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/sql/opening.h"

#include <stdio.h>
#include <string.h>

#include "base/container.h"
#include "base/url.h"
#include "engines/sql/pool.h"

/* ---- the steps ---- */

/* The first error counts: the session's end is reported after the reason for it. A session may be
 * on the stack here, and the engine's memory is gone after the report: a task makes it. */
static void fail(struct opening *o, const struct stile_error *why)
{
    o->error = *why;
    o->step = NULL;
    loop_soon(o->engine->loop, &o->fail);
}

static void report_failure(struct task *task)
{
    struct opening *o = container_of(task, struct opening, fail);
    struct engine *engine = o->engine;
    engine->class->close(engine);
    engine->events->opened(engine, &o->error);
}

static void succeed(struct opening *o)
{
    struct engine *engine = o->engine;
    struct stile_error err;
    o->step = NULL;
    if (o->finish(engine, &err))
        fail(o, &err);
    else
        engine->events->opened(engine, NULL);
}

/* Asks the first that is needed, from this one on. */
static void ask(struct opening *o, const struct opening_step *step)
{
    struct stile_error err;
    while (step->ask && step->needed && !step->needed(o->engine))
        step++;
    o->step = step;
    if (!step->ask)
        succeed(o);
    else if (step->ask(o->engine, &err))
        fail(o, &err);
}

void sql_opening_start(struct opening *o, struct engine *engine, const struct opening_step *steps,
                       opening_fn *finish)
{
    *o = (struct opening){.engine = engine, .finish = finish, .fail.fn = report_failure};
    ask(o, steps);
}

void sql_opening_answered(struct opening *o, const struct stile_error *why)
{
    if (!o->step)
        return;
    if (why)
        fail(o, why);
    else
        ask(o, o->step + 1);
}

void sql_opening_cancel(struct opening *o)
{
    o->step = NULL;
    if (o->engine)
        loop_forget(o->engine->loop, &o->fail);
}

enum stile_status sql_opening_connect(struct engine *engine, struct stile_error *err)
{
    struct session *shared;
    return sql_pool_shared(&shared, pool_of(engine), err);
}

/* ---- what the client promises ---- */

static bool has_param(const struct url *url, const char *key, const char *value)
{
    const char *given = url_param(url, key);
    return given && strcmp(given, value) == 0;
}

const struct stile_caps *sql_opening_promises(const struct url *url, const struct sql_modes *modes)
{
    if (has_param(url, "mode", "row"))
        return &modes->row->caps;
    if (!has_param(url, "mode", "table"))
        return &modes->session->caps;
    return has_param(url, "dialect", "shedlock") ? &modes->shedlock->caps : &modes->table->caps;
}

void sql_opening_set_class(struct engine *engine, const struct engine_class *class)
{
    engine->class = class;
    engine->caps = class->caps;
}

void sql_opening_set_bare(struct engine *engine, const char *token_is, const char *instead)
{
    struct stile_caps *caps = &engine->caps;
    caps->token = false;
    caps->token_is = token_is;
    if (caps->lease != STILE_LEASE_SESSION)
        return; /* a hold is kept in the claim's own row */
    caps->hold_at_least = caps->lock_delay = false;
    caps->survives = "a holder's crash: free at once; a server's crash: nothing is held afterwards";
    caps->instead = instead;
}

/* ---- identity ---- */

static void make_plain(char *text)
{
    for (; *text; text++)
        *text = (unsigned char)*text < 127 ? *text : '?';
}

void sql_identity_blame(char out[SELF_HOST_MAX + 32], const struct identity *identity)
{
    snprintf(out, SELF_HOST_MAX + 32, "%s %s", identity->host, identity->pid);
}

enum stile_status sql_identity_init(struct identity *identity, const struct engine *engine,
                                    struct stile_error *err)
{
    unsigned char random[IDENTITY_OWNER_LEN / 2];
    int rc = loop_random(engine->loop, random, sizeof random);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "drawing a session id");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(identity->owner + 2 * i, 3, "%02x", random[i]);
    snprintf(identity->pid, sizeof identity->pid, "%lld", (long long)engine->pid);
    self_host(identity->host);
    self_command(identity->command, sizeof identity->command, engine->label);
    make_plain(identity->host);
    make_plain(identity->command);
    return STILE_OK;
}
