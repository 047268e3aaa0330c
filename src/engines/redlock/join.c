/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the group when a client opens, or founding it: see group.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/group.h"

#define ROUNDS_MAX 30

/* ---- founding ---- */

static void settle(struct survey *survey);

static void ask_again(struct survey *survey)
{
    redlock_survey_ask(survey, settle);
}

static bool is_proposal(const char *group)
{
    return group[0] == '?' && strlen(group) == 1 + GROUP_ID;
}

static void propose(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    char proposal[GROUP_ID + 2] = "?";
    int rc = redlock_group_draw(proposal + 1, GROUP_ID, redlock->engine.loop);
    if (rc) {
        error_errno(&survey->error, STILE_REFUSED, rc, "drawing a group's name");
        survey->done(survey);
        return;
    }
    redlock_survey_begin(survey, ask_again);
    for (unsigned i = 0; i < redlock->n; i++)
        redlock_survey_propose(survey, i, proposal);
    redlock_survey_end(survey);
}

/* All nodes go down to the smallest proposal. Once all have it, no other can be made. */
static void agree(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    const char *smallest = survey->records[0].group;
    struct node_record to = {.n = redlock->n};
    bool same = true;
    for (unsigned i = 1; i < redlock->n; i++) {
        const char *group = survey->records[i].group;
        same = same && strcmp(group, smallest) == 0;
        if (strcmp(group, smallest) < 0)
            smallest = group;
    }
    if (same)
        redlock_labels_of_all(to.labels, survey);
    snprintf(to.group, sizeof to.group, same ? "%s.1" : "%s", smallest + same);
    redlock_survey_begin(survey, ask_again);
    for (unsigned i = 0; i < redlock->n; i++) {
        if (strcmp(survey->records[i].group, to.group) != 0)
            redlock_survey_change(survey, i, &to);
    }
    redlock_survey_end(survey);
}

static void found(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    bool missing = false;
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct node_record *record = &survey->records[i];
        if (!record->answered) {
            redlock_nodes_explain(redlock, redlock_survey_answering(survey), &survey->error);
            error_wrap(&survey->error, survey->error.status,
                       "the first time all nodes of a group must answer");
            survey->done(survey);
            return;
        }
        if (record->group[0] && !is_proposal(record->group)) {
            error_set(&survey->error, STILE_REFUSED, 0,
                      "%s: the key " NODE_KEY " holds something else: %s",
                      redlock->nodes[i].address, record->group);
            survey->done(survey);
            return;
        }
        missing |= !record->group[0] || !record->label[0];
    }
    if (missing)
        propose(survey);
    else
        agree(survey);
}

/* ---- joining ---- */

/* A proposal beside a group that has granted nothing yet belongs to a founding that was not
 * finished. Later it could have come too late to a node that has forgotten. */
static bool may_follow(const struct survey *survey, const struct node_record *record,
                       const struct node_record *leader)
{
    bool fresh =
        is_proposal(record->group) && strncmp(record->group + 1, leader->group, GROUP_ID) == 0;
    for (unsigned i = 0; i < survey->redlock->n; i++)
        fresh = fresh && survey->records[i].highest == 0;
    return record->answered && !redlock_group_is_closed(record->group) &&
           redlock_group_lists(leader->labels, record) &&
           (fresh || redlock_group_is_older(record->group, leader->was));
}

/* True: some were asked to follow. */
static bool follow(struct survey *survey, const struct node_record *leader)
{
    struct node_record to = *leader;
    bool any = false;
    redlock_survey_begin(survey, ask_again);
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        if (!may_follow(survey, &survey->records[i], &to))
            continue;
        redlock_survey_change(survey, i, &to);
        any = true;
    }
    if (any)
        redlock_survey_end(survey);
    else
        survey->rounds--;
    return any;
}

/* The members that are in this epoch, one bit each; the others' errors say what is wrong. */
static unsigned members_of(struct survey *survey, const struct node_record *leader)
{
    struct redlock *redlock = survey->redlock;
    unsigned members = 0;
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct node_record *record = &survey->records[i];
        const char *const texts[] = {record->group, record->was, record->labels, record->past};
        if (record->answered && strcmp(record->group, leader->group) == 0)
            members |= 1u << i;
        else if (record->answered)
            redlock_group_hear(&redlock->nodes[i], texts);
    }
    return members;
}

/* Why no majority of the nodes is in one epoch, and what to do. */
static void refuse(struct survey *survey, unsigned members)
{
    struct redlock *redlock = survey->redlock;
    if (__builtin_popcount(redlock_survey_answering(survey)) < (int)redlock->majority)
        redlock_nodes_explain(redlock, members, &survey->error);
    else if (redlock_group_is_closed(redlock->group))
        error_set(&survey->error, STILE_UNREACHABLE, 0,
                  "the group is being given other nodes: stile doctor --resize, with the URL of "
                  "the new nodes, goes on with it");
    else if (redlock_group_strays(survey, redlock->group_id) > 0)
        error_set(&survey->error, STILE_REFUSED, 0,
                  "no majority of the nodes is in one epoch: an adoption was cut short; stile "
                  "doctor --adopt brings them together");
    else
        error_set(
            &survey->error, STILE_REFUSED, 0,
            "only %d of %u nodes have kept their group, and a majority must (stile doctor "
            "shows which): restore the others' data, or, once nobody holds a lock, DEL " NODE_KEY
            " on every node: tokens may then begin anew",
            __builtin_popcount(members), redlock->n);
}

/* ---- its size ---- */

/* A majority is a majority of exactly N nodes: two of different sizes need not share a node. */
static void check_size(struct survey *survey, const struct node_record *leader, unsigned members)
{
    struct redlock *redlock = survey->redlock;
    for (unsigned i = 0; i < redlock->n && !survey->error.status; i++) {
        const struct node_record *record = &survey->records[i];
        char id[GROUP_ID + 1] = "";
        uint32_t epoch;
        redlock_group_read(id, &epoch, record->group);
        if (members & 1u << i && strcmp(record->labels, leader->labels) != 0)
            error_set(&survey->error, STILE_REFUSED, 0,
                      "%s belongs to another set of nodes under the same name: clients were "
                      "started with different URLs; while no client runs, DEL " NODE_KEY
                      " on every node, and open all with the same URL",
                      redlock->nodes[i].address);
        else if (record->answered && *id && redlock_words_have(leader->past, id))
            error_set(&survey->error, STILE_REFUSED, 0,
                      "%s no longer belongs to this group, whose nodes were changed by "
                      "stile doctor --resize: name its present nodes",
                      redlock->nodes[i].address);
    }
    if (!survey->error.status && leader->n && leader->n != redlock->n)
        error_set(&survey->error, STILE_REFUSED, 0,
                  "this is a group of %u nodes, and the URL names %u: name all of its nodes; to "
                  "change how many they are, run stile doctor --resize with the new URL",
                  leader->n, redlock->n);
}

static void refuse_unrecorded(struct survey *survey, unsigned members)
{
    redlock_nodes_explain(survey->redlock, members, &survey->error);
    error_wrap(&survey->error, survey->error.status,
               "this group was made by an older release: all of its nodes must answer once, so "
               "that their number is on record");
}

/* Groups of an older release have no size on record. The first client to which all nodes of its URL
 * answer from one epoch writes down how many they are. */
static bool record_size(struct survey *survey, const struct node_record *leader, unsigned members)
{
    struct redlock *redlock = survey->redlock;
    struct node_record seen = *leader;
    if (seen.n || survey->recorded || members != (1u << redlock->n) - 1)
        return false;
    bool labelled = redlock_labels_of_all(survey->labels, survey);
    survey->recorded = labelled;
    redlock_survey_begin(survey, ask_again);
    for (unsigned i = 0; i < redlock->n; i++) {
        if (labelled)
            redlock_survey_record(survey, i, survey->labels);
        else
            redlock_survey_propose(survey, i, seen.group); /* only a label */
    }
    redlock_survey_end(survey);
    return true;
}

static void join(struct survey *survey, const char *id)
{
    struct redlock *redlock = survey->redlock;
    const struct node_record *leader = redlock_group_leader(survey, id);
    if (follow(survey, leader))
        return;
    strcpy(redlock->group_id, id);
    strcpy(redlock->group, leader->group);
    strcpy(redlock->was, leader->was);
    strcpy(redlock->labels, leader->labels);
    unsigned members = members_of(survey, leader);
    bool enough = __builtin_popcount(members) >= (int)redlock->majority;
    if (!enough && !survey->settled) {
        survey->settled = true; /* the others may have been asked before it was founded */
        ask_again(survey);
        return;
    }
    check_size(survey, leader, members);
    if (survey->error.status || !enough || redlock_group_is_closed(leader->group)) {
        if (!survey->error.status)
            refuse(survey, members);
        survey->done(survey);
        return;
    }
    if (record_size(survey, leader, members))
        return;
    if (!leader->n)
        refuse_unrecorded(survey, members);
    survey->done(survey);
}

static void settle(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    char id[GROUP_ID + 1] = "";
    uint32_t epoch = 0;
    unsigned share = redlock_survey_majority(survey, id, &epoch);
    if (survey->rounds > ROUNDS_MAX) {
        error_set(&survey->error, STILE_UNREACHABLE, 0, "the nodes' group keeps changing");
        survey->done(survey);
    } else if (share == 0 && redlock_survey_answering(survey) == 0) {
        redlock_nodes_explain(redlock, 0, &survey->error);
        survey->done(survey);
    } else if (share == 0) {
        found(survey);
    } else {
        join(survey, id);
    }
}

void redlock_group_join(struct survey *survey)
{
    redlock_survey_ask(survey, settle);
}
