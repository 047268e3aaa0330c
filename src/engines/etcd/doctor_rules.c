/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the members' answers mean for locks: findings, without any request. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engines/etcd/doctor.h"

#define LAG_MAX        1000 /* entries; some are always under way */
#define LEASE_LONG_S   10   /* the default TTL */
#define WHERE_LIST_MAX 600
#define OLDEST_MINOR   4 /* of 3.x */

enum { ALARM_NO_SPACE = 1, ALARM_CORRUPT = 2 };

struct doctor_facts {
    const struct cluster_status *cluster;
    /* What a rule is applied to, if it is not the whole cluster. */
    const struct member_status *member;
    const struct listed_member *listed;
    const struct active_alarm *alarm;
};

/* ---- which members answer ---- */

static bool answers(const struct member_status *member)
{
    return member->error.status == STILE_OK;
}

/* The others are compared with it. */
static const struct member_status *first_to_answer(const struct cluster_status *cluster)
{
    for (size_t i = 0; i < cluster->n_members; i++) {
        if (answers(&cluster->members[i]))
            return &cluster->members[i];
    }
    return NULL;
}

static bool is_named(const struct cluster_status *cluster, uint64_t id)
{
    for (size_t i = 0; i < cluster->n_members; i++) {
        if (answers(&cluster->members[i]) && cluster->members[i].id == id)
            return true;
    }
    return false;
}

bool etcd_member_is_sound(const struct cluster_status *cluster, size_t i)
{
    const struct member_status *member = &cluster->members[i];
    return answers(member) && member->leader && !member->learner &&
           member->cluster == first_to_answer(cluster)->cluster;
}

static bool any_leader(const struct cluster_status *cluster)
{
    for (size_t i = 0; i < cluster->n_members; i++) {
        if (answers(&cluster->members[i]) && cluster->members[i].leader)
            return true;
    }
    return false;
}

static size_t count_voters(const struct cluster_status *cluster)
{
    size_t n = 0;
    for (size_t i = 0; i < cluster->n_listed; i++)
        n += !cluster->listed[i].learner;
    return n;
}

static size_t count_voters_answering(const struct cluster_status *cluster)
{
    size_t n = 0;
    for (size_t i = 0; i < cluster->n_listed; i++)
        n += !cluster->listed[i].learner && is_named(cluster, cluster->listed[i].id);
    return n;
}

static bool all_answer(const struct cluster_status *cluster)
{
    for (size_t i = 0; i < cluster->n_members; i++) {
        if (!answers(&cluster->members[i]))
            return false;
    }
    return true;
}

/* ---- one endpoint ---- */

static void note_loss(struct doctor_draft *draft, const struct cluster_status *cluster)
{
    size_t all = count_voters(cluster), there = count_voters_answering(cluster);
    if (!any_leader(cluster))
        doctor_put(draft, "No member that answers has a leader.");
    else if (all == 0)
        doctor_put(draft, "A client may try it next.");
    else if (there > all / 2 + 1)
        doctor_put(
            draft,
            "%zu of %zu voting members answer: %zu more may fail before nothing can be locked.",
            there, all, there - (all / 2 + 1));
    else
        doctor_put(draft,
                   "%zu of %zu voting members answer: with one less nothing can be locked, and "
                   "every holder loses its lock.",
                   there, all);
}

static bool is_down(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    draft->severity = any_leader(facts->cluster) ? STILE_WARNING : STILE_DANGER;
    doctor_put(draft, "%s", facts->member->error.message);
    note_loss(draft, facts->cluster);
    return !answers(facts->member);
}

DOCTOR_WHEN(sees_no_leader, answers(facts->member) && !facts->member->leader)
DOCTOR_WHEN(has_leader, any_leader(facts->cluster))

static uint64_t highest_applied(const struct cluster_status *cluster, uint64_t id)
{
    uint64_t highest = 0;
    for (size_t i = 0; i < cluster->n_members; i++) {
        const struct member_status *member = &cluster->members[i];
        if (answers(member) && member->cluster == id && member->applied > highest)
            highest = member->applied;
    }
    return highest;
}

static bool lags(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct member_status *member = facts->member;
    uint64_t behind = highest_applied(facts->cluster, member->cluster) - member->applied;
    doctor_put(draft, "%" PRIu64, behind);
    return answers(member) && behind > LAG_MAX;
}

DOCTOR_WHEN(is_learner, answers(facts->member) && facts->member->learner)

static bool is_of_other_cluster(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct member_status *first = first_to_answer(facts->cluster);
    doctor_put(draft, "%s", first ? first->where : "");
    return answers(facts->member) && facts->member->cluster != first->cluster;
}

/* Seen under another address before. */
static bool is_named_twice(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct member_status *member = facts->member, *m = facts->cluster->members;
    while (m < member && !(answers(m) && m->cluster == member->cluster && m->id == member->id))
        m++;
    doctor_put(draft, "%s", m->where);
    return answers(member) && m < member &&
           member->cluster == first_to_answer(facts->cluster)->cluster;
}

#define STATUS "etcdctl endpoint status --cluster"

static const struct doctor_rule member_rules[] = {
    {"down", STILE_DANGER, is_down, .what = "no answer ($1)", .why = "$2",
     .cure = "Start it, or remove it from the cluster and the URL.",
     .command = "etcdctl endpoint health --cluster"},
    {"cut-off", STILE_WARNING, sees_no_leader, .also = has_leader,
     .what = "it sees no leader, though others do",
     .why = "It is cut off from the others, so the cluster has one member fewer.",
     .cure = "Look at the network between the members, and at its log.", .command = STATUS},
    {"no-leader", STILE_DANGER, sees_no_leader, .unless = has_leader, .what = "it sees no leader",
     .why = "Nothing can be locked, and every holder loses its lock at its deadline.",
     .cure = "Start the members that are down; more than half must reach one another.",
     .command = STATUS},
    {"lags", STILE_WARNING, lags, .what = "it is $1 entries behind the others",
     .why = "Requests to it wait until it has caught up: locks may be lost for lack of a renewal "
            "in time.",
     .cure = "Look at its disk and its load.", .command = STATUS},
    {"learner", STILE_WARNING, is_learner, .what = "it is only a learner",
     .why = "It does not serve clients.", .cure = "Name the voting members in the URL."},
    {"other-cluster", STILE_DANGER, is_of_other_cluster,
     .what = "it belongs to another cluster than $1",
     .why = "Each cluster knows only its own locks: clients of two clusters can hold the same one.",
     .cure = "Name the members of one cluster only, the same ones in every URL.",
     .command = "etcdctl endpoint status"},
    {"named-twice", STILE_NOTE, is_named_twice, .what = "it is the same member as $1",
     .why = "When it is down, both addresses are.", .cure = "Name each member once."},
    {0},
};

/* ---- known defects of releases ---- */

struct release {
    unsigned major, minor, patch;
};

static struct release read_release(const char *version)
{
    struct release r = {0};
    sscanf(version, "%u.%u.%u", &r.major, &r.minor, &r.patch);
    return r;
}

static bool is_too_old(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    struct release r = read_release(facts->member->version);
    doctor_put(draft, "%s", facts->member->version);
    return r.major < 3 || (r.major == 3 && r.minor < OLDEST_MINOR);
}

/* The rule's field lists the first release without the defect of each minor version that has it. */
static bool has_defect(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    struct release r = read_release(facts->member->version), fixed = {0};
    const char *at = draft->rule->field;
    for (int n; sscanf(at, "%u.%u.%u%n", &fixed.major, &fixed.minor, &fixed.patch, &n) == 3;
         at += n)
        if (fixed.major == r.major && fixed.minor == r.minor)
            break;
    doctor_put(draft, "%s", facts->member->version);
    doctor_put(draft, "%u.%u.%u", fixed.major, fixed.minor, fixed.patch);
    return fixed.major == r.major && fixed.minor == r.minor && r.patch < fixed.patch;
}

DOCTOR_WHEN(is_not_alone, count_voters(facts->cluster) != 1)

#define UPGRADE "Upgrade it to $2 or later, member by member."

static const struct doctor_rule defects[] = {
    {"old", STILE_DANGER, is_too_old, .what = "etcd $1 is too old",
     .why = "stile refuses it: it needs features of 3.4.", .cure = "Upgrade it, member by member."},
    {"old-disagrees", STILE_DANGER, has_defect, .field = "3.5.3",
     .what = "etcd $1 may lose writes when a member crashes",
     .why = "Members then disagree, and two clients may hold one lock.", .cure = UPGRADE},
    {"old-forgets", STILE_DANGER, has_defect, .unless = is_not_alone, .field = "3.4.21 3.5.5",
     .what = "etcd $1 as a single member answers before a write is on disk",
     .why = "After a crash a grant may be forgotten, and its token given out again.",
     .cure = UPGRADE},
    {"old-goes-back", STILE_WARNING, has_defect, .field = "3.4.32 3.5.14",
     .what = "etcd $1 may come back at an earlier revision after a crash during a compaction",
     .why = "Tokens are revisions: one may be given out again.", .cure = UPGRADE},
    {"old-revokes", STILE_NOTE, has_defect, .field = "3.4.31 3.5.13",
     .what = "etcd $1 may revoke a lease that was renewed",
     .why = "A leader that was cut off or stopped does so when it is back: a live holder loses its "
            "lock, and is notified.",
     .cure = UPGRADE},
    {"old-keep-alive", STILE_NOTE, has_defect, .field = "3.4.38 3.5.23 3.6.5",
     .what = "etcd $1 may answer a keep-alive with success although the lease was revoked",
     .why = "stile checks its keys instead; other clients of the same locks may not.",
     .cure = UPGRADE},
    {"old-watch", STILE_NOTE, has_defect, .field = "3.4.36 3.5.18",
     .what = "etcd $1 may miss a deletion in a watch that begins in the past",
     .why = "stile does not watch the past; a waiter of another client may wait for ever.",
     .cure = UPGRADE},
    {"old-read", STILE_NOTE, has_defect, .field = "3.4.42 3.5.28",
     .what = "etcd $1 may answer with stale data after a pause or a change of the leader",
     .why = "stile never holds past its own deadline; other clients may.", .cure = UPGRADE},
    {0},
};

static bool note_version(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%s", facts->member->version);
    return true;
}

static const struct doctor_rule no_defect[] = {
    {"version", STILE_FINE, note_version, .what = "etcd $1"},
    {0},
};

/* The members that run it; false: an earlier one does, and it was reported with that. */
static bool list_of_version(char where[WHERE_LIST_MAX], const struct cluster_status *cluster,
                            size_t i)
{
    where[0] = '\0';
    for (size_t k = 0; k < cluster->n_members; k++) {
        const struct member_status *member = &cluster->members[k];
        if (!answers(member) || strcmp(member->version, cluster->members[i].version) != 0)
            continue;
        if (k < i)
            return false;
        size_t len = strlen(where);
        snprintf(where + len, WHERE_LIST_MAX - len, "%s%s", len ? ", " : "", member->where);
    }
    return answers(&cluster->members[i]);
}

/* ---- alarms ---- */

static bool is_alarm(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct cluster_status *cluster = facts->cluster;
    size_t i = 0;
    while (i < cluster->n_listed && cluster->listed[i].id != facts->alarm->id)
        i++;
    bool named = i < cluster->n_listed && *cluster->listed[i].name;
    doctor_put(draft, "%s", named ? cluster->listed[i].name : "a member");
    return facts->alarm->kind == draft->rule->column;
}

static const struct doctor_rule alarm_rules[] = {
    {"no-space", STILE_DANGER, is_alarm, .column = ALARM_NO_SPACE,
     .what = "the alarm NOSPACE is on: the database of $1 is full",
     .why = "Nothing can be locked until space is freed.",
     .cure = "Compact the history, defragment each member, then disarm.",
     .command = "etcdctl compact REVISION\netcdctl defrag --cluster\netcdctl alarm disarm"},
    {"corrupt", STILE_DANGER, is_alarm, .column = ALARM_CORRUPT,
     .what = "the alarm CORRUPT is on: members disagree about their data",
     .why = "Two holders may each be right on their own member.",
     .cure = "Replace the member that differs, from a snapshot of another.",
     .command = "etcdctl endpoint hashkv --cluster"},
    {0},
};

/* ---- the whole cluster ---- */

static bool alarms_are_unknown(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%s", facts->cluster->alarm_error.message);
    return facts->cluster->alarm_error.status != STILE_OK;
}

DOCTOR_WHEN(is_without_alarms, !alarms_are_unknown(draft, facts) && any_leader(facts->cluster) &&
                                   facts->cluster->n_alarms == 0)
DOCTOR_WHEN(has_one_voter, count_voters(facts->cluster) == 1)

static bool has_even_voters(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    size_t n = count_voters(facts->cluster), there = count_voters_answering(facts->cluster);
    doctor_put(draft, "%zu", n);
    doctor_put(draft, "%zu", there);
    doctor_put(draft, "%s", there == 1 ? "answers" : "answer");
    return n > 0 && n % 2 == 0;
}

DOCTOR_WHEN(has_odd_voters, !has_even_voters(draft, facts) && count_voters(facts->cluster) > 1)

static bool has_lease(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%" PRId64, facts->cluster->lease_seconds);
    return facts->cluster->lease_seconds > 0;
}

DOCTOR_WHEN(has_long_lease, has_lease(draft, facts) && facts->cluster->lease_seconds > LEASE_LONG_S)

/* A full database has an alarm. */
static bool has_no_lease(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct stile_error *error = &facts->cluster->lease_error;
    doctor_put(draft, "%s", error->message);
    return facts->cluster->lease_seconds <= 0 && error->status &&
           error->native != ETCD_ERROR_NO_SPACE;
}

#define VOTERS   "$1 voting members, $2 of them $3 here"
#define SHORTEST "the shortest lease is $1 s: shorter TTLs are raised to that"

static const struct doctor_rule cluster_rules[] = {
    {"alarms-unknown", STILE_NOTE, alarms_are_unknown, .what = "the alarms could not be read",
     .why = "$1"},
    {"alarms", STILE_FINE, is_without_alarms, .what = "no alarm is on"},
    {"one-member", STILE_WARNING, has_one_voter, .what = "one voting member",
     .why = "While it is down nothing can be locked, and if its disk is lost, tokens begin again.",
     .cure = "Run three members: they go on while one is down."},
    {"even", STILE_NOTE, has_even_voters, .what = VOTERS,
     .why = "It tolerates no more failures than one member fewer would.",
     .cure = "Add a member, or remove one."},
    {"members", STILE_FINE, has_odd_voters, .what = VOTERS},
    {"lease-long", STILE_WARNING, has_long_lease, .what = SHORTEST,
     .why = "A dead holder's lock lasts this long. It is one and a half election timeouts.",
     .cure = "Lower --election-timeout on all members."},
    {"lease", STILE_FINE, has_lease, .unless = has_long_lease, .what = SHORTEST},
    {"no-lease", STILE_DANGER, has_no_lease, .what = "the members grant no lease", .why = "$1",
     .cure = "Look again in a few seconds; if it stays so, more than half of the members cannot "
             "reach one another."},
    {0},
};

/* ---- members that the URL does not name ---- */

static bool is_not_named(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct listed_member *listed = facts->listed;
    doctor_put(draft, "%s", *listed->name ? listed->name : "without a name");
    return all_answer(facts->cluster) && !listed->learner && !is_named(facts->cluster, listed->id);
}

static const struct doctor_rule listed_rules[] = {
    {"not-named", STILE_NOTE, is_not_named, .what = "the member $1 is not in the URL",
     .why = "Clients do not try it when the named ones are down.",
     .cure = "Name all members in the URL."},
    {0},
};

void etcd_doctor_diagnose(const struct cluster_status *cluster, doctor_report *report, void *data)
{
    struct doctor_facts facts = {.cluster = cluster};
    char where[WHERE_LIST_MAX];
    for (size_t i = 0; i < cluster->n_members; i++) {
        facts.member = &cluster->members[i];
        doctor_apply(member_rules, &facts, facts.member->where, report, data);
    }
    for (size_t i = 0; i < cluster->n_members; i++) {
        facts.member = &cluster->members[i];
        if (list_of_version(where, cluster, i) &&
            !doctor_apply(defects, &facts, where, report, data))
            doctor_apply(no_defect, &facts, where, report, data);
    }
    for (size_t i = 0; i < cluster->n_alarms; i++) {
        facts.alarm = &cluster->alarms[i];
        doctor_apply(alarm_rules, &facts, NULL, report, data);
    }
    doctor_apply(cluster_rules, &facts, NULL, report, data);
    for (size_t i = 0; i < cluster->n_listed; i++) {
        facts.listed = &cluster->listed[i];
        doctor_apply(listed_rules, &facts, NULL, report, data);
    }
}
