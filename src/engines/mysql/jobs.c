/* Jobs: rows of stile_job. Each errand is one packet on the shared session, whose statements commit
 * one by one: none leaves a transaction open, whatever happens to it. A claim is an UPDATE of what
 * a SELECT ... FOR UPDATE SKIP LOCKED inside it has found, so that workers never wait for one
 * another. Nobody can be told of new jobs: who waits looks again. */
#include <inttypes.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>

#include "engines/mysql/fault.h"
#include "engines/mysql/my.h"
#include "mutant.h"

#define LISTED_MAX 1000000
#define UNDONE_MAX 5

/* How far an errand is. What is acked goes first: all in one packet where the server tells which
 * rows it has deleted, else one by one. */
struct progress {
    uint64_t tag;      /* of its claim */
    uint64_t undone;   /* how often the server took it back for the sake of others */
    uint64_t from, to; /* the marks that the packet under way is to ack */
};

_Static_assert(sizeof(struct progress) <= sizeof((struct job_errand *)0)->state, "no room for it");

static struct progress *progress_of(struct job_errand *errand)
{
    return (struct progress *)errand->state;
}

static enum stile_status send_next(struct job_errand *errand, struct stile_error *err);

/* ---- words ---- */

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

static void put_text(FILE *out, const char *text)
{
    char plain[1024];
    size_t n = 0;
    for (; *text && n < sizeof plain; text++)
        plain[n++] =
            (char)((unsigned char)*text >= ' ' && (unsigned char)*text < 127 ? *text : '?');
    put_hex(out, plain, n);
}

/* Rows whose last claim is one of these. */
static void put_marked(FILE *out, const struct job_mark *marks, size_t n)
{
    fputs(" WHERE id IN (", out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%" PRIu64, i ? "," : "", marks[i].token / 1000000);
#ifdef MUTANT_MYSQL_JOBS_TOKEN_IGNORED
    fputs(")", out);
    return;
#endif
    fputs(") AND token IN (", out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%" PRIu64, i ? "," : "", marks[i].token);
    fputs(")", out);
}

static void put_queue(FILE *out, const struct job_errand *errand)
{
    fputs(" WHERE queue=", out);
    put_hex(out, errand->queue, errand->queue_len);
}

#define NOW          "UTC_TIMESTAMP(6)"
#define MS_SINCE(at) "TIMESTAMPDIFF(MICROSECOND," at "," NOW ") DIV 1000"
#define MS_UNTIL(at) "TIMESTAMPDIFF(MICROSECOND," NOW "," at ") DIV 1000"

static void put_add(FILE *out, const struct job_errand *errand)
{
    fputs("INSERT INTO stile_job (queue,job_key,state,run_at,added_at,payload) VALUES (", out);
    put_hex(out, errand->queue, errand->queue_len);
    fputs(",", out);
    if (errand->key)
        put_hex(out, errand->key, errand->key_len);
    else
        fputs("NULL", out);
    fprintf(out, ",'ready'," NOW "+INTERVAL %" PRId64 " MICROSECOND," NOW ",",
            errand->delay_ms * 1000);
    put_hex(out, errand->payload, errand->payload_size);
    fputs(") ON DUPLICATE KEY UPDATE id=LAST_INSERT_ID(id)", out);
}

#define TOO_OFTEN "(d.tries>=%u OR d.token%%1000000=999999)"
#define UNHEARD                                                                                    \
    "IF(d.state='claimed',CONCAT('its worker ',d.pid,' on ',d.host,' was not heard of'),"          \
    "j.last_error)"

#ifdef MUTANT_MYSQL_JOBS_UNLOCKED
#define SKIP_LOCKED ""
#else
#define SKIP_LOCKED " FOR UPDATE SKIP LOCKED"
#endif

/* All rows of one claim get the same end, which with its tag is how they are found afterwards. */
static void put_claim(FILE *out, struct job_errand *errand)
{
    const struct my *my = my_of(errand->engine);
    unsigned tries = errand->tries, tag = (unsigned)progress_of(errand)->tag;
    fprintf(out,
            "SET @stile_until=" NOW "+INTERVAL %" PRId64 " MICROSECOND;"
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"
            "UPDATE stile_job j JOIN (SELECT id,token,tries,state,host,pid FROM stile_job "
            "FORCE INDEX (due)",
            errand->lease_ms * 1000);
    put_queue(out, errand);
    fprintf(out,
            " AND due_at<=" NOW " ORDER BY due_at,id LIMIT %zu" SKIP_LOCKED ") d ON j.id=d.id "
            "SET j.last_error=" UNHEARD ",j.state=IF(" TOO_OFTEN ",'dead','claimed'),"
            "j.claimed_until=IF(" TOO_OFTEN ",NULL,@stile_until),"
            "j.token=IF(" TOO_OFTEN ",d.token,GREATEST(d.token,d.id*1000000)+1),"
            "j.tries=d.tries+IF(" TOO_OFTEN ",0,1),j.worker='%s-%u',j.host=X'%s',j.pid=%s;"
            "SELECT id,token,tries,job_key,payload,last_error," MS_SINCE(
                "added_at") " FROM stile_job FORCE INDEX (due)",
            errand->max, tries, tries, tries, tries, my->who.owner, tag, my->host_hex, my->who.pid);
    put_queue(out, errand);
    fprintf(out,
            " AND due_at=@stile_until AND worker='%s-%u' ORDER BY run_at,id;"
            "SELECT " MS_UNTIL("due_at") " FROM stile_job FORCE INDEX (due)",
            my->who.owner, tag);
    put_queue(out, errand);
    fputs(" AND due_at IS NOT NULL ORDER BY due_at LIMIT 1", out);
}

static void put_ack(FILE *out, const struct job_mark *marks, size_t n, bool returning)
{
    fputs("DELETE FROM stile_job", out);
    put_marked(out, marks, n);
    fputs(returning ? " AND state='claimed' RETURNING token" : " AND state='claimed'", out);
}

static void put_fail(FILE *out, const struct job_errand *errand)
{
    fputs("UPDATE stile_job SET run_at=" NOW "+INTERVAL CASE token", out);
    for (size_t i = 0; i < errand->n; i++)
        fprintf(out, " WHEN %" PRIu64 " THEN %" PRId64, errand->marks[i].token,
                errand->marks[i].delay_ms * 1000);
    fputs(" ELSE 0 END MICROSECOND,state=CASE token", out);
    for (size_t i = 0; i < errand->n; i++)
        fprintf(out, " WHEN %" PRIu64 " THEN '%s'", errand->marks[i].token,
                errand->marks[i].dead ? "dead" : "ready");
    fputs(" END,claimed_until=NULL,last_error=", out);
    put_text(out, errand->text);
}

/* What is said about claims, and then which of them it was that it is true of. A row that is not
 * claimed any more and still has this token was left so by whoever has it. */
static void put_word(FILE *out, const struct job_errand *errand)
{
    if (errand->verb == JOB_FAIL)
        put_fail(out, errand);
    else if (errand->verb == JOB_GIVE_BACK)
        fputs("UPDATE stile_job SET state='ready',claimed_until=NULL,tries=tries-1", out);
    else
        fprintf(out, "UPDATE stile_job SET claimed_until=" NOW "+INTERVAL %" PRId64 " MICROSECOND",
                errand->lease_ms * 1000);
    put_marked(out, errand->marks, errand->n);
    fputs(" AND state='claimed';SELECT token FROM stile_job", out);
    put_marked(out, errand->marks, errand->n);
    fputs(errand->verb == JOB_EXTEND ? " AND state='claimed'" : " AND state<>'claimed'", out);
}

static void put_list(FILE *out, const struct job_errand *errand)
{
    fputs("SELECT id,token,tries,job_key,NULL,last_error," MS_SINCE("added_at") "," MS_UNTIL(
              "COALESCE(claimed_until,run_at)") ",queue,state,LENGTH(payload),"
                                                "IF(state='claimed',host,NULL),pid FROM stile_job",
          out);
    put_queue(out, errand);
    fprintf(out, " ORDER BY state='dead',COALESCE(claimed_until,run_at),id LIMIT %zu",
            errand->max < LISTED_MAX ? errand->max : LISTED_MAX);
}

static void put_count(FILE *out, const struct job_errand *errand)
{
    fputs("SELECT queue,SUM(state='ready' AND run_at<=" NOW "),SUM(state='ready' AND run_at>" NOW
          "),SUM(state='claimed'),SUM(state='dead'),"
          "COALESCE(GREATEST(0," MS_SINCE("MIN(IF(state='ready',run_at,NULL))") "),0) "
                                                                                "FROM stile_job",
          out);
    if (errand->queue_len > 0)
        put_queue(out, errand);
    fputs(" GROUP BY queue ORDER BY queue", out);
}

/* One of each key, and none whose key is there. */
static void put_retry(FILE *out, const struct job_errand *errand)
{
    fputs(
        "UPDATE stile_job j JOIN (SELECT MIN(d.id) AS id FROM stile_job d LEFT JOIN stile_job o ON "
        "o.queue=d.queue AND o.live_key=d.job_key WHERE d.queue=",
        out);
    put_hex(out, errand->queue, errand->queue_len);
    fputs(" AND d.state='dead' AND o.id IS NULL AND d.token%1000000<999000", out);
    if (errand->id)
        fprintf(out, " AND d.id=%" PRIu64, errand->id);
    fputs(" GROUP BY COALESCE(d.job_key,d.id)) f ON j.id=f.id "
          "SET j.state='ready',j.tries=0,j.run_at=" NOW " WHERE j.state='dead'",
          out);
}

static void put_drop(FILE *out, const struct job_errand *errand)
{
    fputs("DELETE FROM stile_job", out);
    put_queue(out, errand);
    fprintf(out, " AND id=%" PRIu64 " AND state<>'claimed'", errand->id);
}

static void put_errand(FILE *out, struct job_errand *errand)
{
    switch (errand->verb) {
    case JOB_ADD:
        put_add(out, errand);
        break;
    case JOB_CLAIM:
        put_claim(out, errand);
        break;
    case JOB_LIST:
        put_list(out, errand);
        break;
    case JOB_COUNT:
        put_count(out, errand);
        break;
    case JOB_RETRY:
        put_retry(out, errand);
        break;
    case JOB_DROP:
        put_drop(out, errand);
        break;
    default:
        put_word(out, errand);
    }
}

/* ---- answers ---- */

enum { ID, TOKEN, TRIES, KEY, PAYLOAD, LAST_ERROR, AGE, DUE, QUEUE, STATE, SIZE, HOST, PID };

static int64_t number(MYSQL_ROW row, unsigned column)
{
    return row[column] ? strtoll(row[column], NULL, 10) : 0;
}

/* A copy with an end; names have no NUL in them. */
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
    return *name == 'r' ? STILE_JOB_READY : *name == 'd' ? STILE_JOB_DEAD : STILE_JOB_CLAIMED;
}

static void tell(struct job_errand *errand, MYSQL_ROW row, const unsigned long *lengths)
{
    const struct my *my = my_of(errand->engine);
    char queue[STILE_NAME_MAX + 1], key[STILE_NAME_MAX + 1];
    bool listed = errand->verb == JOB_LIST;
    const struct stile_job job = {
        .id = (uint64_t)number(row, ID),
        .token = (uint64_t)number(row, TOKEN),
        .queue = listed ? name_of(queue, row, lengths, QUEUE) : errand->queue,
        .key = name_of(key, row, lengths, KEY),
        .payload = row[PAYLOAD],
        .payload_size = listed ? (size_t)number(row, SIZE) : lengths[PAYLOAD],
        .state = listed ? state_named(row[STATE]) : STILE_JOB_CLAIMED,
        .tries = (unsigned)number(row, TRIES),
        .due_ms = listed ? number(row, DUE) : errand->lease_ms,
        .age_ms = number(row, AGE),
        .last_error = row[LAST_ERROR] ? row[LAST_ERROR] : "",
        .host = !listed     ? my->who.host
                : row[HOST] ? row[HOST]
                            : "",
        .pid = listed ? number(row, PID) : atoll(my->who.pid)};
    errand->engine->events->job(errand, &job);
}

static void tell_queue(struct job_errand *errand, MYSQL_ROW row, const unsigned long *lengths)
{
    char name[STILE_NAME_MAX + 1];
    const struct stile_queue queue = {.name = name_of(name, row, lengths, 0),
                                      .ready = (uint64_t)number(row, 1),
                                      .delayed = (uint64_t)number(row, 2),
                                      .claimed = (uint64_t)number(row, 3),
                                      .dead = (uint64_t)number(row, 4),
                                      .oldest_ms = number(row, 5)};
    errand->engine->events->job_queue(errand, &queue);
}

static void take_rows(struct job_errand *errand, const struct outcome *outcome)
{
    MYSQL_ROW row;
    if (!outcome->rows)
        return;
    mysql_data_seek(outcome->rows, 0);
    while ((row = mysql_fetch_row(outcome->rows))) {
        const unsigned long *lengths = mysql_fetch_lengths(outcome->rows);
        if (errand->verb == JOB_CLAIM || errand->verb == JOB_LIST)
            tell(errand, row, lengths);
        else if (errand->verb == JOB_COUNT)
            tell_queue(errand, row, lengths);
        else
            errand->engine->events->job_mark(errand, strtoull(row[0], NULL, 10));
    }
}

/* Its last two statements tell what was claimed, and when the next one will be due. */
static void take_claim(struct job_errand *errand, const struct answer *a)
{
    const char *due = outcome_text(answer_last(a), 0);
    if (a->n < 2)
        return;
    take_rows(errand, answer_last(a) - 1);
    if (due)
        errand->due_ms = *due == '-' ? 0 : strtoll(due, NULL, 10);
}

static void take_acks(struct job_errand *errand, const struct answer *a)
{
    const struct outcome *last = answer_last(a);
    if (!last->rows && last->affected > 0)
        errand->engine->events->job_mark(errand, errand->marks[progress_of(errand)->from].token);
    for (MYSQL_ROW row; last->rows && (row = mysql_fetch_row(last->rows));)
        errand->engine->events->job_mark(errand, strtoull(row[0], NULL, 10));
}

static void take_answer(struct job_errand *errand, const struct answer *a)
{
    switch (errand->verb) {
    case JOB_CLAIM:
        take_claim(errand, a);
        break;
    case JOB_ADD:
        errand->id = answer_last(a)->insert_id;
        break;
    case JOB_RETRY:
    case JOB_DROP:
        errand->count = answer_last(a)->affected;
        break;
    case JOB_LIST:
    case JOB_COUNT:
        take_rows(errand, answer_last(a));
        break;
    default:
        if (a->outcomes[0].affected > 0)
            take_rows(errand, answer_last(a));
    }
}

static bool only_looks(enum job_verb verb)
{
    return verb == JOB_LIST || verb == JOB_COUNT;
}

static void explain(struct stile_error *why, const struct job_errand *errand,
                    const struct answer *a)
{
    *why = *a->err;
    if (why->status == STILE_UNREACHABLE && a->sent_ns && !only_looks(errand->verb))
        why->status = STILE_UNCERTAIN;
    if (a->code == ER_PARSE_ERROR && errand->verb == JOB_CLAIM)
        error_set(
            why, STILE_REFUSED, ER_PARSE_ERROR,
            "this server has no SKIP LOCKED, without which workers would wait for one another: "
            "jobs need MariaDB 10.6 or MySQL 8.0.1");
}

static void on_answer(void *data, const struct answer *a)
{
    struct job_errand *errand = data;
    struct progress *progress = progress_of(errand);
    struct stile_error why;
    bool acking = progress->to > progress->from, over = !acking;
    enum stile_status status = STILE_OK;
    errand->sent_ns = a->sent_ns;
    if (a->err && fault_is_undone(a->code) && progress->undone++ < UNDONE_MAX) {
        progress->to = progress->from;
        over = false;
    } else if (a->err) {
        explain(&why, errand, a);
        status = why.status;
    } else if (acking) {
        take_acks(errand, a);
        progress->from = progress->to;
        over = progress->from == errand->n && errand->verb == JOB_ACK;
    } else {
        take_answer(errand, a);
    }
    if (!status && !over)
        status = send_next(errand, &why);
    if (status || over)
        errand->engine->events->job_done(errand, status ? &why : NULL);
}

/* ---- questions ---- */

static bool acks(enum job_verb verb)
{
    return verb == JOB_ACK || verb == JOB_CLAIM;
}

static void put_packet(FILE *out, struct job_errand *errand)
{
    struct progress *progress = progress_of(errand);
    bool returning = my_of(errand->engine)->mariadb;
    if (!acks(errand->verb) || progress->from == errand->n) {
        put_errand(out, errand);
        return;
    }
    progress->to = returning ? errand->n : progress->from + 1;
    put_ack(out, errand->marks + progress->from, progress->to - progress->from, returning);
}

static enum stile_status send_next(struct job_errand *errand, struct stile_error *err)
{
    struct session *shared;
    char *sql = NULL;
    size_t size;
    enum stile_status status = my_shared(&shared, my_of(errand->engine), err);
    if (status)
        return status;
    FILE *out = open_memstream(&sql, &size);
    if (out) {
        put_packet(out, errand);
        bool failed = ferror(out) != 0;
        if (fclose(out) != 0 || failed) {
            free(sql);
            sql = NULL;
        }
    }
    return session_send(shared, sql, on_answer, errand, err);
}

void jobs_run(struct engine *engine, struct job_errand *errand)
{
    struct my *my = my_of(engine);
    struct stile_error err;
    enum stile_status status;
    if (my->bare)
        status = error_set(&err, STILE_REFUSED, 0,
                           "this database has no tables stile_*, where jobs are kept: run `stile "
                           "setup URL`");
    else {
        *progress_of(errand) = (struct progress){.tag = ++my->job_claims};
        status = send_next(errand, &err);
    }
    if (status)
        engine->events->job_done(errand, &err);
}
