/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a simulated ZooKeeper and its clients say, for a reader of the run (sim/story.h). */
#ifndef STILE_SIM_ZOOKEEPER_TEXT_H
#define STILE_SIM_ZOOKEEPER_TEXT_H

#include "sim/net.h"

/* Requests as "5 create /x/_c_...", answers as "5 ok", or the server's code. */
void zk_describe(struct buffer *text, enum direction way, const void *bytes, size_t n);

#endif
