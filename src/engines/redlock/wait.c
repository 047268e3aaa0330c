/* In line on all nodes. Who releases hands each node to the first of its queue; who has been handed
 * a majority goes on to the votes. Queues may differ, and then nobody has one: after a moment each
 * of them looks who has what, and all but one give their nodes to that one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/group.h"
#include "engines/redlock/redlock.h"

#define GATHER_NS     (10 * NS_PER_MS) /* for the other nodes' messages; doubled each round */
#define GATHER_ROUNDS 5
#define LOOK_AFTER_NS (5 * NS_PER_MS)   /* behind the end of what is in the way */
#define LOOK_MIN_NS   (100 * NS_PER_MS) /* where that may end in silence */
#define LOOK_MAX_NS   (5 * NS_PER_SEC)
#define DEAF_NS       NS_PER_SEC /* not in line, as we can't hear: that should end soon */
#define PLACE_NS      NS_PER_SEC /* for each who stands before us */
#define PLACES_MAX    30

static uint64_t random_below(struct redlock_claim *part, uint64_t limit)
{
    uint64_t random = 0;
    loop_random(claim_of(part)->engine->loop, &random, sizeof random);
    return random % limit;
}

static void arm(struct redlock_claim *part, uint64_t ns)
{
    struct loop *loop = claim_of(part)->engine->loop;
    loop_arm(loop, &part->timer, loop_now(loop) + ns);
}

static bool is_ours(const char *holder)
{
    return strlen(holder) == OWNER_LEN && strspn(holder, "0123456789abcdef") == OWNER_LEN;
}

/* ---- when to look by ourselves ---- */

/* Up to LOOK_MIN, doubled with each look, at random: many may look at the same name. */
static uint64_t some_time(struct redlock_claim *part)
{
    uint64_t limit = LOOK_MIN_NS << (part->looks < 6 ? part->looks : 6);
    part->looks++;
    return LOOK_AFTER_NS + random_below(part, limit < LOOK_MAX_NS ? limit : LOOK_MAX_NS);
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* When a majority must have come free by itself. */
static uint64_t until_free_ns(const struct redlock_claim *part, const struct redlock *redlock,
                              unsigned mine)
{
    int64_t ends[NODES_MAX];
    size_t n = 0;
    for (unsigned i = 0; i < redlock->n; i++) {
        if (part->votes[i].answer == TAKEN && part->votes[i].ms >= 0)
            ends[n++] = part->votes[i].ms;
    }
    if (mine + n < redlock->majority)
        return LOOK_MAX_NS;
    qsort(ends, n, sizeof *ends, by_size);
    return mine < redlock->majority ? (uint64_t)ends[redlock->majority - mine - 1] * NS_PER_MS : 0;
}

/* Of the queues, the one where we are the foremost; and whether anything is in the way that ends
 * without a word. */
static unsigned place_of(const struct redlock_claim *part, const struct redlock *redlock,
                         bool *silent)
{
    int place = PLACES_MAX;
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct vote *vote = &part->votes[i];
        if (vote->answer != TAKEN)
            continue;
        if (vote->place >= 0 && vote->place < place)
            place = vote->place;
        *silent |= !is_ours(vote->holder) && vote->holder[0] != '~';
    }
    return (unsigned)place;
}

static bool can_hear(const struct redlock *redlock)
{
    unsigned n = 0;
    for (unsigned i = 0; i < redlock->n; i++)
        n += redlock->nodes[i].hearing;
    return n >= redlock->majority;
}

/* Some ends are announced by nobody and come before that of the lease: a key deleted by hand, a
 * node that is no longer quiet or has been mended. So the first in line looks every few seconds. */
static void arm_look(struct redlock_claim *part, unsigned mine)
{
    struct redlock *redlock = redlock_of_part(part);
    bool silent = false;
    unsigned place = place_of(part, redlock, &silent);
    uint64_t pause = until_free_ns(part, redlock, mine) + LOOK_AFTER_NS;
    pause = (pause < LOOK_MAX_NS ? pause : LOOK_MAX_NS) + place * PLACE_NS;
    pause += random_below(part, 4 * LOOK_AFTER_NS);
    uint64_t earlier = silent ? some_time(part) : pause;
    if (!can_hear(redlock))
        earlier = DEAF_NS + some_time(part);
    arm(part, earlier < pause ? earlier : pause);
}

/* ---- looking ---- */

static void look(struct redlock_claim *part)
{
    part->looking = true;
    part->gathering = false;
    votes_ask(part, true);
    part_weigh(part);
}

void wait_again(struct redlock_claim *part)
{
    unsigned round = part->rounds < GATHER_ROUNDS ? part->rounds : GATHER_ROUNDS;
    part->rounds++;
    part->gathering = true;
    arm(part, random_below(part, GATHER_NS << round));
}

static void gather(struct redlock_claim *part)
{
    unsigned round = part->rounds < GATHER_ROUNDS ? part->rounds : GATHER_ROUNDS;
    part->gathering = true;
    arm(part, (GATHER_NS << round) + random_below(part, GATHER_NS << round));
}

static void yield(struct redlock_claim *part, const char *to)
{
    struct redlock *redlock = redlock_of_part(part);
    for (unsigned i = 0; i < redlock->n; i++) {
        enum answer answer = part->votes[i].answer;
        if (answer == MINE || answer == FIRM)
            vote_yield(&part->votes[i], to);
    }
}

/* Some nodes are ours, but too few. All who look see the same and come to the same end. What
 * another client's locks are in the way of is kept: it can't be given to them. */
static void judge_split(struct redlock_claim *part, unsigned mine)
{
    struct redlock *redlock = redlock_of_part(part);
    const struct vote *rival;
    unsigned most = votes_rival(part, &rival);
    bool ahead = mine > most || (mine == most && strcmp(part->owner, rival->holder) < 0);
    if (rival && is_ours(rival->holder) && (most >= redlock->majority || !ahead)) {
        char to[OWNER_LEN + 1];
        memcpy(to, rival->holder, sizeof to);
        yield(part, to);
        part->rounds = 0;
        arm_look(part, 0);
    } else if (most >= redlock->majority) {
        arm_look(part, mine);
    } else if (part->rounds++ < GATHER_ROUNDS) {
        gather(part);
    } else {
        yield(part, "");
        part->rounds = 0;
        arm_look(part, 0);
    }
}

/* All that will answer, has; or one answer more can't change anything. */
static void judge(struct redlock_claim *part, const struct count *count)
{
    part->looking = false;
    part->in_line = part->contended = true;
    claim_of(part)->engine->events->queued(claim_of(part));
    nodes_listen(redlock_of_part(part));
    if (part->bare)
        look(part); /* the plain SET has failed: now they have to tell more, and put us in line */
    else if (count->mine > 0)
        judge_split(part, count->mine);
    else
        arm_look(part, 0);
}

void wait_timer(struct redlock_claim *part)
{
    struct count count;
    votes_count(&count, part);
    if (part->looking && count.mine + count.taken >= redlock_of_part(part)->majority)
        judge(part, &count);
    else
        look(part);
}

/* Its place is kept where it has one, and it asks again later, which finds whatever has become of
 * it. */
static void unanswered(struct redlock_claim *part, const struct count *count)
{
    struct stile_error err;
    bool passing =
        nodes_explain(redlock_of_part(part), count->answering, &err) == STILE_UNREACHABLE;
    part->looking = false;
    if (passing && (part->in_line || (count->apart && group_is_newer(part)))) {
        claim_of(part)->engine->events->queued(claim_of(part));
        arm(part, some_time(part));
    } else {
        part_fail(part, &err);
    }
}

/* In line. What was known of the others when it looked last may be over: no reason to give way. */
static void stand(struct redlock_claim *part, const struct count *count)
{
    if (count->mine > 0)
        gather(part);
    else if (count->awaited == 0)
        arm_look(part, 0);
}

void wait_weigh(struct redlock_claim *part, const struct count *count)
{
    unsigned majority = redlock_of_part(part)->majority;
    const struct vote *rival;
    if (!part->looking) {
        if (!part->gathering)
            stand(part, count);
        return;
    }
    bool enough = count->mine + count->taken >= majority;
    if (count->mine + count->taken + count->pending < majority && count->awaited == 0)
        unanswered(part, count);
    else if (enough && (count->awaited == 0 || votes_rival(part, &rival) >= majority))
        judge(part, count);
    else if (enough && !part->timer.place)
        arm(part, GATHER_NS); /* one that has just begun to be silent */
}

/* ---- messages ---- */

/* In the order in which they were asked for: some may not be in line there yet. */
void wait_look_again(struct node *node)
{
    struct redlock *redlock = node->redlock;
    size_t i = (size_t)(node - redlock->nodes);
    for (struct redlock_claim *part = redlock->oldest, *next; part; part = next) {
        next = part->newer;
        if (part->standing != ASKING || !claim_of(part)->wait)
            continue;
        enum answer answer = part->votes[i].answer;
        if (answer == MINE || answer == FIRM)
            continue;
        vote_ask(&part->votes[i], true);
    }
}

static void hear_granted(struct vote *vote, uint64_t fence)
{
    struct redlock_claim *part = part_of_vote(vote);
    vote->fence = fence;
    vote->lined = false;
    vote->touched = true;
    if (vote->pending) {
        vote->told = true; /* its answer may be older */
    } else if (part->standing == ASKING) {
        vote->answer = MINE;
        part_weigh(part);
    } else if (vote->answer != FIRM) {
        vote_firm_up(vote); /* one more than was needed */
    }
}

/* Not ours (any more): the next one should not have to wait until it ends by itself. */
static void give_back(struct node *node, const char *text)
{
    size_t prefix_len = strlen(node->redlock->prefix);
    char owner[OWNER_LEN + 1];
    const char *key = strchr(text + 2 + OWNER_LEN + 1, ' ');
    if (!key || strncmp(key + 1, node->redlock->prefix, prefix_len) != 0)
        return;
    const char *name = key + 1 + prefix_len;
    size_t len = strlen(name);
    if (len == 0 || len > STILE_NAME_MAX)
        return;
    memcpy(owner, text + 2, OWNER_LEN);
    owner[OWNER_LEN] = '\0';
    errand_return(node, owner, name, len);
}

/* Broken on so many nodes that no majority is left. */
static void hear_broken(struct vote *vote)
{
    struct redlock_claim *part = part_of_vote(vote);
    struct redlock *redlock = redlock_of_part(part);
    struct stile_error err;
    struct count count;
    if (part->standing != HOLDING)
        return;
    vote_unasked(vote);
    vote->answer = TAKEN;
    votes_count(&count, part);
    if (count.taken <= redlock->n - redlock->majority)
        return;
    error_set(&err, STILE_LOST, 0, "taken over by `stile break`");
    claim_of(part)->engine->events->lost(claim_of(part), &err);
}

static void hear_pause(struct redlock_claim *part, const char *text)
{
    uint64_t ms = strtoull(text, NULL, 10), most = LOOK_MAX_NS / NS_PER_MS;
    if (part->standing == ASKING && !part->looking && !part->gathering)
        arm(part, (ms < most ? ms : most) * NS_PER_MS + LOOK_AFTER_NS +
                      random_below(part, 2 * LOOK_AFTER_NS));
}

/* "g owner fence K", "y owner fence K", "h owner ms" or "b owner"; "p owner" only asks whether
 * anybody listens. Anybody may publish anything, so it is a hint at most: the votes decide. A "g"
 * for one who has left is none: its release finds K, or its entry, there. But a way may be given to
 * one who has left. */
void wait_hear(struct node *node, const char *text, size_t len)
{
    struct redlock *redlock = node->redlock;
    if (len < 2 + OWNER_LEN || text[1] != ' ')
        return;
    struct redlock_claim *part = part_find(redlock, text + 2);
    const char *rest = text + 2 + OWNER_LEN;
    struct vote *vote = part ? &part->votes[node - redlock->nodes] : NULL;
    if ((text[0] == 'g' || text[0] == 'y') && *rest == ' ') {
        if (part && part->standing != RESUMING)
            hear_granted(vote, strtoull(rest, NULL, 10));
        else if (!part && text[0] == 'y' && strspn(text + 2, "0123456789abcdef") == OWNER_LEN)
            give_back(node, text);
    } else if (part && text[0] == 'b') {
        hear_broken(vote);
    } else if (part && text[0] == 'h') {
        hear_pause(part, rest);
    }
}
