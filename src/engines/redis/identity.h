/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of a client: its session, its owner values, and how people see it. */
#ifndef STILE_REDIS_IDENTITY_H
#define STILE_REDIS_IDENTITY_H

#include "engines/engine.h"

#define OWNER_LEN   40
#define SESSION_LEN 16
#define INFO_MAX    320
#define CHANNEL_MAX (sizeof "stile:" + SESSION_LEN)

/* channel: "stile:" and the digits of a new session, the channel of its messages; info: "pid host
 * command". 0 or an errno value. */
int redis_identity_new(char channel[CHANNEL_MAX], char info[INFO_MAX], const struct engine *engine);

#endif
