/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Cells: rows of stile.guarded, which are also the guards of users' own transactions (guard.sql).
 * Each request is one call of a function, so one transaction and one round trip, in every mode and
 * through a pooler. A write may have to wait for a user's transaction that has called the guard: it
 * does so on the session of the jobs, where it delays no renewal, and for two seconds at most. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/pg.h"

#define UNDONE_MAX 5

/* What was tried too often, in request->state. */
enum { UNDONE };

#define GET                                                                                        \
    "select answer as " TAG ", value, "                                                            \
    "(extract(epoch from clock_timestamp()) * 1000000)::bigint from stile.cell_get($1::text)"
#define WRITE                                                                                      \
    "select stile.cell_write($1::text, $2::text, $3::bytea, $4::bigint, $5::bigint, $6::text, "    \
    "$7::boolean) as " TAG
#define KEEP                                                                                       \
    "select stile.cell_keep($1::text, $2::bytea, $3::bigint, $4::bigint, $5::text, $6::boolean, "  \
    "$7::bigint) as " TAG
#define RESET "select stile.cell_reset($1::text, $2::bigint, $3::text) as " TAG
#define LIST  "select answer as " TAG ", key, size from stile.cell_list($1::bytea, $2::text)"

/* Prepared where the session is ours alone; no other statement uses these numbers. */
static const struct statement prepared[CELL_VERBS] = {
    [CELL_GET] = {57, GET},     [CELL_PUT] = {58, WRITE},  [CELL_REMOVE] = {58, WRITE},
    [CELL_RAISE] = {58, WRITE}, [CELL_RESET] = {0, RESET}, [CELL_LIST] = {0, LIST},
};
static const struct statement parsed[CELL_VERBS] = {
    [CELL_GET] = {0, GET},     [CELL_PUT] = {0, WRITE},   [CELL_REMOVE] = {0, WRITE},
    [CELL_RAISE] = {0, WRITE}, [CELL_RESET] = {0, RESET}, [CELL_LIST] = {0, LIST},
};

static const struct statement prepared_keep = {59, KEEP}, parsed_keep = {0, KEEP};

/* ---- answers ---- */

/* "OUTCOME VERSION TOKEN ISSUER", written by stile.cell_answer(). */
struct reply {
    enum stile_status outcome;
    uint64_t version, token;
    char issuer[STILE_ISSUER_MAX + 1];
};

static bool read_reply(struct reply *reply, const char *text)
{
    static const enum stile_status outcomes[] = {STILE_OK, STILE_STALE, STILE_FOREIGN,
                                                 STILE_CONFLICT};
    unsigned outcome;
    int end = 0;
    reply->issuer[0] = '\0';
    if (sscanf(text, "%1u %" SCNu64 " %" SCNu64 "%n", &outcome, &reply->version, &reply->token,
               &end) != 3 ||
        outcome > 3 || text[end] != ' ')
        return false;
    reply->outcome = outcomes[outcome];
    text += end + 1;
    return !*text || postgres_text_restore(reply->issuer, STILE_ISSUER_MAX, text);
}

/* The value of the row, or NULL; freed by the caller. False: out of memory. */
static bool read_value(unsigned char **value, size_t *size, const PGresult *result)
{
    *value = NULL;
    *size = 0;
    if (PQgetisnull(result, 0, 1))
        return true;
    *value = PQunescapeBytea((const unsigned char *)postgres_value(result, 0, 1), size);
    return *value;
}

static enum stile_status set_corrupt(struct stile_error *err)
{
    return error_set(err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
}

static enum stile_status report_one(struct cell_request *request, const PGresult *result,
                                    struct stile_error *err)
{
    struct reply reply;
    unsigned char *value = NULL;
    struct stile_cell cell = {.key = request->key, .issuer = reply.issuer};
    if (PQntuples(result) != 1 || !read_reply(&reply, postgres_value(result, 0, 0)))
        return set_corrupt(err);
    if (request->verb == CELL_GET && !read_value(&value, &cell.size, result))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    if (request->verb == CELL_GET)
        cell.time_us = strtoll(postgres_value(result, 0, 2), NULL, 10);
    cell.value = value;
    cell.version = reply.version;
    cell.token = reply.token;
    request->engine->events->cell(request, &cell);
    PQfreemem(value);
    *err = (struct stile_error){.status = reply.outcome}; /* core writes the message */
    return reply.outcome;
}

/* A key that stile has not written is left out. */
static enum stile_status report_list(struct cell_request *request, const PGresult *result,
                                     struct stile_error *err)
{
    for (int row = 0; row < PQntuples(result); row++) {
        char key[STILE_NAME_MAX + 1];
        struct reply reply;
        if (!read_reply(&reply, postgres_value(result, row, 0)))
            return set_corrupt(err);
        const struct stile_cell cell = {.key = key,
                                        .size = strtoul(postgres_value(result, row, 2), NULL, 10),
                                        .version = reply.version,
                                        .token = reply.token,
                                        .issuer = reply.issuer};
        if (postgres_name_restore(key, postgres_value(result, row, 1)))
            request->engine->events->cell(request, &cell);
    }
    return STILE_OK;
}

/* ---- the end of a request ---- */

/* The server rolled it back for the sake of others: a deadlock, or a role whose transactions are
 * serializable. */
static bool is_undone(const struct answer *a)
{
    return strcmp(a->sqlstate, "40001") == 0 || strcmp(a->sqlstate, "40P01") == 0;
}

/* A session that ends in the middle may have committed; any other error of the server is the end of
 * the transaction. */
static bool is_in_doubt(const struct cell_request *request, const struct answer *a)
{
    bool reads = request->verb == CELL_GET || request->verb == CELL_LIST;
    return !reads && a->sent_ns && a->err->status == STILE_UNREACHABLE &&
           (!*a->sqlstate || strncmp(a->sqlstate, "57P", 3) == 0);
}

static void start(struct cell_request *request);

static void on_answer(void *data, const struct answer *a)
{
    struct cell_request *request = data;
    struct stile_error err;
    if (a->err && is_undone(a) && request->state[UNDONE]++ < UNDONE_MAX) {
        start(request);
        return;
    }
    enum stile_status status;
    if (a->err) {
        error_copy(&err, a->err);
        status = err.status = is_in_doubt(request, a) ? STILE_UNCERTAIN : a->err->status;
    } else {
        status = request->verb == CELL_LIST ? report_list(request, a->result, &err)
                                            : report_one(request, a->result, &err);
    }
    request->engine->events->cell_done(request, status ? &err : NULL);
}

/* ---- requests ---- */

struct words {
    const char *values[8];
    int n;
    struct sent_bytes bytes; /* the value, or the prefix of a list */
    char key[STORED_MAX], issuer[2 * STILE_ISSUER_MAX + 2], version[24], token[24], keep[24];
};

static void add(struct words *w, const char *text)
{
    w->values[w->n++] = text;
}

static void add_number(struct words *w, char room[24], uint64_t number)
{
    snprintf(room, 24, "%" PRIu64, number);
    add(w, room);
}

static void add_write(struct words *w, const struct cell_request *request)
{
    static const char *const verbs[CELL_VERBS] = {
        [CELL_PUT] = "put", [CELL_REMOVE] = "remove", [CELL_RAISE] = "raise"};
    if (!request->keep_ns)
        add(w, verbs[request->verb]);
    add(w, w->key);
    w->bytes = (struct sent_bytes){w->n, request->size};
    add(w, request->verb == CELL_PUT ? request->value : NULL);
    if (request->any_version || request->verb == CELL_RAISE)
        add(w, NULL);
    else
        add_number(w, w->version, request->if_version);
    add_number(w, w->token, request->token);
    add(w, w->issuer);
    add(w, request->strict ? "t" : "f");
    if (request->keep_ns)
        add_number(w, w->keep, request->keep_ns / NS_PER_MS);
}

static void put_words(struct words *w, const struct cell_request *request)
{
    w->bytes.at = -1;
    postgres_name_store(w->key, request->key, request->key_len);
    postgres_text_store(w->issuer, request->issuer, strlen(request->issuer));
    switch (request->verb) {
    case CELL_GET:
        add(w, w->key);
        break;
    case CELL_LIST:
        w->bytes = (struct sent_bytes){w->n, request->key_len};
        add(w, request->key);
        add(w, *w->key == 1 ? NULL : w->key); /* it may end within a character */
        break;
    case CELL_RESET:
        add(w, w->key);
        add_number(w, w->token, request->token);
        add(w, w->issuer);
        break;
    default:
        add_write(w, request);
    }
}

static const struct statement *statement_for(const struct cell_request *request)
{
    bool pooled = pg_of(request->engine)->pooled;
    if (request->keep_ns)
        return pooled ? &parsed_keep : &prepared_keep;
    return &(pooled ? parsed : prepared)[request->verb];
}

static enum stile_status send_request(struct cell_request *request, struct stile_error *err)
{
    const struct engine *engine = request->engine;
    struct pg *pg = pg_of(request->engine);
    struct words words = {.n = 0};
    struct session *session;
    if (!pg->has_cells)
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "this database has no cells and guards yet: run `stile setup URL`, or "
                         "`stile guard install URL` for these alone");
    if (request->keep_ns && !engine->caps.keeps)
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "the cells of this database have no ends yet: run `stile setup URL`, or "
                         "`stile guard install URL` for these alone");
    enum stile_status status = postgres_jobs_session(&session, pg, err);
    if (status)
        return status;
    put_words(&words, request);
    return postgres_send_bytes(session, statement_for(request), words.values, words.n, &words.bytes,
                               on_answer, request, err);
}

static void start(struct cell_request *request)
{
    struct stile_error err;
    if (send_request(request, &err))
        request->engine->events->cell_done(request, &err);
}

static void run(struct engine *engine, struct cell_request *request)
{
    (void)engine;
    start(request);
}

const struct engine_cells postgres_cells = {
    .run = run,
};
