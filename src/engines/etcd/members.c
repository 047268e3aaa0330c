#include "engines/etcd/members.h"

#include <stdlib.h>

struct members {
    size_t n, pending;
    struct member {
        struct members *members;
        struct conn *conn;
        uint64_t cluster_id; /* 0: it has not answered */
    } each[];
};

static void ignore_up(struct conn *conn)
{
    (void)conn;
}

static void ignore_down(struct conn *conn, const struct stile_error *why)
{
    (void)conn, (void)why; /* its request hears of it */
}

static const struct conn_events events = {.up = ignore_up, .down = ignore_down};

static void on_status(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    struct member *member = data;
    const Pb__StatusResponse *status = (const Pb__StatusResponse *)answer;
    member->members->pending--;
    if (!err && status->header)
        member->cluster_id = status->header->cluster_id;
}

static void ask(struct members *members, const struct etcd *etcd, size_t endpoint)
{
    Pb__StatusRequest request = PB__STATUS_REQUEST__INIT;
    struct member *member = &members->each[members->n];
    struct stile_error err;
    member->members = members;
    if (conn_new_beside(&member->conn, etcd->conn, endpoint, true, &events, member, &err))
        return;
    members->n++;
    if (conn_ask(member->conn, RPC_STATUS, &request.base, on_status, member, &err) == STILE_OK)
        members->pending++;
}

/* The first one is where the connection goes by itself. */
struct members *members_ask(struct etcd *etcd)
{
    size_t n = etcd->n_members - 1;
    struct members *members = n ? calloc(1, sizeof *members + n * sizeof(struct member)) : NULL;
    for (size_t i = 1; members && i <= n; i++)
        ask(members, etcd, i);
    return members;
}

bool members_have_answered(const struct members *members)
{
    return !members || members->pending == 0;
}

enum stile_status members_compare(const struct members *members, uint64_t cluster_id,
                                  struct stile_error *err)
{
    for (size_t i = 0; members && i < members->n; i++) {
        const struct member *member = &members->each[i];
        if (cluster_id && member->cluster_id && member->cluster_id != cluster_id)
            return error_set(err, STILE_REFUSED, 0,
                             "%s belongs to another cluster than the other members (%llx and "
                             "%llx): two programs could hold one lock; name members of one "
                             "cluster",
                             conn_address(member->conn), (unsigned long long)member->cluster_id,
                             (unsigned long long)cluster_id);
    }
    return STILE_OK;
}

void members_free(struct members *members)
{
    for (size_t i = 0; members && i < members->n; i++)
        conn_free(members->each[i].conn);
    free(members);
}
