#include "engines/redlock/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX 30

/* ---- names ---- */

void group_write(char out[GROUP_MAX + 1], const char *id, uint32_t epoch)
{
    snprintf(out, GROUP_MAX + 1, "%s.%u", id, (unsigned)epoch);
}

bool group_read(char id[GROUP_ID + 1], uint32_t *epoch, const char *text)
{
    char *end;
    if (strspn(text, "0123456789abcdef") != GROUP_ID || text[GROUP_ID] != '.')
        return false;
    unsigned long value = strtoul(text + GROUP_ID + 1, &end, 10);
    if (end == text + GROUP_ID + 1 || *end || value == 0 || value >= UINT32_MAX)
        return false;
    memcpy(id, text, GROUP_ID);
    id[GROUP_ID] = '\0';
    *epoch = (uint32_t)value;
    return true;
}

bool group_is_mark(const char *text)
{
    return text[0] == '!';
}

/* ---- while claims are made ---- */

static void on_followed(void *data, const redisReply *reply, const struct stile_error *err)
{
    (void)data, (void)reply, (void)err; /* the next claim tells */
}

/* One that was away when the others went to a new epoch has not forgotten: its fences are those
 * that it had, so it may follow them. Claims alone would not do: who decides without it does not
 * hear what it says. */
void group_lead(struct node *node)
{
    struct redlock *redlock = node->redlock;
    char epoch[16];
    if (redlock->epoch < 2)
        return;
    snprintf(epoch, sizeof epoch, "%u", (unsigned)redlock->epoch);
    struct conn_arg args[] = {CONN_TEXT(NODE_KEY), CONN_TEXT(redlock->group_id), CONN_TEXT(epoch)};
    conn_eval(node->asks, &redlock->scripts.follow, args, 1, 3, on_followed, node, NULL);
}

static void go_on_to(struct redlock *redlock, uint32_t epoch)
{
    redlock->epoch = epoch;
    for (unsigned i = 0; i < redlock->n; i++)
        group_lead(&redlock->nodes[i]);
}

void group_hear(struct node *node, const char *text)
{
    struct redlock *redlock = node->redlock;
    char id[GROUP_ID + 1];
    uint32_t epoch;
    snprintf(node->group, sizeof node->group, "%s", text ? text : "");
    if (!*node->group || group_is_mark(node->group)) {
        error_set(&node->why, STILE_UNREACHABLE, 0, "has lost its data: stile doctor --adopt");
    } else if (!group_read(id, &epoch, node->group)) {
        error_set(&node->why, STILE_UNREACHABLE, 0, "is just being made part of a group");
    } else if (strcmp(id, redlock->group_id) != 0) {
        error_set(&node->why, STILE_UNREACHABLE, 0, "belongs to another group of nodes");
    } else {
        error_set(&node->why, STILE_UNREACHABLE, 0, "is in another epoch of its group");
        if (epoch > redlock->epoch)
            go_on_to(redlock, epoch);
        else if (epoch < redlock->epoch)
            group_lead(node);
    }
}

bool group_is_newer(struct redlock_claim *part)
{
    return part->epoch != redlock_of_part(part)->epoch;
}

/* ---- founding ---- */

static void settle(struct survey *survey);

static void ask_again(struct survey *survey)
{
    survey_ask(survey, settle);
}

static void end(struct survey *survey)
{
    survey->over = true;
}

static unsigned answering(const struct survey *survey)
{
    unsigned mask = 0;
    for (unsigned i = 0; i < survey->redlock->n; i++)
        mask |= survey->accounts[i].answered ? 1u << i : 0;
    return mask;
}

static bool is_proposal(const char *group)
{
    return group[0] == '?' && strlen(group) == 1 + GROUP_ID;
}

static void propose(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    unsigned char random[GROUP_ID / 2];
    char proposal[GROUP_ID + 2] = "?";
    int rc = loop_random(redlock->engine.loop, random, sizeof random);
    if (rc) {
        error_errno(&survey->error, STILE_REFUSED, rc, "drawing a group's name");
        end(survey);
        return;
    }
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(proposal + 1 + 2 * i, 3, "%02x", random[i]);
    survey_begin(survey, ask_again);
    for (unsigned i = 0; i < redlock->n; i++) {
        if (!survey->accounts[i].group[0])
            survey_propose(survey, i, proposal);
    }
    survey_end(survey);
}

/* Down to the smallest proposal; and once all nodes have it, there is no room for another. */
static void agree(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    const char *smallest = survey->accounts[0].group;
    char settled[GROUP_MAX + 1], target[GROUP_MAX + 1];
    bool same = true;
    for (unsigned i = 1; i < redlock->n; i++) {
        const char *group = survey->accounts[i].group;
        same = same && strcmp(group, smallest) == 0;
        if (strcmp(group, smallest) < 0)
            smallest = group;
    }
    group_write(settled, smallest + 1, 1);
    strcpy(target, same ? settled : smallest);
    survey_begin(survey, ask_again);
    for (unsigned i = 0; i < redlock->n; i++) {
        if (strcmp(survey->accounts[i].group, target) != 0)
            survey_change(survey, i, survey->accounts[i].group, target);
    }
    survey_end(survey);
}

static void found(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    bool missing = false;
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        if (!account->answered) {
            nodes_explain(redlock, answering(survey), &survey->error);
            error_wrap(&survey->error, survey->error.status,
                       "the first time all nodes of a group must answer");
            end(survey);
            return;
        }
        if (account->group[0] && !is_proposal(account->group)) {
            error_set(&survey->error, STILE_REFUSED, 0,
                      "%s: the key " NODE_KEY " holds something else: %s", redlock->nodes[i].where,
                      account->group);
            end(survey);
            return;
        }
        missing |= !account->group[0];
    }
    if (missing)
        propose(survey);
    else
        agree(survey);
}

/* ---- finding ---- */

/* Nodes that have not forgotten, and only have not heard of the latest yet: "?id" beside "id.e",
 * and an earlier epoch. True: some were asked to follow. */
static bool follow(struct survey *survey, const char *id, uint32_t epoch)
{
    struct redlock *redlock = survey->redlock;
    char latest[GROUP_MAX + 1], one[GROUP_ID + 1];
    bool any = false;
    uint32_t at;
    group_write(latest, id, epoch);
    survey_begin(survey, ask_again);
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        bool proposed = is_proposal(account->group) && strcmp(account->group + 1, id) == 0;
        bool behind = group_read(one, &at, account->group) && strcmp(one, id) == 0 && at < epoch;
        if (!account->answered || !(proposed || behind))
            continue;
        survey_change(survey, i, account->group, latest);
        any = true;
    }
    if (any)
        survey_end(survey);
    else
        survey->rounds--;
    return any;
}

/* Who asked to be let in and what the others say, node by node; and what to do if most of them can
 * be asked and have forgotten: nobody knows the tokens any more. */
static void refuse(struct survey *survey, const char *id)
{
    struct redlock *redlock = survey->redlock;
    unsigned members = 0, asked = (unsigned)__builtin_popcount(answering(survey));
    char one[GROUP_ID + 1];
    uint32_t at;
    strcpy(redlock->group_id, id);
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        if (!account->answered)
            continue;
        if (group_read(one, &at, account->group) && strcmp(one, id) == 0)
            members |= 1u << i;
        else
            group_hear(&redlock->nodes[i], account->group);
    }
    if (asked < redlock->majority)
        nodes_explain(redlock, members, &survey->error);
    else
        error_set(
            &survey->error, STILE_REFUSED, 0,
            "only %d of %u nodes have kept their group, and a majority must (stile doctor "
            "tells which): restore the others' data, or, once nobody holds a lock, DEL " NODE_KEY
            " on every node: tokens may then begin anew",
            __builtin_popcount(members), redlock->n);
}

static void settle(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    char id[GROUP_ID + 1] = "";
    uint32_t epoch = 0;
    unsigned share = survey_majority(survey, id, &epoch);
    if (survey->rounds > ROUNDS_MAX) {
        error_set(&survey->error, STILE_UNREACHABLE, 0, "the nodes' group changes all the time");
        end(survey);
    } else if (share == 0 && answering(survey) == 0) {
        nodes_explain(redlock, 0, &survey->error);
        end(survey);
    } else if (share == 0) {
        found(survey);
    } else if (follow(survey, id, epoch)) {
        return;
    } else if (share < redlock->majority && !survey->settled) {
        survey->settled = true; /* the others may have been asked before it was founded */
        ask_again(survey);
    } else {
        if (share < redlock->majority)
            refuse(survey, id);
        strcpy(redlock->group_id, id);
        redlock->epoch = epoch;
        end(survey);
    }
}

void group_settle(struct survey *survey)
{
    survey_ask(survey, settle);
}
