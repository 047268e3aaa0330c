/* examine(): the status of every endpoint of the URL, each over a connection of its own; then, from
 * a sound one, what concerns the whole cluster: its members, alarms, and how long a lease lasts.
 * doctor_rules.c derives the findings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/doctor.h"
#include "engines/etcd/etcd.h"

struct examination {
    struct examination *next; /* of etcd->examinations */
    struct query *query;
    struct probe {
        struct examination *examination;
        struct conn *conn;
    } probes[CONN_ENDPOINTS_MAX];
    size_t pending;
    struct cluster_status cluster;
};

static struct etcd *etcd_of_examination(const struct examination *examination)
{
    return etcd_of(examination->query->engine);
}

/* ---- the end ---- */

static void report_finding(void *data, const struct stile_finding *finding)
{
    struct examination *examination = data;
    examination->query->engine->events->finding(examination->query, finding);
}

static void examination_free(struct examination *examination)
{
    struct examination **at = &etcd_of_examination(examination)->examinations;
    while (*at != examination)
        at = &(*at)->next;
    *at = examination->next;
    for (size_t i = 0; i < examination->cluster.n_members; i++)
        etcd_conn_free(examination->probes[i].conn);
    examination->query->state = NULL;
    free(examination);
}

/* Without any answer there is nothing to report but the reason. */
static void finish(struct examination *examination)
{
    struct query *query = examination->query;
    struct stile_error why = examination->cluster.members[0].error;
    for (size_t i = 0; i < examination->cluster.n_members; i++) {
        if (!examination->cluster.members[i].error.status)
            why.status = STILE_OK;
    }
    if (!why.status)
        etcd_doctor_diagnose(&examination->cluster, report_finding, examination);
    examination_free(examination);
    query->engine->events->done(query, why.status ? &why : NULL);
}

/* ---- the cluster ---- */

static void probe_answered(struct examination *examination)
{
    if (--examination->pending == 0)
        finish(examination);
}

static void on_alarms(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct examination *examination = data;
    const Etcd__AlarmResponse *answer = (const Etcd__AlarmResponse *)message;
    if (err)
        error_copy(&examination->cluster.alarm_error, err);
    for (size_t i = 0; !err && i < answer->n_alarms && i < ALARMS_MAX; i++)
        examination->cluster.alarms[examination->cluster.n_alarms++] = (struct active_alarm){
            .id = answer->alarms[i]->member_id, .kind = answer->alarms[i]->alarm};
    probe_answered(examination);
}

static void on_members(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct examination *examination = data;
    const Etcd__MemberListResponse *answer = (const Etcd__MemberListResponse *)message;
    for (size_t i = 0; !err && i < answer->n_members && i < LISTED_MAX; i++) {
        struct listed_member *listed =
            &examination->cluster.listed[examination->cluster.n_listed++];
        listed->id = answer->members[i]->id;
        listed->learner = answer->members[i]->is_learner;
        snprintf(listed->name, sizeof listed->name, "%s", answer->members[i]->name);
    }
    probe_answered(examination);
}

static void on_revoked(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    (void)message, (void)err; /* else it runs out in a moment */
    probe_answered(data);
}

static void ask(struct examination *examination, size_t i, enum rpc rpc,
                const ProtobufCMessage *request, conn_fn *fn)
{
    struct stile_error err;
    examination->pending++;
    if (etcd_conn_request(examination->probes[i].conn, rpc, request, fn, examination, &err))
        fn(examination, NULL, &err);
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

static void on_lease(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct examination *examination = data;
    const Etcd__LeaseGrantResponse *answer = (const Etcd__LeaseGrantResponse *)message;
    Etcd__LeaseRevokeRequest revoke = ETCD__LEASE_REVOKE_REQUEST__INIT;
    if (err) {
        error_copy(&examination->cluster.lease_error, err);
    } else {
        examination->cluster.lease_seconds = answer->ttl;
        revoke.id = answer->id;
        ask(examination, member_to_ask(&examination->cluster), RPC_LEASE_REVOKE, &revoke.base,
            on_revoked);
    }
    probe_answered(examination);
}

/* The shortest lease is only known by asking for one; nothing is bound to it. */
static void ask_cluster(struct examination *examination)
{
    Etcd__AlarmRequest alarms = ETCD__ALARM_REQUEST__INIT;
    Etcd__MemberListRequest members = ETCD__MEMBER_LIST_REQUEST__INIT;
    Etcd__LeaseGrantRequest lease = ETCD__LEASE_GRANT_REQUEST__INIT;
    size_t i = member_to_ask(&examination->cluster);
    lease.ttl = 1;
    examination->pending = 1;
    if (!examination->cluster.members[i].error.status)
        ask(examination, i, RPC_MEMBER_LIST, &members.base, on_members);
    if (etcd_member_is_sound(&examination->cluster, i)) {
        ask(examination, i, RPC_ALARM, &alarms.base, on_alarms);
        ask(examination, i, RPC_LEASE_GRANT, &lease.base, on_lease);
    }
    probe_answered(examination);
}

/* ---- each member ---- */

static void on_member_status(void *data, const ProtobufCMessage *message,
                             const struct stile_error *err)
{
    struct probe *probe = data;
    struct examination *examination = probe->examination;
    struct member_status *member = &examination->cluster.members[probe - examination->probes];
    const Etcd__StatusResponse *status = (const Etcd__StatusResponse *)message;
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
    if (--examination->pending == 0)
        ask_cluster(examination);
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

static void probe_member(struct examination *examination, size_t i)
{
    Etcd__StatusRequest request = ETCD__STATUS_REQUEST__INIT;
    struct member_status *member = &examination->cluster.members[i];
    struct probe *probe = &examination->probes[i];
    probe->examination = examination;
    enum stile_status status =
        etcd_conn_new_to(&probe->conn, etcd_of_examination(examination)->conn, i, false, &events,
                         examination, &member->error);
    if (!status) {
        snprintf(member->where, sizeof member->where, "%s", etcd_conn_address(probe->conn));
        status = etcd_conn_request(probe->conn, RPC_STATUS, &request.base, on_member_status, probe,
                                   &member->error);
    }
    examination->pending += !status;
}

void etcd_doctor_examine(struct engine *engine, struct query *query)
{
    struct etcd *etcd = etcd_of(engine);
    struct stile_error err;
    struct examination *examination = calloc(1, sizeof *examination);
    if (!examination) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    examination->query = query;
    query->state = examination;
    examination->next = etcd->examinations;
    etcd->examinations = examination;
    examination->cluster.n_members = etcd->n_members;
    for (size_t i = 0; i < etcd->n_members; i++)
        probe_member(examination, i);
    if (examination->pending == 0)
        finish(examination);
}

void etcd_doctor_forked(struct etcd *etcd)
{
    for (struct examination *examination = etcd->examinations; examination;
         examination = examination->next) {
        for (size_t i = 0; i < examination->cluster.n_members; i++)
            etcd_conn_forked(examination->probes[i].conn);
    }
}
