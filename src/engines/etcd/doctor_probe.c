/* examine(): every endpoint of the URL is asked over a connection of its own how it is; then one of
 * the sound ones for what all of them have in common: who is a member, alarms, and how long a lease
 * lasts. diagnosis.c tells what follows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/doctor.h"
#include "engines/etcd/etcd.h"

struct visit {
    struct visit *next; /* of etcd->visits */
    struct query *query;
    struct call {
        struct visit *visit;
        struct conn *conn;
    } calls[CONN_ENDPOINTS_MAX];
    size_t pending;
    struct seen seen;
};

static struct etcd *etcd_of_visit(const struct visit *visit)
{
    return etcd_of(visit->query->engine);
}

/* ---- the end ---- */

static void tell(void *data, const struct stile_finding *finding)
{
    struct visit *visit = data;
    visit->query->engine->events->finding(visit->query, finding);
}

static void visit_free(struct visit *visit)
{
    struct visit **at = &etcd_of_visit(visit)->visits;
    while (*at != visit)
        at = &(*at)->next;
    *at = visit->next;
    for (size_t i = 0; i < visit->seen.n_members; i++)
        conn_free(visit->calls[i].conn);
    visit->query->state = NULL;
    free(visit);
}

/* Without any answer there is nothing to tell but why. */
static void finish(struct visit *visit)
{
    struct query *query = visit->query;
    struct stile_error why = visit->seen.members[0].error;
    for (size_t i = 0; i < visit->seen.n_members; i++) {
        if (!visit->seen.members[i].error.status)
            why.status = STILE_OK;
    }
    if (!why.status)
        diagnose(&visit->seen, tell, visit);
    visit_free(visit);
    query->engine->events->done(query, why.status ? &why : NULL);
}

/* ---- what they have in common ---- */

static void answered(struct visit *visit)
{
    if (--visit->pending == 0)
        finish(visit);
}

static void on_alarms(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct visit *visit = data;
    const Pb__AlarmResponse *answer = (const Pb__AlarmResponse *)message;
    if (err)
        error_copy(&visit->seen.alarm_error, err);
    for (size_t i = 0; !err && i < answer->n_alarms && i < ALARMS_MAX; i++)
        visit->seen.alarms[visit->seen.n_alarms++] = (struct seen_alarm){
            .id = answer->alarms[i]->member_id, .kind = answer->alarms[i]->alarm};
    answered(visit);
}

static void on_members(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct visit *visit = data;
    const Pb__MemberListResponse *answer = (const Pb__MemberListResponse *)message;
    for (size_t i = 0; !err && i < answer->n_members && i < LISTED_MAX; i++) {
        struct seen_listed *listed = &visit->seen.listed[visit->seen.n_listed++];
        listed->id = answer->members[i]->id;
        listed->learner = answer->members[i]->is_learner;
        snprintf(listed->name, sizeof listed->name, "%s", answer->members[i]->name);
    }
    answered(visit);
}

static void on_revoked(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    (void)message, (void)err; /* else it ends by itself, in a moment */
    answered(data);
}

static void ask(struct visit *visit, size_t i, enum rpc rpc, const ProtobufCMessage *request,
                conn_fn *fn)
{
    struct stile_error err;
    visit->pending++;
    if (conn_ask(visit->calls[i].conn, rpc, request, fn, visit, &err))
        fn(visit, NULL, &err);
}

static size_t whom_to_ask(const struct seen *seen)
{
    for (size_t i = 0; i < seen->n_members; i++) {
        if (seen_is_sound(seen, i))
            return i;
    }
    for (size_t i = 0; i < seen->n_members; i++) {
        if (!seen->members[i].error.status)
            return i;
    }
    return 0;
}

static void on_lease(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct visit *visit = data;
    const Pb__LeaseGrantResponse *answer = (const Pb__LeaseGrantResponse *)message;
    Pb__LeaseRevokeRequest revoke = PB__LEASE_REVOKE_REQUEST__INIT;
    if (err) {
        error_copy(&visit->seen.lease_error, err);
    } else {
        visit->seen.lease_seconds = answer->ttl;
        revoke.id = answer->id;
        ask(visit, whom_to_ask(&visit->seen), RPC_LEASE_REVOKE, &revoke.base, on_revoked);
    }
    answered(visit);
}

/* How long a lease lasts at least, nobody tells but by giving one; nothing is bound to it. */
static void ask_all(struct visit *visit)
{
    Pb__AlarmRequest alarms = PB__ALARM_REQUEST__INIT;
    Pb__MemberListRequest members = PB__MEMBER_LIST_REQUEST__INIT;
    Pb__LeaseGrantRequest lease = PB__LEASE_GRANT_REQUEST__INIT;
    size_t i = whom_to_ask(&visit->seen);
    lease.ttl = 1;
    visit->pending = 1;
    if (!visit->seen.members[i].error.status)
        ask(visit, i, RPC_MEMBER_LIST, &members.base, on_members);
    if (seen_is_sound(&visit->seen, i)) {
        ask(visit, i, RPC_ALARM, &alarms.base, on_alarms);
        ask(visit, i, RPC_LEASE_GRANT, &lease.base, on_lease);
    }
    answered(visit);
}

/* ---- each by itself ---- */

static void on_status(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct call *call = data;
    struct visit *visit = call->visit;
    struct seen_member *member = &visit->seen.members[call - visit->calls];
    const Pb__StatusResponse *status = (const Pb__StatusResponse *)message;
    if (err) {
        error_copy(&member->error, err);
    } else if (!status->header) {
        error_set(&member->error, STILE_REFUSED, 0, "%s: its answer has an unexpected form",
                  member->where);
    } else {
        member->cluster = status->header->cluster_id;
        member->id = status->header->member_id;
        member->leader = status->leader;
        member->applied = status->raft_applied_index;
        member->learner = status->is_learner;
        snprintf(member->version, sizeof member->version, "%s", status->version);
    }
    if (--visit->pending == 0)
        ask_all(visit);
}

static void on_change(struct conn *conn)
{
    (void)conn;
}

static void on_down(struct conn *conn, const struct stile_error *why)
{
    (void)conn, (void)why; /* what was asked hears of it */
}

static const struct conn_events events = {.up = on_change, .down = on_down};

static void call_on(struct visit *visit, size_t i)
{
    Pb__StatusRequest request = PB__STATUS_REQUEST__INIT;
    struct seen_member *member = &visit->seen.members[i];
    struct call *call = &visit->calls[i];
    call->visit = visit;
    enum stile_status status = conn_new_beside(&call->conn, etcd_of_visit(visit)->conn, i, false,
                                               &events, visit, &member->error);
    if (!status) {
        snprintf(member->where, sizeof member->where, "%s", conn_address(call->conn));
        status = conn_ask(call->conn, RPC_STATUS, &request.base, on_status, call, &member->error);
    }
    visit->pending += !status;
}

void doctor_examine(struct engine *engine, struct query *query)
{
    struct etcd *etcd = etcd_of(engine);
    struct stile_error err;
    struct visit *visit = calloc(1, sizeof *visit);
    if (!visit) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    visit->query = query;
    query->state = visit;
    visit->next = etcd->visits;
    etcd->visits = visit;
    visit->seen.n_members = etcd->n_members;
    for (size_t i = 0; i < etcd->n_members; i++)
        call_on(visit, i);
    if (visit->pending == 0)
        finish(visit);
}

void doctor_forked(struct etcd *etcd)
{
    for (struct visit *visit = etcd->visits; visit; visit = visit->next) {
        for (size_t i = 0; i < visit->seen.n_members; i++)
            conn_forked(visit->calls[i].conn);
    }
}
