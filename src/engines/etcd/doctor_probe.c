/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* examine(): the status of every endpoint of the URL, each over a connection of its own; then, from
 * a sound one, what concerns the whole cluster: its members, alarms, and how long a lease lasts.
 * doctor_rules.c derives the findings. */
#include <stdio.h>
#include <string.h>

#include "engines/etcd/doctor.h"
#include "engines/etcd/etcd.h"

/* For connecting, logging in and the answer, each of which may take 3 s. */
#define PATIENCE_NS (10 * NS_PER_SEC)

struct visit {
    struct doctor_visit base;
    struct probe {
        struct visit *visit;
        struct conn *conn;
    } probes[CONN_ENDPOINTS_MAX];
    struct cluster_status cluster;
};

static struct visit *visit_of(struct doctor_visit *base)
{
    return container_of(base, struct visit, base);
}

/* ---- each member ---- */

static void on_member_status(void *data, const ProtobufCMessage *message,
                             const struct stile_error *err)
{
    struct probe *probe = data;
    struct member_status *member = &probe->visit->cluster.members[probe - probe->visit->probes];
    const Etcd__StatusResponse *status = (const Etcd__StatusResponse *)message;
    if (err) {
        error_copy(&member->error, err);
    } else if (!status->header) {
        error_set(&member->error, STILE_REFUSED, 0, "%s: its answer has an unexpected form",
                  member->where);
    } else {
        member->error.status = STILE_OK;
        member->cluster = status->header->cluster_id;
        member->id = status->header->member_id;
        member->leader = status->leader;
        member->applied = status->raft_applied_index;
        member->learner = status->is_learner;
        snprintf(member->version, sizeof member->version, "%s", status->version);
    }
    doctor_answered(&probe->visit->base);
}

static void on_change(struct conn *conn)
{
    (void)conn;
}

static void on_down(struct conn *conn, const struct stile_error *why)
{
    (void)conn, (void)why; /* reported to its requests */
}

static const struct conn_events events = {.up = on_change, .down = on_down};

static void ask_member(struct visit *visit, size_t i)
{
    Etcd__StatusRequest request = ETCD__STATUS_REQUEST__INIT;
    struct member_status *member = &visit->cluster.members[i];
    struct probe *probe = &visit->probes[i];
    struct conn *like = etcd_of(visit->base.query->engine)->conn;
    struct stile_error err;
    probe->visit = visit;
    doctor_asked(&visit->base);
    if (etcd_conn_new_to(&probe->conn, like, i, false, &events, visit, &err)) {
        on_member_status(probe, NULL, &err);
        return;
    }
    snprintf(member->where, sizeof member->where, "%s", etcd_conn_address(probe->conn));
    error_set(&member->error, STILE_UNREACHABLE, 0, "%s: no answer in time", member->where);
    if (etcd_conn_request(probe->conn, RPC_STATUS, &request.base, on_member_status, probe, &err))
        on_member_status(probe, NULL, &err);
}

/* ---- the cluster ---- */

static void on_alarms(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct visit *visit = data;
    struct cluster_status *cluster = &visit->cluster;
    const Etcd__AlarmResponse *answer = (const Etcd__AlarmResponse *)message;
    error_copy(&cluster->alarm_error, err);
    for (size_t i = 0; !err && i < answer->n_alarms && i < ALARMS_MAX; i++)
        cluster->alarms[cluster->n_alarms++] = (struct active_alarm){
            .id = answer->alarms[i]->member_id, .kind = answer->alarms[i]->alarm};
    doctor_answered(&visit->base);
}

static void on_members(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct visit *visit = data;
    struct cluster_status *cluster = &visit->cluster;
    const Etcd__MemberListResponse *answer = (const Etcd__MemberListResponse *)message;
    for (size_t i = 0; !err && i < answer->n_members && i < LISTED_MAX; i++) {
        struct listed_member *listed = &cluster->listed[cluster->n_listed++];
        listed->id = answer->members[i]->id;
        listed->learner = answer->members[i]->is_learner;
        snprintf(listed->name, sizeof listed->name, "%s", answer->members[i]->name);
    }
    doctor_answered(&visit->base);
}

static void on_lease(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct visit *visit = data;
    const Etcd__LeaseGrantResponse *answer = (const Etcd__LeaseGrantResponse *)message;
    error_copy(&visit->cluster.lease_error, err);
    if (!err) {
        visit->cluster.lease_seconds = answer->ttl;
        visit->cluster.lease_id = answer->id;
    }
    doctor_answered(&visit->base);
}

static void on_revoked(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct visit *visit = data;
    (void)message, (void)err; /* else it runs out in a moment */
    doctor_answered(&visit->base);
}

static void ask(struct visit *visit, size_t i, enum rpc rpc, const ProtobufCMessage *request,
                conn_fn *fn)
{
    struct stile_error err;
    doctor_asked(&visit->base);
    if (etcd_conn_request(visit->probes[i].conn, rpc, request, fn, visit, &err))
        fn(visit, NULL, &err);
}

static size_t member_to_ask(const struct cluster_status *cluster)
{
    for (size_t i = 0; i < cluster->n_members; i++) {
        if (etcd_member_is_sound(cluster, i))
            return i;
    }
    for (size_t i = 0; i < cluster->n_members; i++) {
        if (!cluster->members[i].error.status)
            return i;
    }
    return 0;
}

/* The shortest lease is only known by asking for one; nothing is bound to it. */
static void ask_cluster(struct visit *visit)
{
    Etcd__AlarmRequest alarms = ETCD__ALARM_REQUEST__INIT;
    Etcd__MemberListRequest members = ETCD__MEMBER_LIST_REQUEST__INIT;
    Etcd__LeaseGrantRequest lease = ETCD__LEASE_GRANT_REQUEST__INIT;
    size_t i = member_to_ask(&visit->cluster);
    lease.ttl = 1;
    if (!visit->cluster.members[i].error.status)
        ask(visit, i, RPC_MEMBER_LIST, &members.base, on_members);
    if (etcd_member_is_sound(&visit->cluster, i)) {
        ask(visit, i, RPC_ALARM, &alarms.base, on_alarms);
        ask(visit, i, RPC_LEASE_GRANT, &lease.base, on_lease);
    }
}

static void return_lease(struct visit *visit)
{
    Etcd__LeaseRevokeRequest revoke = ETCD__LEASE_REVOKE_REQUEST__INIT;
    revoke.id = visit->cluster.lease_id;
    if (revoke.id)
        ask(visit, member_to_ask(&visit->cluster), RPC_LEASE_REVOKE, &revoke.base, on_revoked);
}

/* ---- the visit ---- */

static bool visit_ask(struct doctor_visit *base, unsigned round)
{
    struct visit *visit = visit_of(base);
    if (round == 0)
        visit->cluster.n_members = etcd_of(base->query->engine)->n_members;
    for (size_t i = 0; round == 0 && i < visit->cluster.n_members; i++)
        ask_member(visit, i);
    if (round == 1)
        ask_cluster(visit);
    if (round == 2)
        return_lease(visit);
    return round <= 2;
}

/* Without any answer there is nothing to report but the reason. */
static void visit_judge(struct doctor_visit *base, struct stile_error *err)
{
    const struct cluster_status *cluster = &visit_of(base)->cluster;
    bool any = false;
    for (size_t i = 0; i < cluster->n_members; i++)
        any = any || !cluster->members[i].error.status;
    if (any)
        etcd_doctor_diagnose(cluster, doctor_report_to_query, base->query);
    else
        *err = cluster->members[0].error;
}

static void visit_leave(struct doctor_visit *base)
{
    for (size_t i = 0; i < visit_of(base)->cluster.n_members; i++)
        etcd_conn_free(visit_of(base)->probes[i].conn);
}

static void visit_forked(struct doctor_visit *base)
{
    for (size_t i = 0; i < visit_of(base)->cluster.n_members; i++)
        etcd_conn_forked(visit_of(base)->probes[i].conn);
}

void etcd_doctor_examine(struct engine *engine, struct query *query)
{
    static const struct doctor_plan plan = {
        .ask = visit_ask, .judge = visit_judge, .leave = visit_leave, .forked = visit_forked};
    doctor_visit_begin(&plan, sizeof(struct visit), PATIENCE_NS, query, &etcd_of(engine)->visits);
}
