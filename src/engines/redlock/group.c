#include "engines/redlock/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX 30

/* ---- names ---- */

int group_draw(char *hex, size_t digits, struct loop *loop)
{
    unsigned char random[GROUP_ID / 2];
    int rc = loop_random(loop, random, digits / 2);
    for (size_t i = 0; i < digits / 2; i++)
        snprintf(hex + 2 * i, 3, "%02x", random[i]);
    return rc;
}

bool group_is_closed(const char *text)
{
    return text[0] == '#';
}

/* "id.epoch", "id.epoch-random"; in a group that was resized "id.epoch.size-random": clients of a
 * release that knows nothing of sizes do not take that for a group. */
static bool read_name(const char *text, unsigned long *epoch, unsigned long *size)
{
    char *end;
    if (strspn(text, "0123456789abcdef") != GROUP_ID || text[GROUP_ID] != '.')
        return false;
    *epoch = strtoul(text + GROUP_ID + 1, &end, 10);
    *size = 0;
    if (end == text + GROUP_ID + 1 || *epoch == 0 || *epoch >= UINT32_MAX)
        return false;
    if (*end == '.')
        *size = strtoul(end + 1, &end, 10);
    return *size <= NODES_MAX && (*end == '\0' || *end == '-');
}

unsigned group_size(const char *text)
{
    unsigned long epoch, size;
    return read_name(text + group_is_closed(text), &epoch, &size) ? (unsigned)size : 0;
}

bool group_read(char id[GROUP_ID + 1], uint32_t *epoch, const char *text)
{
    unsigned long value, size;
    text += group_is_closed(text);
    if (!read_name(text, &value, &size))
        return false;
    memcpy(id, text, GROUP_ID);
    id[GROUP_ID] = '\0';
    *epoch = (uint32_t)value;
    return true;
}

bool group_is_older(const char *group, const char *was)
{
    group += group_is_closed(group);
    size_t len = strlen(group);
    for (const char *at = was; len > 0 && (at = strstr(at, group)); at += len) {
        if ((at == was || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0'))
            return true;
    }
    return false;
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
 * that it had, so it may follow them. But only to an epoch of which it is on record that its own is
 * older: an adoption that was cut short may have made one that nobody else knows of. Claims alone
 * would not do: who decides without a node does not hear what it says. */
void group_lead(struct node *node)
{
    struct redlock *redlock = node->redlock;
    struct conn_arg args[] = {CONN_TEXT(NODE_KEY), CONN_TEXT(redlock->group),
                              CONN_TEXT(redlock->was), CONN_TEXT(redlock->seats)};
    if (redlock->was[0])
        conn_eval(node->asks, &redlock_script_follow, args, 1, 4, on_followed, node, NULL);
}

void group_go_on(struct redlock *redlock, const char *group, const char *was, const char *seats)
{
    snprintf(redlock->group, sizeof redlock->group, "%s", group);
    snprintf(redlock->was, sizeof redlock->was, "%s", was);
    snprintf(redlock->seats, sizeof redlock->seats, "%s", seats);
    for (unsigned i = 0; i < redlock->n; i++)
        group_lead(&redlock->nodes[i]);
}

enum { GROUP, WAS, SEATS, PAST }; /* of the texts that a node says instead of voting */

/* What the caller has to change is REFUSED; all else may pass. */
static enum stile_status what_is_wrong(struct redlock *redlock, const char *const texts[4],
                                       struct stile_error *err)
{
    const char *group = texts[GROUP];
    char id[GROUP_ID + 1];
    uint32_t epoch;
    if (!*group || group_is_mark(group))
        return error_set(err, STILE_UNREACHABLE, 0, "has lost its data: stile doctor --adopt");
    if (!group_read(id, &epoch, group))
        return error_set(err, STILE_UNREACHABLE, 0,
                         "is just being made part of a group, or has lost its data: stile doctor "
                         "--adopt");
    if (seats_have(texts[PAST], redlock->group_id))
        return error_set(err, STILE_REFUSED, 0,
                         "the group was given other nodes, and has %u now: name all of them in the "
                         "URL, and open it again",
                         group_size(group));
    if (strcmp(id, redlock->group_id) != 0)
        return error_set(err, STILE_UNREACHABLE, 0, "belongs to another group of nodes");
    if (group_is_closed(group))
        return error_set(err, STILE_UNREACHABLE, 0,
                         "its group is being given other nodes: stile doctor --resize, with the "
                         "URL of the new nodes, goes on with it");
    if (group_is_older(group, redlock->was) || group_is_older(redlock->group, texts[WAS]))
        return error_set(err, STILE_UNREACHABLE, 0, "is in another epoch of its group");
    return error_set(err, STILE_UNREACHABLE, 0,
                     "was left behind by an adoption that was cut short: stile doctor --adopt");
}

void group_hear(struct node *node, const char *const given[4])
{
    struct redlock *redlock = node->redlock;
    const char *texts[4];
    char id[GROUP_ID + 1] = "";
    uint32_t epoch;
    for (int i = 0; i < 4; i++)
        texts[i] = given[i] ? given[i] : "";
    snprintf(node->group, sizeof node->group, "%s", texts[GROUP]);
    what_is_wrong(redlock, texts, &node->why);
    /* A group has one size: nobody follows from one to another. */
    group_read(id, &epoch, node->group);
    if (strcmp(id, redlock->group_id) != 0 || group_is_closed(node->group))
        return;
    if (group_is_older(redlock->group, texts[WAS]))
        group_go_on(redlock, node->group, texts[WAS], texts[SEATS]);
    else if (group_is_older(node->group, redlock->was))
        group_lead(node);
}

bool group_is_newer(struct redlock_claim *part)
{
    return strcmp(part->group, redlock_of_part(part)->group) != 0;
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
    char proposal[GROUP_ID + 2] = "?";
    int rc = group_draw(proposal + 1, GROUP_ID, redlock->engine.loop);
    if (rc) {
        error_errno(&survey->error, STILE_REFUSED, rc, "drawing a group's name");
        end(survey);
        return;
    }
    survey_begin(survey, ask_again);
    for (unsigned i = 0; i < redlock->n; i++)
        survey_propose(survey, i, proposal);
    survey_end(survey);
}

/* Down to the smallest proposal; and once all nodes have it, there is no room for another. */
static void agree(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    const char *smallest = survey->accounts[0].group;
    struct account to = {.n = redlock->n};
    bool same = true;
    for (unsigned i = 1; i < redlock->n; i++) {
        const char *group = survey->accounts[i].group;
        same = same && strcmp(group, smallest) == 0;
        if (strcmp(group, smallest) < 0)
            smallest = group;
    }
    if (same)
        seats_of_all(to.seats, survey);
    snprintf(to.group, sizeof to.group, same ? "%s.1" : "%s", smallest + same);
    survey_begin(survey, ask_again);
    for (unsigned i = 0; i < redlock->n; i++) {
        if (strcmp(survey->accounts[i].group, to.group) != 0)
            survey_change(survey, i, &to);
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
        missing |= !account->group[0] || !account->seat[0];
    }
    if (missing)
        propose(survey);
    else
        agree(survey);
}

/* ---- finding ---- */

static bool is_member(const struct account *account, const char *id)
{
    char one[GROUP_ID + 1];
    uint32_t at;
    return account->answered && group_read(one, &at, account->group) && strcmp(one, id) == 0;
}

static bool has_seat(const struct account *account, const char *seats)
{
    return !*seats || seats_have(seats, account->seat);
}

/* The epoch that most members are in, or can follow to. */
static const struct account *find_leader(const struct survey *survey, const char *id)
{
    const struct account *leader = NULL;
    unsigned n = survey->redlock->n, most = 0;
    for (unsigned i = 0; i < n; i++) {
        const struct account *one = &survey->accounts[i];
        unsigned share = 0;
        for (unsigned k = 0; is_member(one, id) && k < n; k++) {
            const struct account *other = &survey->accounts[k];
            share +=
                is_member(other, id) && has_seat(other, one->seats) &&
                (strcmp(one->group, other->group) == 0 || group_is_older(other->group, one->was));
        }
        if (share > most) {
            most = share;
            leader = one;
        }
    }
    return leader;
}

/* Every epoch that one of them knows of consists of all of them, and perhaps of others. */
static bool agree_on_seats(const struct survey *survey, unsigned members)
{
    unsigned n = survey->redlock->n;
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; members & 1u << i && k < n; k++) {
            if (members & 1u << k && !has_seat(&survey->accounts[k], survey->accounts[i].seats))
                return false;
        }
    }
    return true;
}

/* If they disagree about who belongs to the group, only those of one line count: whatever another
 * epoch has granted must be known to a node that both have in common. */
unsigned group_members(const struct survey *survey, const char *id, const struct account **out)
{
    const struct account *leader = find_leader(survey, id);
    unsigned all = 0, line = 0;
    *out = leader;
    for (unsigned i = 0; leader && i < survey->redlock->n; i++) {
        const struct account *one = &survey->accounts[i];
        if (!is_member(one, id) || !has_seat(one, leader->seats))
            continue;
        all |= 1u << i;
        if (strcmp(one->group, leader->group) == 0 || group_is_older(one->group, leader->was))
            line |= 1u << i;
    }
    return agree_on_seats(survey, all) ? all : line;
}

unsigned group_strays(const struct survey *survey, const char *id)
{
    const struct account *leader = find_leader(survey, id);
    unsigned strays = 0;
    for (unsigned i = 0; leader && i < survey->redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        strays += is_member(account, id) && strcmp(account->group, leader->group) != 0 &&
                  !group_is_older(account->group, leader->was);
    }
    return strays;
}

/* A proposal beside a group that has given out nothing yet was only not settled to the end; later
 * it could be one that came too late to a node that has forgotten. */
static bool may_follow(const struct survey *survey, const struct account *account,
                       const struct account *leader)
{
    bool fresh =
        is_proposal(account->group) && strncmp(account->group + 1, leader->group, GROUP_ID) == 0;
    for (unsigned i = 0; i < survey->redlock->n; i++)
        fresh = fresh && survey->accounts[i].highest == 0;
    return account->answered && !group_is_closed(account->group) &&
           has_seat(account, leader->seats) &&
           (fresh || group_is_older(account->group, leader->was));
}

/* True: some were asked to follow. */
static bool follow(struct survey *survey, const struct account *leader)
{
    struct account to = *leader;
    bool any = false;
    survey_begin(survey, ask_again);
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        if (!may_follow(survey, &survey->accounts[i], &to))
            continue;
        survey_change(survey, i, &to);
        any = true;
    }
    if (any)
        survey_end(survey);
    else
        survey->rounds--;
    return any;
}

/* How many are in this epoch; of the others it is said what is wrong with them. */
static unsigned members_of(struct survey *survey, const struct account *leader)
{
    struct redlock *redlock = survey->redlock;
    unsigned members = 0;
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct account *account = &survey->accounts[i];
        const char *const texts[] = {account->group, account->was, account->seats, account->past};
        if (account->answered && strcmp(account->group, leader->group) == 0)
            members |= 1u << i;
        else if (account->answered)
            group_hear(&redlock->nodes[i], texts);
    }
    return members;
}

/* What to do if most of them can be asked and have forgotten: nobody knows the tokens any more. */
static void refuse(struct survey *survey, unsigned members)
{
    struct redlock *redlock = survey->redlock;
    if (__builtin_popcount(answering(survey)) < (int)redlock->majority)
        nodes_explain(redlock, members, &survey->error);
    else if (group_is_closed(redlock->group))
        error_set(&survey->error, STILE_UNREACHABLE, 0,
                  "the group is being given other nodes: stile doctor --resize, with the URL of "
                  "the new nodes, goes on with it");
    else if (group_strays(survey, redlock->group_id) > 0)
        error_set(&survey->error, STILE_REFUSED, 0,
                  "no majority of the nodes is in one epoch: an adoption was cut short; stile "
                  "doctor --adopt brings them together");
    else
        error_set(
            &survey->error, STILE_REFUSED, 0,
            "only %d of %u nodes have kept their group, and a majority must (stile doctor "
            "tells which): restore the others' data, or, once nobody holds a lock, DEL " NODE_KEY
            " on every node: tokens may then begin anew",
            __builtin_popcount(members), redlock->n);
}

/* ---- its size ---- */

/* A majority is one of exactly so many nodes: with another number two of them need not meet. */
static void check_size(struct survey *survey, const struct account *leader, unsigned members)
{
    struct redlock *redlock = survey->redlock;
    for (unsigned i = 0; i < redlock->n && !survey->error.status; i++) {
        const struct account *account = &survey->accounts[i];
        char id[GROUP_ID + 1] = "";
        uint32_t epoch;
        group_read(id, &epoch, account->group);
        if (members & 1u << i && strcmp(account->seats, leader->seats) != 0)
            error_set(&survey->error, STILE_REFUSED, 0,
                      "%s belongs to another set of nodes under the same name: clients were "
                      "started with different URLs; while no client runs, DEL " NODE_KEY
                      " on every node, and open all with the same URL",
                      redlock->nodes[i].where);
        else if (account->answered && *id && seats_have(leader->past, id))
            error_set(&survey->error, STILE_REFUSED, 0,
                      "%s does not belong to this group any longer, whose nodes were changed by "
                      "stile doctor --resize: name those that it was given",
                      redlock->nodes[i].where);
    }
    if (!survey->error.status && leader->n && leader->n != redlock->n)
        error_set(&survey->error, STILE_REFUSED, 0,
                  "this is a group of %u nodes, and the URL names %u: name all of its nodes; to "
                  "change how many they are, run stile doctor --resize with the new URL",
                  leader->n, redlock->n);
}

static void refuse_unrecorded(struct survey *survey, unsigned members)
{
    nodes_explain(survey->redlock, members, &survey->error);
    error_wrap(&survey->error, survey->error.status,
               "this group was made by an older release: all of its nodes must answer once, so "
               "that it is on record how many they are");
}

/* Groups of an older release have no size on record. The first client to which all nodes of its URL
 * answer from one epoch writes down how many they are. */
static bool record_size(struct survey *survey, const struct account *leader, unsigned members)
{
    struct redlock *redlock = survey->redlock;
    struct account seen = *leader;
    if (seen.n || survey->recorded || members != (1u << redlock->n) - 1)
        return false;
    bool seated = seats_of_all(survey->seats, survey);
    survey->recorded = seated;
    survey_begin(survey, ask_again);
    for (unsigned i = 0; i < redlock->n; i++) {
        if (seated)
            survey_record(survey, i, survey->seats);
        else
            survey_propose(survey, i, seen.group); /* it has a group, and gets a seat */
    }
    survey_end(survey);
    return true;
}

static void join(struct survey *survey, const char *id)
{
    struct redlock *redlock = survey->redlock;
    const struct account *leader = find_leader(survey, id);
    if (follow(survey, leader))
        return;
    strcpy(redlock->group_id, id);
    strcpy(redlock->group, leader->group);
    strcpy(redlock->was, leader->was);
    strcpy(redlock->seats, leader->seats);
    unsigned members = members_of(survey, leader);
    bool enough = __builtin_popcount(members) >= (int)redlock->majority;
    if (!enough && !survey->settled) {
        survey->settled = true; /* the others may have been asked before it was founded */
        ask_again(survey);
        return;
    }
    check_size(survey, leader, members);
    if (survey->error.status || !enough || group_is_closed(leader->group)) {
        if (!survey->error.status)
            refuse(survey, members);
        end(survey);
        return;
    }
    if (record_size(survey, leader, members))
        return;
    if (!leader->n)
        refuse_unrecorded(survey, members);
    end(survey);
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
    } else {
        join(survey, id);
    }
}

void group_settle(struct survey *survey)
{
    survey_ask(survey, settle);
}
