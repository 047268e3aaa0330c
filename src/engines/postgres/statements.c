/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/postgres/statements.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engines/postgres/pg.h"

const char *postgres_sql_ms(char out[24], uint64_t ns)
{
    if (ns == 0)
        return NULL;
    snprintf(out, 24, "%" PRIu64, (ns + NS_PER_MS - 1) / NS_PER_MS);
    return out;
}

/* Each form of a key: as the arguments of a lock function, as one bigint, and its objsubid. */
#define HASH_ARGS "hashtextextended($1::text, 0)"
#define HASH_ID   HASH_ARGS
#define ONE_ARGS  "$1::bigint"
#define ONE_ID    ONE_ARGS
#define TWO_ARGS  "split_part($1::text, ',', 1)::int, split_part($1::text, ',', 2)::int"
#define TWO_ID                                                                                     \
    "((split_part($1::text, ',', 1)::bigint << 32) | "                                             \
    "(split_part($1::text, ',', 2)::bigint & 4294967295))"

#define GRANTED(id, sub, shared)                                                                   \
    "stile.granted($2::text, " id ", " sub "::smallint, " shared                                   \
    ", $3::bigint, $4::bigint, $5::text, $6::text, $7::int, $8::text)"

/* The same for a caller with a place in the queue, or without. */
#define GRANTED_IN_LINE(id, sub, shared)                                                           \
    "stile.grant($2::text, " id ", " sub "::smallint, " shared                                     \
    ", $3::bigint, $4::bigint, $5::text, $6::text, $7::int, $8::text, $9::bigint)"

#define TRY(args, id, sub, shared, suffix)                                                         \
    "select case when pg_try_advisory_lock" suffix "(" args                                        \
    ") then " GRANTED(id, sub, shared) " end as " TAG ", " id
#define TRY_IN_LINE(args, id, sub, shared, suffix)                                                 \
    "select case when pg_try_advisory_lock" suffix "(" args                                        \
    ") then " GRANTED_IN_LINE(id, sub, shared) " end as " TAG ", " id
#define TRY_BARE(args, id, sub, shared, suffix)                                                    \
    "select case when pg_try_advisory_lock" suffix "(" args ") then 'g 0' end as " TAG ", " id
/* Where the key is known already, it is not returned: a pair is two statements and little else. */
#define TRY_ONE_BARE(args, id, sub, shared, suffix)                                                \
    "select pg_try_advisory_lock" suffix "(" args ") as " TAG
/* Returns whether it had to wait, too. A statement that waits keeps a snapshot, which delays
 * VACUUM and CREATE INDEX CONCURRENTLY: so it never waits for longer than this. */
#define SLICE "900ms"
#define WAITED(args, suffix)                                                                       \
    " from (select case when pg_try_advisory_lock" suffix "(" args ") then false else "            \
    "set_config('lock_timeout', '" SLICE "', true) is not null and pg_advisory_lock" suffix        \
    "(" args ") is not null end as waited offset 0) l"
#define LOCK(args, id, sub, shared, suffix)                                                        \
    "select " GRANTED(id, sub, shared) " as " TAG ", " id ", waited" WAITED(args, suffix)
#define LOCK_IN_LINE(args, id, sub, shared, suffix)                                                \
    "select " GRANTED_IN_LINE(id, sub, shared) " as " TAG ", " id ", waited" WAITED(args, suffix)
#define LOCK_BARE(args, id, sub, shared, suffix)                                                   \
    "select 'g 0' as " TAG ", " id ", waited" WAITED(args, suffix)
#define GRANT(args, id, sub, shared, suffix)      "select " GRANTED(id, sub, shared) " as " TAG ", " id
#define GRANT_BARE(args, id, sub, shared, suffix) "select 'g 0' as " TAG ", " id
#define UNLOCK(args, id, sub, shared, suffix)                                                      \
    "select pg_advisory_unlock" suffix "(" args ") as " TAG
#define LET_GO(args, id, sub, shared, suffix)                                                      \
    "select pg_advisory_unlock" suffix "(" args ") as " TAG " from "                               \
    "(select stile.let_go($2::text, $3::bigint, $4::boolean) offset 0) done"
#define KEY(args, id, sub, shared, suffix) "select " id " as " TAG

#define BOTH_MODES(n, sql, args, id, sub)                                                          \
    {                                                                                              \
        {n, sql(args, id, sub, "false", "")},                                                      \
        {                                                                                          \
            n + 1, sql(args, id, sub, "true", "_shared")                                           \
        }                                                                                          \
    }
#define FORMS(kind, sql, sql_one)                                                                  \
    {                                                                                              \
        BOTH_MODES(kind * 6 + 1, sql, HASH_ARGS, HASH_ID, "1"),                                    \
            BOTH_MODES(kind * 6 + 3, sql_one, ONE_ARGS, ONE_ID, "1"),                              \
            BOTH_MODES(kind * 6 + 5, sql, TWO_ARGS, TWO_ID, "2")                                   \
    }
#define ALL_FORMS(kind, sql) FORMS(kind, sql, sql)

/* A session uses one of the two kinds only, so their numbers may be the same. */
static const struct statement with_schema[SQL_KINDS][KEY_FORMS][2] = {
    [SQL_TRY] = ALL_FORMS(SQL_TRY, TRY),
    [SQL_LOCK] = ALL_FORMS(SQL_LOCK, LOCK),
    [SQL_GRANT] = ALL_FORMS(SQL_GRANT, GRANT),
    [SQL_UNLOCK] = ALL_FORMS(SQL_UNLOCK, UNLOCK),
    [SQL_END_HOLD] = ALL_FORMS(SQL_END_HOLD, LET_GO),
    [SQL_KEY] = ALL_FORMS(SQL_KEY, KEY),
};
static const struct statement without[SQL_KINDS][KEY_FORMS][2] = {
    [SQL_TRY] = FORMS(SQL_TRY, TRY_BARE, TRY_ONE_BARE),
    [SQL_LOCK] = ALL_FORMS(SQL_LOCK, LOCK_BARE),
    [SQL_GRANT] = ALL_FORMS(SQL_GRANT, GRANT_BARE),
    [SQL_UNLOCK] = ALL_FORMS(SQL_UNLOCK, UNLOCK),
    [SQL_END_HOLD] = ALL_FORMS(SQL_END_HOLD, UNLOCK),
    [SQL_KEY] = ALL_FORMS(SQL_KEY, KEY),
};

static const struct statement with_line[2][KEY_FORMS][2] = {
    [SQL_TRY] = ALL_FORMS(SQL_TRY, TRY_IN_LINE),
    [SQL_LOCK] = ALL_FORMS(SQL_LOCK, LOCK_IN_LINE),
};

/* The row of the stile.life that is the server's present one. */
#define IS_ALIVE                                                                                   \
    "f.made_by = f.xmin and f.started = pg_postmaster_start_time() and "                           \
    "f.file = pg_relation_filepath('stile.life')"
/* What stile.grant() does, for the usual case: a name that was held before, without a hold, and
 * nobody waits. In all others it is called. */
#define DRAW                                                                                       \
    "u as (update stile.lock r set token = greatest(nextval('stile.tokens'), r.token + 1), "       \
    "shared = false, owner = $5::text, host = $6::text, pid = $7::int, command = $8::text, "       \
    "since = clock_timestamp(), backend = pg_backend_pid() from l, stile.life f "                  \
    "where l.taken and r.name = $2::text and r.hold_until is null and r.delay_ms is null "         \
    "and $3::bigint is null and $4::bigint is null and $9::bigint is null and " IS_ALIVE           \
    " and r.token + 1 < f.ends and not exists (select from stile.waiting w where w.key = $1 and "  \
    "w.sub = 1) returning r.token, f.ends) "
static const struct statement try_and_draw = {
    SQL_TRY * 6 + 3,
    "with l as materialized (select pg_try_advisory_lock($1::bigint) as taken, "
    "set_config('synchronous_commit', 'off', true)), " DRAW
    "select case when not l.taken then null when u.token < u.ends then 'g ' || u.token "
    "else " GRANTED_IN_LINE(ONE_ID, "1", "false") " end as " TAG
                                                  ", $1::bigint from l left join u on true"};

const struct statement *postgres_sql_for(enum sql kind, const struct key *key, bool shared,
                                         enum schema schema)
{
    if (schema >= SCHEMA_TOKENS && kind == SQL_TRY && key->form == KEY_ONE && !shared)
        return &try_and_draw;
    if (schema >= SCHEMA_QUEUE && (kind == SQL_TRY || kind == SQL_LOCK))
        return &with_line[kind][key->form][shared];
    return schema ? &with_schema[kind][key->form][shared] : &without[kind][key->form][shared];
}

/* ---- grants without a row ---- */

#define DRAWN_AFTER_LOOK(id) "stile.draw(" id ")"
/* The sequences are read as they are, after the lock was taken, whatever the snapshot shows. */
#define DRAWN(id)                                                                                  \
    "case when pg_sequence_last_value('stile.changes') = $2::bigint then "                         \
    "nextval('stile.tokens')::text else " DRAWN_AFTER_LOOK(id) " end"
#define FIRST_DRAW 37
/* A place in the queue is seen by others only after the statement that has made it. So the first
 * look after it, and each one that finds the lock taken, makes them look as well. */
#define LOOK_IN_LINE(n, shared, suffix)                                                            \
    {                                                                                              \
        n, "select case when pg_try_advisory_lock" suffix "(" ONE_ARGS                             \
           ") then " GRANTED_IN_LINE(ONE_ID, "1", shared) " else 'b ' || "                         \
                                                          "nextval('stile.changes') end as " TAG   \
                                                          ", " ONE_ID                              \
    }

const struct statement postgres_sql_draw[DRAW_KINDS][2] = {
    [DRAW_TRY] = {{FIRST_DRAW, "select case when pg_try_advisory_lock(" ONE_ARGS
                               ") then " DRAWN(ONE_ID) " end as " TAG},
                  {FIRST_DRAW + 1,
                   "select case when pg_try_advisory_lock(" HASH_ARGS
                   ") then " DRAWN_AFTER_LOOK(HASH_ID) " end as " TAG ", " HASH_ID}},
    [DRAW_LOCK] = {{FIRST_DRAW + 2,
                    "select " DRAWN(ONE_ID) " as " TAG ", " ONE_ID ", waited" WAITED(ONE_ARGS, "")},
                   {FIRST_DRAW + 3,
                    "select " DRAWN_AFTER_LOOK(HASH_ID) " as " TAG ", " HASH_ID
                                                        ", waited" WAITED(HASH_ARGS, "")}},
    [DRAW_DECIDE] = {{FIRST_DRAW + 4,
                      "select " GRANTED_IN_LINE(ONE_ID, "1", "false") " as " TAG ", " ONE_ID},
                     {FIRST_DRAW + 5,
                      "select " GRANTED_IN_LINE(HASH_ID, "1", "false") " as " TAG ", " HASH_ID}},
    [DRAW_LOOK] = {LOOK_IN_LINE(FIRST_DRAW + 6, "false", ""),
                   LOOK_IN_LINE(FIRST_DRAW + 7, "true", "_shared")},
};

const struct statement postgres_sql_describe = {
    45, "select stile.describe($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text, "
        "$6::text, $7::int, $8::text) as " TAG};
const struct statement postgres_sql_undescribe = {
    46, "select stile.undescribe($1::text[], $2::bigint[]) as " TAG};

const struct statement postgres_sql_queue_join = {
    0, "select stile.park($1::bigint, $2::smallint, $3::boolean, $4::text) as " TAG
       " from (select set_config('stile.waited_ms', $5::text, true) offset 0) w"};
const struct statement postgres_sql_queue_leave = {0, "select stile.unpark($1::bigint) as " TAG};
const struct statement postgres_sql_queue_wake = {
    0, "select stile.wake($1::bigint, $2::smallint) as " TAG};

#define HAS_FUNCTION(name)                                                                         \
    "exists (select from pg_proc p join pg_namespace n on n.oid = p.pronamespace "                 \
    "where n.nspname = 'stile' and p.proname = '" name "')"

/* GREETING_BACKEND ... */
#define GREETED                                                                                    \
    "pg_backend_pid() as " TAG ", pg_is_in_recovery(), "                                           \
    "exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace "                \
    "where n.nspname = 'stile' and c.relname = 'version'), " HAS_FUNCTION(                         \
        "cell_write") ", " HAS_FUNCTION("cell_keep")

/* Overrides the defaults of the role or the database. client_connection_check_interval, which
 * not every platform has, ends the wait of a killed process. */
const struct statement postgres_sql_greeting = {
    0, "select " GREETED ", "
       "set_config('statement_timeout', '0', false), "
       "set_config('lock_timeout', '2s', false), "
       "set_config('idle_in_transaction_session_timeout', '0', false), "
       "set_config('idle_session_timeout', '0', false), "
       "case when current_setting('transaction_timeout', true) <> '0' then "
       "set_config('transaction_timeout', '0', false) end, "
       "set_config('default_transaction_isolation', 'read committed', false), "
       "set_config('default_transaction_read_only', 'off', false), "
       "set_config('search_path', 'pg_catalog', false), "
       "set_config('synchronous_commit', case current_setting('synchronous_commit') "
       "when 'remote_apply' then 'remote_apply' else 'on' end, false)"};

/* As stile.draw() asks itself: older functions would not notice such grants. */
#define DRAWS                                                                                      \
    "to_regprocedure('stile.draw(bigint)') is not null and exists (select from pg_proc p where "   \
    "p.oid = to_regproc('stile.granted') and p.prosrc like '%stile.changes%')"
const struct statement postgres_sql_version = {
    0, "select max(version) as " TAG ", has_table_privilege(to_regclass("
       "'stile.last_holder'), 'select'), "
       "to_regclass('stile.life') is not null, " DRAWS " from stile.version"};
const struct statement postgres_sql_listen = {0, "listen stile"};
const struct statement postgres_sql_check_connection = {
    0, "select set_config('client_connection_check_interval', '500', false) as " TAG};

/* Whether advisory locks exclude: an imitation of PostgreSQL may grant them to everyone. And the
 * size of the server's lock table. */
#define PROBE "1937009006, pg_backend_pid()"
#define ROOM                                                                                       \
    "current_setting('max_locks_per_transaction')::bigint * "                                      \
    "(current_setting('max_connections')::bigint + "                                               \
    "current_setting('max_prepared_transactions')::bigint)"
const struct statement postgres_sql_probe = {
    0, "select p.taken and exists (select from pg_locks l where l.pid = pg_backend_pid() and "
       "l.locktype = 'advisory' and l.objsubid = 2 and l.classid = 1937009006::oid and p.taken) "
       "as " TAG ", pg_advisory_unlock(" PROBE "), " ROOM
       " from (select pg_try_advisory_lock(" PROBE ") as taken offset 0) p"};

const struct statement postgres_sql_ttl = {
    60, "select set_config('idle_session_timeout', $1::text, false) as " TAG
        ", set_config('lock_timeout', $2::text, false)"};
const struct statement postgres_sql_unlock_all = {61, "select pg_advisory_unlock_all() as " TAG};
const struct statement postgres_sql_cancel = {62, "select pg_cancel_backend($1::int) as " TAG};

/* ---- for inspection ---- */

#define LOCKS                                                                                      \
    "(select (classid::bigint << 32) | objid::bigint as id, objsubid, mode = 'ShareLock' as "      \
    "shared, granted, pid, (extract(epoch from clock_timestamp() - waitstart) * 1000)::bigint as " \
    "waits from pg_locks where locktype = 'advisory' and database = (select oid from "             \
    "pg_database where datname = current_database()))"

/* With queued claims: they wait, too. */
#define LOCKS_AND_LINE                                                                             \
    "(select * from " LOCKS " s union all select w.key, w.sub, w.shared, false, w.backend, "       \
    "(extract(epoch from clock_timestamp() - w.since) * 1000)::bigint from stile.waiting w "       \
    "where exists (select from pg_stat_activity v where v.pid = w.backend))"

#define AGE(at) "(extract(epoch from clock_timestamp() - " at ") * 1000)::bigint"

/* A waiter that has the lock and is held back has no statement: its transaction, or its last
 * statement, began when its wait did. One whose waits in the server are short has noted in its name
 * when the first began. */
#define WAITED_MS                                                                                  \
    "coalesce(greatest(l.waits, " AGE(                                                             \
        "to_timestamp(substring(a.application_name from ' "                                        \
        "/(\\d{13})$')::bigint / 1000.0)") "), case "                                              \
                                           "when l.granted and not "                               \
                                           "l.shared and "                                         \
                                           "a.application_name "                                   \
                                           "like 'stile+:%' "                                      \
                                           "then " AGE("coalesce(a.xact_"                          \
                                                       "start, "                                   \
                                                       "a.state_change)") " end, 0)"

/* One row for each lock in the server, or one without a lock, in the order of the queue. A grant
 * that is older than the backend was another backend's with the same number. */
#define VIEW_AS(ours, token)                                                                       \
    " l.pid, l.granted, l.shared, " WAITED_MS ", coalesce(a.application_name, ''), "               \
    "l.pid is not null and l.pid = r.backend and l.shared = r.shared and "                         \
    "a.backend_start <= r.since as " ours ", " token ", "                                          \
    "r.owner, r.host, r.pid, r.command, " AGE(                                                     \
        "r.since") ", case when r.delay_ms is not null "                                           \
                   "then greatest(r.delay_ms, -" AGE("r.hold_until") ") else -" AGE(               \
                       "r.hold_until") " end, "                                                    \
                                       "r.shared "
#define VIEW       VIEW_AS("ours", "r.token")
#define VIEW_DRAWN VIEW_AS(OURS_OR_NO_ROW, "r.token")
#define VIEW_BARE                                                                                  \
    " l.pid, l.granted, l.shared, coalesce(l.waits, 0), coalesce(a.application_name, ''), false, " \
    "null, null, null, null, null, null, null, null "
/* The name's record, as the last column of show. */
#define RECORD(mode)                                                                               \
    ", (select record from stile.last_holder where name = $1::text and mode = '" mode "') "
#define ORDER "l.granted desc, r.backend = l.pid desc, l.waits desc nulls last, l.pid"

/* $1: the name as it is stored, $2: its key unless that is its hash, $3: objsubid. */
const struct statement postgres_sql_show = {
    0, "select $1::text as " TAG "," VIEW
       "from (select 1) one left join stile.lock r on r.name = $1::text "
       "left join " LOCKS " l on l.id = coalesce($2::bigint, hashtextextended($1::text, 0)) and "
       "l.objsubid = $3::smallint "
       "left join pg_stat_activity a on a.pid = l.pid order by " ORDER};
/* The second one with the record. */
#define SHOW_QUEUE(token, record)                                                                  \
    {                                                                                              \
        0, "select $1::text as " TAG "," VIEW_AS(OURS_OR_NO_ROW, token) record                     \
            "from (select 1) one left join stile.lock r on r.name = $1::text "                     \
            "left join " LOCKS_AND_LINE                                                            \
            " l on l.id = coalesce($2::bigint, hashtextextended($1::text, 0)) and "                \
            "l.objsubid = $3::smallint "                                                           \
            "left join pg_stat_activity a on a.pid = l.pid order by " ORDER                        \
    }
const struct statement postgres_sql_show_queue[2] = {SHOW_QUEUE("r.token", ""),
                                                     SHOW_QUEUE("r.token", RECORD("advisory"))};
/* A free name's row may lack its last grants. So the token is one that no grant of any name has
 * exceeded, and all later ones will: the last that was drawn, or all of an epoch that is over. */
#define TOKEN_OR_BOUND                                                                             \
    "case when l.pid = r.backend or r.hold_until > clock_timestamp() or r.delay_ms is not null "   \
    "then r.token else greatest(r.token, coalesce((select pg_sequence_last_value('stile.tokens') " \
    "from stile.life f where " IS_ALIVE "), (select e.epoch * 1048576 + 1048575 from stile.epoch " \
    "e))) end"
const struct statement postgres_sql_show_draws[2] = {
    SHOW_QUEUE(TOKEN_OR_BOUND, ""), SHOW_QUEUE(TOKEN_OR_BOUND, RECORD("advisory"))};
const struct statement postgres_sql_show_bare = {
    0, "select $1::text as " TAG "," VIEW_BARE "from (select 1) one "
       "left join " LOCKS " l on l.id = coalesce($2::bigint, hashtextextended($1::text, 0)) and "
       "l.objsubid = $3::smallint "
       "left join pg_stat_activity a on a.pid = l.pid order by l.granted desc, "
       "l.waits desc nulls last, l.pid"};

/* $1: a prefix, or NULL. */
const struct statement postgres_sql_list = {
    0,
    "select r.name as " TAG "," VIEW "from stile.lock r left join " LOCKS " l on l.id = r.key and "
    "l.objsubid = r.sub left join pg_stat_activity a on a.pid = l.pid "
    "where ($1::text is null or starts_with(r.name, $1::text) or starts_with(r.name, E'\\x01')) "
    "and not starts_with(r.name, E'\\x02') and (l.pid is not null or r.hold_until > "
    "clock_timestamp() or r.delay_ms is not null) "
    "order by r.name, " ORDER};
const struct statement postgres_sql_list_queue = {
    0, "select r.name as " TAG "," VIEW_DRAWN "from stile.lock r left join " LOCKS_AND_LINE
       " l on l.id = r.key and "
       "l.objsubid = r.sub left join pg_stat_activity a on a.pid = l.pid "
       "where ($1::text is null or starts_with(r.name, $1::text) or starts_with(r.name, E'\\x01')) "
       "and not starts_with(r.name, E'\\x02') and (l.pid is not null or r.hold_until > "
       "clock_timestamp() or r.delay_ms is not null) "
       "order by r.name, " ORDER};

/* Of sessions that count, without the marks of waiters and of idle workers. */
const struct statement postgres_sql_undescribed = {
    0,
    "select count(*) as " TAG " from " LOCKS " l join pg_stat_activity a on a.pid = l.pid left "
    "join stile.lock r on r.key = l.id and r.sub = l.objsubid and r.backend = l.pid and not "
    "r.shared where l.granted and not l.shared and l.objsubid = 1 and r.name is null and "
    "a.application_name like 'stile+:%' and l.id not in (select stile.mark(w.ticket) from "
    "stile.waiting w union all select stile.job_mark(i.backend, i.queue) from stile.job_idle i)"};

/* Without a schema the names are not known: held locks are shown by their number. */
const struct statement postgres_sql_list_bare = {
    0, "select '#' || case l.objsubid when 1 then l.id::text else (l.id >> 32)::int || ',' || "
       "((l.id & 4294967295) << 32 >> 32)::text end as " TAG "," VIEW_BARE "from " LOCKS
       " l left join pg_stat_activity a on a.pid = l.pid where $1::text is null or true "
       "order by 1, l.granted desc, l.waits desc nulls last, l.pid"};

/* $1: the name as it is stored, $2: its key unless that is its hash, $3: objsubid, $4: the token,
 * $5: the host and the pid that break it. */
#define TELL_HOLDERS                                                                               \
    "pg_notify('stile', 'b ' || $3::text || ' ' || "                                               \
    "coalesce($2::bigint, hashtextextended($1::text, 0)) || ' ' || $4::text || ' ' || $5::text)"
const struct statement postgres_sql_break = {
    0, "select stile.unhold($1::text, $4::text::bigint) as " TAG ", " TELL_HOLDERS};
const struct statement postgres_sql_break_bare = {0, "select false as " TAG ", " TELL_HOLDERS};
const struct statement postgres_sql_terminate = {0, "select pg_terminate_backend($1::int) as " TAG};

/* ---- mode=row ---- */

/* The mark of a claim, and one more of those that share. */
#define MARK        "hashtextextended($1::text, 1)"
#define MARK_SHARED "1937009004"
/* $2: for how many ms it has waited before. Until the end of the transaction, its name says when
 * that began. */
#define NOTE_WAIT                                                                                  \
    "set_config('application_name', left(current_setting('application_name'), 48) || ' /' || "     \
    "(extract(epoch from clock_timestamp()) * 1000)::bigint - $2::bigint, true)"
#define TAKE(n, shared, how)                                                                       \
    {                                                                                              \
        n, "select " MARK " as " TAG " from (select set_config('lock_timeout', '" SLICE            \
           "', true), " NOTE_WAIT ", pg_advisory_xact_lock_shared(" MARK ")" shared                \
           " offset 0) mark, stile.row_lock r where r.name = $1::text for " how                    \
    }
#define ALSO_SHARED ", pg_advisory_xact_lock_shared(" MARK_SHARED ", 0)"
/* No name of a lock begins with \2. */
#define COUNTER "E'\\x02' || $1::text"

const struct statement postgres_sql_row_make = {
    1, "insert into stile.row_lock (name) values ($1::text) on conflict do nothing"};
const struct statement postgres_sql_row_begin = {2, "begin"};
const struct statement postgres_sql_row_take[2][2] = {
    {TAKE(3, "", "update of r skip locked"), TAKE(4, "", "update of r")},
    {TAKE(5, ALSO_SHARED, "share of r skip locked"), TAKE(6, ALSO_SHARED, "share of r")},
};
const struct statement postgres_sql_row_end = {7, "commit"};
/* A crash ends the lock anyway: the row need not be on disk. */
const struct statement postgres_sql_row_ttl = {
    8, "select set_config('idle_in_transaction_session_timeout', $1::text, false), "
       "set_config('lock_timeout', $2::text, false), "
       "set_config('synchronous_commit', 'off', false) as " TAG};
const struct statement postgres_sql_row_count = {
    9, "select stile.row_granted($1::text, $2::int, $3::boolean, $4::bigint, $5::bigint, $6::text, "
       "$7::text, $8::int, $9::text) as " TAG};
const struct statement postgres_sql_row_end_hold = {10, "select stile.let_go(" COUNTER
                                                        ", $2::bigint, $3::boolean) as " TAG};

#define ROW_LOCKS                                                                                  \
    "(select (m.classid::bigint << 32) | m.objid::bigint as id, exists (select from pg_locks s "   \
    "where s.pid = m.pid and s.locktype = 'advisory' and s.objsubid = 2 and s.classid "            \
    "= " MARK_SHARED "::oid) as shared, w.pid is null as granted, m.pid, (extract(epoch from "     \
    "clock_timestamp() - w.waitstart) * 1000)::bigint as waits from pg_locks m left join "         \
    "pg_locks w on w.pid = m.pid and not w.granted where m.locktype = 'advisory' and "             \
    "m.objsubid = 1 and m.granted and m.mode = 'ShareLock' and m.database = (select oid from "     \
    "pg_database where datname = current_database()))"
#define ROW_SHOW(record)                                                                           \
    {                                                                                              \
        0, "select $1::text as " TAG "," VIEW record                                               \
           "from (select 1) one left join stile.lock r on r.name = " COUNTER                       \
           " left join " ROW_LOCKS " l on l.id = " MARK                                            \
           " left join pg_stat_activity a on a.pid = l.pid order by " ORDER                        \
    }
const struct statement postgres_sql_row_show[2] = {ROW_SHOW(""), ROW_SHOW(RECORD("row"))};
const struct statement postgres_sql_row_list = {
    0, "select substr(r.name, 2) as " TAG "," VIEW "from stile.lock r left join " ROW_LOCKS
       " l on l.id = r.key left join pg_stat_activity a on a.pid = l.pid "
       "where starts_with(r.name, E'\\x02') and ($1::text is null or "
       "starts_with(r.name, " COUNTER ") or starts_with(r.name, E'\\x02\\x01')) "
       "and (l.pid is not null or r.hold_until > clock_timestamp() or r.delay_ms "
       "is not null) "
       "order by r.name, " ORDER};
/* $2: the token, $3: the host and the pid. */
const struct statement postgres_sql_row_break = {
    0, "select stile.unhold(" COUNTER ", $2::text::bigint) as " TAG
       ", pg_notify('stile', 'b 1 ' || " MARK " || ' ' || $2::text || ' ' || $3::text)"};

/* ---- mode=table ---- */

const struct statement postgres_sql_table_greeting = {0, "select " GREETED};
/* Where the session is ours alone. $1: the search_path; NULL: the role's own. */
const struct statement postgres_sql_table_settings = {
    0, "select set_config('statement_timeout', '0', false), "
       "set_config('lock_timeout', '2s', false), "
       "set_config('idle_in_transaction_session_timeout', '0', false), "
       "set_config('idle_session_timeout', '0', false), "
       "set_config('default_transaction_isolation', 'read committed', false), "
       "set_config('default_transaction_read_only', 'off', false), "
       "case when current_setting('transaction_timeout', true) <> '0' then "
       "set_config('transaction_timeout', '0', false) end, "
       "set_config('search_path', coalesce($1::text, current_setting('search_path')), false)"};
const struct statement postgres_sql_table_test = {0, "select pg_notify($1::text, 't') as " TAG};
const struct statement postgres_sql_table_claim = {
    47, "select stile.table_claim($1::text, $2::text, $3::text, $4::int, $5::bigint, $6::bigint, "
        "$7::bigint, $8::boolean, $9::text, $10::text, $11::int, $12::text) as " TAG};
/* "a": ask again; "w MS AHEAD": held by others for MS, with AHEAD waiters before it. When a
 * lease before it has run out, the first waiter asks at once, and the others follow one by one
 * within a second, in case the first is dead. No more than twenty are counted. */
#define LOOK                                                                                       \
    "select case when x.waits and x.ends + m.ahead * interval '50 ms' > clock_timestamp() then "   \
    "'w ' || ceil(extract(epoch from x.ends + m.ahead * interval '50 ms' - clock_timestamp()) * "  \
    "1000)::bigint || ' ' || m.ahead else 'a' end as " TAG                                         \
    " from (select min(c.expires_at) filter (where c.owner <> $2::text) as ends, "                 \
    "coalesce(bool_or(c.owner = $2::text and not c.held), false) as waits "                        \
    "from stile.claim c where c.name = $1::text) x, (select count(*) as ahead from (select 1 "     \
    "from stile.claim b join stile.claim me on me.owner = $2::text where b.name = $1::text and "   \
    "b.place < me.place and not b.held limit 20) few) m"

const struct statement postgres_sql_table_look = {63, LOOK};
const struct statement postgres_sql_table_look_alive = {
    0, "with alive as (update stile.claim set expires_at = clock_timestamp() + $3::bigint * "
       "interval '1 ms' where owner = $2::text and not held) " LOOK};
const struct statement postgres_sql_table_keep = {
    0, "with kept as (update stile.claim set expires_at = clock_timestamp() + $2::bigint * "
       "interval '1 ms' where owner = any($1::text[]) and not held returning 1) "
       "select count(*) as " TAG " from kept"};
/* "h": the lock was handed over, and the release is not synced yet. */
const struct statement postgres_sql_table_release = {
    48, "select case when not stile.table_release($1::text, $2::text, $3::boolean) then 'f' when "
        "current_setting('stile.syncs_later') = 'handed' then 'h' else 't' end as " TAG
        " from (select set_config('stile.syncs_later', 'on', true) offset 0) s"};
/* A commit that has written something is on disk, with all before it. */
const struct statement postgres_sql_table_sync = {
    49, "select pg_logical_emit_message(true, 'stile', '')::text as " TAG
        " from (select stile.durably() offset 0) d"};
const struct statement postgres_sql_table_renew = {
    0, "select stile.table_renew($1::text[], $2::bigint[]) as " TAG};
const struct statement postgres_sql_table_resume = {
    0, "select stile.table_resume($1::text, $2::text, t.ttl) as " TAG ", t.ttl from (select "
       "coalesce($3::bigint, (select c.ttl_ms from stile.claim c where c.owner = $2::text), 1) as "
       "ttl) t"};
const struct statement postgres_sql_table_break = {
    0, "select stile.table_break($1::text, $2::bigint) as " TAG
       " from (select set_config('stile.broken_by', $3::text, true) offset 0) by"};

/* A claim that has expired while a hold lasts is a ghost, whether or not a client has marked it
 * as one. */
#define ENDS                                                                                       \
    "case when c.held and c.confirmed and not c.ghost then greatest(c.expires_at, c.hold_until, "  \
    "c.expires_at + c.delay_ms * interval '1 ms') else c.expires_at end"
#define TABLE_VIEW                                                                                 \
    " c.held, c.ghost or c.expires_at <= clock_timestamp(), c.mode, c.token, " AGE(                \
        "c.since") ", "                                                                            \
                   "-" AGE(                                                                        \
                       "case when c.expires_at <= clock_timestamp() then " ENDS                    \
                       " else c.expires_at end") ", c.pid, c.host, c.command, c.owner, n.token "

#define TABLE_SHOW(record)                                                                         \
    {                                                                                              \
        0, "select $1::text as " TAG "," TABLE_VIEW record                                         \
           "from (select 1) one left join stile.counter n on n.name = "                            \
           "$1::text left join stile.claim c on c.name = n.name and " ENDS                         \
           " > clock_timestamp() order by c.held desc, c.place"                                    \
    }
const struct statement postgres_sql_table_show[2] = {TABLE_SHOW(""), TABLE_SHOW(RECORD("table"))};
const struct statement postgres_sql_table_list = {
    0, "select c.name as " TAG "," TABLE_VIEW
       "from stile.claim c join stile.counter n on n.name = c.name "
       "where ($1::text is null or starts_with(c.name, $1::text) or starts_with(c.name, E'\\x01')) "
       "and " ENDS " > clock_timestamp() order by c.name, c.held desc, c.place"};

/* ---- the record of the last holder ---- */

const struct statement postgres_sql_remember = {
    0, "select stile.remember($1::text, $2::text, $3::bigint, $4::text) as " TAG};

/* ---- for the doctor ---- */

#define OURS                                                                                       \
    "(select c.* from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = " \
    "'stile' and c.relkind = 'r')"
#define TOKENS                                                                                     \
    "(select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname " \
    "= 'stile' and c.relname = 'tokens')"
const struct statement postgres_sql_facts = {
    0, "select pg_is_in_recovery() as " TAG ", exists (select from " OURS
       " c where c.relname = 'version'), "
       /* The missing privileges, as the statement that grants them. */
       "(select string_agg(format('GRANT %s TO %I;', g.what, current_user), E'\\n') from (select "
       "'USAGE ON SCHEMA stile' as what from pg_namespace n where n.nspname = 'stile' and not "
       "has_schema_privilege(n.oid, 'usage') union all select string_agg(p.word, ', ' order by "
       "p.word) || ' ON stile.' || c.relname from " OURS " c, unnest(array['SELECT', 'INSERT', "
       "'UPDATE', 'DELETE']) p (word) where not has_table_privilege(c.oid, p.word) and (p.word = "
       "'SELECT' or c.relname not in ('version', 'floor', 'life')) and (p.word <> 'UPDATE' or "
       "c.relname <> 'version') "
       /* The functions of guards and of epochs run with their owner's rights. */
       "and c.relname not like 'guard%' and c.relname <> 'epoch' group by c.relname union all "
       "select 'USAGE ON SEQUENCE stile.tokens' from " TOKENS " t where not "
       "has_sequence_privilege(t.oid, 'usage')) g), "
       "not exists (select from " OURS " c where c.relpersistence <> 'p' and c.relname not in "
       "('waiting', 'job_idle', 'life')), "
       "current_setting('fsync')::boolean, current_setting('full_page_writes')::boolean, "
       "(select count(*) from pg_stat_replication), "
       "current_setting('synchronous_standby_names') <> '', "
       "current_setting('max_connections')::int - "
       "current_setting('superuser_reserved_connections')::int - (select count(*) from "
       "pg_stat_activity where backend_type = 'client backend'), "
       "exists (select from " OURS " c where c.relname = 'waiting'), " ROOM
       ", (select count(*) from pg_locks), "
       "exists (select from " OURS
       " c where c.relname = 'last_holder'), " HAS_FUNCTION("cell_write") " and " HAS_FUNCTION(
           "cell_keep") ", exists (select from " TOKENS " t), "
                        "not exists (select from " OURS
                        " c where c.relname = 'life' and c.relpersistence <> 'u'), "
                        /* The same for cells and guards, whose functions are all that they need. */
                        "(select 'GRANT EXECUTE ON FUNCTION ' || string_agg('stile.' || p.proname, "
                        "', ' order by p.proname) || format(' TO %I;', current_user) from pg_proc "
                        "p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'stile' "
                        "and p.proname in ('cell_get', 'cell_write', 'cell_keep', 'cell_reset', "
                        "'cell_list') and not has_function_privilege(p.oid, 'execute'))"};

/* ---- ShedLock's table: its own statements for mode=table, with the same parameters ---- */

/* ShedLock's timestamps have no zone, and are UTC. */
#define NOW       "timezone('utc', clock_timestamp())"
#define MS        " * interval '1 ms'"
#define SHED_OURS "'^~?[0-9a-f]{32} '"
#define SHED_PID  "'^~?[0-9a-f]{32} (\\d+)@'"
#define EPOCH     "(extract(epoch from "

#define FREE "s.lock_until <= " NOW

/* ShedLock's own claims have no token. Ours have one if the schema of stile is there: in its
 * table of counters, their names begin with \3. */
#define SHED_COUNTER "E'\\x03@T@:' || "
static const char counted[] =
    "insert into stile.counter as n (name, token) select " SHED_COUNTER
    "p.name, f.token + 1 from won, p, stile.floor f on conflict (name) do update set token = "
    "n.token + 1 returning n.token";
static const char uncounted[] = "select 0 as token from won";

/* A crash must not forget an acknowledged commit, whatever the role's defaults say. A repeated
 * claim with the same owner may hold it already. */
static const char claim_sql[] =
    "with p (name, owner, mode, slots, ttl_ms, hold_ms, delay_ms, wait, channel, host, pid, "
    "command) "
    "as (values ($1::text, $2::text, $3::text, $4::int, $5::bigint, $6::bigint, $7::bigint, "
    "$8::boolean, $9::text, $10::text, $11::int, $12::text)), "
    "t as (select " NOW " as now, set_config('synchronous_commit', case when "
    "current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then 'on' else "
    "current_setting('synchronous_commit') end, true)), "
    "won as (insert into @T@ as s (name, lock_until, locked_at, locked_by) select p.name, "
    "t.now + greatest(p.ttl_ms, p.hold_ms)" MS ", t.now, left(p.owner || ' ' || p.pid || '@' || "
    "p.host || ' ' || p.command, 255) from p, t on conflict (name) do update set lock_until = "
    "excluded.lock_until, locked_at = excluded.locked_at, locked_by = excluded.locked_by "
    "where " FREE " or starts_with(s.locked_by, $2::text) returning s.name), "
    "counted as (@N@) "
    "select coalesce((select 'g ' || token from counted), 'b ' || greatest(1, (select ceil(" EPOCH
    "s.lock_until - t.now)) * 1000) from @T@ s, t, p where s.name = p.name))) as " TAG;
/* $4: hold_at_least. A ~ in front of locked_by marks a name that is only held back, without a
 * holder. */
static const char release_sql[] =
    "with r as (update @T@ s set lock_until = k.till, locked_by = case when k.till > " NOW
    " then left('~' || s.locked_by, 255) else s.locked_by end from (select case when $3::boolean "
    "then " NOW " else greatest(" NOW ", h.locked_at + $4::bigint" MS ") end as till from @T@ h "
    "where h.name = $1::text) k where s.name = $1::text and starts_with(s.locked_by, $2::text) and "
    "s.lock_until > " NOW " returning 1) select exists (select from r) as " TAG;
static const char renew_sql[] =
    "update @T@ s set lock_until = greatest(s.lock_until, " NOW " + r.ttl_ms" MS ") from "
    "unnest($1::text[], $2::bigint[]) r (owner, ttl_ms) where left(s.locked_by, 32) = r.owner "
    "and s.lock_until > " NOW " returning r.owner as " TAG;
static const char resume_sql[] =
    "with r as (update @T@ s set lock_until = greatest(s.lock_until, " NOW " + $3::bigint" MS ") "
    "where s.name = $1::text and starts_with(s.locked_by, $2::text) and s.lock_until > " NOW
    " returning s.name) select coalesce(@N@, 0) as " TAG " from r";
static const char break_sql[] =
    "with h as (select coalesce(@N@, 0) as token from @T@ r where r.name = $1::text and "
    "r.lock_until > " NOW "), b as (update @T@ s set lock_until = " NOW " from h where s.name = "
    "$1::text and $2::bigint in (0, h.token) returning 1) "
    "select case when exists (select from h) then (select count(*) from b) else -1 end as " TAG;

#define SHED_RECORD RECORD("shedlock @T@")
#define SHED_VIEW                                                                                  \
    "s.name is not null, starts_with(s.locked_by, '~'), 'exclusive', @N@, " EPOCH NOW              \
    " - s.locked_at) * 1000)::bigint, " EPOCH "s.lock_until - " NOW                                \
    ") * 1000)::bigint, substring(s.locked_by from " SHED_PID "), "                                \
    "case when s.locked_by ~ " SHED_OURS " then substring(s.locked_by from '@([^ ]*)') else "      \
    "s.locked_by end, case when s.locked_by ~ " SHED_OURS                                          \
    " then substring(s.locked_by from '@[^ ]* "                                                    \
    "(.*)') else '' end, case when s.locked_by ~ " SHED_OURS                                       \
    " then left(ltrim(s.locked_by, '~'), 32) else "                                                \
    "s.locked_by end, @N@ "
#define SHED_SHOW(record)                                                                          \
    "select r.name as " TAG ", " SHED_VIEW record                                                  \
    "from (select $1::text as name) r left join @T@ s on s.name = r.name and s.lock_until > " NOW
static const char show_sql[2][sizeof SHED_SHOW(SHED_RECORD)] = {SHED_SHOW(""),
                                                                SHED_SHOW(SHED_RECORD)};
static const char list_sql[] =
    "select r.name as " TAG ", " SHED_VIEW "from @T@ r join @T@ s on s.name = r.name where "
    "r.lock_until > " NOW " and ($1::text is null or starts_with(r.name, "
    "$1::text) or starts_with(r.name, E'\\x01')) order by r.name";
static const char token_sql[] =
    "(select n.token from stile.counter n where n.name = " SHED_COUNTER "r.name)";

static char *expand(const struct pg *pg, const char *pattern, const char *other)
{
    char *inner = sql_shedlock_expand(other, pg->options.table, "");
    char *text = inner ? sql_shedlock_expand(pattern, pg->options.table, inner) : NULL;
    free(inner);
    return text;
}

enum stile_status postgres_shedlock_prepare(struct pg *pg, struct stile_error *err)
{
    const char *token = pg->bare ? "null::bigint" : token_sql;
    const struct {
        struct statement *statement;
        const char *pattern, *other;
    } all[SHEDLOCK_STATEMENTS] = {{&pg->table.claim, claim_sql, pg->bare ? uncounted : counted},
                                  {&pg->table.release, release_sql, ""},
                                  {&pg->table.renew, renew_sql, ""},
                                  {&pg->table.resume, resume_sql, token},
                                  {&pg->table.break_, break_sql, token},
                                  {&pg->table.show, show_sql[pg->remembers], token},
                                  {&pg->table.list, list_sql, token}};
    for (size_t i = 0; i < SHEDLOCK_STATEMENTS; i++) {
        pg->shedlock[i] = expand(pg, all[i].pattern, all[i].other);
        if (!pg->shedlock[i])
            return error_set(err, STILE_NOMEM, 0, "out of memory");
        *all[i].statement = (struct statement){0, pg->shedlock[i]};
    }
    return STILE_OK;
}

void postgres_shedlock_free(struct pg *pg)
{
    for (size_t i = 0; i < SHEDLOCK_STATEMENTS; i++)
        free(pg->shedlock[i]);
}
