/* What the errors of a Redis server mean: a kind for the code, a status for core, and a sentence
 * for people that says what to do. */
#ifndef STILE_REDIS_ERRORS_H
#define STILE_REDIS_ERRORS_H

#include <hiredis/hiredis.h>

#include "base/error.h"

enum redis_error {
    FAULT_NONE,  /* it is no error */
    FAULT_OTHER, /* one that is not in this list */
    FAULT_ASK,
    FAULT_AUTH, /* a password is missing, wrong, or not needed */
    FAULT_BUSY,
    FAULT_CLUSTER_DOWN,
    FAULT_CROSS_SLOT,
    FAULT_DEMOTED, /* it became a replica while a command waited in it */
    FAULT_DENIED,
    FAULT_KILLED,
    FAULT_LOADING,
    FAULT_MASTER_DOWN,
    FAULT_MAX_CLIENTS,
    FAULT_MISCONF,
    FAULT_MOVED,
    FAULT_NO_DB,
    FAULT_NO_PERMISSION,
    FAULT_NO_REPLICAS,
    FAULT_NO_SCRIPT,
    FAULT_OOM,
    FAULT_READ_ONLY,
    FAULT_TRY_AGAIN,
    FAULT_UNKNOWN_COMMAND,
    FAULT_WRONG_TYPE,
};

enum redis_error redis_error_of(const redisReply *reply);

/* Returns err's status; OK for FAULT_NONE. UNREACHABLE: not executed, may work later by itself.
 * REFUSED: an administrator has to act. */
enum stile_status redis_error_explain(const redisReply *reply, struct stile_error *err);

/* Whether an error of connection.h means that this user, or this server, does not have the command.
 */
bool redis_error_is_denial(const struct stile_error *err);

/* Whether the native code of an error of connection.h, or an enum redis_error, means that the
 * server is a replica: the primary is elsewhere. */
bool redis_error_is_replica(int native);

#endif
