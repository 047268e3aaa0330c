/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Connections under test, and a record of their events. */
#ifndef STILE_CONN_KIT_H
#define STILE_CONN_KIT_H

#include "engines/redis/connection.h"
#include "engines/redis/errors.h"
#include "support/net.h"

/* What a request was answered with. */
struct heard {
    unsigned times, order; /* order: its number among all answers */
    int type;              /* of the reply; 0: none */
    long long integer;
    size_t elements;
    char text[128];
    enum redis_error fault;
    struct stile_error err; /* status OK: none */
};

struct kit {
    struct loop *loop;
    struct conn *conn;
    struct conn_options options;
    unsigned up, down, answers;
    struct stile_error why;
    char heard[512];     /* of channels: "+channel ", "channel=message " */
    const char *free_in; /* "up", "down", "reply", "message": frees the connection there */
};

extern struct kit kit;

void kit_open(void);  /* a loop */
void kit_close(void); /* frees all and checks that nothing is left */
void kit_connect(void);
void kit_connect_up(void);

/* Words separated by spaces. */
void kit_ask(struct heard *heard, const char *words);
void kit_ask_and_wait(struct heard *heard, const char *words);
/* Scripts: "return 1", "return 2", GET and INCR of the key, and one that never ends. */
extern const struct lua kit_one, kit_two, kit_get, kit_incr, kit_endless;
void kit_eval(struct heard *heard, const struct lua *lua, const char *key);
conn_fn kit_hear;

/* Time flies for what is under way: it is overdue now, however slow or quick this machine is. */
void kit_grow_late(void);

#endif
