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

static bool has_forgotten(const struct account *account)
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
    struct account as = {0};
    unsigned switched = 0;
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        if (!account->changed)
            continue;
        switched++;
        as.highest = account->highest > as.highest ? account->highest : as.highest;
        as.longest_ms = account->longest_ms > as.longest_ms ? account->longest_ms : as.longest_ms;
        strcpy(as.was, account->was);
    }
    if (switched < enough(redlock)) {
        survey_ask(survey, look);
        return;
    }
    survey->longest_ms = as.longest_ms;
    strcpy(as.group, survey->group);
    group_go_on(redlock, as.group, as.was);
    survey_begin(survey, on_adopted);
    for (unsigned i = 0; i < redlock->n; i++) {
        struct account *account = &survey->accounts[i];
        account->changed = false;
        if (account->answered && group_is_mark(account->group))
            survey_adopt(survey, i, &as);
    }
    survey_end(survey);
}

static void move_on(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    char random[GROUP_ID + 1], one[GROUP_ID + 1];
    uint32_t at;
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
    snprintf(survey->group, sizeof survey->group, "%s.%u-%s", survey->id, (unsigned)survey->epoch,
             random);
    survey_begin(survey, on_switched);
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        if (account->answered && group_read(one, &at, account->group) &&
            strcmp(one, survey->id) == 0)
            survey_change(survey, i, survey->group, "");
    }
    survey_end(survey);
}

static void look_again(struct survey *survey)
{
    survey_ask(survey, look);
}

/* Before anybody goes to the next epoch. What is said to a node later is said to this memory of it:
 * one that has forgotten once more meanwhile, and may have voted in between, does not take it. */
static void mark(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    char text[GROUP_ID + 2] = "!";
    int rc = group_draw(text + 1, GROUP_ID, redlock->engine.loop);
    if (rc) {
        error_errno(&survey->error, STILE_REFUSED, rc, "drawing a mark");
        survey->done(survey);
        return;
    }
    survey_begin(survey, look_again);
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        if (account->answered && !account->group[0])
            survey_propose(survey, i, text);
        else if (account->answered && account->group[0] == '?')
            survey_change(survey, i, text, "");
    }
    survey_end(survey);
}

static void look(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    unsigned share = survey_majority(survey, survey->id, &survey->epoch);
    unsigned forgotten = 0, marked = 0;
    for (unsigned i = 0; i < redlock->n; i++) {
        forgotten += has_forgotten(&survey->accounts[i]);
        marked += survey->accounts[i].answered && group_is_mark(survey->accounts[i].group);
    }
    if (share < enough(redlock))
        error_set(&survey->error, STILE_REFUSED, 0,
                  "only %u of %u nodes can be asked and have kept their data: a majority must, to "
                  "know which tokens were given out",
                  share, redlock->n);
    else if (survey->rounds > ROUNDS_MAX)
        error_set(&survey->error, STILE_CONFLICT, 0, "somebody else adopts at the same time");
    survey->strays = group_strays(survey, survey->id);
    if (survey->error.status || (forgotten == 0 && survey->strays == 0))
        survey->done(survey);
    else if (marked < forgotten)
        mark(survey);
    else
        move_on(survey);
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
