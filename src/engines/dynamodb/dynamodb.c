/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* DynamoDB: one item for each name, changed by conditional writes only.
 *
 * A claim is an entry in the item's map of claims (item.h). One write takes a free name, on the
 * condition that the map is empty, and adds one to the token in the same step. A shared claim, a
 * slot, or one that replaces the dead, reads the item first and writes on the condition that its
 * version, and the numbers of the claims it replaces, are still the ones that were read.
 *
 * Each renewal changes the number of the claim. A waiter that has seen the same number for as long
 * as the claim's lease, on its own clock, has seen the lease end: no clocks are compared. Nothing
 * wakes a waiter; it reads the item about once a second.
 *
 * An item that is new, or was deleted, takes its tokens from a counter of the table, while the
 * claim is in it: so they are larger than all that were granted before. The table's TTL deletes
 * an item a month after its last use.
 *
 *     http.c, call.c, json.c       HTTP in the loop; signed requests, repeated; their form
 *     service.c                    the URL, and the way there
 *     credentials.c, profile.c     where the keys come from
 *     item.c, observed.c           an item as it was read; since when its claims look like that
 *     claims.c, writes.c           a claim from its first request to its end; what it writes
 *     amazon.c                     the other layout: dialect=amazon
 *     inspect.c, scan.c            list, show, break; reading the whole table
 *     cells.c                      cells and guards
 *     table.c, setup.c, doctor_*.c what the table is like; stile setup; stile doctor
 */
#include "engines/dynamodb/dynamodb.h"

#include "base/url.h"
#include "engines/dynamodb/cells.h"
#include "engines/dynamodb/claims.h"
#include "engines/dynamodb/doctor.h"
#include "engines/dynamodb/inspect.h"
#include "engines/dynamodb/setup.h"

#define OPEN_PATIENCE_NS (5 * NS_PER_SEC)

/* ---- opening ---- */

static void dispose(struct dynamo *d)
{
    doctor_visits_drop(&d->visits);
    ddb_inspections_free(d);
    ddb_cells_free(d);
    ddb_dispose(d);
}

static void finish(struct dynamo *d, const struct stile_error *err)
{
    struct stile_error why;
    error_copy(&why, err);
    if (err)
        dispose(d);
    d->engine.events->opened(&d->engine, err ? &why : NULL);
}

static void finish_with(struct dynamo *d, const struct call *call)
{
    struct stile_error err = call->err;
    if (err.status == STILE_UNCERTAIN)
        err.status = STILE_UNREACHABLE;
    finish(d, call->result == CALL_OK || d->engine.examining ? NULL : &err);
}

static void on_probed(struct call *call)
{
    finish_with(container_of(call, struct dynamo, probe), call);
}

static void probe(struct dynamo *d)
{
    ddb_json_write(&d->probe.body, "{'TableName':%s,'Key':{%s:{'S':'stile'}}}", d->table, d->key);
    ddb_call_start(d, &d->probe, "GetItem", OPEN_PATIENCE_NS, on_probed);
}

/* A role without the right to describe the table can still lock. */
static void on_described(struct call *call)
{
    struct dynamo *d = container_of(call, struct dynamo, probe);
    struct table_facts facts;
    struct stile_error err;
    bool denied = strcmp(call->type, "AccessDeniedException") == 0;
    if (call->result != CALL_OK && denied && !d->engine.examining) {
        probe(d);
        return;
    }
    ddb_table_read(&facts, d, call->reply);
    if (call->result == CALL_OK && !d->engine.examining && ddb_table_check(&facts, d, &err))
        finish(d, &err);
    else
        finish_with(d, call);
}

static const struct engine_class *class_of(const struct url *url);

static void ddb_open(struct engine *engine, const struct url *url)
{
    struct dynamo *d = dynamo_of(engine);
    struct stile_error err;
    engine->class = class_of(url);
    engine->caps = engine->class->caps;
    if (ddb_configure(d, url, &err))
        finish(d, &err);
    else
        ddb_table_ask(&d->probe, d, "DescribeTable", OPEN_PATIENCE_NS, on_described);
}

static void ddb_close(struct engine *engine)
{
    dispose(dynamo_of(engine));
}

static void ddb_forked(struct engine *engine)
{
    ddb_http_forked(dynamo_of(engine)->http);
}

static const struct stile_caps *promises(const struct url *url);

static const char *const params[] = {"region", "endpoint", "ca",  "poll",
                                     "allow",  "dialect",  "key", NULL};

static const struct engine_admin admin = {
    .setup = ddb_setup,
    .examine = ddb_doctor_examine,
};

/* ---- the class, and that of dialect=amazon ---- */

#define TOKEN_LIVES                                                                                \
    "a holder's crash: free once a waiter has seen its claim unchanged for the lease; the "        \
    "failure "                                                                                     \
    "of a server or a zone: everything"
#define COST                                                                                       \
    "a waiter reads its item up to once a second, which costs up to 86,400 read units a day"

#define COMMON                                                                                     \
    .schemes = "dynamodb", .params = params, .promises = promises, .apart = true,                  \
    .apart_sharing = true, .in_flight = 128, .engine_size = sizeof(struct dynamo),                 \
    .claim_size = sizeof(struct dynamo_claim), .open = ddb_open, .close = ddb_close,               \
    .forked = ddb_forked, .claim = ddb_claim, .release = ddb_release, .renew = ddb_renew,          \
    .list = ddb_list, .show = ddb_show, .break_ = ddb_break, .cancel = ddb_cancel,                 \
    .detached = &ddb_detached, .admin = &admin

static const struct engine_class amazon_class = {
    COMMON,
    .caps =
        {
            .engine = "dynamodb",
            .modes = 1u << STILE_EXCLUSIVE,
            .lease = STILE_LEASE_CLAIM,
            .token = true,
            .most_locks = DDB_LOCKS_MAX,
            .detached = true,
            .restores = true,
            .token_is = "a counter of the table, raised while the lock is held",
            .survives = TOKEN_LIVES,
            .condition = "the table is in one region (no global table), and is not restored from "
                         "a backup; clients of Amazon's library see no token; " COST,
            .instead = "without dialect=amazon: shared locks, slots, hold_at_least, cells",
        },
};

const struct engine_class ddb_class = {
    COMMON,
    .caps =
        {
            .engine = "dynamodb",
            .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED | 1u << STILE_SLOTS,
            .lease = STILE_LEASE_CLAIM,
            .token = true,
            .most_locks = DDB_LOCKS_MAX,
            .hold_at_least = true,
            .lock_delay = true,
            .detached = true,
            .restores = true,
            .cells = true,
            .token_is = "a counter in the name's item, which the granting write adds one to",
            .survives = TOKEN_LIVES,
            .condition = "the table is in one region (no global table), and is not restored from "
                         "a backup; " COST,
            .instead = "etcd and redis wake their waiters, in order",
        },
    .cells = &ddb_cells,
};

static bool is_amazon(const struct url *url)
{
    const char *dialect = url_param(url, "dialect");
    return dialect && strcmp(dialect, "amazon") == 0;
}

static const struct stile_caps *promises(const struct url *url)
{
    return is_amazon(url) ? &amazon_class.caps : &ddb_class.caps;
}

static const struct engine_class *class_of(const struct url *url)
{
    return is_amazon(url) ? &amazon_class : &ddb_class;
}
