/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Records of last holders. */
#ifndef STILE_ZOOKEEPER_HISTORY_H
#define STILE_ZOOKEEPER_HISTORY_H

#include "engines/zookeeper/zookeeper.h"

#define HISTORY_LINES_MAX 4096 /* bytes of one node; a line has 1,558 at most */

void zk_history_record(struct engine *engine, struct query *query);

/* The record of query->name in the data of its node; NULL: there is none. */
const char *zk_history_find(size_t *len, const struct query *query, const char *data, size_t n);

/* Puts the new line before the others; exported for the unit tests. False: the stored one is later.
 */
bool zk_history_merge(char out[HISTORY_LINES_MAX + 1], const struct query *query, const char *data,
                      size_t n);

#endif
