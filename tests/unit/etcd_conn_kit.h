/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A connection to etcd, and peers that do what the test says. */
#ifndef STILE_ETCD_CONN_KIT_H
#define STILE_ETCD_CONN_KIT_H

#include "engines/etcd/connection.h"
#include "support/h2_peer.h"

#define REVISION 4711 /* in each answer's header */

struct heard {
    unsigned times;
    int64_t revision; /* of the answer's header; 0: none */
    struct stile_error err;
    bool frees;         /* the connection, from inside */
    struct heard *then; /* the next request, sent from inside */
};

extern struct loop *loop;
extern struct conn *conn;
extern struct conn_options options;
extern struct h2_peer peer, other;
extern unsigned ups, downs;

int scene_open(void **state);
int scene_close(void **state);
void scene_start(void);
void scene_connect(void); /* and it is up */

void scene_ask(struct heard *heard);
struct peer_call *scene_arrived(struct h2_peer *at, size_t n); /* the peer has it whole */
size_t scene_pack_answer(uint8_t bytes[64]);
void scene_answer(struct h2_peer *at, const struct peer_call *call);

bool heard_says(const struct heard *heard, const char *words);

#endif
