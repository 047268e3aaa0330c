/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the errors of a Redis server mean: a kind for the code, a status for core, and a sentence
 * for people that says what to do. */
#ifndef STILE_REDIS_ERRORS_H
#define STILE_REDIS_ERRORS_H

#include <hiredis/hiredis.h>

#include "base/error.h"

enum redis_error {
    REDIS_ERROR_NONE,  /* it is no error */
    REDIS_ERROR_OTHER, /* one that is not in this list */
    REDIS_ERROR_ASK,
    REDIS_ERROR_AUTH, /* a password is missing, wrong, or not needed */
    REDIS_ERROR_BUSY,
    REDIS_ERROR_CLUSTER_DOWN,
    REDIS_ERROR_CROSS_SLOT,
    REDIS_ERROR_DEMOTED, /* it became a replica while a command waited in it */
    REDIS_ERROR_DENIED,
    REDIS_ERROR_KILLED,
    REDIS_ERROR_LOADING,
    REDIS_ERROR_MASTER_DOWN,
    REDIS_ERROR_MAX_CLIENTS,
    REDIS_ERROR_MISCONF,
    REDIS_ERROR_MOVED,
    REDIS_ERROR_NO_DB,
    REDIS_ERROR_NO_PERMISSION,
    REDIS_ERROR_NO_REPLICAS,
    REDIS_ERROR_NO_SCRIPT,
    REDIS_ERROR_OOM,
    REDIS_ERROR_READ_ONLY,
    REDIS_ERROR_TRY_AGAIN,
    REDIS_ERROR_UNKNOWN_COMMAND,
    REDIS_ERROR_WRONG_TYPE,
};

enum redis_error redis_error_of(const redisReply *reply);

/* Returns err's status; OK for REDIS_ERROR_NONE. UNREACHABLE: not executed, may work later by
 * itself. REFUSED: an administrator has to act. */
enum stile_status redis_error_explain(const redisReply *reply, struct stile_error *err);

/* Whether an error of connection.h means that this user, or this server, does not have the command.
 */
bool redis_error_is_denial(const struct stile_error *err);

/* Whether the native code of an error of connection.h, or an enum redis_error, means that the
 * server is a replica: the primary is elsewhere. */
bool redis_error_is_replica(int native);

#endif
