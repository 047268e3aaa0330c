/* Taking back nodes that have lost their data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/group.h"
#include "mutant.h"

#define ROUNDS_MAX   24
#define EPOCH_DIGITS 8

static void look(struct survey *survey);

/* So many must remember, and go to the next epoch together. */
static unsigned enough(const struct redlock *redlock)
{
#ifdef MUTANT_REDLOCK_ADOPTS_BLINDLY
    return 1;
#endif
    return redlock->majority;
}

bool group_has_forgotten(const struct account *account)
{
    const char *group = account->group;
    return account->answered && (!*group || *group == '?' || group_is_mark(group));
}

static void on_adopted(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    for (unsigned i = 0; i < redlock->n; i++)
        survey->adopted |= survey->accounts[i].changed ? 1u << i : 0;
    survey->done(survey);
}

/* Only our own step counts: who finds that somebody else has gone on already knows nothing of when
 * that was, and begins again. */
static void on_switched(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    struct account as = {.n = redlock->n};
    unsigned switched = 0;
    bool closed = false;
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        if (!account->changed)
            continue;
        switched++;
        closed |= account->next[0] != '\0';
        as.highest = account->highest > as.highest ? account->highest : as.highest;
        as.longest_ms = account->longest_ms > as.longest_ms ? account->longest_ms : as.longest_ms;
        strcpy(as.was, account->was);
        strcpy(as.past, account->past);
    }
    if (switched < enough(redlock)) {
        survey_ask(survey, look);
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
    strcpy(as.seats, survey->seats);
    group_go_on(redlock, as.group, as.was, as.seats);
    survey_begin(survey, on_adopted);
    for (unsigned i = 0; i < redlock->n; i++) {
        struct account *account = &survey->accounts[i];
        account->changed = false;
        if (survey->needy & 1u << i && account->answered && group_is_mark(account->group))
            survey_adopt(survey, i, &as);
    }
    survey_end(survey);
}

void group_move_on(struct survey *survey, unsigned nodes, unsigned n, const char *seats,
                   void (*fn)(struct survey *survey))
{
    struct redlock *redlock = survey->redlock;
    struct account to = {.n = n};
    char random[GROUP_ID + 1];
    int rc = group_draw(random, EPOCH_DIGITS, redlock->engine.loop);
    if (rc) {
        error_errno(&survey->error, STILE_REFUSED, rc, "drawing an epoch");
        survey->done(survey);
        return;
    }
#ifdef MUTANT_REDLOCK_EPOCH_BY_NUMBER
    strcpy(random, "0");
#endif
    survey->epoch++;
    char size[12] = "";
    if (survey->sized)
        snprintf(size, sizeof size, ".%u", n);
    snprintf(to.group, sizeof to.group, "%s.%u%s-%s", survey->id, (unsigned)survey->epoch, size,
             random);
    strcpy(survey->group, to.group);
    strcpy(to.seats, seats);
    survey_begin(survey, fn);
    for (unsigned i = 0; i < redlock->n; i++) {
        survey->accounts[i].changed = false;
        if (nodes & 1u << i)
            survey_change(survey, i, &to);
    }
    survey_end(survey);
}

static void look_again(struct survey *survey)
{
    survey_ask(survey, look);
}

/* Before anybody goes to the next epoch. What is said to a node later is said to this memory of it:
 * one that has forgotten once more meanwhile, and may have voted in between, does not take it. */
void group_mark(struct survey *survey, unsigned nodes, void (*fn)(struct survey *survey))
{
    struct redlock *redlock = survey->redlock;
    struct account to = {.group = "!"};
    int rc = group_draw(to.group + 1, GROUP_ID, redlock->engine.loop);
    if (rc) {
        error_errno(&survey->error, STILE_REFUSED, rc, "drawing a mark");
        survey->done(survey);
        return;
    }
    survey_begin(survey, fn);
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        if (!(nodes & 1u << i))
            continue;
        survey_propose(survey, i, to.group); /* and a seat, if it has none */
        if (account->group[0] && !group_is_mark(account->group))
            survey_change(survey, i, &to);
    }
    survey_end(survey);
}

/* In a group of this name, but not one of its members any longer: its seat was given away while it
 * was gone. Or of a group that this one has followed. */
static bool is_left_out(const struct survey *survey, unsigned i, const struct account *leader)
{
    const struct account *account = &survey->accounts[i];
    char id[GROUP_ID + 1];
    uint32_t epoch;
    if (survey->members & 1u << i || !account->answered || !*leader->seats ||
        !group_read(id, &epoch, account->group))
        return false;
    bool replaced = strcmp(id, survey->id) == 0 && !seats_have(leader->seats, account->seat);
    return replaced || seats_have(leader->past, id);
}

/* What is to be done at which nodes; returns those that have to be marked before. */
static unsigned find_needy(struct survey *survey, const struct account *leader)
{
    unsigned unmarked = 0;
    survey->needy = 0;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        if (!group_has_forgotten(account) && !is_left_out(survey, i, leader))
            continue;
        survey->needy |= 1u << i;
        if (!group_is_mark(account->group) || !account->seat[0])
            unmarked |= 1u << i;
    }
    return unmarked;
}

static void judge(struct survey *survey, const struct account *leader)
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
                  "know which tokens were given out",
                  share, redlock->n);
    else if (survey->rounds > ROUNDS_MAX)
        error_set(&survey->error, STILE_CONFLICT, 0, "somebody else adopts at the same time");
}

/* Without seats on record (of an older release) each of them stays what it was. */
static void look(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    const struct account *leader = NULL;
    survey->members = 0;
    if (survey_majority(survey, survey->id, &survey->epoch) > 0)
        survey->members = group_members(survey, survey->id, &leader);
    judge(survey, leader);
    survey->strays = leader ? group_strays(survey, survey->id) : 0;
    unsigned unmarked = survey->error.status ? 0 : find_needy(survey, leader);
    if (survey->error.status || (survey->needy == 0 && survey->strays == 0)) {
        survey->done(survey);
    } else if (unmarked) {
        group_mark(survey, unmarked, look_again);
    } else {
        strcpy(survey->seats, leader->seats);
        survey->sized = group_size(leader->group) > 0;
        if (survey->seats[0])
            survey->needy = seats_reassign(survey->seats, survey, survey->members, survey->needy);
        group_move_on(survey, survey->members, redlock->n, survey->seats, on_switched);
    }
}

void group_adopt(struct survey *survey)
{
    survey_ask(survey, look);
}

/* ---- for stile doctor --adopt ---- */

static void tell_adopted(struct survey *survey, struct query *query, unsigned i)
{
    char what[160];
    uint64_t quiet_ms = survey->longest_ms;
    snprintf(what, sizeof what, "taken back in epoch %u; it takes no claims for %llu s yet",
             (unsigned)survey->epoch, (unsigned long long)((quiet_ms + 999) / 1000));
    query->engine->events->finding(
        query, &(struct stile_finding){.severity = STILE_NOTE,
                                       .id = "adopted",
                                       .where = survey->redlock->nodes[i].where,
                                       .what = what,
                                       .why = "What it has forgotten may still be held: so long "
                                              "was the longest lease that was asked for."});
}

static void tell_refused(struct query *query, const struct stile_error *why)
{
    query->engine->events->finding(
        query,
        &(struct stile_finding){
            .severity = STILE_DANGER,
            .id = "not-adopted",
            .what = why->message,
            .why = "Nobody knows which tokens were given out: whatever was adopted now might "
                   "give them out again.",
            .cure = "Bring nodes back that have kept their data. If it is lost for good: end "
                    "all holders, take a new prefix= for all clients (or reset what your "
                    "guards have seen), then DEL " NODE_KEY " on every node, and the next "
                    "client makes them a new group.",
        });
}

static void tell_nothing(struct query *query)
{
    query->engine->events->finding(
        query, &(struct stile_finding){.severity = STILE_NOTE,
                                       .id = "nothing-to-adopt",
                                       .what = "no node that answers has lost its data: nothing "
                                               "was adopted"});
}

static void tell_gathered(struct query *query, const struct survey *survey)
{
    char what[160];
    snprintf(what, sizeof what,
             "%u nodes were left behind by an adoption that was cut short: all "
             "that answer are in epoch %u now",
             survey->strays, (unsigned)survey->epoch);
    query->engine->events->finding(
        query, &(struct stile_finding){.severity = STILE_NOTE, .id = "gathered", .what = what});
}

static void end(struct survey *survey)
{
    struct query *query = survey->data;
    struct stile_error err = survey->error;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        if (survey->adopted & 1u << i)
            tell_adopted(survey, query, i);
    }
    if (!err.status && survey->strays)
        tell_gathered(query, survey);
    if (err.status == STILE_REFUSED) {
        tell_refused(query, &err);
        err.status = STILE_OK;
    } else if (!err.status && !survey->adopted && survey->rounds == 1) {
        tell_nothing(query);
    }
    survey_stop(survey);
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
    *survey = (struct survey){.redlock = redlock, .done = end, .data = query};
    query->state = survey;
    group_adopt(survey);
}
