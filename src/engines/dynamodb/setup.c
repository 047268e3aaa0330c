/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/dynamodb/setup.h"

#include <stdio.h>
#include <stdlib.h>

#include "engines/dynamodb/table.h"

#define PATIENCE_S   60
#define LOOK_NS      (500 * NS_PER_MS)
#define SCRIPT_BYTES 2048

struct setup {
    struct dynamo dynamo;
    struct call call;
    struct timer timer;
    uint64_t until_ns;
    bool done;
    struct stile_error err; /* status 0: it is set up */
};

static void look(struct setup *s);

static struct setup *of_call(struct call *call)
{
    return container_of(call, struct setup, call);
}

static void end(struct setup *s, const struct stile_error *err)
{
    error_copy(&s->err, err);
    s->done = true;
}

/* ---- the TTL attribute ---- */

/* It may be enabled already, and a compatible service may not have it: the doctor reports that. */
static void on_ttl(struct call *call)
{
    bool fine = call->result == CALL_OK || strcmp(call->type, "ValidationException") == 0 ||
                strcmp(call->type, "UnknownOperationException") == 0;
    end(of_call(call), fine ? NULL : &call->err);
}

static void enable_ttl(struct setup *s)
{
    ddb_json_write(&s->call.body,
                   "{'TableName':%s,'TimeToLiveSpecification':{'AttributeName':%s,'Enabled':true}}",
                   s->dynamo.table, TTL_ATTRIBUTE);
    ddb_call_start(&s->dynamo, &s->call, "UpdateTimeToLive", PATIENCE_NS, on_ttl);
}

/* ---- the table ---- */

static void on_time(struct timer *timer)
{
    look(container_of(timer, struct setup, timer));
}

static void wait_more(struct setup *s, const char *status)
{
    struct loop *loop = loop_of(&s->dynamo);
    struct stile_error err;
    if (loop_now(loop) < s->until_ns) {
        loop_arm(loop, &s->timer, loop_now(loop) + LOOK_NS);
        return;
    }
    error_set(&err, STILE_UNREACHABLE, 0, "the table %s is %s after %d s", s->dynamo.table, status,
              PATIENCE_S);
    end(s, &err);
}

static void on_described(struct call *call)
{
    struct setup *s = of_call(call);
    struct table_facts facts;
    struct stile_error err;
    if (call->result != CALL_OK) {
        end(s, &call->err);
        return;
    }
    ddb_table_read(&facts, &s->dynamo, call->reply);
    if (ddb_table_check(&facts, &s->dynamo, &err))
        end(s, &err);
    else if (strcmp(facts.status, "ACTIVE") != 0 && strcmp(facts.status, "UPDATING") != 0)
        wait_more(s, facts.status);
    else
        enable_ttl(s);
}

static void look(struct setup *s)
{
    ddb_table_ask(&s->call, &s->dynamo, "DescribeTable", PATIENCE_NS, on_described);
}

static void on_created(struct call *call)
{
    bool there = strcmp(call->type, "ResourceInUseException") == 0;
    if (call->result == CALL_OK || there)
        look(of_call(call));
    else
        end(of_call(call), &call->err);
}

static void create(struct setup *s)
{
    const struct dynamo *d = &s->dynamo;
    ddb_json_write(&s->call.body,
                   "{'TableName':%s,'BillingMode':'PAY_PER_REQUEST',"
                   "'AttributeDefinitions':[{'AttributeName':%s,'AttributeType':'S'}],"
                   "'KeySchema':[{'AttributeName':%s,'KeyType':'HASH'}]}",
                   d->table, d->key, d->key);
    ddb_call_start(&s->dynamo, &s->call, "CreateTable", PATIENCE_NS, on_created);
}

/* ---- running it ---- */

static const char *print_script(const struct dynamo *d)
{
    static _Thread_local char script[SCRIPT_BYTES];
    snprintf(script, sizeof script,
             "aws dynamodb create-table --region %s --table-name %s --billing-mode PAY_PER_REQUEST "
             "--attribute-definitions AttributeName=%s,AttributeType=S "
             "--key-schema AttributeName=%s,KeyType=HASH\n"
             "aws dynamodb wait table-exists --region %s --table-name %s\n"
             "aws dynamodb update-time-to-live --region %s --table-name %s "
             "--time-to-live-specification Enabled=true,AttributeName=" TTL_ATTRIBUTE "\n",
             d->region, d->table, d->key, d->key, d->region, d->table, d->region, d->table);
    return script;
}

static void run(struct setup *s)
{
    struct loop *loop = loop_of(&s->dynamo);
    s->timer.fn = on_time;
    s->until_ns = loop_now(loop) + PATIENCE_S * NS_PER_SEC;
    if (loop_reserve(loop, 1)) {
        error_set(&s->err, STILE_NOMEM, 0, "out of memory");
        return;
    }
    create(s);
    while (!s->done) {
        loop_prepare(loop);
        loop_wait(loop, true);
        loop_run(loop);
    }
    loop_disarm(loop, &s->timer);
    loop_unreserve(loop, 1);
}

enum stile_status ddb_setup(const struct url *url, bool dry_run, const char **script,
                            struct stile_error *err)
{
    struct setup *s = calloc(1, sizeof *s);
    if (!s || loop_epoll_new(&s->dynamo.engine.loop)) {
        free(s);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    if (!ddb_configure(&s->dynamo, url, &s->err)) {
        *script = print_script(&s->dynamo);
        if (!dry_run)
            run(s);
    }
    ddb_dispose(&s->dynamo);
    loop_free(loop_of(&s->dynamo));
    error_copy(err, s->err.status ? &s->err : NULL);
    enum stile_status status = s->err.status;
    free(s);
    return status;
}
