/* Who remembers the group, and who does not. */
#include <stdio.h>
#include <string.h>

#include "engines/redlock/doctor.h"

static void judge_founding(const struct visit *visit)
{
    bool complete = visit_count_up(visit) == visit_redlock(visit)->n;
    visit_tell(
        visit,
        (struct stile_finding){
            .severity = complete ? STILE_NOTE : STILE_WARNING,
            .id = "no-group",
            .why =
                "The first client makes them one, once all of them answer; nothing can be locked "
                "before.",
            .cure = complete ? "" : "Start all nodes once."},
        "", "these nodes are no group yet");
}

static void judge_forgotten(const struct visit *visit, unsigned i, bool enough)
{
    visit_tell(
        visit,
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
        visit_where(visit, i), "has lost its data: it has no group any more");
}

static void judge_foreign(const struct visit *visit, unsigned i, bool enough)
{
    const struct vitals *v = &visit->patients[i].vitals;
    char command[WHAT_MAX * 2];
    snprintf(command, sizeof command, "%s DEL " NODE_KEY "\nstile doctor --adopt URL",
             v->cli ? v->cli : "redis-cli");
    visit_tell(
        visit,
        (struct stile_finding){.severity = enough ? STILE_WARNING : STILE_DANGER,
                               .id = "foreign",
                               .why = "It votes with other nodes, so it does not count here.",
                               .cure = "But only if that other group does not need it any more; "
                                       "else name another node in the URL.",
                               .command = enough ? command : ""},
        visit_where(visit, i), "belongs to another group of nodes");
}

static void judge_closed(const struct visit *visit, unsigned i)
{
    visit_tell(
        visit,
        (struct stile_finding){.severity = STILE_WARNING,
                               .id = "closed",
                               .why = "It gives no votes in the old group any longer. A change of "
                                      "a group's nodes that was begun has to be finished.",
                               .command = "stile doctor --resize URL",
                               .cure = "URL names the nodes that the group is to have."},
        visit_where(visit, i), "its group is being given other nodes");
}

static void judge_quiet(const struct visit *visit, unsigned i)
{
    const struct patient *patient = &visit->patients[i];
    long long left_ms = patient->quiet_ms - vitals_now_ms(&patient->vitals);
    char what[WHAT_MAX];
    if (left_ms <= 0 || !patient->vitals.clock.known)
        return;
    snprintf(what, sizeof what, "was adopted, and takes no claims for %lld s more",
             (left_ms + 999) / 1000);
    visit_tell(
        visit,
        (struct stile_finding){.severity = STILE_NOTE,
                               .id = "quiet",
                               .why = "What it has forgotten may still be held for so long."},
        visit_where(visit, i), what);
}

static void judge_node_key(const struct visit *visit, unsigned i)
{
    const struct redlock *redlock = visit_redlock(visit);
    const struct vitals *v = &visit->patients[i].vitals;
    if (visit_is_up(visit, i))
        verdict_tell(
            visit->query, v,
            &(struct verdict){.severity = STILE_DANGER,
                              .id = "node-key",
                              .why = "It can't be told from a node that has lost its data, "
                                     "so it does not count.",
                              .commands = {"ACL SETUSER NAME '~" NODE_KEY "'"},
                              .cure = "NAME is the user of the URL, if it is its ACL."},
            "does not tell its group (" NODE_KEY "): %.200s", redlock->nodes[i].why.message);
}

/* enough: a majority remembers the group of this name. */
static void judge_member(const struct visit *visit, unsigned i, const char *id, bool enough)
{
    const char *group = visit->survey.accounts[i].group;
    char one[GROUP_ID + 1];
    uint32_t epoch;
    if (group_is_closed(group))
        judge_closed(visit, i);
    else if (!group[0] || group_is_mark(group))
        judge_forgotten(visit, i, enough);
    else if (group_read(one, &epoch, group) && strcmp(one, id) != 0)
        judge_foreign(visit, i, enough);
    judge_quiet(visit, i);
}

/* In epochs that the others can't follow to. */
static void judge_strays(const struct visit *visit, const char *id)
{
    unsigned strays = group_strays(&visit->survey, id);
    char what[WHAT_MAX];
    snprintf(what, sizeof what, "%u nodes were left behind by an adoption that was cut short",
             strays);
    if (strays > 0)
        visit_tell(visit,
                   (struct stile_finding){.severity = STILE_WARNING,
                                          .id = "left-behind",
                                          .why = "Votes of different epochs never add up, so "
                                                 "they do not count, as if they were down.",
                                          .command = "stile doctor --adopt URL"},
                   "", what);
}

void visit_judge_group(const struct visit *visit)
{
    const struct redlock *redlock = visit_redlock(visit);
    char id[GROUP_ID + 1] = "", what[WHAT_MAX];
    uint32_t epoch = 0;
    unsigned share = survey_majority(&visit->survey, id, &epoch), told = 0;
    for (unsigned i = 0; i < redlock->n; i++) {
        bool answered = visit->survey.accounts[i].answered;
        told += answered;
        if (!answered)
            judge_node_key(visit, i);
        else if (share > 0)
            judge_member(visit, i, id, share >= redlock->majority);
    }
    if (share > 0)
        judge_strays(visit, id);
    if (share == 0 && told > 0)
        judge_founding(visit);
    snprintf(what, sizeof what, "%u of %u nodes remember that they are group %s, epoch %u", share,
             redlock->n, id, (unsigned)epoch);
    if (share >= redlock->majority)
        visit_tell(visit, (struct stile_finding){.severity = STILE_FINE, .id = "group"}, "", what);
}
