/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: rows of stile.job, and one function of the schema for each request. No job depends on a
 * session, so jobs work the same in every mode, and through a pooler. Workers that wait are
 * woken by NOTIFY, where notifications arrive. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/pg.h"

#define LISTED_MAX 1000000
#define UNDONE_MAX 5

#define ACK "select t as " TAG " from stile.job_ack($1::bigint[]) t"

#define LEASE "$3::bigint"

#define ADD                                                                                        \
    "select stile.job_add($1::text, e.payload, e.key, $4::bigint) as " TAG " "                     \
    "from (select stile.job_durably() offset 0) first, "                                           \
    "unnest($2::bytea[], $3::text[]) with ordinality e (payload, key, n) order by e.n"
#define FAIL                                                                                       \
    "select t as " TAG " from stile.job_fail($1::bigint[], $2::bigint[], $3::boolean[], "          \
    "$4::text) t"
#define CLAIM                                                                                      \
    "select j.*, null as " TAG " from stile.job_claim($1::text, $2::int, " LEASE                   \
    ", $4::int, $5::text, $6::text, $7::int, $8::bigint[]) j"
#define CLAIM_AND_REST                                                                             \
    "select j.*, null as " TAG " from stile.job_claim($1::text, $2::int, " LEASE                   \
    ", $4::int, $5::text, $6::text, $7::int, $8::bigint[], $9::text) j"
#define LEAVE        "select stile.job_leave($1::text, $2::text) as " TAG
#define GIVE_BACK    "select t as " TAG " from stile.job_give_back($1::bigint[]) t"
#define EXTEND       "select t as " TAG " from stile.job_extend($1::bigint[], $2::bigint) t"
#define RETRY        "select stile.job_retry($1::text, $2::bigint) as " TAG
#define DROP         "select stile.job_drop($1::text, $2::bigint) as " TAG
#define MS_SINCE(at) "(extract(epoch from clock_timestamp() - " at ") * 1000)::bigint"
#define MS_TO_DUE                                                                                  \
    "(extract(epoch from coalesce(claimed_until, run_at) - clock_timestamp()) * 1000)::bigint"
/* The rows of a queue for inspection. */
#define ROWS_OF(payload, error)                                                                    \
    "select id as " TAG ", token, tries, key, " payload ", " error                                 \
    ", " MS_SINCE("added_at") ", " MS_TO_DUE ", queue, state, octet_length(payload), case state "  \
                              "when 'claimed' then host end, "                                     \
                              "pid from stile.job where queue = $1::text "
#define LISTED ROWS_OF("null", "split_part(last_error, E'\\n', 1)")
/* In due order, which the index of the due has, if there is no dead job among them. */
#define FIRST_DUE "order by coalesce(claimed_until, run_at), id limit $2::int"
#define LIST      LISTED "order by state = 'dead', coalesce(claimed_until, run_at), id limit $2::int"
#define LIST_READY                                                                                 \
    LISTED "and state <> 'dead' and state = 'ready' and run_at <= clock_timestamp() " FIRST_DUE
#define LIST_DELAYED                                                                               \
    LISTED "and state <> 'dead' and state = 'ready' and run_at > clock_timestamp() " FIRST_DUE
#define LIST_CLAIMED LISTED "and state <> 'dead' and state = 'claimed' " FIRST_DUE
#define LIST_DEAD    LISTED "and state = 'dead' order by id limit $2::int"
/* What SQL may have added is bounded: it is more than a library reads. */
#define SHOW                                                                                       \
    ROWS_OF("case when octet_length(payload) <= 1048576 then payload end",                         \
            "left(last_error, 4096)")                                                              \
    "and id = $2::bigint"
#define OLDEST MS_SINCE("min(run_at) filter (where state = 'ready')")
#define COUNT                                                                                      \
    "select queue as " TAG ", "                                                                    \
    "count(*) filter (where state = 'ready' and run_at <= clock_timestamp()), "                    \
    "count(*) filter (where state = 'ready' and run_at > clock_timestamp()), "                     \
    "count(*) filter (where state = 'claimed'), count(*) filter (where state = 'dead'), "          \
    "coalesce(greatest(0, " OLDEST "), 0) "                                                        \
    "from stile.job where $1::text in ('', queue) group by queue order by queue"
#define LISTEN "listen stile_job"

/* Prepared where the session is ours alone; no other statement uses these numbers. */
static const struct statement prepared[JOB_VERBS] = {
    [JOB_ADD] = {50, ADD},    [JOB_CLAIM] = {51, CLAIM},         [JOB_ACK] = {52, ACK},
    [JOB_FAIL] = {53, FAIL},  [JOB_GIVE_BACK] = {54, GIVE_BACK}, [JOB_EXTEND] = {55, EXTEND},
    [JOB_COUNT] = {0, COUNT}, [JOB_RETRY] = {0, RETRY},          [JOB_DROP] = {0, DROP},
    [JOB_SHOW] = {0, SHOW},
};
static const struct statement parsed[JOB_VERBS] = {
    [JOB_ADD] = {0, ADD},     [JOB_CLAIM] = {0, CLAIM},         [JOB_ACK] = {0, ACK},
    [JOB_FAIL] = {0, FAIL},   [JOB_GIVE_BACK] = {0, GIVE_BACK}, [JOB_EXTEND] = {0, EXTEND},
    [JOB_COUNT] = {0, COUNT}, [JOB_RETRY] = {0, RETRY},         [JOB_DROP] = {0, DROP},
    [JOB_SHOW] = {0, SHOW},
};
static const struct statement filtered[] = {
    [STILE_JOBS_ALL] = {0, LIST},
    [STILE_JOBS_READY] = {0, LIST_READY},
    [STILE_JOBS_DELAYED] = {0, LIST_DELAYED},
    [STILE_JOBS_CLAIMED] = {0, LIST_CLAIMED},
    [STILE_JOBS_DEAD] = {0, LIST_DEAD},
};
/* For a schema that knows which clients wait. */
static const struct statement prepared_claim = {56, CLAIM_AND_REST};
static const struct statement parsed_claim = {0, CLAIM_AND_REST};
static const struct statement leave_statement = {0, LEAVE};
static const struct statement listen_statement = {0, LISTEN};

/* ---- answers ---- */

enum { ID, TOKEN, TRIES, KEY, PAYLOAD, LAST_ERROR, AGE, DUE, QUEUE, STATE, SIZE, HOST, PID };

static int64_t number(const PGresult *result, int row, int column)
{
    return strtoll(postgres_value(result, row, column), NULL, 10);
}

static const char *text_or(const PGresult *result, int row, int column, const char *nothing)
{
    return PQgetisnull(result, row, column) ? nothing : postgres_value(result, row, column);
}

static enum stile_job_state state_named(const char *name)
{
    return *name == 'r' ? STILE_JOB_READY : *name == 'd' ? STILE_JOB_DEAD : STILE_JOB_CLAIMED;
}

static void report(struct job_request *request, const PGresult *result, int row)
{
    char queue[STILE_NAME_MAX + 1], key[STILE_NAME_MAX + 1];
    bool listed = request->verb != JOB_CLAIM;
    size_t size = 0;
    unsigned char *payload = NULL;
    if (!PQgetisnull(result, row, PAYLOAD)) {
        payload =
            PQunescapeBytea((const unsigned char *)postgres_value(result, row, PAYLOAD), &size);
        if (!payload)
            return; /* out of memory; a claimed job is due again after its lease */
    }
    struct stile_job job = {
        .id = (uint64_t)number(result, row, ID),
        .token = (uint64_t)number(result, row, TOKEN),
        .queue = listed && postgres_name_restore(queue, postgres_value(result, row, QUEUE))
                     ? queue
                     : request->queue,
        .key = !PQgetisnull(result, row, KEY) &&
                       postgres_name_restore(key, postgres_value(result, row, KEY))
                   ? key
                   : NULL,
        .payload = payload,
        .payload_size = payload ? size : (size_t)number(result, row, SIZE),
        .state = listed ? state_named(postgres_value(result, row, STATE)) : STILE_JOB_CLAIMED,
        .tries = (unsigned)number(result, row, TRIES),
        .due_ms = listed ? number(result, row, DUE) : request->lease_ms,
        .age_ms = number(result, row, AGE),
        .last_error = text_or(result, row, LAST_ERROR, ""),
        .host = listed ? text_or(result, row, HOST, "") : pg_of(request->engine)->identity.host,
        .pid = listed ? number(result, row, PID) : atoll(pg_of(request->engine)->identity.pid)};
    request->engine->events->job(request, &job);
    PQfreemem(payload);
}

static void tell_queue(struct job_request *request, const PGresult *result, int row)
{
    char name[STILE_NAME_MAX + 1];
    if (!postgres_name_restore(name, postgres_value(result, row, 0)))
        return;
    const struct stile_queue queue = {.name = name,
                                      .ready = (uint64_t)number(result, row, 1),
                                      .delayed = (uint64_t)number(result, row, 2),
                                      .claimed = (uint64_t)number(result, row, 3),
                                      .dead = (uint64_t)number(result, row, 4),
                                      .oldest_ms = number(result, row, 5)};
    request->engine->events->job_queue(request, &queue);
}

static void take_row(struct job_request *request, const PGresult *result, int row)
{
    switch (request->verb) {
    case JOB_CLAIM:
        if (!PQgetisnull(result, row, ID))
            report(request, result, row);
        else if (!PQgetisnull(result, row, TOKEN))
            request->engine->events->job_mark(request, (uint64_t)number(result, row, TOKEN));
        else if (!PQgetisnull(result, row, DUE))
            request->due_ms = number(result, row, DUE) > 0 ? number(result, row, DUE) : 0;
        break;
    case JOB_LIST:
    case JOB_SHOW:
        report(request, result, row);
        break;
    case JOB_COUNT:
        tell_queue(request, result, row);
        break;
    case JOB_ADD:
        if ((size_t)row < request->n_entries)
            request->ids[row] = (uint64_t)number(result, row, 0);
        break;
    case JOB_RETRY:
    case JOB_DROP:
        request->count = (uint64_t)number(result, row, 0);
        break;
    default:
        request->engine->events->job_mark(request, (uint64_t)number(result, row, 0));
    }
}

static bool only_looks(enum job_verb verb)
{
    return verb == JOB_LIST || verb == JOB_SHOW || verb == JOB_COUNT;
}

/* The server rolled it back for the sake of others: a deadlock, or a role whose transactions are
 * serializable. */
static bool is_undone(const struct answer *a)
{
    return strcmp(a->sqlstate, "40001") == 0 || strcmp(a->sqlstate, "40P01") == 0;
}

static void on_answer(void *data, const struct answer *a)
{
    struct job_request *request = data;
    struct stile_error why;
    request->sent_ns = a->sent_ns;
    if (a->err && is_undone(a) && request->state[0]++ < UNDONE_MAX) {
        postgres_jobs(request->engine, request);
    } else if (a->err) {
        why = *a->err;
        if (why.status == STILE_UNREACHABLE && a->sent_ns && !only_looks(request->verb))
            why.status = STILE_UNCERTAIN;
        request->engine->events->job_done(request, &why);
    } else {
        for (int row = 0; row < PQntuples(a->result); row++)
            take_row(request, a->result, row);
        request->engine->events->job_done(request, NULL);
    }
}

/* ---- requests ---- */

/* {1,2,3} */
static char *write_list(char *at, const struct job_mark *marks, size_t n, int column)
{
    for (size_t i = 0; i < n; i++) {
        *at++ = i == 0 ? '{' : ',';
        if (column == 0)
            at += sprintf(at, "%" PRIu64, marks[i].token);
        else if (column == 1)
            at += sprintf(at, "%" PRId64, marks[i].delay_ms);
        else
            *at++ = marks[i].dead ? 't' : 'f';
    }
    *at++ = '}';
    *at = '\0';
    return at + 1;
}

/* Writes the text as an element of an array, and returns the end. */
static char *write_hex(char *out, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    char *at = stpcpy(out, "\"\\\\x");
    for (size_t i = 0; i < n; i++) {
        *at++ = digits[bytes[i] >> 4];
        *at++ = digits[bytes[i] & 15];
    }
    *at++ = '"';
    return at;
}

static char *write_key(char *out, const char *key)
{
    char stored[STORED_MAX], *at = out;
    if (!key)
        return stpcpy(out, "NULL");
    postgres_name_store(stored, key, strlen(key));
    *at++ = '"';
    for (const char *c = stored; *c; c++) {
        if (*c == '"' || *c == '\\')
            *at++ = '\\';
        *at++ = *c;
    }
    *at++ = '"';
    return at;
}

#define KEY_ROOM (2 * STORED_MAX + 4)

static size_t entries_room(const struct job_request *request)
{
    size_t room = 8;
    for (size_t i = 0; i < request->n_entries; i++)
        room += 2 * request->entries[i].size + 8 + KEY_ROOM;
    return room;
}

/* The text is UTF-8. A database of another encoding may be unable to store it, and would refuse
 * the whole report: it gets ASCII. */
static void write_text(char *out, size_t size, const char *text, bool utf8)
{
    snprintf(out, size, "%s", text);
    for (char *at = out; !utf8 && *at; at++)
        *at = (unsigned char)*at < 0x80 ? *at : '?';
}

struct words {
    const char *values[SEND_PARAMS_MAX];
    int n;
    char numbers[4][24], text[STILE_JOB_ERROR_MAX + 1], queue[STORED_MAX];
    char *room; /* lists, or the payload */
};

static void add_number(struct words *w, int64_t value)
{
    snprintf(w->numbers[w->n % 4], sizeof w->numbers[0], "%" PRId64, value);
    w->values[w->n] = w->numbers[w->n % 4];
    w->n++;
}

static void add_text(struct words *w, const char *text)
{
    w->values[w->n++] = text;
}

static void add_marks(struct words *w, const struct job_request *request, int columns)
{
    char *at = w->room;
    for (int column = 0; column < columns; column++) {
        add_text(w, at);
        at = write_list(at, request->marks, request->n, column);
    }
}

static void add_name(struct words *w, char stored[STORED_MAX], const char *name, size_t len)
{
    if (name)
        postgres_name_store(stored, name, len);
    add_text(w, name ? stored : NULL);
}

/* Two arrays: payloads, and keys. */
static void add_entries(struct words *w, const struct job_request *request)
{
    char *at = w->room;
    add_text(w, at);
    for (size_t i = 0; i < request->n_entries; i++) {
        *at++ = i == 0 ? '{' : ',';
        at = write_hex(at, request->entries[i].payload, request->entries[i].size);
    }
    at = stpcpy(at, "}") + 1;
    add_text(w, at);
    for (size_t i = 0; i < request->n_entries; i++) {
        *at++ = i == 0 ? '{' : ',';
        at = write_key(at, request->entries[i].key);
    }
    strcpy(at, "}");
}

static void put_words(struct words *w, const struct job_request *request)
{
    struct pg *pg = pg_of(request->engine);
    if (request->n > 0 && request->verb != JOB_CLAIM)
        add_marks(w, request, request->verb == JOB_FAIL ? 3 : 1);
    else
        add_name(w, w->queue, request->queue, request->queue_len);
    switch (request->verb) {
    case JOB_ADD:
        add_entries(w, request);
        add_number(w, request->delay_ms);
        break;
    case JOB_CLAIM:
        add_number(w, (int64_t)request->max);
        add_number(w, request->lease_ms);
        add_number(w, request->tries);
        add_text(w, pg->identity.owner);
        add_text(w, pg->identity.host);
        add_text(w, pg->identity.pid);
        if (request->n > 0)
            add_marks(w, request, 1);
        else
            add_text(w, NULL);
        if (pg->schema >= SCHEMA_QUEUE)
            add_text(w, request->listen && request->listening ? pg->jobs_channel : "");
        break;
    case JOB_FAIL:
        write_text(w->text, sizeof w->text, request->text, pg->utf8);
        add_text(w, w->text);
        break;
    case JOB_EXTEND:
        add_number(w, request->lease_ms);
        break;
    case JOB_LIST:
        add_number(w, request->max < LISTED_MAX ? (int64_t)request->max : LISTED_MAX);
        break;
    case JOB_SHOW:
    case JOB_RETRY:
    case JOB_DROP:
        add_number(w, (int64_t)request->id);
        break;
    default:
        break;
    }
}

static void on_listening(void *data, const struct answer *a)
{
    struct session *session = data;
    if (a->err && session->base.state == UP)
        session->hears_jobs = false;
}

/* ---- a session of its own ---- */

/* On the shared session, a jobs statement that has to wait (for a key that another transaction
 * inserts, for instance) would delay renewals. */
static void on_up(struct session *session)
{
    struct pg *pg = session->pg;
    const char *path[] = {"pg_catalog"};
    const char *encoding = PQparameterStatus(session->conn, "server_encoding");
    pg->utf8 = encoding && strcmp(encoding, "UTF8") == 0;
    if (pg->options.mode == MODE_TABLE && !pg->pooled)
        postgres_send(session, &postgres_sql_table_settings, path, 1, on_listening, session, NULL);
}

static void on_down(struct session *session)
{
    session->pg->jobs = NULL;
}

/* Notifications were missed meanwhile: waiting workers look again. */
static void on_ended(struct session *session, const struct stile_error *why)
{
    struct pg *pg = session->pg;
    (void)why;
    if (session->hears_jobs)
        pg->engine.events->job_arrived(&pg->engine, NULL);
}

static void on_notified(struct session *session, const char *payload)
{
    struct pg *pg = session->pg;
    char queue[STILE_NAME_MAX + 1];
    if (payload[0] == 'j' && payload[1] == ' ' && postgres_name_restore(queue, payload + 2))
        pg->engine.events->job_arrived(&pg->engine, queue);
}

static const struct session_events own_events = {
    .up = on_up, .down = on_down, .ended = on_ended, .notified = on_notified};

enum stile_status postgres_jobs_session(struct session **session, struct pg *pg,
                                        struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    if (!pg->jobs)
        status = postgres_connect(&pg->jobs, &pg->pool, &own_events, err);
    *session = pg->jobs;
    return status;
}

/* Two channels: one for this client alone; and one for all, which older schemas use, and clients
 * that cannot see which workers wait. */
static bool listen_for_jobs(struct session *session)
{
    struct pg *pg = session->pg;
    snprintf(pg->jobs_channel, sizeof pg->jobs_channel, "stile_job_%s", pg->identity.owner);
    snprintf(pg->listen_jobs_sql, sizeof pg->listen_jobs_sql, "listen %s", pg->jobs_channel);
    pg->listen_jobs = (struct statement){0, pg->listen_jobs_sql};
    return postgres_send(session, &pg->listen_jobs, NULL, 0, on_listening, session, NULL) ==
               STILE_OK &&
           postgres_send(session, &listen_statement, NULL, 0, on_listening, session, NULL) ==
               STILE_OK;
}

static const struct statement *statement_of(const struct pg *pg, const struct job_request *request)
{
    enum job_verb verb = request->verb;
    if (verb == JOB_LIST)
        return &filtered[request->filter];
    if (verb == JOB_CLAIM && pg->schema >= SCHEMA_QUEUE)
        return pg->pooled ? &parsed_claim : &prepared_claim;
    return pg->pooled ? &parsed[verb] : &prepared[verb];
}

static enum stile_status start(struct job_request *request, struct stile_error *err)
{
    struct pg *pg = pg_of(request->engine);
    struct session *session;
    struct words words = {.n = 0};
    if (pg->bare)
        return error_set(err, STILE_REFUSED, 0,
                         "this database has no schema `stile`, where jobs are kept: run `stile "
                         "setup URL`");
    enum stile_status status = postgres_jobs_session(&session, pg, err);
    if (status)
        return status;
    if (request->listen && !pg->pooled && !session->hears_jobs)
        session->hears_jobs = listen_for_jobs(session);
    request->listening = session->hears_jobs;
    words.room = malloc(entries_room(request) + request->n * 64 + 64);
    if (!words.room)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    put_words(&words, request);
    status = postgres_send(session, statement_of(pg, request), words.values, words.n, on_answer,
                           request, err);
    free(words.room);
    return status;
}

void postgres_jobs(struct engine *engine, struct job_request *request)
{
    struct stile_error err;
    if (start(request, &err))
        engine->events->job_done(request, &err);
}

static void on_left(void *data, const struct answer *a)
{
    (void)data, (void)a; /* its row ends with the session at the latest */
}

void postgres_jobs_left(struct engine *engine, const char *queue)
{
    struct pg *pg = pg_of(engine);
    char stored[STORED_MAX];
    const char *values[] = {stored, pg->jobs_channel};
    if (!pg->jobs || !pg->jobs->hears_jobs || pg->schema < SCHEMA_QUEUE)
        return;
    postgres_name_store(stored, queue, strlen(queue));
    postgres_send(pg->jobs, &leave_statement, values, 2, on_left, NULL, NULL);
}
