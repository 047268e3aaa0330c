/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* mode=table: the functions of the schema do the work, each in one transaction. NOTIFY wakes the
 * waiter that was granted the lock. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/statements.h"
#include "engines/sql/inspect.h"

/* ---- sending ---- */

static struct pg *pg_of_lease(struct lease *lease)
{
    return pg_of(lease->leases->engine);
}

static enum stile_status send_shared(struct pg *pg, const struct statement *statement,
                                     const char *const *values, size_t n, answer_fn *fn, void *data,
                                     struct stile_error *err)
{
    struct session *shared;
    enum stile_status status = sql_pool_shared(&shared, &pg->pool, err);
    return status ? status : postgres_send(shared, statement, values, n, fn, data, err);
}

/* Class 40: it was rolled back, for instance as a deadlock victim. */
static struct lease_answer read_answer(const struct answer *a)
{
    const char *text = a->err || PQntuples(a->result) != 1 ? "" : postgres_value(a->result, 0, 0);
    return (struct lease_answer){.err = a->err,
                                 .undone = a->err && strncmp(a->sqlstate, "40", 2) == 0,
                                 .sent_ns = a->sent_ns,
                                 .reply = *text,
                                 .number = *text ? strtoull(text + 1, NULL, 10) : 0};
}

static void on_asked(void *data, const struct answer *a)
{
    struct lease_answer answer = read_answer(a);
    sql_lease_asked(data, &answer);
}

static enum stile_status ask(struct lease *lease, struct stile_error *err)
{
    static const char *const modes[] = {
        [STILE_EXCLUSIVE] = "exclusive", [STILE_SHARED] = "shared", [STILE_SLOTS] = "slots"};
    struct claim *claim = claim_of_lease(lease);
    struct pg *pg = pg_of_lease(lease);
    char stored[STORED_MAX], slots[12], ttl[24], hold[24], delay[24];
    postgres_name_store(stored, claim->name, claim->name_len);
    snprintf(slots, sizeof slots, "%u", claim->slots);
    const char *values[] = {stored,
                            lease->leased.owner,
                            modes[claim->mode],
                            slots,
                            postgres_sql_ms(ttl, claim->ttl_ns),
                            postgres_sql_ms(hold, claim->hold_ns),
                            postgres_sql_ms(delay, claim->delay_ns),
                            claim->wait ? "t" : "f",
                            pg->leases.hearing ? pg->channel : NULL,
                            pg->identity.host,
                            pg->identity.pid,
                            pg->identity.command};
    return send_shared(pg, &pg->table.claim, values, 12, on_asked, lease, err);
}

static void on_checked(void *data, const struct answer *a)
{
    struct lease_answer answer = read_answer(a);
    const char *text = a->err || PQntuples(a->result) != 1 ? "" : postgres_value(a->result, 0, 0);
    const char *ahead = strrchr(text, ' ');
    answer.ahead = ahead ? (unsigned)strtoul(ahead, NULL, 10) : 0;
    sql_lease_checked(data, &answer);
}

static enum stile_status check(struct lease *lease, uint64_t life_ms, struct stile_error *err)
{
    struct claim *claim = claim_of_lease(lease);
    struct pg *pg = pg_of_lease(lease);
    char stored[STORED_MAX], life[24];
    postgres_name_store(stored, claim->name, claim->name_len);
    snprintf(life, sizeof life, "%" PRIu64, life_ms);
    const char *values[] = {stored, lease->leased.owner, life};
    const struct statement *statement =
        life_ms ? &postgres_sql_table_look_alive : &postgres_sql_table_look;
    return send_shared(pg, statement, values, life_ms ? 3 : 2, on_checked, lease, err);
}

static void on_kept(void *data, const struct answer *a)
{
    const char *text = a->err || PQntuples(a->result) != 1 ? "" : postgres_value(a->result, 0, 0);
    sql_lease_kept(data, strtoull(text, NULL, 10), a->err);
}

/* An array literal; owners are hex. */
static enum stile_status keep(struct leases *leases, uint64_t life_ms, struct stile_error *err)
{
    const struct lease_rows *kept = &leases->kept;
    char owners[LEASE_KEPT_MAX * (LEASE_OWNER_LEN + 1) + 3] = "{}", *at = owners, life[24];
    for (size_t i = 0; i < kept->n; i++)
        at += sprintf(at, "%c%s", i ? ',' : '{', kept->owners[i]);
    strcpy(at, kept->n ? "}" : "{}");
    snprintf(life, sizeof life, "%" PRIu64, life_ms);
    const char *values[] = {owners, life};
    return send_shared(pg_of(leases->engine), &postgres_sql_table_keep, values, 2, on_kept, leases,
                       err);
}

static void on_resumed(void *data, const struct answer *a)
{
    struct lease_answer answer = {.err = a->err, .sent_ns = a->sent_ns};
    if (!a->err && PQntuples(a->result) == 1 && !PQgetisnull(a->result, 0, 0)) {
        answer.reply = 't';
        answer.number = strtoull(postgres_value(a->result, 0, 0), NULL, 10);
        if (PQnfields(a->result) > 1)
            answer.ttl_ms = strtoull(postgres_value(a->result, 0, 1), NULL, 10);
    }
    sql_lease_resumed(data, &answer);
}

static enum stile_status resume(struct lease *lease, struct stile_error *err)
{
    struct claim *claim = claim_of_lease(lease);
    char stored[STORED_MAX], ttl[24];
    postgres_name_store(stored, claim->name, claim->name_len);
    struct pg *pg = pg_of_lease(lease);
    /* ShedLock's rows know no TTL. */
    bool anew = claim->ttl_given || pg->options.table;
    const char *values[] = {stored, lease->leased.owner,
                            anew ? postgres_sql_ms(ttl, claim->ttl_ns) : NULL};
    return send_shared(pg, &pg->table.resume, values, 3, on_resumed, lease, err);
}

static void on_synced(void *data, const struct answer *a)
{
    struct lease_answer answer = {.err = a->err, .sent_ns = a->sent_ns, .reply = 't'};
    sql_lease_released(data, &answer);
}

/* The next holder has the lock already, and confirms it meanwhile. */
static void sync_release(struct lease *lease)
{
    struct stile_error err;
    if (send_shared(pg_of_lease(lease), &postgres_sql_table_sync, NULL, 0, on_synced, lease, &err))
        sql_lease_released(lease, &(struct lease_answer){.err = &err});
}

static void on_released(void *data, const struct answer *a)
{
    struct lease_answer answer = read_answer(a);
    if (answer.reply == 'h')
        sync_release(data);
    else
        sql_lease_released(data, &answer);
}

static enum stile_status release(struct lease *lease, bool unused, struct stile_error *err)
{
    struct claim *claim = claim_of_lease(lease);
    struct pg *pg = pg_of_lease(lease);
    char stored[STORED_MAX], hold[24];
    postgres_name_store(stored, claim->name, claim->name_len);
    const char *values[] = {stored, lease->leased.owner, unused ? "t" : "f",
                            postgres_sql_ms(hold, claim->hold_ns)};
    return send_shared(pg, &pg->table.release, values, pg->options.table ? 4 : 3, on_released,
                       lease, err);
}

static bool is_among(const void *rows, const char *owner)
{
    const PGresult *result = rows;
    for (int row = 0; row < PQntuples(result); row++) {
        if (strcmp(postgres_value(result, row, 0), owner) == 0)
            return true;
    }
    return false;
}

static void on_renewed(void *data, const struct answer *a)
{
    struct lease_answer answer = {.err = a->err, .sent_ns = a->sent_ns};
    sql_lease_renewed(data, &answer, is_among, a->result);
}

/* Two array literals; owners are hex. */
static enum stile_status renew(struct leased_renewal *renewal, struct stile_error *err)
{
    char *owners = malloc(renewal->n * (LEASE_OWNER_LEN + 1) + 2),
         *ttls = malloc(renewal->n * 24 + 2);
    const char *values[] = {owners, ttls};
    char *owner = owners, *ttl = ttls;
    enum stile_status status = STILE_NOMEM;
    if (!owners || !ttls)
        goto out;
    for (size_t i = 0; i < renewal->n; i++) {
        struct claim *claim = leased_base(renewal->claims[i]);
        char separator = i ? ',' : '{';
        owner += sprintf(owner, "%c%s", separator, renewal->claims[i]->owner);
        ttl += sprintf(ttl, "%c%" PRIu64, separator, claim->ttl_ns / NS_PER_MS);
    }
    strcpy(owner, "}");
    strcpy(ttl, "}");
    struct pg *pg = pg_of(renewal->engine);
    status = send_shared(pg, &pg->table.renew, values, 2, on_renewed, renewal, err);
out:
    free(owners);
    free(ttls);
    return status;
}

const struct lease_ops postgres_table_ops = {
    .ask = ask,
    .check = check,
    .keep = keep,
    .resume = resume,
    .release = release,
    .renew = renew,
};

/* ShedLock's table has no rows of waiters that could be checked: they ask. */
const struct lease_ops postgres_shedlock_ops = {
    .ask = ask,
    .resume = resume,
    .release = release,
    .renew = renew,
};

void postgres_table_prepare(struct pg *pg)
{
    pg->table.claim = postgres_sql_table_claim;
    pg->table.release = postgres_sql_table_release;
    pg->table.renew = postgres_sql_table_renew;
    pg->table.resume = postgres_sql_table_resume;
    pg->table.break_ = postgres_sql_table_break;
    pg->table.list = postgres_sql_table_list;
}

/* ---- breaking ---- */

static void on_broken(void *data, const struct answer *a)
{
    int n = a->err || PQntuples(a->result) != 1 ? 0 : atoi(postgres_value(a->result, 0, 0));
    sql_break_done(data, n, a->err);
}

void postgres_table_break(struct engine *engine, struct query *query)
{
    struct stile_error err;
    char stored[STORED_MAX], token[24], by[SELF_HOST_MAX + 32];
    const char *values[] = {stored, token, by};
    postgres_name_store(stored, query->name, query->name_len);
    snprintf(token, sizeof token, "%" PRIu64, query->token);
    struct pg *pg = pg_of(engine);
    sql_identity_blame(by, &pg->identity);
    if (send_shared(pg, &pg->table.break_, values, pg->options.table ? 2 : 3, on_broken, query,
                    &err))
        engine->events->done(query, &err);
}

/* ---- notifications ---- */

/* "x owner host pid". A "b owner" follows it, for older libraries. */
static void hear_broken_by(struct leases *leases, const char *text)
{
    char owner[LEASE_OWNER_LEN + 1];
    if (strcspn(text, " ") != LEASE_OWNER_LEN)
        return;
    memcpy(owner, text, LEASE_OWNER_LEN);
    owner[LEASE_OWNER_LEN] = '\0';
    sql_lease_hear_broken(leases, owner, text + LEASE_OWNER_LEN);
}

/* "t", "g owner", "x owner host pid" or "b owner". */
static void on_notified(struct session *session, const char *payload)
{
    struct leases *leases = &session->pg->leases;
    if (strcmp(payload, "t") == 0 && !leases->hearing) {
        leases->hearing = true;
        sql_lease_ask_again(leases); /* their rows do not have the channel yet */
    } else if (strncmp(payload, "g ", 2) == 0) {
        sql_lease_hear_granted(leases, payload + 2);
    } else if (strncmp(payload, "b ", 2) == 0) {
        sql_lease_hear_broken(leases, payload + 2, "");
    } else if (strncmp(payload, "x ", 2) == 0) {
        hear_broken_by(leases, payload + 2);
    }
}

static void ignore(void *data, const struct answer *a)
{
    (void)data, (void)a;
}

/* Behind a pooler nothing is set, and no notification arrives. */
static void on_up(struct session *session)
{
    struct pg *pg = session->pg;
    const char *channel[] = {pg->channel}, *path[] = {pg->options.table ? NULL : "pg_catalog"};
    if (!pg->pooled)
        postgres_send(session, &postgres_sql_table_settings, path, 1, ignore, NULL, NULL);
    if (!pg->pooled && !pg->options.table) { /* ShedLock's clients send no notification */
        postgres_send(session, &pg->listen, NULL, 0, ignore, NULL, NULL);
        postgres_send(session, &postgres_sql_table_test, channel, 1, ignore, NULL, NULL);
    }
    postgres_session_opened(session, NULL);
}

static void on_down(struct session *session)
{
    sql_pool_shared_down(session);
    session->pg->leases.hearing = false;
}

static void on_ended(struct session *session, const struct stile_error *why)
{
    postgres_session_opened(session, why);
    sql_lease_disconnected(&session->pg->leases);
}

const struct session_events postgres_table_events = {
    .up = on_up, .down = on_down, .ended = on_ended, .notified = on_notified};
