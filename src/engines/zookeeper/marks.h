/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Which process has broken a lock: a mark for the session of its holder. */
#ifndef STILE_ZOOKEEPER_MARKS_H
#define STILE_ZOOKEEPER_MARKS_H

#include "engines/zookeeper/zookeeper.h"

#define MARK_TOKENS_MAX 32 /* in one mark; the holders of others learn less */

/* ---- the holder's side ---- */

/* From now on marks for this session are read. */
void zk_marks_watch(struct session *session);
/* Why the node of this token has gone. */
void zk_marks_explain(struct session *session, uint64_t token, struct stile_error *err);

/* ---- the breaker's side ---- */

/* For the holder's session: these tokens, MARK_TOKENS_MAX at most, are about to be broken. False:
 * out of memory. */
bool zk_marks_put(struct zk *zk, int64_t session_id, const uint64_t *tokens, size_t n);
void zk_marks_remove(struct zk *zk, int64_t session_id);

#endif
