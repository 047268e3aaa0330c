/* Taking back nodes that have lost their data. */
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/group.h"

#define ROUNDS_MAX 24

static void look(struct survey *survey);

static void on_adopted(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    for (unsigned i = 0; i < redlock->n; i++)
        survey->adopted |= survey->accounts[i].changed ? 1u << i : 0;
    if (survey->epoch > redlock->epoch)
        redlock->epoch = survey->epoch;
    survey->done(survey);
}

/* Only our own step counts: who finds that somebody else has gone on already knows nothing of when
 * that was, and begins again. */
static void on_switched(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    uint64_t highest = 0, longest_ms = 0;
    unsigned switched = 0;
    char group[GROUP_MAX + 1];
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        if (!account->changed)
            continue;
        switched++;
        highest = account->highest > highest ? account->highest : highest;
        longest_ms = account->longest_ms > longest_ms ? account->longest_ms : longest_ms;
    }
    if (switched < redlock->majority) {
        survey_ask(survey, look);
        return;
    }
    group_write(group, survey->id, survey->epoch);
    survey_begin(survey, on_adopted);
    for (unsigned i = 0; i < redlock->n; i++) {
        struct account *account = &survey->accounts[i];
        account->changed = false;
        if (account->answered && !account->group[0])
            survey_adopt(survey, i, group, highest, longest_ms);
    }
    survey_end(survey);
}

static void move_on(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    char group[GROUP_MAX + 1], one[GROUP_ID + 1];
    uint32_t at;
    survey->epoch++;
    group_write(group, survey->id, survey->epoch);
    survey_begin(survey, on_switched);
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        if (account->answered && group_read(one, &at, account->group) &&
            strcmp(one, survey->id) == 0)
            survey_change(survey, i, account->group, group);
    }
    survey_end(survey);
}

static void look(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    unsigned share = survey_majority(survey, survey->id, &survey->epoch), forgotten = 0;
    for (unsigned i = 0; i < redlock->n; i++)
        forgotten += survey->accounts[i].answered && !survey->accounts[i].group[0];
    if (share < redlock->majority)
        error_set(&survey->error, STILE_REFUSED, 0,
                  "only %u of %u nodes can be asked and have kept their data: a majority must, to "
                  "know which tokens were given out",
                  share, redlock->n);
    else if (survey->rounds > ROUNDS_MAX)
        error_set(&survey->error, STILE_CONFLICT, 0, "somebody else adopts at the same time");
    if (survey->error.status || forgotten == 0)
        survey->done(survey);
    else
        move_on(survey);
}

void group_adopt(struct survey *survey)
{
    survey_ask(survey, look);
}
