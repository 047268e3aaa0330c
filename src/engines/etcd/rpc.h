/* One RPC to an etcd server: its request while it waits or is on the wire, and what its error
 * means: a kind for the code, a status for core, and for users a sentence that says what to do. */
#ifndef STILE_ETCD_RPC_H
#define STILE_ETCD_RPC_H

#include "base/error.h"
#include "engines/etcd/http2.h"
#include "engines/etcd/rpc.pb-c.h"

enum rpc {
    RPC_RANGE,
    RPC_PUT,
    RPC_TXN,
    RPC_LEASE_GRANT,
    RPC_LEASE_REVOKE,
    RPC_LEASE_TTL,
    RPC_AUTHENTICATE,
    RPC_STATUS,
    RPC_ALARM,
    RPC_MEMBER_LIST,
    RPC_LEASE_KEEP_ALIVE,
    RPC_WATCH,
};

struct rpc_class {
    const char *path;
    const ProtobufCMessageDescriptor *answer;
    bool alone; /* a member without a leader may answer it too */
    bool reads; /* it changes nothing: without an answer, nothing is in doubt */
};
extern const struct rpc_class etcd_rpc_classes[];

/* Once: the answer, or err. The answer is freed after the call. */
typedef void conn_fn(void *data, const ProtobufCMessage *answer, const struct stile_error *err);

/* ---- requests ---- */

struct conn;

struct request {
    struct request *next, *prev;
    struct request_list *list;
    struct h2_call call;
    struct conn *conn;
    enum rpc rpc;
    conn_fn *fn; /* NULL: forgotten */
    void *data;
    uint64_t sent_ns, until_ns;
    bool again;    /* sent a second time, after a new login */
    bool in_doubt; /* the connection broke after it had left */
    ProtobufCMessage *answer;
    size_t len;
    uint8_t bytes[];
};

struct request_list {
    struct request *first, *last;
    size_t n;
};

/* NULL: out of memory. */
struct request *etcd_request_new(struct conn *conn, enum rpc rpc, const ProtobufCMessage *message);
void etcd_request_free(struct request *request);
void etcd_request_push(struct request_list *list, struct request *request);
void etcd_request_remove(struct request *request);
struct request *etcd_request_pop(struct request_list *list);

/* ---- errors ---- */

/* The native code of errors that the server has sent; errno's are below them. */
enum fault {
    FAULT_NONE,
    FAULT_OTHER = 1 << 16,
    FAULT_NO_LEADER, /* this member sees no leader; another one may */
    FAULT_LEARNER,
    FAULT_TIMED_OUT, /* it got no answer from the others */
    FAULT_BUSY,
    FAULT_NO_SPACE,
    FAULT_NO_LEASE,
    FAULT_COMPACTED,
    FAULT_TOKEN, /* the login is over */
    FAULT_LOGIN,
    FAULT_NO_AUTH, /* authentication is not enabled */
    FAULT_DENIED,
    FAULT_TOO_LONG, /* the answer; ask for less */
    FAULT_OTHER_CLUSTER,
    FAULT_PROXY, /* a proxy answers in place of the members */
};

/* Of a call that has ended. OK: it succeeded. */
enum stile_status etcd_fault_explain(const struct h2_call *call, struct stile_error *err);

/* A repetition may succeed: no server was there, no answer came, or memory was short. */
bool etcd_fault_is_temporary(const struct stile_error *err);

#endif
