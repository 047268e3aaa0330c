/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What clients of a written story do by hand, without the library: with Redis' commands
 * (sim/plain.h) or with SQL (sim/session_client.h). */
#ifndef STILE_SIM_SCRIPT_HAND_H
#define STILE_SIM_SCRIPT_HAND_H

#include "sim/net.h"

struct hand;

struct hand_act {
    const char *verb;
    const char *whom;          /* "ends": the client whose sessions are ended */
    uint64_t ttl_ns, every_ns; /* "sets", "expires" */
    bool jitter;
};

void hand_begin(void); /* of a new run */
/* NULL: it is not done by hand; else the engine that it needs. */
const char *hand_engine(const char *verb);
/* Of one client and one lock. NULL: there are too many. granted() is called with data and a token,
 * 0 for none, after each grant. */
struct hand *hand_new(struct process *process, const char *engine, const char *name,
                      void (*granted)(void *data, uint64_t token), void *data);
void hand_act(struct hand *hand, const struct hand_act *act);
/* All of them, before processes are disposed of. */
void hand_end(void);

#endif
