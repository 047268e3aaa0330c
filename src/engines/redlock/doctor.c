/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile doctor: each node by itself, and whether together they are what a majority needs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redis/doctor_probe.h"
#include "engines/redlock/group.h"

#define CLOCK_APART_MS 500
#define SPARE_NS       NS_PER_SEC /* the connections report why there is no answer */

struct visit {
    struct doctor_visit base;
    struct survey survey;
    struct node_visit {
        struct visit *visit;
        struct probe probe;
        long long quiet_ms; /* until then it takes no claims, on its clock */
    } nodes[NODES_MAX];
};

struct doctor_facts {
    const struct redlock *redlock;
    const struct survey *survey;
    const struct node_visit *nodes;
    unsigned up;           /* nodes that answer */
    unsigned on_record;    /* nodes that report their group, or that they have none */
    unsigned share;        /* of them, in the group of most */
    char id[GROUP_ID + 1]; /* of that group */
    uint32_t epoch;
    long long median_ms; /* of the clocks */
    unsigned i, other;   /* the nodes that a rule is applied to */
};

static struct visit *visit_of(struct doctor_visit *base)
{
    return container_of(base, struct visit, base);
}

static const char *address_of(const struct doctor_facts *facts, unsigned i)
{
    return facts->redlock->nodes[i].address;
}

static const struct probe *probe_of(const struct doctor_facts *facts)
{
    return &facts->nodes[facts->i].probe;
}

/* ---- the set of nodes ---- */

static bool are_few(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    unsigned n = facts->redlock->n;
    doctor_put(draft, "%u node%s", n, n == 1 ? "" : "s");
    doctor_put(draft, "%d", NODES_MIN);
    return n < NODES_MIN;
}

static bool are_even(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    unsigned n = facts->redlock->n;
    doctor_put(draft, "%u", n);
    doctor_put(draft, "%u", n - 1);
    return n % 2 == 0;
}

static const struct doctor_rule set_rules[] = {
    {"few-nodes", STILE_DANGER, are_few, .what = "$1: redlock needs at least $2",
     .why = "A majority of fewer than three is all of them: no node may ever be missing. stile "
            "refuses that.",
     .cure = "Add independent nodes to the URL, or use redis:// for one server."},
    {"even", STILE_NOTE, are_even, .unless = are_few,
     .what = "$1 nodes tolerate no more failures than $2 would",
     .why = "An even number of nodes splits votes more often.",
     .cure = "Use an odd number of nodes."},
    {0},
};

/* ---- two of them ---- */

/* The rule's field of INFO is that of a memory. */
static bool share_a_memory(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const char *one, *other, *name = draft->rule->field;
    size_t len = redis_probe_field(&one, probe_of(facts), name);
    return len > 0 && len == redis_probe_field(&other, &facts->nodes[facts->other].probe, name) &&
           memcmp(one, other, len) == 0;
}

#define ONE_MEMORY                                                                                 \
    "Their two votes come from one memory: when it is lost, or runs behind, two majorities can "   \
    "disagree."

static const struct doctor_rule same_rules[] = {
    {"same-server", STILE_DANGER, share_a_memory, .field = "run_id",
     .what = "are one server under two addresses", .why = ONE_MEMORY,
     .cure = "Name each server once."},
    {0},
};

static const struct doctor_rule replica_rules[] = {
    {"replicate", STILE_DANGER, share_a_memory, .field = "master_replid",
     .what = "replicate one another", .why = ONE_MEMORY,
     .cure = "REPLICAOF NO ONE on the replica, or leave it out of the URL."},
    {0},
};

/* ---- one node ---- */

static bool is_down(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const char *where = address_of(facts, facts->i);
    const char *message = probe_of(facts)->info_error.message;
    size_t len = strlen(where);
    if (strncmp(message, where, len) == 0 && strncmp(message + len, ": ", 2) == 0)
        message += len + 2;
    doctor_put(draft, "%.200s", message);
    return !redis_probe_is_up(probe_of(facts));
}

DOCTOR_WHEN(is_majority_up, facts->up >= facts->redlock->majority)

static const struct doctor_rule down_rules[] = {
    {"down", STILE_WARNING, is_down, .also = is_majority_up, .what = "does not answer: $1",
     .why = "Locking goes on with the other nodes; fewer of them may fail now.",
     .cure = "Start it again, with its data."},
    {"down", STILE_DANGER, is_down, .unless = is_majority_up, .what = "does not answer: $1",
     .why = "Fewer than a majority answer: nothing can be locked, and holders lose their locks at "
            "their deadlines.",
     .cure = "Start it again, with its data."},
    {0},
};

static bool has_clock_apart(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    long long off_ms = probe_of(facts)->ahead_ms - facts->median_ms;
    doctor_put(draft, "%.1f", (double)llabs(off_ms) / 1000);
    doctor_put(draft, "%s", off_ms > 0 ? "ahead of" : "behind");
    return probe_of(facts)->clock.known && llabs(off_ms) >= CLOCK_APART_MS;
}

static const struct doctor_rule clock_rules[] = {
    {"clocks", STILE_WARNING, has_clock_apart, .what = "its clock is $1 s $2 most of the others'",
     .why = "Only lengths of time are sent, so the difference does no harm. But setting this clock "
            "forward ends the leases on its node early; on a majority that makes a second holder, "
            "whose token is larger.",
     .cure = "Let NTP slew it, and never set it by hand."},
    {0},
};

/* ---- the group: which nodes remember it ---- */

static const char *group_of(const struct doctor_facts *facts)
{
    return facts->survey->records[facts->i].group;
}

static bool is_silent(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%.200s", facts->redlock->nodes[facts->i].error.message);
    return !facts->survey->records[facts->i].answered && redis_probe_is_up(probe_of(facts));
}

/* For redis-cli on that node. */
static const struct doctor_rule key_rules[] = {
    {"node-key", STILE_DANGER, is_silent, .what = "does not report its group (" NODE_KEY "): $1",
     .why = "It looks like a node that has lost its data, so it does not count.",
     .cure = "NAME is the user of the URL, if it is its ACL.",
     .command = "ACL SETUSER NAME '~" NODE_KEY "'"},
    {0},
};

DOCTOR_WHEN(is_closed, redlock_group_is_closed(group_of(facts)))

static bool has_forgotten(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const char *group = group_of(facts);
    return !is_closed(draft, facts) && (!group[0] || redlock_group_is_mark(group));
}

static bool is_foreign(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const char *cli = probe_of(facts)->cli;
    char id[GROUP_ID + 1];
    uint32_t epoch;
    doctor_put(draft, "%s", cli ? cli : "redis-cli");
    return !is_closed(draft, facts) && !has_forgotten(draft, facts) &&
           redlock_group_read(id, &epoch, group_of(facts)) && strcmp(id, facts->id) != 0;
}

/* A majority remembers the group. */
DOCTOR_WHEN(is_remembered, facts->share >= facts->redlock->majority)

static bool is_quiet(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    long long left_ms = facts->nodes[facts->i].quiet_ms - redis_probe_now_ms(probe_of(facts));
    doctor_put(draft, "%lld", (left_ms + 999) / 1000);
    return probe_of(facts)->clock.known && left_ms > 0;
}

#define ADOPT       "stile doctor --adopt URL"
#define LOST        "has lost its data: it no longer has a group"
#define OTHER_GROUP "belongs to another group of nodes"
#define OTHER_VOTES "It votes with other nodes, so it does not count here."
#define OTHER_NEEDS                                                                                \
    "Only if that other group no longer needs it; otherwise name another node in the URL."

static const struct doctor_rule member_rules[] = {
    {"closed", STILE_WARNING, is_closed, .what = "its group is being given other nodes",
     .why = "It gives no votes in the old group any longer. A change of a group's nodes that was "
            "begun has to be finished.",
     .cure = "URL names the nodes that the group is to have.",
     .command = "stile doctor --resize URL"},
    {"forgot", STILE_WARNING, has_forgotten, .also = is_remembered, .what = LOST,
     .why = "It does not know what it has voted for, so it does not count: as if it were down.",
     .command = ADOPT},
    {"forgot", STILE_DANGER, has_forgotten, .unless = is_remembered, .what = LOST,
     .why = "It does not know what it has voted for, so it does not count, and without a majority "
            "that remembers nothing can be locked.",
     .cure = "Bring nodes back that have kept their data, then adopt this one."},
    {"foreign", STILE_WARNING, is_foreign, .also = is_remembered, .what = OTHER_GROUP,
     .why = OTHER_VOTES, .cure = OTHER_NEEDS, .command = "$1 DEL " NODE_KEY "\n" ADOPT},
    {"foreign", STILE_DANGER, is_foreign, .unless = is_remembered, .what = OTHER_GROUP,
     .why = OTHER_VOTES, .cure = OTHER_NEEDS},
    {"quiet", STILE_NOTE, is_quiet, .what = "was adopted, and takes no claims for $1 s more",
     .why = "Locks that it has forgotten may still be held until then."},
    {0},
};

/* Nodes in epochs that the others can't follow to. */
static bool has_strays(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    unsigned strays = facts->share ? redlock_group_strays(facts->survey, facts->id) : 0;
    doctor_put(draft, "%u", strays);
    return strays > 0;
}

DOCTOR_WHEN(is_no_group, facts->share == 0 && facts->on_record > 0)
DOCTOR_WHEN(are_all_up, facts->up == facts->redlock->n)

static bool note_group(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%u", facts->share);
    doctor_put(draft, "%u", facts->redlock->n);
    doctor_put(draft, "%s", facts->id);
    doctor_put(draft, "%u", (unsigned)facts->epoch);
    return is_remembered(draft, facts);
}

#define NO_GROUP "these nodes are not a group yet"
#define BEFORE                                                                                     \
    "The first client makes them one, once all of them answer; nothing can be locked before."

static const struct doctor_rule group_rules[] = {
    {"left-behind", STILE_WARNING, has_strays,
     .what = "$1 nodes were left behind by an adoption that was cut short",
     .why = "Votes of different epochs never add up, so they do not count, as if they were down.",
     .command = ADOPT},
    {"no-group", STILE_NOTE, is_no_group, .also = are_all_up, .what = NO_GROUP, .why = BEFORE},
    {"no-group", STILE_WARNING, is_no_group, .unless = are_all_up, .what = NO_GROUP, .why = BEFORE,
     .cure = "Start all nodes once."},
    {"group", STILE_FINE, note_group,
     .what = "$1 of $2 nodes remember that they are group $3, epoch $4"},
    {0},
};

/* ---- applying them ---- */

static int by_size(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

static long long median_ahead(const struct visit *visit)
{
    long long ahead[NODES_MAX] = {0};
    unsigned n = 0;
    for (unsigned i = 0; i < visit->survey.redlock->n; i++)
        if (visit->nodes[i].probe.clock.known)
            ahead[n++] = visit->nodes[i].probe.ahead_ms;
    qsort(ahead, n, sizeof *ahead, by_size);
    return ahead[n / 2];
}

static struct doctor_facts add_up(const struct visit *visit)
{
    struct doctor_facts facts = {.redlock = visit->survey.redlock,
                                 .survey = &visit->survey,
                                 .nodes = visit->nodes,
                                 .median_ms = median_ahead(visit)};
    for (unsigned i = 0; i < facts.redlock->n; i++) {
        facts.up += redis_probe_is_up(&visit->nodes[i].probe);
        facts.on_record += visit->survey.records[i].answered;
    }
    facts.share = redlock_survey_majority(facts.survey, facts.id, &facts.epoch);
    return facts;
}

static size_t apply(const struct doctor_rule *rules, const struct doctor_facts *facts,
                    const char *where, struct query *query)
{
    return doctor_apply(rules, facts, where, doctor_report_to_query, query);
}

static void judge_pairs(struct doctor_facts facts, struct query *query)
{
    char where[2 * sizeof facts.redlock->nodes[0].address + 8];
    for (facts.other = 1; facts.other < facts.redlock->n; facts.other++) {
        for (facts.i = 0; facts.i < facts.other; facts.i++) {
            snprintf(where, sizeof where, "%s and %s", address_of(&facts, facts.i),
                     address_of(&facts, facts.other));
            if (!apply(same_rules, &facts, where, query))
                apply(replica_rules, &facts, where, query);
        }
    }
}

static void judge_group(struct doctor_facts facts, struct visit *visit)
{
    struct query *query = visit->base.query;
    for (facts.i = 0; facts.i < facts.redlock->n; facts.i++) {
        const char *where = address_of(&facts, facts.i);
        doctor_apply(key_rules, &facts, where, redis_rules_report, &visit->nodes[facts.i].probe);
        if (visit->survey.records[facts.i].answered && facts.share > 0)
            apply(member_rules, &facts, where, query);
    }
    apply(group_rules, &facts, "", query);
}

static void visit_judge(struct doctor_visit *base, struct stile_error *err)
{
    struct visit *visit = visit_of(base);
    struct doctor_facts facts = add_up(visit);
    if (!facts.up) {
        redlock_nodes_explain(visit->survey.redlock, 0, err);
        return;
    }
    for (facts.i = 0; facts.i < facts.redlock->n; facts.i++) {
        struct probe *v = &visit->nodes[facts.i].probe;
        long long longest_ms = (long long)visit->survey.records[facts.i].longest_ms;
        v->lease_ms = longest_ms > v->lease_ms ? longest_ms : v->lease_ms;
        if (!apply(down_rules, &facts, v->where, base->query))
            redis_rules_judge(v);
        apply(clock_rules, &facts, v->where, base->query);
    }
    apply(set_rules, &facts, "", base->query);
    judge_pairs(facts, base->query);
    if (facts.redlock->fenced)
        judge_group(facts, visit);
}

/* ---- the visit ---- */

static void on_quiet(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct node_visit *one = data;
    if (!err && reply->type == REDIS_REPLY_STRING)
        one->quiet_ms = atoll(reply->str);
    doctor_answered(&one->visit->base);
}

static void prepare(struct visit *visit, struct redlock *redlock, unsigned i)
{
    struct node_visit *one = &visit->nodes[i];
    struct node *node = &redlock->nodes[i];
    struct conn_arg quiet[] = {CONN_TEXT("HGET"), CONN_TEXT(NODE_KEY), CONN_TEXT("quiet")};
    one->visit = visit;
    one->probe = (struct probe){.visit = &visit->base,
                                .role = redlock->fenced ? PROBE_FENCED_NODE : PROBE_PLAIN_NODE,
                                .conn = node->requests,
                                .where = node->address,
                                .cli = node->cli,
                                .prefix = redlock->prefix};
    if (!redis_conn_send(node->requests, quiet, 3, on_quiet, one, NULL))
        doctor_asked(&visit->base);
}

static void on_survey(struct survey *survey)
{
    struct visit *visit = survey->data;
    doctor_answered(&visit->base);
}

static bool visit_ask(struct doctor_visit *base, unsigned round)
{
    struct visit *visit = visit_of(base);
    struct redlock *redlock = redlock_of(base->query->engine);
    if (round == 0) {
        visit->survey = (struct survey){.redlock = redlock, .data = visit};
        doctor_asked(base);
        redlock_survey_ask(&visit->survey, on_survey);
    }
    for (unsigned i = 0; i < redlock->n; i++) {
        if (round == 0)
            prepare(visit, redlock, i);
        redis_probe_ask(&visit->nodes[i].probe, round);
    }
    return round < PROBE_ROUNDS;
}

static void visit_leave(struct doctor_visit *base)
{
    struct visit *visit = visit_of(base);
    struct redlock *redlock = visit->survey.redlock;
    redlock_survey_stop(&visit->survey);
    for (unsigned i = 0; i < redlock->n; i++) {
        redis_probe_free(&visit->nodes[i].probe);
        redis_conn_forget(redlock->nodes[i].requests, &visit->nodes[i]);
    }
}

static void visit_forked(struct doctor_visit *base)
{
    for (unsigned i = 0; i < visit_of(base)->survey.redlock->n; i++)
        redis_probe_forked(&visit_of(base)->nodes[i].probe);
}

void redlock_examine(struct engine *engine, struct query *query)
{
    static const struct doctor_plan plan = {
        .ask = visit_ask, .judge = visit_judge, .leave = visit_leave, .forked = visit_forked};
    struct redlock *redlock = redlock_of(engine);
    doctor_visit_begin(&plan, sizeof(struct visit), redlock->node_timeout_ms * NS_PER_MS + SPARE_NS,
                       query, &redlock->visits);
}
