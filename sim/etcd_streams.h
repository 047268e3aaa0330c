/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The two calls to etcd that last: LeaseKeepAlive and Watch. */
#ifndef STILE_SIM_ETCD_STREAMS_H
#define STILE_SIM_ETCD_STREAMS_H

#include "sim/etcd_cluster.h"
#include "sim/grpc.h"

/* All answers begin so. */
struct etcd_answer {
    ProtobufCMessage base;
    Etcd__Header *header;
};

/* Names the member in its header, and sends it. Drops all answers. */
void etcd_answer_send(struct grpc_call *call, const struct etcd_member *member,
                      struct etcd_answer *answer);

/* A message has come on one. */
void etcd_keep_alive_take(struct grpc_call *call, struct etcd_member *member,
                          const Etcd__LeaseKeepAliveRequest *request);
void etcd_watch_take(struct grpc_call *call, struct etcd_member *member,
                     const Etcd__WatchRequest *request);
/* The client has gone. */
void etcd_watch_over(struct grpc_call *call, struct etcd_member *member);
/* The member has applied more of the log. */
void etcd_watches_applied(struct etcd_member *member);

#endif
