/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What all parts of a claim's life share. */
#include "engines/zookeeper/claims.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define AGAIN_NS         (50 * NS_PER_MS)
#define AGAIN_DOUBLE_MAX 5 /* times */

/* ---- the states ---- */

#define TO(state) (1u << CLAIM_##state)
#define TO_END    (TO(DRAINING) | TO(RELEASING) | TO(IDLE)) /* release() may come at any time */

/* Where each state may lead. A claim starts over, in CREATING, when its node has gone. */
static const unsigned transitions[] = {
    [CLAIM_IDLE] = TO(CREATING) | TO(IDLE), /* IDLE: memory was short */
    [CLAIM_CREATING] = TO(CREATING) | TO(LISTING) | TO(WAITING) | TO(HELD) | TO(WITHDRAWING) |
                       TO(UNCERTAIN) | TO_END,
    [CLAIM_LISTING] = TO(CREATING) | TO(LISTING) | TO(WAITING) | TO(HELD) | TO(WITHDRAWING) |
                      TO(UNCERTAIN) | TO_END,
    [CLAIM_WAITING] = TO(CREATING) | TO(LISTING) | TO(WITHDRAWING) | TO(UNCERTAIN) | TO_END,
    [CLAIM_HELD] = TO(LOST) | TO_END,
    [CLAIM_LOST] = TO_END,
    [CLAIM_WITHDRAWING] = TO(UNCERTAIN) | TO_END,
    [CLAIM_UNCERTAIN] = TO_END,
    [CLAIM_DRAINING] = TO(RELEASING) | TO(IDLE),
    [CLAIM_RELEASING] = TO(RELEASING) | TO(UNCERTAIN) | TO(IDLE), /* RELEASING: repeated */
};

void zk_claim_move_to(struct zk_claim *zc, enum claim_state state)
{
    assert(transitions[zc->state] & 1u << state);
    zc->state = state;
}

/* ---- beginning and end ---- */

void zk_claim_begin(struct zk_claim *zc, struct session *session)
{
    zc->session = session;
    zc->next = session->claims;
    zc->link = &session->claims;
    if (zc->next)
        zc->next->link = &zc->next;
    session->claims = zc;
    session->bytes += zc->bytes;
    core_claim(zc)->session = session;
    if (!zc->next)
        zk_session_claimed(session);
}

static void leave_session(struct zk_claim *zc)
{
    if (!zc->link)
        return;
    *zc->link = zc->next;
    if (zc->next)
        zc->next->link = zc->link;
    zc->link = NULL;
    zc->session->bytes -= zc->bytes;
}

static void leave_recent(struct zk_claim *zc)
{
    if (!zc->recent_link)
        return;
    *zc->recent_link = zc->recent_next;
    if (zc->recent_next)
        zc->recent_next->recent_link = zc->recent_link;
    else
        zk_of_claim(zc)->recent_tail = zc->recent_link;
    zc->recent_link = NULL;
}

void zk_claim_stop_waiting(struct zk_claim *zc)
{
    leave_recent(zc);
    zk_line_stop(zc);
    zk_watch_remove(&zc->watch);
    loop_disarm(core_claim(zc)->engine->loop, &zc->timer);
}

void zk_claim_drop_node(struct zk_claim *zc)
{
    free(zc->node);
    zc->node = NULL;
    zc->node_state = NODE_NONE;
    zk_line_drop_node(zc);
}

void zk_claim_drop_orphans(struct zk_claim *zc)
{
    struct orphans *orphans = zc->orphans;
    for (size_t i = 0; orphans && i < orphans->n; i++) {
        zk_requester_forget(&orphans->list[i].requester);
        free(orphans->list[i].path);
        free(orphans->list[i].data);
    }
    free(orphans);
    zc->orphans = NULL;
}

void zk_claim_forget(struct zk_claim *zc)
{
    zk_requester_forget(&zc->requester);
    zk_claim_stop_waiting(zc);
    loop_unreserve(core_claim(zc)->engine->loop, 1);
    zc->in_flight = 0;
    zk_claim_drop_node(zc);
    zk_claim_drop_orphans(zc);
    zk_line_leave(zc);
    leave_session(zc);
    zk_claim_move_to(zc, CLAIM_IDLE);
}

/* ---- failing ---- */

/* A claim that may have left something on the server fails as UNCERTAIN: core then releases it. */
void zk_claim_fail(struct zk_claim *zc, const struct stile_error *err)
{
    struct claim *claim = core_claim(zc);
    struct stile_error why = *err;
    if (zc->node_state != NODE_NONE || zc->record_state != RECORD_NONE)
        why.status = STILE_UNCERTAIN;
    if (why.status == STILE_UNCERTAIN) {
        zk_claim_stop_waiting(zc);
        zk_claim_move_to(zc, CLAIM_UNCERTAIN);
    } else {
        zk_claim_forget(zc);
    }
    claim->engine->events->failed(claim, &why);
}

void zk_claim_fail_code(struct zk_claim *zc, int rc, bool maybe)
{
    struct stile_error err;
    zk_error_set(&err, rc, maybe);
    zk_claim_fail(zc, &err);
}

void zk_claim_retry_later(struct zk_claim *zc, void (*fn)(struct timer *timer))
{
    struct loop *loop = core_claim(zc)->engine->loop;
    unsigned doubled = zc->tries < AGAIN_DOUBLE_MAX ? zc->tries : AGAIN_DOUBLE_MAX;
    zc->timer.fn = fn;
    loop_arm(loop, &zc->timer, loop_now(loop) + (AGAIN_NS << doubled));
    zc->tries++;
}

/* ---- its hold record ---- */

void zk_claim_record_path(char path[PATH_ROOM], struct zk_claim *zc)
{
    zk_path_of_record(path, zk_of_claim(zc), core_claim(zc), zc->guid);
}

static int64_t ms_of(uint64_t ns)
{
    return (int64_t)((ns + NS_PER_MS - 1) / NS_PER_MS);
}

void zk_claim_record_data(char data[INFO_MAX], struct zk_claim *zc, bool delays)
{
    const struct claim *claim = core_claim(zc);
    struct record record = {.hold_ms = ms_of(claim->hold_ns),
                            .delay_ms = delays ? ms_of(claim->delay_ns) : 0,
                            .token = (uint64_t)zc->czxid};
    zk_record_write(data, zk_of_claim(zc), &record);
}

/* ---- what its node shows ---- */

/* For show and list; the timeout says how long the lock of a silent holder lasts. Where other
 * clients take the data for the name of a participant, a proclaimed value is all of it. */
void zk_claim_node_data(char data[DATA_MAX], struct zk_claim *zc)
{
    const struct zk *zk = zk_of_claim(zc);
    const struct claim *claim = core_claim(zc);
    const char *value = claim->proclaim;
    if (value && zk_dialect_names_by_data(zk->dialect)) {
        snprintf(data, DATA_MAX, "%s", value);
        return;
    }
    int n = snprintf(data, INFO_MAX, "%ld %s %d/%u %s", zk->pid, zk->host, zc->session->timeout_ms,
                     (unsigned)claim->slots, zk->command);
    size_t len = (size_t)n < INFO_MAX ? (size_t)n : INFO_MAX - 1;
    if (value)
        snprintf(data + len, DATA_MAX - len, "\n%s", value);
}
