/* What the members' answers mean for locks: findings, without any request. */
#include "engines/etcd/doctor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LAG_MAX        1000 /* entries; some are always under way */
#define LEASE_LONG_S   10   /* the default TTL */
#define WHERE_LIST_MAX 600

enum { ALARM_NO_SPACE = 1, ALARM_CORRUPT = 2 };

struct diagnosis {
    const struct cluster_status *cluster;
    finding_fn *fn;
    void *data;
};

/* ---- known defects of releases ---- */

#define OLDEST_MINOR 4
#define NEWEST_MINOR 6

static const struct defect too_old = {.severity = STILE_DANGER,
                                      .id = "old",
                                      .what = "is too old",
                                      .why = "stile refuses it: it needs features of 3.4."};

static const struct defect known[] = {
    {.fixed = {0, 3, 0},
     .severity = STILE_DANGER,
     .id = "old-disagrees",
     .what = "may lose writes when a member crashes",
     .why = "Members then disagree, and two clients may hold one lock."},
    {.fixed = {21, 5, 0},
     .severity = STILE_DANGER,
     .alone = true,
     .id = "old-forgets",
     .what = "as a single member answers before a write is on disk",
     .why = "After a crash a grant may be forgotten, and its token given out again."},
    {.fixed = {32, 14, 0},
     .severity = STILE_WARNING,
     .id = "old-goes-back",
     .what = "may come back at an earlier revision after a crash during a compaction",
     .why = "Tokens are revisions: one may be given out again."},
    {.fixed = {31, 13, 0},
     .severity = STILE_NOTE,
     .id = "old-revokes",
     .what = "may revoke a lease that was renewed",
     .why = "A leader that was cut off or stopped does so when it is back: a live holder loses "
            "its lock, and is notified."},
    {.fixed = {38, 23, 5},
     .severity = STILE_NOTE,
     .id = "old-keep-alive",
     .what = "may answer a keep-alive with success although the lease was revoked",
     .why = "stile checks its keys instead; other clients of the same locks may not."},
    {.fixed = {36, 18, 0},
     .severity = STILE_NOTE,
     .id = "old-watch",
     .what = "may miss a deletion in a watch that begins in the past",
     .why = "stile does not watch the past; a waiter of another client may wait for ever."},
    {.fixed = {42, 28, 0},
     .severity = STILE_NOTE,
     .id = "old-read",
     .what = "may answer with stale data after a pause or a change of the leader",
     .why = "stile never holds past its own deadline; other clients may."},
};

#define N_KNOWN (sizeof known / sizeof *known)

struct release {
    unsigned major, minor, patch;
};

static struct release read_release(const char *version)
{
    struct release r = {0};
    sscanf(version, "%u.%u.%u", &r.major, &r.minor, &r.patch);
    return r;
}

const struct defect *etcd_defect_next(const struct defect *last, const char *version, size_t voters)
{
    struct release r = read_release(version);
    if (r.major < 3 || (r.major == 3 && r.minor < OLDEST_MINOR))
        return last ? NULL : &too_old;
    if (r.major != 3 || r.minor > NEWEST_MINOR)
        return NULL;
    for (const struct defect *d = last ? last + 1 : known; d < known + N_KNOWN; d++) {
        if (r.patch < d->fixed[r.minor - OLDEST_MINOR] && (!d->alone || voters == 1))
            return d;
    }
    return NULL;
}

static void defect_cure(char *cure, size_t size, const struct defect *defect, const char *version)
{
    struct release r = read_release(version);
    if (defect == &too_old)
        snprintf(cure, size, "Upgrade it, member by member.");
    else
        snprintf(cure, size, "Upgrade it to 3.%u.%u or later, member by member.", r.minor,
                 defect->fixed[r.minor - OLDEST_MINOR]);
}

static void report(const struct diagnosis *d, const char *where, struct stile_finding finding)
{
    finding.where = where;
    d->fn(d->data, &finding);
}

/* ---- which members answer ---- */

static bool answers(const struct member_status *member)
{
    return member->error.status == STILE_OK;
}

/* What the others are compared with. */
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

/* ---- one endpoint ---- */

static void report_down(const struct diagnosis *d, const struct member_status *member)
{
    char what[320], why[160] = "A client may try it next.";
    size_t all = count_voters(d->cluster), there = count_voters_answering(d->cluster);
    bool led = any_leader(d->cluster);
    snprintf(what, sizeof what, "no answer (%s)", member->error.message);
    if (!led)
        strcpy(why, "No member that answers has a leader.");
    else if (all > 0 && there > all / 2 + 1)
        snprintf(
            why, sizeof why,
            "%zu of %zu voting members answer: %zu more may fail before nothing can be locked.",
            there, all, there - (all / 2 + 1));
    else if (all > 0)
        snprintf(why, sizeof why,
                 "%zu of %zu voting members answer: with one less nothing can be locked, and "
                 "every holder loses its lock.",
                 there, all);
    report(d, member->where,
           (struct stile_finding){.severity = led ? STILE_WARNING : STILE_DANGER,
                                  .id = "down",
                                  .what = what,
                                  .why = why,
                                  .cure = "Start it, or remove it from the cluster and the URL.",
                                  .command = "etcdctl endpoint health --cluster"});
}

static void report_leader(const struct diagnosis *d, const struct member_status *member)
{
    if (member->leader)
        return;
    if (any_leader(d->cluster))
        report(d, member->where,
               (struct stile_finding){
                   .severity = STILE_WARNING,
                   .id = "cut-off",
                   .what = "it sees no leader, though others do",
                   .why = "It is cut off from the others, so the cluster has one member less.",
                   .cure = "Look at the network between the members, and at its log.",
                   .command = "etcdctl endpoint status --cluster"});
    else
        report(
            d, member->where,
            (struct stile_finding){
                .severity = STILE_DANGER,
                .id = "no-leader",
                .what = "it sees no leader",
                .why = "Nothing can be locked, and every holder loses its lock at its deadline.",
                .cure = "Start the members that are down; more than half must reach one another.",
                .command = "etcdctl endpoint status --cluster"});
}

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

static void report_lag(const struct diagnosis *d, const struct member_status *member)
{
    char what[80];
    uint64_t behind = highest_applied(d->cluster, member->cluster) - member->applied;
    if (behind <= LAG_MAX)
        return;
    snprintf(what, sizeof what, "it is %" PRIu64 " entries behind the others", behind);
    report(d, member->where,
           (struct stile_finding){.severity = STILE_WARNING,
                                  .id = "lags",
                                  .what = what,
                                  .why = "Requests to it wait until it has caught up: locks may be "
                                         "lost for lack of a renewal in time.",
                                  .cure = "Look at its disk and its load.",
                                  .command = "etcdctl endpoint status --cluster"});
}

/* Under which other address it was seen, or NULL. */
static const char *same_member_as(const struct cluster_status *cluster,
                                  const struct member_status *member)
{
    for (const struct member_status *m = cluster->members; m < member; m++) {
        if (answers(m) && m->cluster == member->cluster && m->id == member->id)
            return m->where;
    }
    return NULL;
}

/* Compared with the first one that answers. */
static void report_identity(const struct diagnosis *d, const struct member_status *member)
{
    char what[400];
    const char *other = same_member_as(d->cluster, member);
    if (member->cluster != first_to_answer(d->cluster)->cluster) {
        snprintf(what, sizeof what, "it belongs to another cluster than %s",
                 first_to_answer(d->cluster)->where);
        report(d, member->where,
               (struct stile_finding){
                   .severity = STILE_DANGER,
                   .id = "other-cluster",
                   .what = what,
                   .why = "Each cluster knows only its own locks: clients of two clusters can hold "
                          "the same one.",
                   .cure = "Name the members of one cluster only, the same ones in every URL.",
                   .command = "etcdctl endpoint status"});
    } else if (other) {
        snprintf(what, sizeof what, "it is the same member as %s", other);
        report(d, member->where,
               (struct stile_finding){.severity = STILE_NOTE,
                                      .id = "named-twice",
                                      .what = what,
                                      .why = "When it is down, both addresses are.",
                                      .cure = "Name each member once."});
    }
}

static void report_member(const struct diagnosis *d, const struct member_status *member)
{
    if (!answers(member)) {
        report_down(d, member);
        return;
    }
    report_leader(d, member);
    report_lag(d, member);
    if (member->learner)
        report(d, member->where,
               (struct stile_finding){.severity = STILE_WARNING,
                                      .id = "learner",
                                      .what = "it is only a learner",
                                      .why = "It does not serve clients.",
                                      .cure = "Name the voting members in the URL."});
    report_identity(d, member);
}

/* ---- versions ---- */

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
    return true;
}

static void report_version(const struct diagnosis *d, const char *where, const char *version)
{
    const struct defect *defect = NULL;
    char what[200], cure[120];
    snprintf(what, sizeof what, "etcd %s", version);
    while ((defect = etcd_defect_next(defect, version, count_voters(d->cluster)))) {
        snprintf(what, sizeof what, "etcd %s %s", version, defect->what);
        defect_cure(cure, sizeof cure, defect, version);
        report(d, where,
               (struct stile_finding){.severity = defect->severity,
                                      .id = defect->id,
                                      .what = what,
                                      .why = defect->why,
                                      .cure = cure});
    }
    if (!etcd_defect_next(NULL, version, count_voters(d->cluster)))
        report(d, where,
               (struct stile_finding){.severity = STILE_FINE, .id = "version", .what = what});
}

static void report_versions(const struct diagnosis *d)
{
    char where[WHERE_LIST_MAX];
    for (size_t i = 0; i < d->cluster->n_members; i++) {
        if (answers(&d->cluster->members[i]) && list_of_version(where, d->cluster, i))
            report_version(d, where, d->cluster->members[i].version);
    }
}

/* ---- alarms ---- */

static const char *name_of(const struct cluster_status *cluster, uint64_t id)
{
    for (size_t i = 0; i < cluster->n_listed; i++) {
        if (cluster->listed[i].id == id && *cluster->listed[i].name)
            return cluster->listed[i].name;
    }
    return "a member";
}

static void report_alarm(const struct diagnosis *d, const struct active_alarm *alarm)
{
    char what[160];
    if (alarm->kind == ALARM_NO_SPACE) {
        snprintf(what, sizeof what, "the alarm NOSPACE is on: the database of %s is full",
                 name_of(d->cluster, alarm->id));
        report(d, NULL,
               (struct stile_finding){
                   .severity = STILE_DANGER,
                   .id = "no-space",
                   .what = what,
                   .why = "Nothing can be locked until space is freed.",
                   .cure = "Compact the history, defragment each member, then disarm.",
                   .command = "etcdctl compact REVISION\netcdctl defrag --cluster\n"
                              "etcdctl alarm disarm"});
    } else if (alarm->kind == ALARM_CORRUPT) {
        report(d, NULL,
               (struct stile_finding){
                   .severity = STILE_DANGER,
                   .id = "corrupt",
                   .what = "the alarm CORRUPT is on: members disagree about their data",
                   .why = "Two holders may each be right on their own member.",
                   .cure = "Replace the member that differs, from a snapshot of another.",
                   .command = "etcdctl endpoint hashkv --cluster"});
    }
}

static void report_alarms(const struct diagnosis *d)
{
    const struct cluster_status *cluster = d->cluster;
    for (size_t i = 0; i < cluster->n_alarms; i++)
        report_alarm(d, &cluster->alarms[i]);
    if (cluster->alarm_error.status)
        report(d, NULL,
               (struct stile_finding){.severity = STILE_NOTE,
                                      .id = "alarms-unknown",
                                      .what = "the alarms could not be read",
                                      .why = cluster->alarm_error.message});
    else if (any_leader(cluster) && cluster->n_alarms == 0)
        report(d, NULL,
               (struct stile_finding){
                   .severity = STILE_FINE, .id = "alarms", .what = "no alarm is on"});
}

/* ---- all of them ---- */

static void report_unnamed(const struct diagnosis *d)
{
    const struct cluster_status *cluster = d->cluster;
    char what[200];
    for (size_t i = 0; i < cluster->n_listed; i++) {
        if (cluster->listed[i].learner || is_named(cluster, cluster->listed[i].id))
            continue;
        snprintf(what, sizeof what, "the member %s is not in the URL",
                 *cluster->listed[i].name ? cluster->listed[i].name : "without a name");
        report(d, NULL,
               (struct stile_finding){.severity = STILE_NOTE,
                                      .id = "not-named",
                                      .what = what,
                                      .why = "Clients do not try it when the named ones are down.",
                                      .cure = "Name all members in the URL."});
    }
}

static bool all_answer(const struct cluster_status *cluster)
{
    for (size_t i = 0; i < cluster->n_members; i++) {
        if (!answers(&cluster->members[i]))
            return false;
    }
    return true;
}

static void report_size(const struct diagnosis *d)
{
    size_t n = count_voters(d->cluster), there = count_voters_answering(d->cluster);
    char what[96];
    snprintf(what, sizeof what, "%zu voting member%s, %zu of them answer%s here", n,
             n == 1 ? "" : "s", there, there == 1 ? "s" : "");
    if (n == 1)
        report(d, NULL,
               (struct stile_finding){
                   .severity = STILE_WARNING,
                   .id = "one-member",
                   .what = "one voting member",
                   .why = "While it is down nothing can be locked, and if its disk is lost, tokens "
                          "begin again.",
                   .cure = "Run three members: they go on while one is down."});
    else if (n % 2 == 0)
        report(d, NULL,
               (struct stile_finding){
                   .severity = STILE_NOTE,
                   .id = "even",
                   .what = what,
                   .why = "It tolerates no more failures than one member less would.",
                   .cure = "Add a member, or remove one."});
    else
        report(d, NULL,
               (struct stile_finding){.severity = STILE_FINE, .id = "members", .what = what});
}

static void report_lease(const struct diagnosis *d)
{
    char what[120];
    int64_t seconds = d->cluster->lease_seconds;
    snprintf(what, sizeof what,
             "the shortest lease is %" PRId64 " s: shorter TTLs are raised to that", seconds);
    if (seconds > LEASE_LONG_S)
        report(d, NULL,
               (struct stile_finding){
                   .severity = STILE_WARNING,
                   .id = "lease-long",
                   .what = what,
                   .why = "A dead holder's lock lasts this long. It is one and a half "
                          "election timeouts.",
                   .cure = "Set --election-timeout of all members lower."});
    else if (seconds > 0)
        report(d, NULL,
               (struct stile_finding){.severity = STILE_FINE, .id = "lease", .what = what});
    else if (d->cluster->lease_error.status && d->cluster->lease_error.native != FAULT_NO_SPACE)
        report(d, NULL,
               (struct stile_finding){
                   .severity = STILE_DANGER,
                   .id = "no-lease",
                   .what = "the members grant no lease",
                   .why = d->cluster->lease_error.message,
                   .cure = "Look again in a few seconds; if it stays so, more than half of the "
                           "members don't reach one another."});
}

void etcd_doctor_diagnose(const struct cluster_status *cluster, finding_fn *fn, void *data)
{
    const struct diagnosis diagnosis = {.cluster = cluster, .fn = fn, .data = data};
    for (size_t i = 0; i < cluster->n_members; i++)
        report_member(&diagnosis, &cluster->members[i]);
    report_versions(&diagnosis);
    report_alarms(&diagnosis);
    if (count_voters(cluster) > 0)
        report_size(&diagnosis);
    if (all_answer(cluster))
        report_unnamed(&diagnosis);
    report_lease(&diagnosis);
}
