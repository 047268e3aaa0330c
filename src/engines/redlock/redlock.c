/* redlock: a majority of independent Redis nodes, with a token.
 *
 * A claim goes to all nodes at once and is decided as soon as a majority has answered. Each node
 * speaks the plain dialect: key = prefix + name holds the owner, set if absent and with an expiry,
 * so node-redlock excludes us and we exclude it. Phase 1 takes the key and reads the node's fence
 * for the name; t is one more than the highest. Phase 2 sets the fence to t where the key is still
 * ours and the fence is smaller. A majority of those votes is the grant: of two equal tokens the
 * second is refused by the node that both majorities share, and a later claim has read what an
 * earlier one wrote. No clock is involved. A handle guesses its next token, so both phases are one
 * request unless another grant came between. A node that forgot its group does not count (group.h).
 * What is not granted is withdrawn everywhere before anything else is asked. A waiter is queued on
 * every node, and each node hands its key over by push. The lease counts from before the votes were
 * asked for.
 *
 *     scripts/      the steps on a node, in Lua
 *     nodes.c       connections, keys, calls of scripts
 *     claims.c      a claim, from the first request to the grant (votes.c, renew.c, release.c)
 *     group.c       which nodes are the group (join.c, membership.c)
 *     inspect.c     list, show, watch, break
 *     doctor.c      whether the nodes are fit for it
 */
#include "engines/redlock/redlock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/group.h"

#define PATIENCE_NS (5 * NS_PER_SEC)
/* Claims and releases: enough that no node is ever idle, and few enough that their answers come
 * long before their time is over. */
#define IN_FLIGHT_MAX 256
/* For nodes slower than a majority: those that answer by then are considered, too. */
#define GRACE_NS (100 * NS_PER_MS)

/* ---- opening ---- */

struct opening {
    struct survey survey;
    struct timer timer;
    bool graced, late;
};

static void on_timer(struct timer *timer)
{
    (container_of(timer, struct opening, timer))->late = true;
}

/* Without fences nothing is kept on a node: it may forget. */
static void settle_plain(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    unsigned mask = redlock_survey_answering(survey);
    if (__builtin_popcount(mask) < (int)redlock->majority)
        redlock_nodes_explain(redlock, mask, &survey->error);
    survey->over = true;
}

/* The doctor only looks: nothing is founded or changed. */
static void settle_examination(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    bool any = false;
    for (unsigned i = 0; i < redlock->n; i++)
        any |= redis_conn_is_up(redlock->nodes[i].requests);
    if (!any)
        redlock_nodes_explain(redlock, 0, &survey->error);
    survey->over = true;
}

static bool is_enough(const struct survey *survey)
{
    char id[GROUP_ID + 1];
    uint32_t epoch;
    const struct redlock *redlock = survey->redlock;
    if (!redlock->fenced)
        return __builtin_popcount(redlock_survey_answering(survey)) >= (int)redlock->majority;
    for (unsigned i = 0; i < redlock->n; i++) {
        if (survey->records[i].answered && !survey->records[i].n)
            return false; /* an older release's, or without a group: all should answer */
    }
    return redlock_survey_majority(survey, id, &epoch) >= redlock->majority;
}

static void out_of_time(struct opening *opening)
{
    struct survey *survey = &opening->survey;
    redlock_survey_stop(survey);
    if (opening->graced) {
        opening->graced = opening->late = false;
        loop_arm(survey->redlock->engine.loop, &opening->timer,
                 loop_now(survey->redlock->engine.loop) + PATIENCE_NS);
        survey->fn(survey);
    } else {
        redlock_nodes_explain(survey->redlock, redlock_survey_answering(survey), &survey->error);
        survey->over = true;
    }
}

static void drive(struct opening *opening, struct loop *loop)
{
    struct survey *survey = &opening->survey;
    loop_arm(loop, &opening->timer, loop_now(loop) + PATIENCE_NS);
    while (!survey->over) {
        loop_prepare(loop);
        loop_wait(loop, true);
        loop_run(loop);
        if (!survey->over && opening->late) {
            out_of_time(opening);
        } else if (!survey->over && !opening->graced && is_enough(survey)) {
            opening->graced = true;
            loop_arm(loop, &opening->timer, loop_now(loop) + GRACE_NS);
        }
    }
    loop_disarm(loop, &opening->timer);
    redlock_survey_stop(survey);
}

/* Where exclusion would be a lie. */
static enum stile_status check_nodes(const struct redlock *redlock, struct stile_error *err)
{
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct node *node = &redlock->nodes[i];
        if (node->refusal.status) {
            error_copy(err, &node->refusal);
            return error_wrap(err, node->refusal.status, "%s", node->address);
        }
    }
    return STILE_OK;
}

static enum stile_status join_nodes(struct redlock *redlock, const struct url *url,
                                    struct stile_error *err)
{
    struct loop *loop = redlock->engine.loop;
    struct opening *opening = calloc(1, sizeof *opening);
    if (!opening || loop_reserve(loop, 1)) {
        free(opening);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    opening->timer.fn = on_timer;
    opening->survey.redlock = redlock;
    opening->survey.url = url;
    if (redlock->engine.examining)
        redlock_survey_ask(&opening->survey, settle_examination);
    else if (redlock->fenced)
        redlock_group_join(&opening->survey);
    else
        redlock_survey_ask(&opening->survey, settle_plain);
    drive(opening, loop);
    loop_unreserve(loop, 1);
    enum stile_status status = STILE_OK;
    if (!redlock->engine.examining)
        status = check_nodes(redlock, err);
    if (!status) {
        status = opening->survey.error.status;
        if (status)
            error_copy(err, &opening->survey.error);
    }
    free(opening);
    return status;
}

static void drop_token_caps(struct engine *engine)
{
    engine->caps.token = false;
    engine->caps.token_is = "none";
    engine->caps.condition =
        "most nodes neither forget nor stop, and clocks do not jump; without a fence a late "
        "holder can't be told from the present one";
}

static void dispose(struct redlock *redlock)
{
    redlock_removals_free(redlock);
    redlock_renewals_free(redlock);
    redlock_nodes_free(redlock);
}

/* The nodes that open() did not wait for. */
static void check_the_rest(struct redlock *redlock)
{
    redlock->opened = true;
    for (unsigned i = 0; i < redlock->n && !redlock->engine.examining; i++) {
        if (!redlock->nodes[i].checked && redis_conn_is_up(redlock->nodes[i].requests))
            redlock_node_check(&redlock->nodes[i]);
    }
}

static const struct node_events node_events = {
    .connected = redlock_group_lead,
    .usable = redlock_claims_ask_again,
    .message = redlock_claims_message,
};

static enum stile_status open_now(struct engine *engine, const struct url *url,
                                  struct stile_error *err)
{
    struct redlock *redlock = redlock_of(engine);
    redlock->node_events = &node_events;
    int rc = redis_identity_new(redlock->channel, redlock->info, engine);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "drawing a session id");
    enum stile_status status = redlock_nodes_read(redlock, url, err);
    if (!status)
        status = redlock_nodes_connect(redlock, url, err);
    if (!status)
        status = join_nodes(redlock, url, err);
    if (status) {
        dispose(redlock);
        return status;
    }
    if (!redlock->fenced)
        drop_token_caps(engine);
    check_the_rest(redlock);
    return STILE_OK;
}

static void redlock_open(struct engine *engine, const struct url *url)
{
    struct stile_error err;
    enum stile_status status = open_now(engine, url, &err);
    engine->events->opened(engine, status ? &err : NULL);
}

static void redlock_close(struct engine *engine)
{
    redlock_removals_finish(redlock_of(engine));
    dispose(redlock_of(engine));
}

static void redlock_forked(struct engine *engine)
{
    struct redlock *redlock = redlock_of(engine);
    for (unsigned i = 0; i < redlock->n; i++) {
        redis_conn_forked(redlock->nodes[i].requests);
        redis_conn_forked(redlock->nodes[i].pushes);
    }
}

static const char *const redlock_params[] = {
    "prefix",   "fence", "node_timeout",  "ca", "cert", "key", "server_name",
    "insecure", "allow", "password_file", NULL};

static const struct engine_push push = {
    .watch = redlock_watch,
    .unwatch = redlock_unwatch,
};

static const struct engine_detached detached = {
    .resume = redlock_resume,
    .detach = redlock_detach,
    .owner = redlock_owner,
};

static const struct engine_admin admin = {
    .examine = redlock_examine,
    .adopt = redlock_adopt,
    .resize = redlock_resize,
};

const struct engine_class redlock_class = {
    .schemes = "redlock redlocks",
    .params = redlock_params,
    .caps =
        {
            .engine = "redlock",
            .modes = 1u << STILE_EXCLUSIVE,
            .lease = STILE_LEASE_CLAIM,
            .fifo = false,
            .token = true,
            .hold_at_least = true,
            .lock_delay = true,
            .detached = true,
            .token_is = "one more than the highest fence of a majority, accepted by a majority",
            .survives = "a holder's crash: free after its TTL; the loss of any minority of nodes",
            .condition =
                "nodes that keep their data (appendonly yes, appendfsync always); one that "
                "forgot does not count until it is adopted (stile doctor --adopt)",
        },
    .apart = true,
    .in_flight = IN_FLIGHT_MAX,
    .engine_size = sizeof(struct redlock),
    .claim_size = sizeof(struct redlock_claim),
    .open = redlock_open,
    .close = redlock_close,
    .forked = redlock_forked,
    .claim = redlock_claim,
    .release = redlock_release,
    .renew = redlock_renew,
    .list = redlock_list,
    .show = redlock_show,
    .break_ = redlock_break,
    .push = &push,
    .detached = &detached,
    .admin = &admin,
};
