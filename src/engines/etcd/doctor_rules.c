#include "engines/etcd/doctor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LEASE_LONG_S   10 /* the TTL of who asks for none */
#define WHERE_LIST_MAX 600

enum { ALARM_NO_SPACE = 1, ALARM_CORRUPT = 2 };

void seen_tell(const struct telling *t, const char *where, struct stile_finding finding)
{
    finding.where = where;
    t->fn(t->data, &finding);
}

/* ---- who is there ---- */

bool seen_answers(const struct seen_member *member)
{
    return member->error.status == STILE_OK;
}

/* What the others are compared with. */
const struct seen_member *seen_first(const struct seen *seen)
{
    for (size_t i = 0; i < seen->n_members; i++) {
        if (seen_answers(&seen->members[i]))
            return &seen->members[i];
    }
    return NULL;
}

static bool is_named(const struct seen *seen, uint64_t id)
{
    for (size_t i = 0; i < seen->n_members; i++) {
        if (seen_answers(&seen->members[i]) && seen->members[i].id == id)
            return true;
    }
    return false;
}

bool seen_is_sound(const struct seen *seen, size_t i)
{
    const struct seen_member *member = &seen->members[i];
    return seen_answers(member) && member->leader && !member->learner &&
           member->cluster == seen_first(seen)->cluster;
}

bool seen_any_leader(const struct seen *seen)
{
    for (size_t i = 0; i < seen->n_members; i++) {
        if (seen_answers(&seen->members[i]) && seen->members[i].leader)
            return true;
    }
    return false;
}

size_t seen_voters(const struct seen *seen)
{
    size_t n = 0;
    for (size_t i = 0; i < seen->n_listed; i++)
        n += !seen->listed[i].learner;
    return n;
}

size_t seen_voters_there(const struct seen *seen)
{
    size_t n = 0;
    for (size_t i = 0; i < seen->n_listed; i++)
        n += !seen->listed[i].learner && is_named(seen, seen->listed[i].id);
    return n;
}

/* ---- versions ---- */

/* Of all that have it; false: it was told of with one before. */
static bool list_of_version(char where[WHERE_LIST_MAX], const struct seen *seen, size_t i)
{
    where[0] = '\0';
    for (size_t k = 0; k < seen->n_members; k++) {
        const struct seen_member *member = &seen->members[k];
        if (!seen_answers(member) || strcmp(member->version, seen->members[i].version) != 0)
            continue;
        if (k < i)
            return false;
        size_t len = strlen(where);
        snprintf(where + len, WHERE_LIST_MAX - len, "%s%s", len ? ", " : "", member->where);
    }
    return true;
}

static void tell_version(const struct telling *t, const char *where, const char *version)
{
    const struct defect *defect = NULL;
    char what[200], cure[120];
    snprintf(what, sizeof what, "etcd %s", version);
    while ((defect = defect_next(defect, version, seen_voters(t->seen)))) {
        snprintf(what, sizeof what, "etcd %s %s", version, defect->what);
        defect_cure(cure, sizeof cure, defect, version);
        seen_tell(t, where,
                  (struct stile_finding){.severity = defect->severity,
                                         .id = defect->id,
                                         .what = what,
                                         .why = defect->why,
                                         .cure = cure});
    }
    if (!defect_next(NULL, version, seen_voters(t->seen)))
        seen_tell(t, where,
                  (struct stile_finding){.severity = STILE_FINE, .id = "version", .what = what});
}

static void tell_versions(const struct telling *t)
{
    char where[WHERE_LIST_MAX];
    for (size_t i = 0; i < t->seen->n_members; i++) {
        if (seen_answers(&t->seen->members[i]) && list_of_version(where, t->seen, i))
            tell_version(t, where, t->seen->members[i].version);
    }
}

/* ---- alarms ---- */

static const char *name_of(const struct seen *seen, uint64_t id)
{
    for (size_t i = 0; i < seen->n_listed; i++) {
        if (seen->listed[i].id == id && *seen->listed[i].name)
            return seen->listed[i].name;
    }
    return "a member";
}

static void tell_alarm(const struct telling *t, const struct seen_alarm *alarm)
{
    char what[160];
    if (alarm->kind == ALARM_NO_SPACE) {
        snprintf(what, sizeof what, "the alarm NOSPACE is on: the database of %s is full",
                 name_of(t->seen, alarm->id));
        seen_tell(t, NULL,
                  (struct stile_finding){
                      .severity = STILE_DANGER,
                      .id = "no-space",
                      .what = what,
                      .why = "Nothing can be locked until somebody makes room.",
                      .cure = "Compact the history, defragment each member, then disarm.",
                      .command = "etcdctl compact REVISION\netcdctl defrag --cluster\n"
                                 "etcdctl alarm disarm"});
    } else if (alarm->kind == ALARM_CORRUPT) {
        seen_tell(t, NULL,
                  (struct stile_finding){
                      .severity = STILE_DANGER,
                      .id = "corrupt",
                      .what = "the alarm CORRUPT is on: members disagree about their data",
                      .why = "Two holders may each be right on their own member.",
                      .cure = "Replace the member that differs, from a snapshot of another.",
                      .command = "etcdctl endpoint hashkv --cluster"});
    }
}

static void tell_alarms(const struct telling *t)
{
    const struct seen *seen = t->seen;
    for (size_t i = 0; i < seen->n_alarms; i++)
        tell_alarm(t, &seen->alarms[i]);
    if (seen->alarm_error.status)
        seen_tell(t, NULL,
                  (struct stile_finding){.severity = STILE_NOTE,
                                         .id = "alarms-unknown",
                                         .what = "whether an alarm is on could not be asked",
                                         .why = seen->alarm_error.message});
    else if (seen_any_leader(seen) && seen->n_alarms == 0)
        seen_tell(t, NULL,
                  (struct stile_finding){
                      .severity = STILE_FINE, .id = "alarms", .what = "no alarm is on"});
}

/* ---- all of them ---- */

static void tell_unnamed(const struct telling *t)
{
    const struct seen *seen = t->seen;
    char what[200];
    for (size_t i = 0; i < seen->n_listed; i++) {
        if (seen->listed[i].learner || is_named(seen, seen->listed[i].id))
            continue;
        snprintf(what, sizeof what, "the member %s is not in the URL",
                 *seen->listed[i].name ? seen->listed[i].name : "without a name");
        seen_tell(
            t, NULL,
            (struct stile_finding){.severity = STILE_NOTE,
                                   .id = "not-named",
                                   .what = what,
                                   .why = "Nobody asks it when those that are named are down.",
                                   .cure = "Name all members in the URL."});
    }
}

static bool all_answer(const struct seen *seen)
{
    for (size_t i = 0; i < seen->n_members; i++) {
        if (!seen_answers(&seen->members[i]))
            return false;
    }
    return true;
}

static void tell_size(const struct telling *t)
{
    size_t n = seen_voters(t->seen), there = seen_voters_there(t->seen);
    char what[96];
    snprintf(what, sizeof what, "%zu voting member%s, %zu of them answer%s here", n,
             n == 1 ? "" : "s", there, there == 1 ? "s" : "");
    if (n == 1)
        seen_tell(
            t, NULL,
            (struct stile_finding){
                .severity = STILE_WARNING,
                .id = "one-member",
                .what = "one voting member",
                .why = "While it is down nothing can be locked, and what is lost with its disk is "
                       "lost: tokens begin again.",
                .cure = "Three members go on while one of them is down."});
    else if (n % 2 == 0)
        seen_tell(t, NULL,
                  (struct stile_finding){.severity = STILE_NOTE,
                                         .id = "even",
                                         .what = what,
                                         .why = "No more of them may be down than with one less.",
                                         .cure = "Add one, or take one away."});
    else
        seen_tell(t, NULL,
                  (struct stile_finding){.severity = STILE_FINE, .id = "members", .what = what});
}

static void tell_lease(const struct telling *t)
{
    char what[120];
    int64_t seconds = t->seen->lease_seconds;
    snprintf(what, sizeof what, "a lease lasts %" PRId64 " s or more: shorter TTLs become that",
             seconds);
    if (seconds > LEASE_LONG_S)
        seen_tell(t, NULL,
                  (struct stile_finding){
                      .severity = STILE_WARNING,
                      .id = "lease-long",
                      .what = what,
                      .why =
                          "So long a name stays locked when its holder dies. It is one and a half "
                          "election timeouts.",
                      .cure = "Set --election-timeout of all members lower."});
    else if (seconds > 0)
        seen_tell(t, NULL,
                  (struct stile_finding){.severity = STILE_FINE, .id = "lease", .what = what});
    else if (t->seen->lease_error.status && t->seen->lease_error.native != FAULT_NO_SPACE)
        seen_tell(t, NULL,
                  (struct stile_finding){
                      .severity = STILE_DANGER,
                      .id = "no-lease",
                      .what = "the members give no lease",
                      .why = t->seen->lease_error.message,
                      .cure = "Look again in a few seconds; if it stays so, more than half of the "
                              "members don't reach one another."});
}

void diagnose(const struct seen *seen, tell_fn *fn, void *data)
{
    const struct telling telling = {.seen = seen, .fn = fn, .data = data};
    for (size_t i = 0; i < seen->n_members; i++)
        seen_tell_member(&telling, &seen->members[i]);
    tell_versions(&telling);
    tell_alarms(&telling);
    if (seen_voters(seen) > 0)
        tell_size(&telling);
    if (all_answer(seen))
        tell_unnamed(&telling);
    tell_lease(&telling);
}
