/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Changing which nodes a group has: adopting nodes that lost their data, and resizing.
 *
 * Adoption is described in group.h. Resizing gives a group other nodes: another number of them, or
 * others in their place. N belongs to a group's name: two majorities meet only among the same N
 * nodes. So a group of other nodes is another group, with a name of its own, and there must never
 * be two that grant. The URL names the new nodes, among which must be a majority of the old ones.
 *
 *     plan    All nodes report what they are; those that are new are marked.
 *     epoch   A majority of the old nodes goes to a new epoch of the old group, as for an adoption,
 *             and each reports the group that it has agreed to before, if any.
 *     close   The same nodes agree to the new group in that epoch, and are closed in this step: no
 *             votes, keys or renewals any longer. If one had agreed to a group before, it is that
 *             one; of several, the one of the latest epoch. Once a majority has agreed, no other
 *             group can ever come of this one.
 *     open    Each new member gets the new name, the largest `highest` that a closed majority
 *             reported, and a quiet time of the longest lease, within which every lease of the old
 *             group ends: none can be renewed past a closed majority.
 *
 * Every step can be repeated by any client. A node that was closed is never opened in its old group
 * again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/group.h"

#define ROUNDS_MAX   24
#define EPOCH_DIGITS 8

static void plan_adoption(struct survey *survey);

/* As many must remember, and enter the next epoch together. */
static unsigned enough(const struct redlock *redlock)
{
    return redlock->majority;
}

static bool has_forgotten(const struct node_record *record)
{
    const char *group = record->group;
    return record->answered && (!*group || *group == '?' || redlock_group_is_mark(group));
}

static void on_adopted(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    for (unsigned i = 0; i < redlock->n; i++)
        survey->adopted |= survey->records[i].changed ? 1u << i : 0;
    survey->done(survey);
}

/* Only nodes that this step has moved count. If another client has moved them, it is unknown when
 * that was, and the adoption starts again. */
static void on_epoch_entered(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    struct node_record as = {.n = redlock->n};
    unsigned switched = 0;
    bool closed = false;
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct node_record *record = &survey->records[i];
        if (!record->changed)
            continue;
        switched++;
        closed |= record->next[0] != '\0';
        as.highest = record->highest > as.highest ? record->highest : as.highest;
        as.longest_ms = record->longest_ms > as.longest_ms ? record->longest_ms : as.longest_ms;
        strcpy(as.was, record->was);
        strcpy(as.past, record->past);
    }
    if (switched < enough(redlock)) {
        redlock_survey_ask(survey, plan_adoption);
        return;
    }
    if (closed) {
        error_set(&survey->error, STILE_REFUSED, 0,
                  "the group is being given other nodes: stile doctor --resize, with the URL of "
                  "the new nodes, has to finish that first");
        survey->done(survey);
        return;
    }
    survey->longest_ms = as.longest_ms;
    strcpy(as.group, survey->group);
    strcpy(as.labels, survey->labels);
    redlock_group_enter(redlock, as.group, as.was, as.labels);
    redlock_survey_begin(survey, on_adopted);
    for (unsigned i = 0; i < redlock->n; i++) {
        struct node_record *record = &survey->records[i];
        record->changed = false;
        if (survey->needy & 1u << i && record->answered && redlock_group_is_mark(record->group))
            redlock_survey_adopt(survey, i, &as);
    }
    redlock_survey_end(survey);
}

static void enter_next_epoch(struct survey *survey, unsigned nodes, unsigned n, const char *labels,
                             void (*fn)(struct survey *survey))
{
    struct redlock *redlock = survey->redlock;
    struct node_record to = {.n = n};
    char random[GROUP_ID + 1];
    int rc = redlock_group_draw(random, EPOCH_DIGITS, redlock->engine.loop);
    if (rc) {
        error_errno(&survey->error, STILE_REFUSED, rc, "drawing an epoch");
        survey->done(survey);
        return;
    }
    survey->epoch++;
    char size[12] = "";
    if (survey->sized)
        snprintf(size, sizeof size, ".%u", n);
    snprintf(to.group, sizeof to.group, "%s.%u%s-%s", survey->id, (unsigned)survey->epoch, size,
             random);
    strcpy(survey->group, to.group);
    strcpy(to.labels, labels);
    redlock_survey_begin(survey, fn);
    for (unsigned i = 0; i < redlock->n; i++) {
        survey->records[i].changed = false;
        if (nodes & 1u << i)
            redlock_survey_change(survey, i, &to);
    }
    redlock_survey_end(survey);
}

static void plan_adoption_again(struct survey *survey)
{
    redlock_survey_ask(survey, plan_adoption);
}

/* Done before any node goes to the next epoch. The mark names this memory of the node: one that has
 * forgotten once more meanwhile, and may have voted in between, does not accept later steps. */
static void mark(struct survey *survey, unsigned nodes, void (*fn)(struct survey *survey))
{
    struct redlock *redlock = survey->redlock;
    struct node_record to = {.group = "!"};
    int rc = redlock_group_draw(to.group + 1, GROUP_ID, redlock->engine.loop);
    if (rc) {
        error_errno(&survey->error, STILE_REFUSED, rc, "drawing a mark");
        survey->done(survey);
        return;
    }
    redlock_survey_begin(survey, fn);
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct node_record *record = &survey->records[i];
        if (!(nodes & 1u << i))
            continue;
        redlock_survey_propose(survey, i, to.group); /* and a label, if it has none */
        if (record->group[0] && !redlock_group_is_mark(record->group))
            redlock_survey_change(survey, i, &to);
    }
    redlock_survey_end(survey);
}

/* A node of a group with this name that is no longer a member: its place was given away while it
 * was gone. Or a node of a group that this one has followed. */
static bool is_left_out(const struct survey *survey, unsigned i, const struct node_record *leader)
{
    const struct node_record *record = &survey->records[i];
    char id[GROUP_ID + 1];
    uint32_t epoch;
    if (survey->members & 1u << i || !record->answered || !*leader->labels ||
        !redlock_group_read(id, &epoch, record->group))
        return false;
    bool replaced =
        strcmp(id, survey->id) == 0 && !redlock_words_have(leader->labels, record->label);
    return replaced || redlock_words_have(leader->past, id);
}

/* Finds the nodes to adopt; returns those that have to be marked first. */
static unsigned find_needy(struct survey *survey, const struct node_record *leader)
{
    unsigned unmarked = 0;
    survey->needy = 0;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        const struct node_record *record = &survey->records[i];
        if (!has_forgotten(record) && !is_left_out(survey, i, leader))
            continue;
        survey->needy |= 1u << i;
        if (!redlock_group_is_mark(record->group) || !record->label[0])
            unmarked |= 1u << i;
    }
    return unmarked;
}

static void check_adoption(struct survey *survey, const struct node_record *leader)
{
    struct redlock *redlock = survey->redlock;
    unsigned share = (unsigned)__builtin_popcount(survey->members);
    if (leader && leader->n && leader->n != redlock->n)
        error_set(&survey->error, STILE_REFUSED, 0,
                  "this is a group of %u nodes, and the URL names %u: name all of its nodes",
                  leader->n, redlock->n);
    else if (share < enough(redlock))
        error_set(&survey->error, STILE_REFUSED, 0,
                  "only %u of %u nodes can be asked and have kept their data: a majority must, to "
                  "know which tokens were granted",
                  share, redlock->n);
    else if (survey->rounds > ROUNDS_MAX)
        error_set(&survey->error, STILE_CONFLICT, 0, "another adoption runs at the same time");
}

/* Without labels on record (an older release) each node keeps its place. */
static void plan_adoption(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    const struct node_record *leader = NULL;
    survey->members = 0;
    if (redlock_survey_majority(survey, survey->id, &survey->epoch) > 0)
        survey->members = redlock_group_members(survey, survey->id, &leader);
    check_adoption(survey, leader);
    survey->strays = leader ? redlock_group_strays(survey, survey->id) : 0;
    unsigned unmarked = survey->error.status ? 0 : find_needy(survey, leader);
    if (survey->error.status || (survey->needy == 0 && survey->strays == 0)) {
        survey->done(survey);
    } else if (unmarked) {
        mark(survey, unmarked, plan_adoption_again);
    } else {
        strcpy(survey->labels, leader->labels);
        survey->sized = redlock_group_size(leader->group) > 0;
        if (survey->labels[0])
            survey->needy =
                redlock_labels_reassign(survey->labels, survey, survey->members, survey->needy);
        enter_next_epoch(survey, survey->members, redlock->n, survey->labels, on_epoch_entered);
    }
}

static void adopt(struct survey *survey)
{
    redlock_survey_ask(survey, plan_adoption);
}

/* ---- for stile doctor --adopt ---- */

static void report_adopted(struct survey *survey, struct query *query, unsigned i)
{
    char what[160];
    uint64_t quiet_ms = survey->longest_ms;
    snprintf(what, sizeof what, "taken back in epoch %u; it takes no claims for %llu s",
             (unsigned)survey->epoch, (unsigned long long)((quiet_ms + 999) / 1000));
    query->engine->events->finding(
        query, &(struct stile_finding){.severity = STILE_NOTE,
                                       .id = "adopted",
                                       .where = survey->redlock->nodes[i].address,
                                       .what = what,
                                       .why = "Locks that it has forgotten may still be held: this "
                                              "was the longest lease requested."});
}

static void report_not_adopted(struct query *query, const struct stile_error *why)
{
    query->engine->events->finding(
        query,
        &(struct stile_finding){
            .severity = STILE_DANGER,
            .id = "not-adopted",
            .what = why->message,
            .why = "It is unknown which tokens were granted: after an adoption they might be "
                   "granted again.",
            .cure = "Bring nodes back that have kept their data. If it is lost for good: end "
                    "all holders, take a new prefix= for all clients (or reset what your "
                    "guards have seen), then DEL " NODE_KEY " on every node, and the next "
                    "client makes them a new group.",
        });
}

static void report_nothing_to_adopt(struct query *query)
{
    query->engine->events->finding(
        query, &(struct stile_finding){.severity = STILE_NOTE,
                                       .id = "nothing-to-adopt",
                                       .what = "no node that answers has lost its data: nothing "
                                               "was adopted"});
}

static void report_gathered(struct query *query, const struct survey *survey)
{
    char what[160];
    snprintf(what, sizeof what,
             "%u nodes were left behind by an adoption that was cut short: all "
             "that answer are in epoch %u now",
             survey->strays, (unsigned)survey->epoch);
    query->engine->events->finding(
        query, &(struct stile_finding){.severity = STILE_NOTE, .id = "gathered", .what = what});
}

static void end_adoption(struct survey *survey)
{
    struct query *query = survey->data;
    struct stile_error err = survey->error;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        if (survey->adopted & 1u << i)
            report_adopted(survey, query, i);
    }
    if (!err.status && survey->strays)
        report_gathered(query, survey);
    if (err.status == STILE_REFUSED) {
        report_not_adopted(query, &err);
        err.status = STILE_OK;
    } else if (!err.status && !survey->adopted && survey->rounds == 1) {
        report_nothing_to_adopt(query);
    }
    redlock_survey_stop(survey);
    free(survey);
    query->state = NULL;
    query->engine->events->done(query, err.status ? &err : NULL);
}

void redlock_adopt(struct engine *engine, struct query *query)
{
    struct redlock *redlock = redlock_of(engine);
    struct survey *survey = redlock->fenced ? calloc(1, sizeof *survey) : NULL;
    struct stile_error err;
    if (!survey) {
        if (redlock->fenced)
            error_set(&err, STILE_NOMEM, 0, "out of memory");
        else
            error_set(&err, STILE_UNSUPPORTED, 0,
                      "with fence=off nodes keep nothing that could be lost: there is nothing to "
                      "adopt");
        engine->events->done(query, &err);
        return;
    }
    *survey = (struct survey){.redlock = redlock, .done = end_adoption, .data = query};
    query->state = survey;
    adopt(survey);
}

/* ---- resizing ---- */

static void plan_resize(struct survey *survey);

static void plan_resize_again(struct survey *survey)
{
    redlock_survey_ask(survey, plan_resize);
}

static void refuse_resize(struct survey *survey, const char *message)
{
    error_set(&survey->error, STILE_REFUSED, 0, "%s", message);
    survey->done(survey);
}

/* ---- opening the new group ---- */

/* "group label label ...": what was agreed to. */
static void read_next(struct node_record *as, const char *next)
{
    size_t len = strcspn(next, " ");
    snprintf(as->group, sizeof as->group, "%.*s", (int)(len < GROUP_MAX ? len : GROUP_MAX), next);
    snprintf(as->labels, sizeof as->labels, "%s", next[len] ? next + len + 1 : "");
    as->n = redlock_group_size(as->group);
}

static void on_opened(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    for (unsigned i = 0; i < redlock->n; i++)
        survey->adopted |= survey->records[i].changed ? 1u << i : 0;
    redlock_survey_ask(survey, plan_resize);
}

/* Members of the new group that are not in it yet, whatever group they are in now. */
static void open_nodes(struct survey *survey, const struct node_record *as)
{
    strcpy(survey->group, as->group);
    survey->longest_ms = as->longest_ms;
    redlock_survey_begin(survey, on_opened);
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        struct node_record *record = &survey->records[i];
        record->changed = false;
        if (record->answered && strcmp(record->group, as->group) != 0 &&
            redlock_words_have(as->labels, record->label))
            redlock_survey_adopt(survey, i, as);
    }
    redlock_survey_end(survey);
}

static void raise_to(struct node_record *as, const struct node_record *record)
{
    as->highest = record->highest > as->highest ? record->highest : as->highest;
    as->longest_ms = record->longest_ms > as->longest_ms ? record->longest_ms : as->longest_ms;
}

/* ---- closing the old group ---- */

static void on_closed(struct survey *survey)
{
    struct node_record as = {0};
    unsigned closed = 0;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        const struct node_record *record = &survey->records[i];
        if (!record->changed)
            continue;
        closed++;
        raise_to(&as, record);
    }
    if (closed < survey->was_n / 2 + 1) {
        redlock_survey_ask(survey, plan_resize);
        return;
    }
    read_next(&as, survey->next);
    strcpy(as.past, survey->past);
    open_nodes(survey, &as);
}

/* The group that a node has agreed to in the latest epoch; false: none has. */
static bool find_agreed(const struct survey *survey, char next[NEXT_MAX + 1])
{
    uint32_t latest = 0;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        const struct node_record *record = &survey->records[i];
        char id[GROUP_ID + 1], epoch_text[GROUP_MAX + 1];
        size_t len = strcspn(record->next, " ");
        uint32_t epoch;
        snprintf(epoch_text, sizeof epoch_text, "%.*s", (int)(len < GROUP_MAX ? len : GROUP_MAX),
                 record->next);
        if (!record->changed || !record->next[len] || !redlock_group_read(id, &epoch, epoch_text) ||
            epoch < latest)
            continue;
        latest = epoch;
        snprintf(next, NEXT_MAX + 1, "%s", record->next + len + 1);
    }
    return latest > 0;
}

static bool make_next(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    char id[GROUP_ID + 1], labels[LABELS_MAX + 1];
    if (redlock_group_draw(id, GROUP_ID, redlock->engine.loop) ||
        !redlock_labels_of_all(labels, survey))
        return false;
    snprintf(survey->next, sizeof survey->next, "%s.1.%u %s", id, redlock->n, labels);
    return true;
}

/* Only nodes that this step has moved count: see on_epoch_entered(). */
static void on_resize_epoch(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    struct node_record agreed = {0};
    unsigned moved = 0;
    for (unsigned i = 0; i < redlock->n; i++) {
        moved += survey->records[i].changed;
        if (survey->records[i].changed)
            snprintf(survey->past, sizeof survey->past, "%s %.*s", survey->id,
                     (int)(PAST_MAX - GROUP_ID - 1), survey->records[i].past);
    }
    if (moved < survey->was_n / 2 + 1) {
        redlock_survey_ask(survey, plan_resize);
        return;
    }
    if (!find_agreed(survey, survey->next) && !make_next(survey)) {
        refuse_resize(survey,
                      "not every node of the new group answers: all of them must, to begin with");
        return;
    }
    read_next(&agreed, survey->next);
    if (agreed.n != redlock->n) {
        error_set(&survey->error, STILE_REFUSED, 0,
                  "a change to %u nodes was begun before, and has to be finished first: run this "
                  "with the URL that names those",
                  agreed.n);
        survey->done(survey);
        return;
    }
    redlock_survey_begin(survey, on_closed);
    for (unsigned i = 0; i < redlock->n; i++) {
        bool here = survey->records[i].changed;
        survey->records[i].changed = false;
        if (here)
            redlock_survey_close(survey, i, survey->next);
    }
    redlock_survey_end(survey);
}

/* ---- planning ---- */

/* The group that no other group has followed. */
static bool find_group(struct survey *survey)
{
    unsigned n = survey->redlock->n;
    for (unsigned i = 0; i < n; i++) {
        bool followed = false;
        char id[GROUP_ID + 1];
        uint32_t epoch;
        if (!survey->records[i].answered ||
            !redlock_group_read(id, &epoch, survey->records[i].group))
            continue;
        for (unsigned k = 0; k < n; k++)
            followed |=
                survey->records[k].answered && redlock_words_have(survey->records[k].past, id);
        if (followed)
            continue;
        strcpy(survey->id, id);
        survey->epoch = epoch;
        return true;
    }
    return false;
}

/* The nodes that are not in the group yet and have no mark; and whether one belongs to another
 * group. */
static unsigned find_unmarked(struct survey *survey, const struct node_record *leader,
                              bool *foreign)
{
    unsigned unmarked = 0;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        const struct node_record *record = &survey->records[i];
        char id[GROUP_ID + 1] = "";
        uint32_t epoch;
        bool named = record->answered && redlock_group_read(id, &epoch, record->group);
        if (named && strcmp(id, survey->id) == 0 && epoch > survey->epoch)
            survey->epoch = epoch;
        if (!record->answered || survey->members & 1u << i)
            continue;
        *foreign |= named && strcmp(id, survey->id) != 0 && !redlock_words_have(leader->past, id);
        if (!redlock_group_is_mark(record->group) || !record->label[0])
            unmarked |= 1u << i;
    }
    return unmarked;
}

/* Nodes that have agreed to be members of a group that has begun, and are not in it yet: of the
 * group before, or new. A node that was in it and forgot has lost its label as well: that is for an
 * adoption. */
static unsigned find_unopened(const struct survey *survey, const struct node_record *leader)
{
    char id[GROUP_ID + 1];
    uint32_t epoch = 0;
    unsigned unopened = 0;
    redlock_group_read(id, &epoch, leader->group);
    for (unsigned i = 0; epoch == 1 && *leader->past && i < survey->redlock->n; i++) {
        const struct node_record *record = &survey->records[i];
        uint32_t at;
        bool before =
            redlock_group_read(id, &at, record->group) && redlock_words_have(leader->past, id);
        if (record->answered && redlock_words_have(leader->labels, record->label) &&
            (before || redlock_group_is_mark(record->group)))
            unopened |= 1u << i;
    }
    return unopened;
}

/* Any member of the new group knows enough: it was given what the old group knew. */
static void go_on_opening(struct survey *survey, const struct node_record *leader)
{
    struct node_record as = *leader;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        if (survey->members & 1u << i)
            raise_to(&as, &survey->records[i]);
    }
    open_nodes(survey, &as);
}

/* No node has to be added, and none is closed. */
static bool is_resized(const struct survey *survey, const struct node_record *leader)
{
    bool done = leader->n == survey->redlock->n;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        const struct node_record *record = &survey->records[i];
        done = done && record->answered && survey->members & 1u << i && !record->next[0];
    }
    return done;
}

/* True: it can't be done, and why. */
static bool check_resize(struct survey *survey, const struct node_record *leader, bool foreign)
{
    unsigned share = (unsigned)__builtin_popcount(survey->members);
    if (survey->rounds > ROUNDS_MAX)
        error_set(&survey->error, STILE_CONFLICT, 0,
                  "another client changes the group at the same time");
    else if (leader->n == 0)
        error_set(&survey->error, STILE_REFUSED, 0,
                  "the group was made by an older release, and it is not on record how many nodes "
                  "it has: open it once with the URL of its present nodes, all of which must "
                  "answer");
    else if (foreign)
        error_set(&survey->error, STILE_REFUSED, 0,
                  "one of these nodes belongs to another group: name another one, or, if that "
                  "group is no longer needed, DEL " NODE_KEY " on it");
    else if (share < leader->n / 2 + 1)
        error_set(&survey->error, STILE_REFUSED, 0,
                  "only %u of the group's %u nodes are among these, can be asked and have kept "
                  "their data: a majority must; larger changes go in steps",
                  share, leader->n);
    return survey->error.status != STILE_OK;
}

static void plan_resize(struct survey *survey)
{
    const struct node_record *leader = NULL;
    bool foreign = false;
    survey->members = find_group(survey) ? redlock_group_members(survey, survey->id, &leader) : 0;
    if (!leader) {
        refuse_resize(survey, "none of these nodes that answers is in a group");
        return;
    }
    survey->was_n = leader->n;
    survey->sized = redlock_group_size(leader->group) > 0;
    unsigned unmarked = find_unmarked(survey, leader, &foreign);
    if (survey->rounds <= ROUNDS_MAX && find_unopened(survey, leader))
        go_on_opening(survey, leader);
    else if (is_resized(survey, leader) || check_resize(survey, leader, foreign))
        survey->done(survey);
    else if (unmarked)
        mark(survey, unmarked, plan_resize_again);
    else
        enter_next_epoch(survey, survey->members, leader->n, "", on_resize_epoch);
}

/* ---- for stile doctor --resize ---- */

static void report_opened(struct survey *survey, struct query *query, unsigned i)
{
    char what[160];
    snprintf(what, sizeof what, "is one of the group's %u nodes now; it takes no claims for %llu s",
             survey->redlock->n, (unsigned long long)((survey->longest_ms + 999) / 1000));
    query->engine->events->finding(
        query, &(struct stile_finding){.severity = STILE_NOTE,
                                       .id = "resized",
                                       .where = survey->redlock->nodes[i].address,
                                       .what = what,
                                       .why = "Locks of the old group may still be held: "
                                              "this was the longest lease requested."});
}

static void report_nothing_to_resize(struct survey *survey, struct query *query)
{
    char what[160];
    snprintf(what, sizeof what, "these %u nodes are the group's nodes already", survey->redlock->n);
    query->engine->events->finding(
        query,
        &(struct stile_finding){.severity = STILE_NOTE, .id = "nothing-to-resize", .what = what});
}

static void report_not_resized(struct query *query, const struct stile_error *why)
{
    query->engine->events->finding(
        query,
        &(struct stile_finding){
            .severity = STILE_DANGER,
            .id = "not-resized",
            .what = why->message,
            .why = "Two groups with nodes in common could grant one lock twice.",
            .cure =
                "Follow the message above, then run this again: it continues where it stopped."});
}

static void end_resize(struct survey *survey)
{
    struct query *query = survey->data;
    struct stile_error err = survey->error;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        if (survey->adopted & 1u << i)
            report_opened(survey, query, i);
    }
    if (err.status == STILE_REFUSED) {
        report_not_resized(query, &err);
        err.status = STILE_OK;
    } else if (!err.status && !survey->adopted) {
        report_nothing_to_resize(survey, query);
    }
    redlock_survey_stop(survey);
    free(survey);
    query->state = NULL;
    query->engine->events->done(query, err.status ? &err : NULL);
}

void redlock_resize(struct engine *engine, struct query *query)
{
    struct redlock *redlock = redlock_of(engine);
    struct survey *survey = redlock->fenced ? calloc(1, sizeof *survey) : NULL;
    struct stile_error err;
    if (!survey || redlock->n < NODES_MIN) {
        if (redlock->n < NODES_MIN)
            error_set(&err, STILE_MISUSE, 0, "redlock needs at least %d nodes", NODES_MIN);
        else if (redlock->fenced)
            error_set(&err, STILE_NOMEM, 0, "out of memory");
        else
            error_set(&err, STILE_UNSUPPORTED, 0,
                      "with fence=off nodes keep nothing of their group: stop all clients for as "
                      "long as the longest lease, and start them with the new URL");
        free(survey);
        engine->events->done(query, &err);
        return;
    }
    *survey = (struct survey){.redlock = redlock, .done = end_resize, .data = query};
    query->state = survey;
    redlock_survey_ask(survey, plan_resize);
}
