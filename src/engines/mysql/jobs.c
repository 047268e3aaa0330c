/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: rows of stile_job. Each request is one packet on the shared session, or a few, whose
 * statements commit one by one: none leaves a transaction open, whatever happens to it. Workers
 * never wait for one another: a claim skips locked rows. MySQL cannot notify workers of new
 * jobs: they poll. */
#include <inttypes.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/my.h"
#include "engines/mysql/statements.h"

/* ---- statements ---- */

/* One statement both changes jobs and returns what it has changed. MariaDB has no UPDATE with
 * RETURNING, but an INSERT with it: each row that is there already is found, updated and
 * returned.
 *
 * A SELECT afterwards would be worse. MariaDB 10.11 was seen to return nothing from a SELECT
 * through the index `due`, right after the UPDATE that had moved 16 rows there was committed,
 * and all of them a moment later; those jobs were lost to all workers for the time of their
 * lease. And the SELECT may fail, or be sent to a replica. On MySQL there is no other way. */

#define LISTED_MAX 1000000

static void put_hex(FILE *out, const void *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *at = bytes;
    fputs("X'", out);
    for (size_t i = 0; i < n; i++) {
        putc_unlocked(digits[at[i] >> 4], out);
        putc_unlocked(digits[at[i] & 15], out);
    }
    putc_unlocked('\'', out);
}

/* An error, which is UTF-8; the column of earlier versions has room for some ASCII. */
static void put_text(FILE *out, const struct my *my, const char *text)
{
    char plain[1024];
    size_t n = 0;
    if (my->version >= SCHEMA_LONG_ERRORS) {
        fputs("_utf8mb4 ", out);
        put_hex(out, text, strlen(text));
        return;
    }
    for (; *text && n < sizeof plain; text++)
        plain[n++] = (char)((unsigned char)*text < 0x80 ? *text : '?');
    put_hex(out, plain, n);
}

/* Rows whose last claim is one of these. */
static void put_marked(FILE *out, const struct job_mark *marks, size_t n)
{
    fputs(" WHERE id IN (", out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%" PRIu64, i ? "," : "", marks[i].token / 1000000);
    fputs(") AND token IN (", out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%" PRIu64, i ? "," : "", marks[i].token);
    fputs(")", out);
}

static void put_queue(FILE *out, const struct job_request *request)
{
    fputs(" WHERE queue=", out);
    put_hex(out, request->queue, request->queue_len);
}

#define NOW          "UTC_TIMESTAMP(6)"
#define MS_SINCE(at) "TIMESTAMPDIFF(MICROSECOND," at "," NOW ") DIV 1000"
#define MS_UNTIL(at) "TIMESTAMPDIFF(MICROSECOND," NOW "," at ") DIV 1000"

static void put_key(FILE *out, const char *key)
{
    fputs(",", out);
    if (key)
        put_hex(out, key, strlen(key));
    else
        fputs("NULL", out);
}

/* Entries from here on; MySQL cannot report the numbers of several. */
static void put_add(FILE *out, const struct job_request *request, size_t from, size_t to)
{
    fputs("INSERT INTO stile_job (queue,job_key,state,run_at,added_at,payload) VALUES ", out);
    for (size_t i = from; i < to; i++) {
        const struct stile_job_entry *entry = &request->entries[i];
        fputs(i > from ? ",(" : "(", out);
        put_hex(out, request->queue, request->queue_len);
        put_key(out, entry->key);
        fprintf(out, ",'ready'," NOW "+INTERVAL %" PRId64 " MICROSECOND," NOW ",",
                request->delay_ms * 1000);
        put_hex(out, entry->payload, entry->size);
        fputs(")", out);
    }
    fputs(" ON DUPLICATE KEY UPDATE id=LAST_INSERT_ID(id)", out);
    fputs(my_of(request->engine)->mariadb ? " RETURNING id" : "", out);
}

/* ---- changes that are returned ---- */

static bool has_returning(const struct job_request *request)
{
    return my_of(request->engine)->mariadb;
}

/* The condition stands between the two macros, the assignments after them. MariaDB inserts no
 * row, as they are there, and locked; the old value of a column is VALUES(column). On MySQL it
 * is d.column. Without the inner SELECT, LIMIT would count locked rows. */
#define COLUMNS "id,queue,state,run_at,added_at,payload,token,tries,host,pid"
#define ROWS                                                                                       \
    "(SELECT id,queue,state,run_at,added_at,'' AS payload,token,tries,host,pid FROM stile_job"
#define EACH_OF "INSERT INTO stile_job (" COLUMNS ") SELECT " COLUMNS " FROM " ROWS
#define BECOMES ") d ON DUPLICATE KEY UPDATE "
#define ALL_OF  "UPDATE stile_job JOIN " ROWS
#define BECOME  ") d ON stile_job.id=d.id SET "

#define SKIP_LOCKED " FOR UPDATE SKIP LOCKED"

#define JOB_COLUMNS "id,token,tries,job_key,payload,last_error," MS_SINCE("added_at") ",state"

/* 1, 2: what stands before and after a column's name for its old value; 3: the condition for too
 * many attempts. */
#define CLAIMED                                                                                    \
    "stile_job.last_error=IF(%1$sstate%2$s='claimed',CONCAT('its worker ',%1$spid%2$s,' on ',"     \
    "%1$shost%2$s,' was not heard of'),stile_job.last_error),"                                     \
    "stile_job.state=IF(%3$s,'dead','claimed'),"                                                   \
    "stile_job.token=IF(%3$s,%1$stoken%2$s,GREATEST(%1$stoken%2$s,%1$sid%2$s*1000000)+1),"         \
    "stile_job.tries=%1$stries%2$s+IF(%3$s,0,1),"                                                  \
    "stile_job.claimed_until=IF(%3$s,NULL," NOW "+INTERVAL %4$" PRId64 " MICROSECOND),"            \
    "stile_job.worker='%5$s-%6$" PRIu64 "',stile_job.host=X'%7$s',stile_job.pid=%8$s"

static void put_claimed(FILE *out, const struct job_request *request, uint64_t tag, const char *was,
                        const char *end)
{
    const struct my *my = my_of(request->engine);
    char too_often[128];
    snprintf(too_often, sizeof too_often, "(%stries%s>=%u OR %stoken%s%%1000000=999999)", was, end,
             request->tries, was, end);
    fprintf(out, CLAIMED, was, end, too_often, request->lease_ms * 1000, my->identity.owner, tag,
            my->host_hex, my->identity.pid);
}

static void put_claim(FILE *out, const struct job_request *request, uint64_t tag)
{
    bool returns = has_returning(request);
    fputs("SET TRANSACTION ISOLATION LEVEL READ COMMITTED;", out);
    fputs(returns ? EACH_OF : ALL_OF, out);
    fputs(" FORCE INDEX (due)", out);
    put_queue(out, request);
    fprintf(out, " AND due_at<=" NOW " ORDER BY due_at,id LIMIT %zu" SKIP_LOCKED, request->max);
    fputs(returns ? BECOMES : BECOME, out);
    put_claimed(out, request, tag, returns ? "VALUES(" : "d.", returns ? ")" : "");
    fputs(returns ? " RETURNING " JOB_COLUMNS : "", out);
}

/* The tokens that are acked, where there is RETURNING; else how many. */
static void put_ack(FILE *out, const struct my *my, const struct job_mark *marks, size_t n)
{
    fputs("DELETE FROM stile_job", out);
    put_marked(out, marks, n);
    fputs(my->mariadb ? " AND state='claimed' RETURNING token" : " AND state='claimed'", out);
}

static void put_failed(FILE *out, const struct job_request *request)
{
    fputs("stile_job.run_at=" NOW "+INTERVAL CASE stile_job.token", out);
    for (size_t i = 0; i < request->n; i++)
        fprintf(out, " WHEN %" PRIu64 " THEN %" PRId64, request->marks[i].token,
                request->marks[i].delay_ms * 1000);
    fputs(" ELSE 0 END MICROSECOND,stile_job.state=CASE stile_job.token", out);
    for (size_t i = 0; i < request->n; i++)
        fprintf(out, " WHEN %" PRIu64 " THEN '%s'", request->marks[i].token,
                request->marks[i].dead ? "dead" : "ready");
    fputs(" END,stile_job.claimed_until=NULL,stile_job.last_error=", out);
    put_text(out, my_of(request->engine), request->text);
}

/* The statement about claims, which returns those that it was true for. */
static void put_word(FILE *out, const struct job_request *request)
{
    bool returns = has_returning(request);
    fputs(returns ? EACH_OF : ALL_OF, out);
    put_marked(out, request->marks, request->n);
    fputs(" AND state='claimed' FOR UPDATE", out);
    fputs(returns ? BECOMES : BECOME, out);
    if (request->verb == JOB_FAIL)
        put_failed(out, request);
    else if (request->verb == JOB_GIVE_BACK)
        fputs("stile_job.state='ready',stile_job.claimed_until=NULL,"
              "stile_job.tries=stile_job.tries-1",
              out);
    else
        fprintf(out, "stile_job.claimed_until=" NOW "+INTERVAL %" PRId64 " MICROSECOND",
                request->lease_ms * 1000);
    fputs(returns ? " RETURNING token" : "", out);
}

/* ---- finding what a statement has changed ---- */

/* A row that is no longer claimed and still has this token was released by the holder of the
 * token. */
static void put_found(FILE *out, const struct job_request *request, uint64_t tag)
{
    if (request->verb != JOB_CLAIM) {
        fputs("SELECT token FROM stile_job", out);
        put_marked(out, request->marks, request->n);
        fputs(request->verb == JOB_EXTEND ? " AND state='claimed'" : " AND state<>'claimed'", out);
        return;
    }
    fputs("SELECT " JOB_COLUMNS " FROM stile_job FORCE INDEX (due)", out);
    put_queue(out, request);
    fprintf(out,
            " AND due_at>" NOW " AND due_at<=" NOW "+INTERVAL %" PRId64
            " MICROSECOND AND worker='%s-%" PRIu64 "' ORDER BY run_at,id",
            request->lease_ms * 1000, my_of(request->engine)->identity.owner, tag);
}

/* For how many milliseconds there will be nothing to claim. */
static void put_due(FILE *out, const struct job_request *request)
{
    fputs("SELECT " MS_UNTIL("due_at") " FROM stile_job FORCE INDEX (due)", out);
    put_queue(out, request);
    fputs(" AND due_at IS NOT NULL ORDER BY due_at LIMIT 1", out);
}

/* ---- for inspection ---- */

/* The rows of a queue. */
static void put_rows(FILE *out, const struct job_request *request, const char *payload,
                     const char *error)
{
    fprintf(out,
            "SELECT id,token,tries,job_key,%s,%s," MS_SINCE("added_at") "," MS_UNTIL(
                "COALESCE(claimed_until,run_at)") ",queue,state,LENGTH(payload),IF(state='claimed',"
                                                  "host,NULL),pid FROM stile_job",
            payload, error);
    put_queue(out, request);
}

/* In due order, for which the index of the due is used: due_at is NULL if, and only if, the job is
 * dead. */
static void put_list(FILE *out, const struct job_request *request)
{
    static const char *const filters[] = {
        [STILE_JOBS_ALL] = " ORDER BY state='dead',COALESCE(claimed_until,run_at),id",
        [STILE_JOBS_READY] = " AND due_at<=" NOW " AND state='ready' ORDER BY due_at,id",
        [STILE_JOBS_DELAYED] = " AND due_at>" NOW " AND state='ready' ORDER BY due_at,id",
        [STILE_JOBS_CLAIMED] = " AND due_at IS NOT NULL AND state='claimed' ORDER BY due_at,id",
        [STILE_JOBS_DEAD] = " AND due_at IS NULL ORDER BY id",
    };
    put_rows(out, request, "NULL", "SUBSTRING_INDEX(last_error,'\\n',1)");
    fprintf(out, "%s LIMIT %zu", filters[request->filter],
            request->max < LISTED_MAX ? request->max : LISTED_MAX);
}

/* What SQL may have added is bounded: it is more than a library reads. */
static void put_show(FILE *out, const struct job_request *request)
{
    put_rows(out, request, "IF(LENGTH(payload)<=1048576,payload,NULL)", "LEFT(last_error,4096)");
    fprintf(out, " AND id=%" PRIu64, request->id);
}

static void put_count(FILE *out, const struct job_request *request)
{
    fputs("SELECT queue,SUM(state='ready' AND run_at<=" NOW "),SUM(state='ready' AND run_at>" NOW
          "),SUM(state='claimed'),SUM(state='dead'),"
          "COALESCE(GREATEST(0," MS_SINCE("MIN(IF(state='ready',run_at,NULL))") "),0) "
                                                                                "FROM stile_job",
          out);
    if (request->queue_len > 0)
        put_queue(out, request);
    fputs(" GROUP BY queue ORDER BY queue", out);
}

/* With the previous schema: one job of each key, and none whose key is in the queue. Its tokens
 * continue from their old value, and may be smaller than those of a later job with the same key. */
static void put_retry_in_place(FILE *out, const struct job_request *request)
{
    fputs(
        "UPDATE stile_job j JOIN (SELECT MIN(d.id) AS id FROM stile_job d LEFT JOIN stile_job o ON "
        "o.queue=d.queue AND o.live_key=d.job_key WHERE d.queue=",
        out);
    put_hex(out, request->queue, request->queue_len);
    fputs(" AND d.state='dead' AND o.id IS NULL AND d.token%1000000<999000", out);
    if (request->id)
        fprintf(out, " AND d.id=%" PRIu64, request->id);
    fputs(" GROUP BY COALESCE(d.job_key,d.id)) f ON j.id=f.id "
          "SET j.state='ready',j.tries=0,j.run_at=" NOW " WHERE j.state='dead'",
          out);
}

static void put_retry(FILE *out, const struct job_request *request)
{
    if (my_of(request->engine)->version >= SCHEMA_RENUMBERS) {
        fputs("CALL stile_job_retry(", out);
        put_hex(out, request->queue, request->queue_len);
        fprintf(out, ",%" PRIu64 ")", request->id);
        return;
    }
    put_retry_in_place(out, request);
}

static void put_drop(FILE *out, const struct job_request *request)
{
    fputs("DELETE FROM stile_job", out);
    put_queue(out, request);
    fprintf(out, " AND id=%" PRIu64 " AND state<>'claimed'", request->id);
}

/* A request, without what goes before or behind it. tag: of a claim. Where the server reports with
 * RETURNING what a statement has changed, it is the last statement and has reported it; else only
 * put_found() does. */
static void put_request(FILE *out, const struct job_request *request, uint64_t tag)
{
    switch (request->verb) {
    case JOB_CLAIM:
        put_claim(out, request, tag);
        break;
    case JOB_LIST:
        put_list(out, request);
        break;
    case JOB_SHOW:
        put_show(out, request);
        break;
    case JOB_COUNT:
        put_count(out, request);
        break;
    case JOB_RETRY:
        put_retry(out, request);
        break;
    case JOB_DROP:
        put_drop(out, request);
        break;
    default:
        put_word(out, request);
    }
}

#define UNDONE_MAX 5

/* Acks go first: all in one packet where the server can return the deleted rows, else one by
 * one; the same with added jobs. Where a statement cannot return what it has changed, a packet
 * of its own finds that out: unlike the statement, it can be repeated. */
enum step { ACKING, RUNNING, READING_CHANGES, READING_DUE, OVER };

struct progress {
    uint64_t tag; /* of its claim */
    enum step step;
    unsigned undone;   /* how often the server rolled it back for the sake of others */
    unsigned from, to; /* the marks, or entries, that the packet under way is about */
    unsigned changed;  /* how many rows there are to be found */
};

_Static_assert(sizeof(struct progress) <= sizeof((struct job_request *)0)->state, "no room for it");

static struct progress *progress_of(struct job_request *request)
{
    return (struct progress *)request->state;
}

static enum stile_status send_next(struct job_request *request, struct stile_error *err);

/* ---- answers ---- */

enum {
    ID,
    TOKEN,
    TRIES,
    KEY,
    PAYLOAD,
    LAST_ERROR,
    AGE,
    DUE,
    QUEUE,
    STATE,
    SIZE,
    HOST,
    PID,
    COLUMNS_LISTED
};
enum { CLAIMED_STATE = AGE + 1, COLUMNS_CLAIMED };
#define COLUMNS_COUNTED 6

static int64_t number(MYSQL_ROW row, unsigned column)
{
    return row[column] ? strtoll(row[column], NULL, 10) : 0;
}

/* A NUL-terminated copy; names contain no NUL. */
static const char *name_of(char out[STILE_NAME_MAX + 1], MYSQL_ROW row,
                           const unsigned long *lengths, unsigned column)
{
    size_t n = lengths[column] < STILE_NAME_MAX ? lengths[column] : STILE_NAME_MAX;
    if (!row[column])
        return NULL;
    memcpy(out, row[column], n);
    out[n] = '\0';
    return out;
}

static enum stile_job_state state_named(const char *name)
{
    char first = name ? *name : '\0';
    return first == 'r' ? STILE_JOB_READY : first == 'd' ? STILE_JOB_DEAD : STILE_JOB_CLAIMED;
}

static void report(struct job_request *request, MYSQL_ROW row, const unsigned long *lengths)
{
    const struct my *my = my_of(request->engine);
    char queue[STILE_NAME_MAX + 1], key[STILE_NAME_MAX + 1];
    bool listed = request->verb != JOB_CLAIM;
    const struct stile_job job = {
        .id = (uint64_t)number(row, ID),
        .token = (uint64_t)number(row, TOKEN),
        .queue = listed ? name_of(queue, row, lengths, QUEUE) : request->queue,
        .key = name_of(key, row, lengths, KEY),
        .payload = row[PAYLOAD],
        .payload_size = row[PAYLOAD] ? lengths[PAYLOAD] : (size_t)number(row, SIZE),
        .state = listed ? state_named(row[STATE]) : STILE_JOB_CLAIMED,
        .tries = (unsigned)number(row, TRIES),
        .due_ms = listed ? number(row, DUE) : request->lease_ms,
        .age_ms = number(row, AGE),
        .last_error = row[LAST_ERROR] ? row[LAST_ERROR] : "",
        .host = !listed     ? my->identity.host
                : row[HOST] ? row[HOST]
                            : "",
        .pid = listed ? number(row, PID) : atoll(my->identity.pid)};
    request->engine->events->job(request, &job);
}

static void tell_queue(struct job_request *request, MYSQL_ROW row, const unsigned long *lengths)
{
    char name[STILE_NAME_MAX + 1];
    const struct stile_queue queue = {.name = name_of(name, row, lengths, 0),
                                      .ready = (uint64_t)number(row, 1),
                                      .delayed = (uint64_t)number(row, 2),
                                      .claimed = (uint64_t)number(row, 3),
                                      .dead = (uint64_t)number(row, 4),
                                      .oldest_ms = number(row, 5)};
    request->engine->events->job_queue(request, &queue);
}

static void take_row(struct job_request *request, MYSQL_ROW row, const unsigned long *lengths)
{
    if (request->verb == JOB_COUNT)
        tell_queue(request, row, lengths);
    else if (request->verb == JOB_LIST || request->verb == JOB_SHOW)
        report(request, row, lengths);
    else if (request->verb != JOB_CLAIM)
        request->engine->events->job_mark(request, (uint64_t)number(row, 0));
    else if (state_named(row[CLAIMED_STATE]) == STILE_JOB_CLAIMED)
        report(request, row, lengths);
}

static unsigned columns_of(const struct job_request *request)
{
    switch (request->verb) {
    case JOB_COUNT:
        return COLUMNS_COUNTED;
    case JOB_LIST:
    case JOB_SHOW:
        return COLUMNS_LISTED;
    default:
        return request->verb == JOB_CLAIM ? COLUMNS_CLAIMED : 1;
    }
}

static void take_rows(struct job_request *request, const struct outcome *outcome)
{
    MYSQL_ROW row;
    while ((row = maria_next_row(outcome->rows, columns_of(request))))
        take_row(request, row, mysql_fetch_lengths(outcome->rows));
}

static enum step take_acks(struct job_request *request, const struct outcome *last)
{
    struct progress *progress = progress_of(request);
    if (!last->rows && last->affected > 0)
        request->engine->events->job_mark(request, request->marks[progress->from].token);
    for (MYSQL_ROW row; (row = maria_next_row(last->rows, 1));)
        request->engine->events->job_mark(request, row[0] ? strtoull(row[0], NULL, 10) : 0);
    progress->from = progress->to;
    if (progress->from < request->n)
        return ACKING;
    return request->verb == JOB_ACK ? OVER : RUNNING;
}

static enum step take_added(struct job_request *request, const struct outcome *last)
{
    struct progress *progress = progress_of(request);
    unsigned at = progress->from;
    if (!last->rows)
        request->ids[at] = last->insert_id;
    for (MYSQL_ROW row; at < progress->to && (row = maria_next_row(last->rows, 1));)
        request->ids[at++] = row[0] ? strtoull(row[0], NULL, 10) : 0;
    progress->from = progress->to;
    return progress->from < request->n_entries ? RUNNING : OVER;
}

/* A procedure returns rows, the previous schema's statement a count. */
static enum step take_count(struct job_request *request, const struct answer *a)
{
    const char *count = a->outcomes[0].rows ? maria_outcome_text(&a->outcomes[0], 0) : NULL;
    request->count = count ? strtoull(count, NULL, 10) : answer_last(a)->affected;
    return OVER;
}

/* Its changes are in the answer, or have to be found. */
static enum step take_changes(struct job_request *request, const struct outcome *last)
{
    struct progress *progress = progress_of(request);
    progress->changed = last->rows ? 0 : (unsigned)last->affected;
    if (progress->changed > 0)
        return READING_CHANGES;
    take_rows(request, last);
    bool none = !last->rows || mysql_num_rows(last->rows) == 0;
    return request->verb == JOB_CLAIM && none ? READING_DUE : OVER;
}

/* Jobs that the claim has marked as dead are not among those it finds. */
static enum step take_found(struct job_request *request, const struct outcome *last)
{
    struct progress *progress = progress_of(request);
    bool missing = last->rows && mysql_num_rows(last->rows) < progress->changed;
    if (request->verb == JOB_CLAIM && missing && progress->undone++ < UNDONE_MAX)
        return READING_CHANGES;
    take_rows(request, last);
    return OVER;
}

static enum step take_due(struct job_request *request, const struct outcome *last)
{
    const char *due = maria_outcome_text(last, 0);
    if (due)
        request->due_ms = *due == '-' ? 0 : strtoll(due, NULL, 10);
    return OVER;
}

static enum step take_asked(struct job_request *request, const struct answer *a)
{
    const struct outcome *last = answer_last(a);
    switch (request->verb) {
    case JOB_ADD:
        return take_added(request, last);
    case JOB_RETRY:
    case JOB_DROP:
        return take_count(request, a);
    case JOB_LIST:
    case JOB_SHOW:
    case JOB_COUNT:
        take_rows(request, last);
        return OVER;
    default:
        return take_changes(request, last);
    }
}

static enum step take_answer(struct job_request *request, const struct answer *a)
{
    const struct outcome *last = answer_last(a);
    switch (progress_of(request)->step) {
    case ACKING:
        return take_acks(request, last);
    case READING_CHANGES:
        return take_found(request, last);
    case READING_DUE:
        return take_due(request, last);
    default:
        return take_asked(request, a);
    }
}

static bool only_looks(enum job_verb verb)
{
    return verb == JOB_LIST || verb == JOB_SHOW || verb == JOB_COUNT;
}

static void explain(struct stile_error *why, const struct job_request *request,
                    const struct answer *a)
{
    *why = *a->err;
    if (why->status == STILE_UNREACHABLE && request->sent_ns && !only_looks(request->verb))
        why->status = STILE_UNCERTAIN;
    if (a->code == ER_PARSE_ERROR && request->verb == JOB_CLAIM)
        error_set(
            why, STILE_REFUSED, ER_PARSE_ERROR,
            "this server has no SKIP LOCKED, without which workers would wait for one another: "
            "jobs need MariaDB 10.6 or MySQL 8.0.1");
}

/* A lease counts from the request that gives it, not from those that read what it has changed: its
 * deadline would be later than its end in the database. */
static void note_sent(struct job_request *request, const struct answer *a)
{
    enum step step = progress_of(request)->step;
    if (step != READING_CHANGES && step != READING_DUE)
        request->sent_ns = a->sent_ns;
}

/* An empty queue is a valid answer even without knowing when the next job is due. */
static void on_answer(void *data, const struct answer *a)
{
    struct job_request *request = data;
    struct progress *progress = progress_of(request);
    struct stile_error why;
    enum stile_status status = STILE_OK;
    note_sent(request, a);
    if (!a->err) {
        progress->step = take_answer(request, a);
    } else if (progress->step == READING_DUE) {
        progress->step = OVER;
    } else if (!maria_error_is_undone(a->code) || progress->undone++ >= UNDONE_MAX) {
        explain(&why, request, a);
        status = why.status;
    }
    if (!status && progress->step != OVER)
        status = send_next(request, &why);
    if (status || progress->step == OVER)
        request->engine->events->job_done(request, status ? &why : NULL);
}

/* ---- requests ---- */

static void put_acks(FILE *out, struct job_request *request)
{
    struct progress *progress = progress_of(request);
    const struct my *my = my_of(request->engine);
    progress->to = my->mariadb ? (unsigned)request->n : progress->from + 1;
    put_ack(out, my, request->marks + progress->from, progress->to - progress->from);
}

static void put_entries(FILE *out, struct job_request *request)
{
    struct progress *progress = progress_of(request);
    bool all = my_of(request->engine)->mariadb;
    progress->to = all ? (unsigned)request->n_entries : progress->from + 1;
    put_add(out, request, progress->from, progress->to);
}

static void put_packet(FILE *out, struct job_request *request)
{
    struct progress *progress = progress_of(request);
    switch (progress->step) {
    case ACKING:
        put_acks(out, request);
        break;
    case READING_CHANGES:
        put_found(out, request, progress->tag);
        break;
    case READING_DUE:
        put_due(out, request);
        break;
    default:
        if (request->verb == JOB_ADD)
            put_entries(out, request);
        else
            put_request(out, request, progress->tag);
    }
}

static enum stile_status send_next(struct job_request *request, struct stile_error *err)
{
    struct session *shared;
    char *sql = NULL;
    size_t size;
    enum stile_status status = sql_pool_shared(&shared, pool_of(request->engine), err);
    if (status)
        return status;
    FILE *out = open_memstream(&sql, &size);
    if (out) {
        put_packet(out, request);
        bool failed = ferror(out) != 0;
        if (fclose(out) != 0 || failed) {
            free(sql);
            sql = NULL;
        }
    }
    return maria_send(shared, sql, on_answer, request, err);
}

void maria_jobs(struct engine *engine, struct job_request *request)
{
    struct my *my = my_of(engine);
    struct stile_error err;
    enum stile_status status;
    if (my->bare)
        status = error_set(&err, STILE_REFUSED, 0,
                           "this database has no tables stile_*, where jobs are kept: run `stile "
                           "setup URL`");
    else {
        bool acks = request->n > 0 && (request->verb == JOB_ACK || request->verb == JOB_CLAIM);
        *progress_of(request) =
            (struct progress){.tag = ++my->job_claims, .step = acks ? ACKING : RUNNING};
        status = send_next(request, &err);
    }
    if (status)
        engine->events->job_done(request, &err);
}
