/* stile doctor: each node by itself, and whether together they are what a majority needs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redis/doctor_probe.h"
#include "engines/redis/errors.h"
#include "engines/redlock/group.h"

#define WHAT_MAX       256
#define CLOCK_APART_MS 500

struct exam {
    struct survey survey;
    struct query *query;
    unsigned pending;
    struct node_exam {
        struct exam *exam;
        struct probe vitals;
        long long quiet_ms; /* until then it takes no claims, on its clock */
    } nodes[NODES_MAX];
};

static inline struct redlock *exam_redlock(const struct exam *exam)
{
    return redlock_of(exam->query->engine);
}

static inline const char *address_of(const struct exam *exam, unsigned i)
{
    return exam_redlock(exam)->nodes[i].address;
}

static bool is_up(const struct exam *exam, unsigned i)
{
    const struct probe *v = &exam->nodes[i].vitals;
    return v->info || redis_error_is_denial(&v->info_error);
}

static unsigned count_up(const struct exam *exam)
{
    unsigned n = 0;
    for (unsigned i = 0; i < exam_redlock(exam)->n; i++)
        n += is_up(exam, i);
    return n;
}

/* ---- reporting ---- */

static void report(const struct exam *exam, struct stile_finding finding, const char *where,
                   const char *what)
{
    finding.where = where;
    finding.what = what;
    exam->query->engine->events->finding(exam->query, &finding);
}

/* For two nodes that should be independent. */
static void report_pair(const struct exam *exam, const char *id, unsigned a, unsigned b,
                        const char *what, const char *cure)
{
    char where[2 * sizeof exam_redlock(exam)->nodes[0].address + 8];
    snprintf(where, sizeof where, "%s and %s", address_of(exam, a), address_of(exam, b));
    report(exam,
           (struct stile_finding){.severity = STILE_DANGER,
                                  .id = id,
                                  .why =
                                      "Their two votes come from one memory: when it is lost, or "
                                      "runs behind, two majorities can disagree.",
                                  .cure = cure},
           where, what);
}

/* ---- the set of nodes ---- */

static void check_number(const struct exam *exam)
{
    const struct redlock *redlock = exam_redlock(exam);
    char what[WHAT_MAX];
    if (redlock->n < NODES_MIN) {
        snprintf(what, sizeof what, "%u node%s: redlock needs at least %d", redlock->n,
                 redlock->n == 1 ? "" : "s", NODES_MIN);
        report(
            exam,
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
        report(exam,
               (struct stile_finding){.severity = STILE_NOTE,
                                      .id = "even",
                                      .why = "Votes are split more often by an even number.",
                                      .cure = "Use an odd number of nodes."},
               "", what);
    }
}

static bool same_field(const struct exam *exam, unsigned a, unsigned b, const char *name)
{
    const char *one, *other;
    size_t len = redis_probe_field(&one, &exam->nodes[a].vitals, name);
    return len > 0 && len == redis_probe_field(&other, &exam->nodes[b].vitals, name) &&
           memcmp(one, other, len) == 0;
}

static void check_pairs(const struct exam *exam)
{
    for (unsigned b = 1; b < exam_redlock(exam)->n; b++) {
        for (unsigned a = 0; a < b; a++) {
            if (same_field(exam, a, b, "run_id"))
                report_pair(exam, "same-server", a, b, "are one server under two addresses",
                            "Name each server once, and as many as there are.");
            else if (same_field(exam, a, b, "master_replid"))
                report_pair(exam, "replicate", a, b, "replicate one another",
                            "REPLICAOF NO ONE on the replica, or leave it out of the URL.");
        }
    }
}

static int by_size(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

static void check_clocks(const struct exam *exam)
{
    long long ahead[NODES_MAX];
    char what[WHAT_MAX];
    unsigned n = 0;
    for (unsigned i = 0; i < exam_redlock(exam)->n; i++)
        if (exam->nodes[i].vitals.clock.known)
            ahead[n++] = exam->nodes[i].vitals.ahead_ms;
    qsort(ahead, n, sizeof *ahead, by_size);
    for (unsigned i = 0; i < exam_redlock(exam)->n; i++) {
        const struct probe *v = &exam->nodes[i].vitals;
        long long off_ms = v->clock.known ? v->ahead_ms - ahead[n / 2] : 0;
        if (llabs(off_ms) < CLOCK_APART_MS)
            continue;
        snprintf(what, sizeof what, "its clock is %.1f s %s most of the others'",
                 (double)llabs(off_ms) / 1000, off_ms > 0 ? "ahead of" : "behind");
        report(exam,
               (struct stile_finding){
                   .severity = STILE_WARNING,
                   .id = "clocks",
                   .why =
                       "Only lengths of time are sent, so the difference does no harm. But setting "
                       "this clock forward ends the leases on its node early; on a majority "
                       "that makes a second holder, whose token is larger.",
                   .cure = "Let NTP slew it, and never set it by hand."},
               address_of(exam, i), what);
    }
}

/* ---- the group: which nodes remember it ---- */

static void report_no_group(const struct exam *exam)
{
    bool complete = count_up(exam) == exam_redlock(exam)->n;
    report(
        exam,
        (struct stile_finding){
            .severity = complete ? STILE_NOTE : STILE_WARNING,
            .id = "no-group",
            .why =
                "The first client makes them one, once all of them answer; nothing can be locked "
                "before.",
            .cure = complete ? "" : "Start all nodes once."},
        "", "these nodes are no group yet");
}

static void report_forgotten(const struct exam *exam, unsigned i, bool enough)
{
    report(
        exam,
        (struct stile_finding){
            .severity = enough ? STILE_WARNING : STILE_DANGER,
            .id = "forgot",
            .why = enough
                       ? "It does not know what it has voted for, so it does not count: as if it "
                         "were down."
                       : "It does not know what it has voted for, so it does not count, and "
                         "without a majority that remembers nothing can be locked.",
            .cure =
                enough ? "" : "Bring nodes back that have kept their data, then adopt this one.",
            .command = enough ? "stile doctor --adopt URL" : ""},
        address_of(exam, i), "has lost its data: it no longer has a group");
}

static void report_foreign(const struct exam *exam, unsigned i, bool enough)
{
    const struct probe *v = &exam->nodes[i].vitals;
    char command[WHAT_MAX * 2];
    snprintf(command, sizeof command, "%s DEL " NODE_KEY "\nstile doctor --adopt URL",
             v->cli ? v->cli : "redis-cli");
    report(exam,
           (struct stile_finding){.severity = enough ? STILE_WARNING : STILE_DANGER,
                                  .id = "foreign",
                                  .why = "It votes with other nodes, so it does not count here.",
                                  .cure = "But only if that other group no longer needs it; "
                                          "else name another node in the URL.",
                                  .command = enough ? command : ""},
           address_of(exam, i), "belongs to another group of nodes");
}

static void report_closed(const struct exam *exam, unsigned i)
{
    report(exam,
           (struct stile_finding){.severity = STILE_WARNING,
                                  .id = "closed",
                                  .why =
                                      "It gives no votes in the old group any longer. A change of "
                                      "a group's nodes that was begun has to be finished.",
                                  .command = "stile doctor --resize URL",
                                  .cure = "URL names the nodes that the group is to have."},
           address_of(exam, i), "its group is being given other nodes");
}

static void check_quiet(const struct exam *exam, unsigned i)
{
    const struct node_exam *one = &exam->nodes[i];
    long long left_ms = one->quiet_ms - redis_probe_now_ms(&one->vitals);
    char what[WHAT_MAX];
    if (left_ms <= 0 || !one->vitals.clock.known)
        return;
    snprintf(what, sizeof what, "was adopted, and takes no claims for %lld s more",
             (left_ms + 999) / 1000);
    report(
        exam,
        (struct stile_finding){.severity = STILE_NOTE,
                               .id = "quiet",
                               .why = "Locks that it has forgotten may still be held until then."},
        address_of(exam, i), what);
}

static void report_node_key(const struct exam *exam, unsigned i)
{
    const struct redlock *redlock = exam_redlock(exam);
    const struct probe *v = &exam->nodes[i].vitals;
    if (is_up(exam, i))
        redis_rules_report(exam->query, v,
                           &(struct rule){.severity = STILE_DANGER,
                                          .id = "node-key",
                                          .why = "It looks like a node that has lost its data, "
                                                 "so it does not count.",
                                          .commands = {"ACL SETUSER NAME '~" NODE_KEY "'"},
                                          .cure = "NAME is the user of the URL, if it is its ACL."},
                           "does not report its group (" NODE_KEY "): %.200s",
                           redlock->nodes[i].error.message);
}

/* enough: a majority remembers the group of this name. */
static void check_member(const struct exam *exam, unsigned i, const char *id, bool enough)
{
    const char *group = exam->survey.records[i].group;
    char one[GROUP_ID + 1];
    uint32_t epoch;
    if (redlock_group_is_closed(group))
        report_closed(exam, i);
    else if (!group[0] || redlock_group_is_mark(group))
        report_forgotten(exam, i, enough);
    else if (redlock_group_read(one, &epoch, group) && strcmp(one, id) != 0)
        report_foreign(exam, i, enough);
    check_quiet(exam, i);
}

/* Nodes in epochs that the others can't follow to. */
static void check_strays(const struct exam *exam, const char *id)
{
    unsigned strays = redlock_group_strays(&exam->survey, id);
    char what[WHAT_MAX];
    snprintf(what, sizeof what, "%u nodes were left behind by an adoption that was cut short",
             strays);
    if (strays > 0)
        report(exam,
               (struct stile_finding){.severity = STILE_WARNING,
                                      .id = "left-behind",
                                      .why = "Votes of different epochs never add up, so "
                                             "they do not count, as if they were down.",
                                      .command = "stile doctor --adopt URL"},
               "", what);
}

static void check_group(const struct exam *exam)
{
    const struct redlock *redlock = exam_redlock(exam);
    char id[GROUP_ID + 1] = "", what[WHAT_MAX];
    uint32_t epoch = 0;
    unsigned share = redlock_survey_majority(&exam->survey, id, &epoch), answers = 0;
    for (unsigned i = 0; i < redlock->n; i++) {
        bool answered = exam->survey.records[i].answered;
        answers += answered;
        if (!answered)
            report_node_key(exam, i);
        else if (share > 0)
            check_member(exam, i, id, share >= redlock->majority);
    }
    if (share > 0)
        check_strays(exam, id);
    if (share == 0 && answers > 0)
        report_no_group(exam);
    snprintf(what, sizeof what, "%u of %u nodes remember that they are group %s, epoch %u", share,
             redlock->n, id, (unsigned)epoch);
    if (share >= redlock->majority)
        report(exam, (struct stile_finding){.severity = STILE_FINE, .id = "group"}, "", what);
}

/* ---- one node ---- */

static void report_down(const struct exam *exam, unsigned i)
{
    bool enough = count_up(exam) >= exam_redlock(exam)->majority;
    const char *where = address_of(exam, i);
    const char *message = exam->nodes[i].vitals.info_error.message;
    size_t len = strlen(where);
    char what[WHAT_MAX];
    if (strncmp(message, where, len) == 0 && strncmp(message + len, ": ", 2) == 0)
        message += len + 2;
    snprintf(what, sizeof what, "does not answer: %.200s", message);
    report(exam,
           (struct stile_finding){
               .severity = enough ? STILE_WARNING : STILE_DANGER,
               .id = "down",
               .why = enough ? "Locking goes on with the other nodes; fewer of them may fail now."
                             : "Fewer than a majority answer: nothing can be locked, and holders "
                               "lose their locks at their deadlines.",
               .cure = "Start it again, with its data."},
           where, what);
}

static void check_node(struct exam *exam, unsigned i)
{
    struct probe *v = &exam->nodes[i].vitals;
    long long longest_ms = (long long)exam->survey.records[i].longest_ms;
    if (!is_up(exam, i)) {
        report_down(exam, i);
        return;
    }
    if (longest_ms > v->lease_ms)
        v->lease_ms = longest_ms;
    redis_rules_judge(exam->query, v);
}

/* ---- the examination ---- */

static void finish(struct exam *exam)
{
    struct redlock *redlock = exam_redlock(exam);
    struct query *query = exam->query;
    struct stile_error err = {0};
    bool any = count_up(exam) > 0;
    for (unsigned i = 0; any && i < redlock->n; i++)
        check_node(exam, i);
    if (any) {
        check_number(exam);
        check_pairs(exam);
        check_clocks(exam);
        if (redlock->fenced)
            check_group(exam);
    } else {
        redlock_nodes_explain(redlock, 0, &err);
    }
    redlock_survey_stop(&exam->survey);
    for (unsigned i = 0; i < redlock->n; i++) {
        redis_probe_free(&exam->nodes[i].vitals);
        redis_conn_forget(redlock->nodes[i].requests, &exam->nodes[i]);
    }
    free(exam);
    query->state = NULL;
    query->engine->events->done(query, any ? NULL : &err);
}

static void answered(struct exam *exam)
{
    if (--exam->pending == 0)
        finish(exam);
}

static void on_vitals(struct probe *vitals)
{
    answered(((struct node_exam *)vitals->owner)->exam);
}

static void on_quiet(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct node_exam *one = data;
    if (!err && reply->type == REDIS_REPLY_STRING)
        one->quiet_ms = atoll(reply->str);
    answered(one->exam);
}

static void examine_node(struct exam *exam, unsigned i)
{
    struct redlock *redlock = exam_redlock(exam);
    struct node_exam *one = &exam->nodes[i];
    struct node *node = &redlock->nodes[i];
    struct conn_arg quiet[] = {CONN_TEXT("HGET"), CONN_TEXT(NODE_KEY), CONN_TEXT("quiet")};
    one->exam = exam;
    one->vitals = (struct probe){.role = redlock->fenced ? PROBE_FENCED_NODE : PROBE_PLAIN_NODE,
                                 .loop = redlock->engine.loop,
                                 .conn = node->requests,
                                 .where = node->address,
                                 .cli = node->cli,
                                 .prefix = redlock->prefix,
                                 .done = on_vitals,
                                 .owner = one};
    exam->pending++;
    if (!redis_conn_send(node->requests, quiet, 3, on_quiet, one, NULL))
        exam->pending++;
    redis_probe_start(&one->vitals);
}

static void on_survey(struct survey *survey)
{
    struct exam *exam = survey->data;
    exam->pending = 1;
    for (unsigned i = 0; i < survey->redlock->n; i++)
        examine_node(exam, i);
    answered(exam);
}

void redlock_examine(struct engine *engine, struct query *query)
{
    struct exam *exam = calloc(1, sizeof *exam);
    struct stile_error err;
    if (!exam) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    exam->query = query;
    exam->survey = (struct survey){.redlock = redlock_of(engine), .data = exam};
    query->state = exam;
    redlock_survey_ask(&exam->survey, on_survey);
}
