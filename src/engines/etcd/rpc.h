/* What the errors of an etcd server mean: for the code a kind, for core a status, for people a
 * sentence that says what to do. */
#ifndef STILE_ETCD_FAULT_H
#define STILE_ETCD_FAULT_H

#include "base/error.h"
#include "engines/etcd/http2.h"

/* The native code of errors that the server has sent; errno's are below them. */
enum fault {
    FAULT_NONE,
    FAULT_OTHER = 1 << 16,
    FAULT_NO_LEADER, /* this member sees no leader; another one may */
    FAULT_LEARNER,
    FAULT_TIMED_OUT, /* it has waited for the others in vain */
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
    FAULT_PROXY, /* something between us and the members answers for them */
};

/* Of a call that has ended. OK: it went well. */
enum stile_status fault_explain(const struct h2_call *call, struct stile_error *err);

/* Asked again it may go well: nobody was there, its answer did not come, or memory was short. */
bool fault_passes(const struct stile_error *err);

/* Of a watch that the server has cancelled. */
enum stile_status fault_of_words(const char *words, struct stile_error *err);

#endif
