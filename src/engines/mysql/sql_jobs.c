/* Jobs are claimed and spoken of by one statement, which tells what it has changed. MariaDB has no
 * UPDATE that does, but an INSERT: each row that is there already is found, updated and told of.
 * To look for it afterwards is not as good. MariaDB 10.11 was seen to answer a SELECT through `due`
 * with nothing, right behind the UPDATE that had moved 16 rows there and was committed, and with
 * all of them a moment later; nobody had heard of those for the time of their lease. And who looks
 * may be cut off, or sent to a replica. On MySQL there is no other way. */
#include "engines/mysql/sql_jobs.h"

#include <inttypes.h>
#include <string.h>

#include "mutant.h"

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

static void put_key(FILE *out, const char *key)
{
    fputs(",", out);
    if (key)
        put_hex(out, key, strlen(key));
    else
        fputs("NULL", out);
}

/* Entries from here on; MySQL cannot report the numbers of several. */
void sql_job_put_add(FILE *out, const struct job_errand *errand, size_t from, size_t to)
{
    fputs("INSERT INTO stile_job (queue,job_key,state,run_at,added_at,payload) VALUES ", out);
    for (size_t i = from; i < to; i++) {
        const struct stile_job_entry *entry = &errand->entries[i];
        fputs(i > from ? ",(" : "(", out);
        put_hex(out, errand->queue, errand->queue_len);
        put_key(out, entry->key);
        fprintf(out, ",'ready'," NOW "+INTERVAL %" PRId64 " MICROSECOND," NOW ",",
                errand->delay_ms * 1000);
        put_hex(out, entry->payload, entry->size);
        fputs(")", out);
    }
    fputs(" ON DUPLICATE KEY UPDATE id=LAST_INSERT_ID(id)", out);
    fputs(my_of(errand->engine)->mariadb ? " RETURNING id" : "", out);
}

/* ---- what is changed, and told of ---- */

static bool tells(const struct job_errand *errand)
{
#ifdef MUTANT_MYSQL_JOBS_LOOKED_FOR
    (void)errand;
    return false;
#else
    return my_of(errand->engine)->mariadb;
#endif
}

/* Between two of these stands which rows; behind them, what becomes of them. MariaDB: none is
 * inserted, as they are there, and locked; what a column was before is VALUES(column). MySQL: it is
 * d.column. Without the inner SELECT, LIMIT would count what has been locked already. */
#define COLUMNS "id,queue,state,run_at,added_at,payload,token,tries,host,pid"
#define ROWS                                                                                       \
    "(SELECT id,queue,state,run_at,added_at,'' AS payload,token,tries,host,pid FROM stile_job"
#define EACH_OF "INSERT INTO stile_job (" COLUMNS ") SELECT " COLUMNS " FROM " ROWS
#define BECOMES ") d ON DUPLICATE KEY UPDATE "
#define ALL_OF  "UPDATE stile_job JOIN " ROWS
#define BECOME  ") d ON stile_job.id=d.id SET "

#ifdef MUTANT_MYSQL_JOBS_UNLOCKED
#define SKIP_LOCKED ""
#else
#define SKIP_LOCKED " FOR UPDATE SKIP LOCKED"
#endif

#define TOLD "id,token,tries,job_key,payload,last_error," MS_SINCE("added_at") ",state"

/* 1, 2: what stands before and behind the name of a column that is as it was; 3: too often. */
#define CLAIMED                                                                                    \
    "stile_job.last_error=IF(%1$sstate%2$s='claimed',CONCAT('its worker ',%1$spid%2$s,' on ',"     \
    "%1$shost%2$s,' was not heard of'),stile_job.last_error),"                                     \
    "stile_job.state=IF(%3$s,'dead','claimed'),"                                                   \
    "stile_job.token=IF(%3$s,%1$stoken%2$s,GREATEST(%1$stoken%2$s,%1$sid%2$s*1000000)+1),"         \
    "stile_job.tries=%1$stries%2$s+IF(%3$s,0,1),"                                                  \
    "stile_job.claimed_until=IF(%3$s,NULL," NOW "+INTERVAL %4$" PRId64 " MICROSECOND),"            \
    "stile_job.worker='%5$s-%6$" PRIu64 "',stile_job.host=X'%7$s',stile_job.pid=%8$s"

static void put_claimed(FILE *out, const struct job_errand *errand, uint64_t tag, const char *was,
                        const char *end)
{
    const struct my *my = my_of(errand->engine);
    char too_often[128];
    snprintf(too_often, sizeof too_often, "(%stries%s>=%u OR %stoken%s%%1000000=999999)", was, end,
             errand->tries, was, end);
    fprintf(out, CLAIMED, was, end, too_often, errand->lease_ms * 1000, my->who.owner, tag,
            my->host_hex, my->who.pid);
}

static void put_claim(FILE *out, const struct job_errand *errand, uint64_t tag)
{
    bool told = tells(errand);
    fputs("SET TRANSACTION ISOLATION LEVEL READ COMMITTED;", out);
    fputs(told ? EACH_OF : ALL_OF, out);
    fputs(" FORCE INDEX (due)", out);
    put_queue(out, errand);
    fprintf(out, " AND due_at<=" NOW " ORDER BY due_at,id LIMIT %zu" SKIP_LOCKED, errand->max);
    fputs(told ? BECOMES : BECOME, out);
    put_claimed(out, errand, tag, told ? "VALUES(" : "d.", told ? ")" : "");
    fputs(told ? " RETURNING " TOLD : "", out);
}

void sql_job_put_ack(FILE *out, const struct my *my, const struct job_mark *marks, size_t n)
{
    fputs("DELETE FROM stile_job", out);
    put_marked(out, marks, n);
    fputs(my->mariadb ? " AND state='claimed' RETURNING token" : " AND state='claimed'", out);
}

static void put_failed(FILE *out, const struct job_errand *errand)
{
    fputs("stile_job.run_at=" NOW "+INTERVAL CASE stile_job.token", out);
    for (size_t i = 0; i < errand->n; i++)
        fprintf(out, " WHEN %" PRIu64 " THEN %" PRId64, errand->marks[i].token,
                errand->marks[i].delay_ms * 1000);
    fputs(" ELSE 0 END MICROSECOND,stile_job.state=CASE stile_job.token", out);
    for (size_t i = 0; i < errand->n; i++)
        fprintf(out, " WHEN %" PRIu64 " THEN '%s'", errand->marks[i].token,
                errand->marks[i].dead ? "dead" : "ready");
    fputs(" END,stile_job.claimed_until=NULL,stile_job.last_error=", out);
    put_text(out, errand->text);
}

/* What is said about claims, and of which of them it was true. */
static void put_word(FILE *out, const struct job_errand *errand)
{
    bool told = tells(errand);
    fputs(told ? EACH_OF : ALL_OF, out);
    put_marked(out, errand->marks, errand->n);
    fputs(" AND state='claimed' FOR UPDATE", out);
    fputs(told ? BECOMES : BECOME, out);
    if (errand->verb == JOB_FAIL)
        put_failed(out, errand);
    else if (errand->verb == JOB_GIVE_BACK)
        fputs("stile_job.state='ready',stile_job.claimed_until=NULL,"
              "stile_job.tries=stile_job.tries-1",
              out);
    else
        fprintf(out, "stile_job.claimed_until=" NOW "+INTERVAL %" PRId64 " MICROSECOND",
                errand->lease_ms * 1000);
    fputs(told ? " RETURNING token" : "", out);
}

/* ---- what is looked for ---- */

/* A row that is not claimed any more and still has this token was left so by whoever has it. */
void sql_job_put_found(FILE *out, const struct job_errand *errand, uint64_t tag)
{
    if (errand->verb != JOB_CLAIM) {
        fputs("SELECT token FROM stile_job", out);
        put_marked(out, errand->marks, errand->n);
        fputs(errand->verb == JOB_EXTEND ? " AND state='claimed'" : " AND state<>'claimed'", out);
        return;
    }
    fputs("SELECT " TOLD " FROM stile_job FORCE INDEX (due)", out);
    put_queue(out, errand);
    fprintf(out,
            " AND due_at>" NOW " AND due_at<=" NOW "+INTERVAL %" PRId64
            " MICROSECOND AND worker='%s-%" PRIu64 "' ORDER BY run_at,id",
            errand->lease_ms * 1000, my_of(errand->engine)->who.owner, tag);
}

void sql_job_put_due(FILE *out, const struct job_errand *errand)
{
    fputs("SELECT " MS_UNTIL("due_at") " FROM stile_job FORCE INDEX (due)", out);
    put_queue(out, errand);
    fputs(" AND due_at IS NOT NULL ORDER BY due_at LIMIT 1", out);
}

/* ---- for people ---- */

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

/* With the schema before: one of each key, and none whose key is there. Its tokens go on from where
 * they were, and may be smaller than those of a later job with its key. */
static void put_retry_in_place(FILE *out, const struct job_errand *errand)
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

static void put_retry(FILE *out, const struct job_errand *errand)
{
    if (my_of(errand->engine)->version >= SCHEMA_RENUMBERS) {
        fputs("CALL stile_job_retry(", out);
        put_hex(out, errand->queue, errand->queue_len);
        fprintf(out, ",%" PRIu64 ")", errand->id);
        return;
    }
    put_retry_in_place(out, errand);
}

static void put_drop(FILE *out, const struct job_errand *errand)
{
    fputs("DELETE FROM stile_job", out);
    put_queue(out, errand);
    fprintf(out, " AND id=%" PRIu64 " AND state<>'claimed'", errand->id);
}

void sql_job_put(FILE *out, const struct job_errand *errand, uint64_t tag)
{
    switch (errand->verb) {
    case JOB_CLAIM:
        put_claim(out, errand, tag);
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
