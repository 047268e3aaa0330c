/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
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

/* ---- opening ----
 *
 * All nodes are asked at once for INFO and their group; then the group is joined, or founded.
 * Answers and the timer only ask for a look: open() ends from the loop, where no connection is in
 * use. */

struct redlock_opening {
    struct redlock *redlock;
    struct survey survey;
    struct timer timer;
    struct task look;
    bool graced; /* enough have answered: the timer is for the others */
    bool late;   /* the timer has fired */
    bool over;   /* the survey is */
};

static void look_soon(struct redlock_opening *opening)
{
    loop_soon(opening->redlock->engine.loop, &opening->look);
}

static void on_timer(struct timer *timer)
{
    struct redlock_opening *opening = container_of(timer, struct redlock_opening, timer);
    opening->late = true;
    look_soon(opening);
}

static void on_heard(struct survey *survey)
{
    look_soon(survey->data);
}

static void on_done(struct survey *survey)
{
    struct redlock_opening *opening = survey->data;
    opening->over = true;
    look_soon(opening);
}

static void wait_for(struct redlock_opening *opening, uint64_t patience_ns)
{
    struct loop *loop = opening->redlock->engine.loop;
    opening->late = false;
    loop_arm(loop, &opening->timer, loop_now(loop) + patience_ns);
}

static void end_opening(struct redlock *redlock)
{
    struct redlock_opening *opening = redlock->opening;
    struct loop *loop = redlock->engine.loop;
    if (!opening)
        return;
    redlock_survey_stop(&opening->survey);
    loop_disarm(loop, &opening->timer);
    loop_unreserve(loop, 1);
    loop_forget(loop, &opening->look);
    free(opening);
    redlock->opening = NULL;
}

static void dispose(struct redlock *redlock)
{
    end_opening(redlock);
    doctor_visits_drop(&redlock->visits);
    redlock_removals_free(redlock);
    leased_renewals_free(&redlock->claims);
    redlock_nodes_free(redlock);
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

#define PROMISES                                                                                   \
    .engine = "redlock", .modes = 1u << STILE_EXCLUSIVE, .lease = STILE_LEASE_CLAIM,               \
    .fifo = false, .hold_at_least = true, .lock_delay = true, .detached = true, .history = true,   \
    .survives = "a holder's crash: free after its TTL; the loss of any minority of nodes"

#define FENCE "one more than the highest fence of a majority, accepted by a majority"
#define FENCED_CONDITION                                                                           \
    "nodes that keep their data (appendonly yes, appendfsync always); one that "                   \
    "forgot does not count until it is adopted (stile doctor --adopt)"

extern const struct engine_class redlock_class;

static const struct stile_caps unfenced = {
    PROMISES,
    .token = false,
    .token_is = "none: the URL has fence=off; without that, every grant has a token",
    .condition = "most nodes neither forget nor stop, and clocks do not jump; without a fence a "
                 "late holder cannot be distinguished from the present one",
};

static const struct stile_caps *promises(const struct url *url)
{
    bool fenced = true;
    (void)url_param_bool(&fenced, url, "fence", NULL);
    return fenced ? &redlock_class.caps : &unfenced;
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

/* The only way out: err NULL, the nodes can be used. */
static void finish(struct redlock *redlock, const struct stile_error *err)
{
    struct engine *engine = &redlock->engine;
    if (err) {
        dispose(redlock);
    } else {
        end_opening(redlock);
        if (!redlock->fenced)
            engine->caps = unfenced;
        check_the_rest(redlock);
    }
    engine->events->opened(engine, err);
}

/* A node that must not vote is reported first, whatever else is wrong. */
static void finish_survey(struct redlock_opening *opening)
{
    struct redlock *redlock = opening->redlock;
    struct stile_error err = {0};
    if (redlock->engine.examining || !check_nodes(redlock, &err))
        err = opening->survey.error;
    finish(redlock, err.status ? &err : NULL);
}

/* Without fences nothing is kept on a node: it may forget. */
static void settle_plain(struct survey *survey)
{
    struct redlock *redlock = survey->redlock;
    unsigned mask = redlock_survey_answering(survey);
    if (__builtin_popcount(mask) < (int)redlock->majority)
        redlock_nodes_explain(redlock, mask, &survey->error);
    survey->done(survey);
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
    survey->done(survey);
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

/* With grace over, the group is settled with the nodes that have answered. */
static void out_of_time(struct redlock_opening *opening)
{
    struct survey *survey = &opening->survey;
    redlock_survey_stop(survey);
    if (opening->graced) {
        opening->graced = false;
        wait_for(opening, PATIENCE_NS);
        survey->fn(survey);
    } else {
        redlock_nodes_explain(opening->redlock, redlock_survey_answering(survey), &survey->error);
        finish_survey(opening);
    }
}

static void look(struct task *task)
{
    struct redlock_opening *opening = container_of(task, struct redlock_opening, look);
    if (opening->over) {
        finish_survey(opening);
    } else if (opening->late) {
        out_of_time(opening);
    } else if (!opening->graced && is_enough(&opening->survey)) {
        opening->graced = true;
        wait_for(opening, GRACE_NS);
    }
}

static enum stile_status opening_new(struct redlock *redlock, const struct url *url,
                                     struct stile_error *err)
{
    struct redlock_opening *opening = calloc(1, sizeof *opening);
    if (!opening || loop_reserve(redlock->engine.loop, 1)) {
        free(opening);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    *opening = (struct redlock_opening){
        .redlock = redlock,
        .survey = {.redlock = redlock, .url = url, .heard = on_heard, .done = on_done},
        .timer.fn = on_timer,
        .look.fn = look,
    };
    opening->survey.data = opening;
    redlock->opening = opening;
    return STILE_OK;
}

static void join_nodes(struct redlock *redlock)
{
    struct survey *survey = &redlock->opening->survey;
    wait_for(redlock->opening, PATIENCE_NS);
    if (redlock->engine.examining)
        redlock_survey_ask(survey, settle_examination);
    else if (redlock->fenced)
        redlock_group_join(survey);
    else
        redlock_survey_ask(survey, settle_plain);
}

/* ---- the engine ---- */

static const struct node_events node_events = {
    .connected = redlock_group_lead,
    .usable = redlock_claims_ask_again,
    .message = redlock_claims_message,
};

static void redlock_open(struct engine *engine, const struct url *url)
{
    struct redlock *redlock = redlock_of(engine);
    struct stile_error err = {0};
    redlock->node_events = &node_events;
    int rc = redis_identity_new(redlock->channel, redlock->info, engine);
    if (rc)
        error_errno(&err, STILE_REFUSED, rc, "drawing a session id");
    else if (!redlock_nodes_read(redlock, url, &err) && !redlock_nodes_connect(redlock, url, &err))
        opening_new(redlock, url, &err);
    if (err.status)
        finish(redlock, &err);
    else
        join_nodes(redlock);
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
    doctor_visits_forked(redlock->visits);
}

static const char *const redlock_params[] = {
    "prefix",   "fence", "node_timeout",  "ca", "cert", "key", "server_name",
    "insecure", "allow", "password_file", NULL};

static const struct engine_detached detached = {
    .resume = redlock_resume,
    .detach = redlock_detach,
    .owner = redlock_owner,
};

/* A majority of independent servers can't compare a token and write in one step. */
static enum stile_status install_guard(const struct url *url, bool dry_run, const char **script,
                                       struct stile_error *err)
{
    (void)url, (void)dry_run, (void)script;
    return error_set(err, STILE_UNSUPPORTED, 0,
                     "redlock keeps no guards: install one in the server that has the data, with "
                     "redis://HOST");
}

static const struct engine_admin admin = {
    .install_guard = install_guard,
    .examine = redlock_examine,
    .adopt = redlock_adopt,
    .resize = redlock_resize,
};

static const struct engine_history history = {
    .record = redlock_record,
};

const struct engine_class redlock_class = {
    .schemes = "redlock redlocks",
    .params = redlock_params,
    .caps = {PROMISES, .token = true, .token_is = FENCE, .condition = FENCED_CONDITION},
    .promises = promises,
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
    .cancel = redlock_inspect_cancel,
    .detached = &detached,
    .admin = &admin,
    .history = &history,
};
