/* What is to be said of one endpoint. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engines/etcd/doctor.h"

#define LAG_MAX 1000 /* entries; some are always under way */

static void tell_down(const struct telling *t, const struct seen_member *member)
{
    char what[320], why[160] = "It may be the next one that is asked.";
    size_t all = seen_voters(t->seen), there = seen_voters_there(t->seen);
    bool led = seen_any_leader(t->seen);
    snprintf(what, sizeof what, "no answer (%s)", member->error.message);
    if (!led)
        strcpy(why, "Nobody who answers has a leader.");
    else if (all > 0 && there > all / 2 + 1)
        snprintf(why, sizeof why,
                 "%zu of %zu voting members answer: %zu more may go until nothing can be locked.",
                 there, all, there - (all / 2 + 1));
    else if (all > 0)
        snprintf(why, sizeof why,
                 "%zu of %zu voting members answer: with one less nothing can be locked, and who "
                 "holds something loses it.",
                 there, all);
    seen_tell(t, member->where,
              (struct stile_finding){.severity = led ? STILE_WARNING : STILE_DANGER,
                                     .id = "down",
                                     .what = what,
                                     .why = why,
                                     .cure = "Start it, or remove it from the cluster and the URL.",
                                     .command = "etcdctl endpoint health --cluster"});
}

static void tell_leader(const struct telling *t, const struct seen_member *member)
{
    if (member->leader)
        return;
    if (seen_any_leader(t->seen))
        seen_tell(t, member->where,
                  (struct stile_finding){
                      .severity = STILE_WARNING,
                      .id = "cut-off",
                      .what = "it sees no leader, though others do",
                      .why = "It is cut off from the others, and one member less counts.",
                      .cure = "Look at the network between the members, and at its log.",
                      .command = "etcdctl endpoint status --cluster"});
    else
        seen_tell(
            t, member->where,
            (struct stile_finding){
                .severity = STILE_DANGER,
                .id = "no-leader",
                .what = "it sees no leader",
                .why = "Nothing can be locked, and who holds something loses it at its deadline.",
                .cure = "Start the members that are down; more than half must reach one another.",
                .command = "etcdctl endpoint status --cluster"});
}

static uint64_t highest_applied(const struct seen *seen, uint64_t cluster)
{
    uint64_t highest = 0;
    for (size_t i = 0; i < seen->n_members; i++) {
        const struct seen_member *member = &seen->members[i];
        if (seen_answers(member) && member->cluster == cluster && member->applied > highest)
            highest = member->applied;
    }
    return highest;
}

static void tell_lag(const struct telling *t, const struct seen_member *member)
{
    char what[80];
    uint64_t behind = highest_applied(t->seen, member->cluster) - member->applied;
    if (behind <= LAG_MAX)
        return;
    snprintf(what, sizeof what, "it is %" PRIu64 " entries behind the others", behind);
    seen_tell(t, member->where,
              (struct stile_finding){.severity = STILE_WARNING,
                                     .id = "lags",
                                     .what = what,
                                     .why =
                                         "What it is asked waits until it has caught up: locks may "
                                         "be lost for want of a renewal in time.",
                                     .cure = "Look at its disk and its load.",
                                     .command = "etcdctl endpoint status --cluster"});
}

/* Under which other address it was seen, or NULL. */
static const char *seen_as(const struct seen *seen, const struct seen_member *member)
{
    for (const struct seen_member *m = seen->members; m < member; m++) {
        if (seen_answers(m) && m->cluster == member->cluster && m->id == member->id)
            return m->where;
    }
    return NULL;
}

/* Compared with the first one that answers. */
static void tell_identity(const struct telling *t, const struct seen_member *member)
{
    char what[400];
    const char *other = seen_as(t->seen, member);
    if (member->cluster != seen_first(t->seen)->cluster) {
        snprintf(what, sizeof what, "it belongs to another cluster than %s",
                 seen_first(t->seen)->where);
        seen_tell(t, member->where,
                  (struct stile_finding){
                      .severity = STILE_DANGER,
                      .id = "other-cluster",
                      .what = what,
                      .why =
                          "Each cluster knows only its own locks: two clients that ask different "
                          "ones both hold.",
                      .cure = "Name the members of one cluster only, the same ones in every URL.",
                      .command = "etcdctl endpoint status"});
    } else if (other) {
        snprintf(what, sizeof what, "it is the same member as %s", other);
        seen_tell(t, member->where,
                  (struct stile_finding){.severity = STILE_NOTE,
                                         .id = "named-twice",
                                         .what = what,
                                         .why = "When it is down, both addresses are.",
                                         .cure = "Name each member once."});
    }
}

void seen_tell_member(const struct telling *t, const struct seen_member *member)
{
    if (!seen_answers(member)) {
        tell_down(t, member);
        return;
    }
    tell_leader(t, member);
    tell_lag(t, member);
    if (member->learner)
        seen_tell(t, member->where,
                  (struct stile_finding){.severity = STILE_WARNING,
                                         .id = "learner",
                                         .what = "it is only a learner",
                                         .why = "It answers no requests of clients.",
                                         .cure = "Name the voting members in the URL."});
    tell_identity(t, member);
}
