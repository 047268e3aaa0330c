/* Jobs: rows of stile_job. Each errand is one packet on the shared session, or a few, whose
 * statements commit one by one: none leaves a transaction open, whatever happens to it. Workers
 * never wait for one another: a claim skips what is locked. Nobody can be told of new jobs: who
 * waits looks again. */
#include <mysqld_error.h>
#include <stdlib.h>

#include "engines/mysql/fault.h"
#include "engines/mysql/sql_jobs.h"

#define UNDONE_MAX 5

/* What is acked goes first: all in one packet where the server tells which rows it has deleted,
 * else one by one; likewise what is added. What a statement has done and not told is looked for in
 * a packet of its own, as that can be repeated: the statement could not, for it is done. */
enum step { ACKING, ASKING, FINDING, LOOKING, OVER };

struct progress {
    uint64_t tag; /* of its claim */
    enum step step;
    unsigned undone;   /* how often the server took it back for the sake of others */
    unsigned from, to; /* the marks, or entries, that the packet under way is about */
    unsigned changed;  /* rows that are to be found */
};

_Static_assert(sizeof(struct progress) <= sizeof((struct job_errand *)0)->state, "no room for it");

static struct progress *progress_of(struct job_errand *errand)
{
    return (struct progress *)errand->state;
}

static enum stile_status send_next(struct job_errand *errand, struct stile_error *err);

/* ---- answers ---- */

enum { ID, TOKEN, TRIES, KEY, PAYLOAD, LAST_ERROR, AGE, DUE, QUEUE, STATE, SIZE, HOST, PID };
enum { CLAIMED_STATE = AGE + 1 };

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

static void take_row(struct job_errand *errand, MYSQL_ROW row, const unsigned long *lengths)
{
    if (errand->verb == JOB_COUNT)
        tell_queue(errand, row, lengths);
    else if (errand->verb == JOB_LIST)
        tell(errand, row, lengths);
    else if (errand->verb != JOB_CLAIM)
        errand->engine->events->job_mark(errand, strtoull(row[0], NULL, 10));
    else if (state_named(row[CLAIMED_STATE]) == STILE_JOB_CLAIMED)
        tell(errand, row, lengths);
}

static void take_rows(struct job_errand *errand, const struct outcome *outcome)
{
    MYSQL_ROW row;
    while (outcome->rows && (row = mysql_fetch_row(outcome->rows)))
        take_row(errand, row, mysql_fetch_lengths(outcome->rows));
}

static enum step take_acks(struct job_errand *errand, const struct outcome *last)
{
    struct progress *progress = progress_of(errand);
    if (!last->rows && last->affected > 0)
        errand->engine->events->job_mark(errand, errand->marks[progress->from].token);
    for (MYSQL_ROW row; last->rows && (row = mysql_fetch_row(last->rows));)
        errand->engine->events->job_mark(errand, strtoull(row[0], NULL, 10));
    progress->from = progress->to;
    if (progress->from < errand->n)
        return ACKING;
    return errand->verb == JOB_ACK ? OVER : ASKING;
}

static enum step take_added(struct job_errand *errand, const struct outcome *last)
{
    struct progress *progress = progress_of(errand);
    unsigned at = progress->from;
    if (!last->rows)
        errand->ids[at] = last->insert_id;
    for (MYSQL_ROW row; last->rows && at < progress->to && (row = mysql_fetch_row(last->rows));)
        errand->ids[at++] = strtoull(row[0], NULL, 10);
    progress->from = progress->to;
    return progress->from < errand->n_entries ? ASKING : OVER;
}

/* A procedure answers with rows, the statement of the schema before it with a count. */
static enum step take_count(struct job_errand *errand, const struct answer *a)
{
    const char *count = a->outcomes[0].rows ? outcome_text(&a->outcomes[0], 0) : NULL;
    errand->count = count ? strtoull(count, NULL, 10) : answer_last(a)->affected;
    return OVER;
}

/* What it has done is told, or has to be found. */
static enum step take_changes(struct job_errand *errand, const struct outcome *last)
{
    struct progress *progress = progress_of(errand);
    progress->changed = last->rows ? 0 : (unsigned)last->affected;
    if (progress->changed > 0)
        return FINDING;
    take_rows(errand, last);
    bool none = !last->rows || mysql_num_rows(last->rows) == 0;
    return errand->verb == JOB_CLAIM && none ? LOOKING : OVER;
}

/* What a claim has found to be dead is not found by its end. */
static enum step take_found(struct job_errand *errand, const struct outcome *last)
{
    struct progress *progress = progress_of(errand);
    bool missing = last->rows && mysql_num_rows(last->rows) < progress->changed;
    if (errand->verb == JOB_CLAIM && missing && progress->undone++ < UNDONE_MAX)
        return FINDING;
    take_rows(errand, last);
    return OVER;
}

static enum step take_due(struct job_errand *errand, const struct outcome *last)
{
    const char *due = outcome_text(last, 0);
    if (due)
        errand->due_ms = *due == '-' ? 0 : strtoll(due, NULL, 10);
    return OVER;
}

static enum step take_asked(struct job_errand *errand, const struct answer *a)
{
    const struct outcome *last = answer_last(a);
    switch (errand->verb) {
    case JOB_ADD:
        return take_added(errand, last);
    case JOB_RETRY:
    case JOB_DROP:
        return take_count(errand, a);
    case JOB_LIST:
    case JOB_COUNT:
        take_rows(errand, last);
        return OVER;
    default:
        return take_changes(errand, last);
    }
}

static enum step take_answer(struct job_errand *errand, const struct answer *a)
{
    const struct outcome *last = answer_last(a);
    switch (progress_of(errand)->step) {
    case ACKING:
        return take_acks(errand, last);
    case FINDING:
        return take_found(errand, last);
    case LOOKING:
        return take_due(errand, last);
    default:
        return take_asked(errand, a);
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

/* When there is nothing to claim, it is true without knowing when there will be. */
static void on_answer(void *data, const struct answer *a)
{
    struct job_errand *errand = data;
    struct progress *progress = progress_of(errand);
    struct stile_error why;
    enum stile_status status = STILE_OK;
    errand->sent_ns = a->sent_ns;
    if (!a->err) {
        progress->step = take_answer(errand, a);
    } else if (progress->step == LOOKING) {
        progress->step = OVER;
    } else if (!fault_is_undone(a->code) || progress->undone++ >= UNDONE_MAX) {
        explain(&why, errand, a);
        status = why.status;
    }
    if (!status && progress->step != OVER)
        status = send_next(errand, &why);
    if (status || progress->step == OVER)
        errand->engine->events->job_done(errand, status ? &why : NULL);
}

/* ---- questions ---- */

static void put_acks(FILE *out, struct job_errand *errand)
{
    struct progress *progress = progress_of(errand);
    const struct my *my = my_of(errand->engine);
    progress->to = my->mariadb ? (unsigned)errand->n : progress->from + 1;
    sql_job_put_ack(out, my, errand->marks + progress->from, progress->to - progress->from);
}

static void put_entries(FILE *out, struct job_errand *errand)
{
    struct progress *progress = progress_of(errand);
    bool all = my_of(errand->engine)->mariadb;
    progress->to = all ? (unsigned)errand->n_entries : progress->from + 1;
    sql_job_put_add(out, errand, progress->from, progress->to);
}

static void put_packet(FILE *out, struct job_errand *errand)
{
    struct progress *progress = progress_of(errand);
    switch (progress->step) {
    case ACKING:
        put_acks(out, errand);
        break;
    case FINDING:
        sql_job_put_found(out, errand, progress->tag);
        break;
    case LOOKING:
        sql_job_put_due(out, errand);
        break;
    default:
        if (errand->verb == JOB_ADD)
            put_entries(out, errand);
        else
            sql_job_put(out, errand, progress->tag);
    }
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
        bool acks = errand->n > 0 && (errand->verb == JOB_ACK || errand->verb == JOB_CLAIM);
        *progress_of(errand) =
            (struct progress){.tag = ++my->job_claims, .step = acks ? ACKING : ASKING};
        status = send_next(errand, &err);
    }
    if (status)
        engine->events->job_done(errand, &err);
}
