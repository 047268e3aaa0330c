/* Giving a group other nodes: another number of them, or others in their place.
 *
 * N belongs to a group's name: two majorities meet only among the same N nodes. So a group of other
 * nodes is another group, with a name of its own, and there must never be two that grant. The URL
 * names the new nodes, among which must be a majority of the old ones.
 *
 *     look      all nodes say what they are; those that are new are marked
 *     move on   a majority of the old nodes goes to a new epoch of the old group, as for an
 *               adoption, and each reports the group that it has agreed to before, if any
 *     close     the same nodes agree to the new group in that epoch, and are closed in this step:
 * no votes, keys or renewals any longer. If one had agreed to a group before, it is that one: of
 * several, the one of the latest epoch. Once a majority has agreed, no other group can ever come of
 * this one open      each new member gets the new name, the largest `highest` that a closed
 * majority reported, and a quiet time of the longest lease, within which every lease of the old
 * group ends: none can be renewed past a closed majority
 *
 * Everything can be repeated by anybody, from any step. A node that was closed is never opened in
 * its old group again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/group.h"

#define ROUNDS_MAX 24

static void look(struct survey *survey);

static void look_again(struct survey *survey)
{
    survey_ask(survey, look);
}

static void refuse(struct survey *survey, const char *message)
{
    error_set(&survey->error, STILE_REFUSED, 0, "%s", message);
    survey->done(survey);
}

/* ---- opening the new group ---- */

/* "group seat seat ...": what was agreed to. */
static void read_next(struct account *as, const char *next)
{
    size_t len = strcspn(next, " ");
    snprintf(as->group, sizeof as->group, "%.*s", (int)(len < GROUP_MAX ? len : GROUP_MAX), next);
    snprintf(as->seats, sizeof as->seats, "%s", next[len] ? next + len + 1 : "");
    as->n = group_size(as->group);
}

static void on_opened(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    for (unsigned i = 0; i < redlock->n; i++)
        survey->adopted |= survey->accounts[i].changed ? 1u << i : 0;
    survey_ask(survey, look);
}

/* Members of the new group that are not in it yet, from whatever they are now. */
static void open_nodes(struct survey *survey, const struct account *as)
{
    strcpy(survey->group, as->group);
    survey->longest_ms = as->longest_ms;
    survey_begin(survey, on_opened);
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        struct account *account = &survey->accounts[i];
        account->changed = false;
        if (account->answered && strcmp(account->group, as->group) != 0 &&
            seats_have(as->seats, account->seat))
            survey_adopt(survey, i, as);
    }
    survey_end(survey);
}

static void raise_to(struct account *as, const struct account *account)
{
    as->highest = account->highest > as->highest ? account->highest : as->highest;
    as->longest_ms = account->longest_ms > as->longest_ms ? account->longest_ms : as->longest_ms;
}

/* ---- closing the old one ---- */

static void on_closed(struct survey *survey)
{
    struct account as = {0};
    unsigned closed = 0;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        if (!account->changed)
            continue;
        closed++;
        raise_to(&as, account);
    }
    if (closed < survey->was_n / 2 + 1) {
        survey_ask(survey, look);
        return;
    }
    read_next(&as, survey->next);
    strcpy(as.past, survey->past);
    open_nodes(survey, &as);
}

/* The group that one of them has agreed to in the latest epoch; false: none has. */
static bool find_agreed(const struct survey *survey, char next[NEXT_MAX + 1])
{
    uint32_t latest = 0;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        char id[GROUP_ID + 1], epoch_text[GROUP_MAX + 1];
        size_t len = strcspn(account->next, " ");
        uint32_t epoch;
        snprintf(epoch_text, sizeof epoch_text, "%.*s", (int)(len < GROUP_MAX ? len : GROUP_MAX),
                 account->next);
        if (!account->changed || !account->next[len] || !group_read(id, &epoch, epoch_text) ||
            epoch < latest)
            continue;
        latest = epoch;
        snprintf(next, NEXT_MAX + 1, "%s", account->next + len + 1);
    }
    return latest > 0;
}

static bool make_next(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    char id[GROUP_ID + 1], seats[SEATS_MAX + 1];
    if (group_draw(id, GROUP_ID, redlock->engine.loop) || !seats_of_all(seats, survey))
        return false;
    snprintf(survey->next, sizeof survey->next, "%s.1.%u %s", id, redlock->n, seats);
    return true;
}

/* Only what went to this epoch by our own step counts: see on_switched() of adopt.c. */
static void on_moved(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    struct account agreed = {0};
    unsigned moved = 0;
    for (unsigned i = 0; i < redlock->n; i++) {
        moved += survey->accounts[i].changed;
        if (survey->accounts[i].changed)
            snprintf(survey->past, sizeof survey->past, "%s %.*s", survey->id,
                     (int)(PAST_MAX - GROUP_ID - 1), survey->accounts[i].past);
    }
    if (moved < survey->was_n / 2 + 1) {
        survey_ask(survey, look);
        return;
    }
    if (!find_agreed(survey, survey->next) && !make_next(survey)) {
        refuse(survey, "not every node of the new group answers: all of them must, to begin with");
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
    survey_begin(survey, on_closed);
    for (unsigned i = 0; i < redlock->n; i++) {
        bool here = survey->accounts[i].changed;
        survey->accounts[i].changed = false;
        if (here)
            survey_close(survey, i, survey->next);
    }
    survey_end(survey);
}

/* ---- looking ---- */

/* The group that no other one has followed. */
static bool find_group(struct survey *survey)
{
    unsigned n = survey->redlock->n;
    for (unsigned i = 0; i < n; i++) {
        bool followed = false;
        char id[GROUP_ID + 1];
        uint32_t epoch;
        if (!survey->accounts[i].answered || !group_read(id, &epoch, survey->accounts[i].group))
            continue;
        for (unsigned k = 0; k < n; k++)
            followed |= survey->accounts[k].answered && seats_have(survey->accounts[k].past, id);
        if (followed)
            continue;
        strcpy(survey->id, id);
        survey->epoch = epoch;
        return true;
    }
    return false;
}

/* Those that are not in the group yet, and have no mark; and whether one belongs to another group.
 */
static unsigned find_unmarked(struct survey *survey, const struct account *leader, bool *foreign)
{
    unsigned unmarked = 0;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        char id[GROUP_ID + 1] = "";
        uint32_t epoch;
        bool named = account->answered && group_read(id, &epoch, account->group);
        if (named && strcmp(id, survey->id) == 0 && epoch > survey->epoch)
            survey->epoch = epoch;
        if (!account->answered || survey->members & 1u << i)
            continue;
        *foreign |= named && strcmp(id, survey->id) != 0 && !seats_have(leader->past, id);
        if (!group_is_mark(account->group) || !account->seat[0])
            unmarked |= 1u << i;
    }
    return unmarked;
}

/* Agreed to be members of a group that has begun, and not in it yet: of the group before, or new.
 * One that has been in it and forgot has lost its seat as well: that is for an adoption. */
static unsigned find_unopened(const struct survey *survey, const struct account *leader)
{
    char id[GROUP_ID + 1];
    uint32_t epoch = 0;
    unsigned unopened = 0;
    group_read(id, &epoch, leader->group);
    for (unsigned i = 0; epoch == 1 && *leader->past && i < survey->redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        uint32_t at;
        bool before = group_read(id, &at, account->group) && seats_have(leader->past, id);
        if (account->answered && seats_have(leader->seats, account->seat) &&
            (before || group_is_mark(account->group)))
            unopened |= 1u << i;
    }
    return unopened;
}

/* What any member of the new group knows is enough: it was given that of the old one. */
static void go_on_opening(struct survey *survey, const struct account *leader)
{
    struct account as = *leader;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        if (survey->members & 1u << i)
            raise_to(&as, &survey->accounts[i]);
    }
    open_nodes(survey, &as);
}

/* Nobody has to be added, and nobody is closed. */
static bool is_done(const struct survey *survey, const struct account *leader)
{
    bool done = leader->n == survey->redlock->n;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        done = done && account->answered && survey->members & 1u << i && !account->next[0];
    }
    return done;
}

/* True: it can't be done. */
static bool check(struct survey *survey, const struct account *leader, bool foreign)
{
    unsigned share = (unsigned)__builtin_popcount(survey->members);
    if (survey->rounds > ROUNDS_MAX)
        error_set(&survey->error, STILE_CONFLICT, 0, "somebody else changes the group as well");
    else if (leader->n == 0)
        error_set(&survey->error, STILE_REFUSED, 0,
                  "the group was made by an older release, and it is not on record how many nodes "
                  "it has: open it once with the URL of its present nodes, all of which must "
                  "answer");
    else if (foreign)
        error_set(&survey->error, STILE_REFUSED, 0,
                  "one of these nodes belongs to another group: name another one, or, if that "
                  "group is not needed any longer, DEL " NODE_KEY " on it");
    else if (share < leader->n / 2 + 1)
        error_set(&survey->error, STILE_REFUSED, 0,
                  "only %u of the group's %u nodes are among these, can be asked and have kept "
                  "their data: a majority must; larger changes go in steps",
                  share, leader->n);
    return survey->error.status != STILE_OK;
}

static void look(struct survey *survey)
{
    const struct account *leader = NULL;
    bool foreign = false;
    survey->members = find_group(survey) ? group_members(survey, survey->id, &leader) : 0;
    if (!leader) {
        refuse(survey, "none of these nodes that answers is in a group");
        return;
    }
    survey->was_n = leader->n;
    survey->sized = group_size(leader->group) > 0;
    unsigned unmarked = find_unmarked(survey, leader, &foreign);
    if (survey->rounds <= ROUNDS_MAX && find_unopened(survey, leader))
        go_on_opening(survey, leader);
    else if (is_done(survey, leader) || check(survey, leader, foreign))
        survey->done(survey);
    else if (unmarked)
        group_mark(survey, unmarked, look_again);
    else
        group_move_on(survey, survey->members, leader->n, "", on_moved);
}

/* ---- for stile doctor --resize ---- */

static void tell_opened(struct survey *survey, struct query *query, unsigned i)
{
    char what[160];
    snprintf(what, sizeof what,
             "is one of the group's %u nodes now; it takes no claims for %llu s yet",
             survey->redlock->n, (unsigned long long)((survey->longest_ms + 999) / 1000));
    query->engine->events->finding(
        query, &(struct stile_finding){.severity = STILE_NOTE,
                                       .id = "resized",
                                       .where = survey->redlock->nodes[i].where,
                                       .what = what,
                                       .why = "What was held in the old group may still be held: "
                                              "so long was the longest lease that was asked for."});
}

static void tell_nothing(struct survey *survey, struct query *query)
{
    char what[160];
    snprintf(what, sizeof what, "these %u nodes are the group's nodes already", survey->redlock->n);
    query->engine->events->finding(
        query,
        &(struct stile_finding){.severity = STILE_NOTE, .id = "nothing-to-resize", .what = what});
}

static void tell_refused(struct query *query, const struct stile_error *why)
{
    query->engine->events->finding(
        query, &(struct stile_finding){
                   .severity = STILE_DANGER,
                   .id = "not-resized",
                   .what = why->message,
                   .why = "Two groups with nodes in common could grant one lock twice.",
                   .cure = "Do what is said above, and run this again: it goes on where it was."});
}

static void end(struct survey *survey)
{
    struct query *query = survey->data;
    struct stile_error err = survey->error;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        if (survey->adopted & 1u << i)
            tell_opened(survey, query, i);
    }
    if (err.status == STILE_REFUSED) {
        tell_refused(query, &err);
        err.status = STILE_OK;
    } else if (!err.status && !survey->adopted) {
        tell_nothing(survey, query);
    }
    survey_stop(survey);
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
    *survey = (struct survey){.redlock = redlock, .done = end, .data = query};
    query->state = survey;
    survey_ask(survey, look);
}
