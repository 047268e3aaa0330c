/* examine(): every node by itself, and whether together they are what a majority needs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redis/fault.h"
#include "engines/redlock/doctor.h"

#define CLOCK_APART_MS 500

bool visit_is_up(const struct visit *visit, unsigned i)
{
    const struct vitals *v = &visit->patients[i].vitals;
    return v->info || fault_is_denial(&v->info_error);
}

unsigned visit_count_up(const struct visit *visit)
{
    unsigned n = 0;
    for (unsigned i = 0; i < visit_redlock(visit)->n; i++)
        n += visit_is_up(visit, i);
    return n;
}

/* ---- telling ---- */

void visit_tell(const struct visit *visit, struct stile_finding finding, const char *where,
                const char *what)
{
    finding.where = where;
    finding.what = what;
    visit->query->engine->events->finding(visit->query, &finding);
}

/* Of two nodes that should be independent. */
static void tell_pair(const struct visit *visit, const char *id, unsigned a, unsigned b,
                      const char *what, const char *cure)
{
    char where[2 * sizeof visit_redlock(visit)->nodes[0].where + 8];
    snprintf(where, sizeof where, "%s and %s", visit_where(visit, a), visit_where(visit, b));
    visit_tell(
        visit,
        (struct stile_finding){.severity = STILE_DANGER,
                               .id = id,
                               .why = "Their two votes come from one memory: when it is lost, or "
                                      "runs behind, two majorities can disagree.",
                               .cure = cure},
        where, what);
}

/* ---- the set of nodes ---- */

static void judge_number(const struct visit *visit)
{
    const struct redlock *redlock = visit_redlock(visit);
    char what[WHAT_MAX];
    if (redlock->n < NODES_MIN) {
        snprintf(what, sizeof what, "%u node%s: redlock needs at least %d", redlock->n,
                 redlock->n == 1 ? "" : "s", NODES_MIN);
        visit_tell(
            visit,
            (struct stile_finding){.severity = STILE_DANGER,
                                   .id = "few-nodes",
                                   .why = "A majority of fewer than three is all of them: no node "
                                          "may ever be missing. stile refuses that.",
                                   .cure = "Add independent nodes to the URL, or use redis:// for "
                                           "one server."},
            "", what);
    } else if (redlock->n % 2 == 0) {
        snprintf(what, sizeof what, "%u nodes can miss no more of them than %u could", redlock->n,
                 redlock->n - 1);
        visit_tell(visit,
                   (struct stile_finding){.severity = STILE_NOTE,
                                          .id = "even",
                                          .why = "Votes are split more often by an even number.",
                                          .cure = "Use an odd number of nodes."},
                   "", what);
    }
}

static bool same_field(const struct visit *visit, unsigned a, unsigned b, const char *name)
{
    const char *one, *other;
    size_t len = vitals_field(&one, &visit->patients[a].vitals, name);
    return len > 0 && len == vitals_field(&other, &visit->patients[b].vitals, name) &&
           memcmp(one, other, len) == 0;
}

static void judge_pairs(const struct visit *visit)
{
    for (unsigned b = 1; b < visit_redlock(visit)->n; b++) {
        for (unsigned a = 0; a < b; a++) {
            if (same_field(visit, a, b, "run_id"))
                tell_pair(visit, "same-server", a, b, "are one server under two addresses",
                          "Name each server once, and as many as there are.");
            else if (same_field(visit, a, b, "master_replid"))
                tell_pair(visit, "replicate", a, b, "replicate one another",
                          "REPLICAOF NO ONE on the replica, or leave it out of the URL.");
        }
    }
}

static int by_size(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

static void judge_clocks(const struct visit *visit)
{
    long long ahead[NODES_MAX];
    char what[WHAT_MAX];
    unsigned n = 0;
    for (unsigned i = 0; i < visit_redlock(visit)->n; i++)
        if (visit->patients[i].vitals.clock.known)
            ahead[n++] = visit->patients[i].vitals.ahead_ms;
    qsort(ahead, n, sizeof *ahead, by_size);
    for (unsigned i = 0; i < visit_redlock(visit)->n; i++) {
        const struct vitals *v = &visit->patients[i].vitals;
        long long off_ms = v->clock.known ? v->ahead_ms - ahead[n / 2] : 0;
        if (llabs(off_ms) < CLOCK_APART_MS)
            continue;
        snprintf(what, sizeof what, "its clock is %.1f s %s most of the others'",
                 (double)llabs(off_ms) / 1000, off_ms > 0 ? "ahead of" : "behind");
        visit_tell(
            visit,
            (struct stile_finding){
                .severity = STILE_WARNING,
                .id = "clocks",
                .why = "Only lengths of time are sent, so the difference does no harm. But whoever "
                       "sets this clock forward ends the leases on its node early; on a majority "
                       "that makes a second holder, whose token is larger.",
                .cure = "Let NTP slew it, and never set it by hand."},
            visit_where(visit, i), what);
    }
}

/* ---- one node ---- */

static void judge_down(const struct visit *visit, unsigned i)
{
    bool enough = visit_count_up(visit) >= visit_redlock(visit)->majority;
    const char *where = visit_where(visit, i);
    const char *message = visit->patients[i].vitals.info_error.message;
    size_t len = strlen(where);
    char what[WHAT_MAX];
    if (strncmp(message, where, len) == 0 && strncmp(message + len, ": ", 2) == 0)
        message += len + 2;
    snprintf(what, sizeof what, "does not answer: %.200s", message);
    visit_tell(
        visit,
        (struct stile_finding){
            .severity = enough ? STILE_WARNING : STILE_DANGER,
            .id = "down",
            .why = enough ? "Locks go on with those that answer; fewer of them may fail now."
                          : "Fewer than a majority answer: nothing can be locked, and who holds "
                            "loses it at its deadline.",
            .cure = "Start it again, with its data."},
        where, what);
}

static void judge_node(struct visit *visit, unsigned i)
{
    struct vitals *v = &visit->patients[i].vitals;
    long long longest_ms = (long long)visit->survey.accounts[i].longest_ms;
    if (!visit_is_up(visit, i)) {
        judge_down(visit, i);
        return;
    }
    if (longest_ms > v->lease_ms)
        v->lease_ms = longest_ms;
    verdict_of(visit->query, v);
}

/* ---- the visit ---- */

static void finish(struct visit *visit)
{
    struct redlock *redlock = visit_redlock(visit);
    struct query *query = visit->query;
    struct stile_error err = {0};
    bool any = visit_count_up(visit) > 0;
    for (unsigned i = 0; any && i < redlock->n; i++)
        judge_node(visit, i);
    if (any) {
        judge_number(visit);
        judge_pairs(visit);
        judge_clocks(visit);
        if (redlock->fenced)
            visit_judge_group(visit);
    } else {
        nodes_explain(redlock, 0, &err);
    }
    survey_stop(&visit->survey);
    for (unsigned i = 0; i < redlock->n; i++) {
        vitals_free(&visit->patients[i].vitals);
        conn_forget(redlock->nodes[i].asks, &visit->patients[i]);
    }
    free(visit);
    query->state = NULL;
    query->engine->events->done(query, any ? NULL : &err);
}

static void answered(struct visit *visit)
{
    if (--visit->pending == 0)
        finish(visit);
}

static void on_vitals(struct vitals *vitals)
{
    answered(((struct patient *)vitals->owner)->visit);
}

static void on_quiet(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct patient *patient = data;
    if (!err && reply->type == REDIS_REPLY_STRING)
        patient->quiet_ms = atoll(reply->str);
    answered(patient->visit);
}

static void examine_node(struct visit *visit, unsigned i)
{
    struct redlock *redlock = visit_redlock(visit);
    struct patient *patient = &visit->patients[i];
    struct node *node = &redlock->nodes[i];
    struct conn_arg quiet[] = {CONN_TEXT("HGET"), CONN_TEXT(NODE_KEY), CONN_TEXT("quiet")};
    patient->visit = visit;
    patient->vitals =
        (struct vitals){.role = redlock->fenced ? VITALS_FENCED_NODE : VITALS_PLAIN_NODE,
                        .loop = redlock->engine.loop,
                        .conn = node->asks,
                        .where = node->where,
                        .cli = node->cli,
                        .prefix = redlock->prefix,
                        .done = on_vitals,
                        .owner = patient};
    visit->pending++;
    if (!conn_send(node->asks, quiet, 3, on_quiet, patient, NULL))
        visit->pending++;
    vitals_ask(&patient->vitals);
}

static void on_survey(struct survey *survey)
{
    struct visit *visit = survey->data;
    visit->pending = 1;
    for (unsigned i = 0; i < survey->redlock->n; i++)
        examine_node(visit, i);
    answered(visit);
}

void redlock_examine(struct engine *engine, struct query *query)
{
    struct visit *visit = calloc(1, sizeof *visit);
    struct stile_error err;
    if (!visit) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    visit->query = query;
    visit->survey = (struct survey){.redlock = redlock_of(engine), .data = visit};
    query->state = visit;
    survey_ask(&visit->survey, on_survey);
}
