/* Who we are, to servers and to people. */
#ifndef STILE_REDIS_IDENTITY_H
#define STILE_REDIS_IDENTITY_H

#include "engines/engine.h"

#define OWNER_LEN   40
#define SESSION_LEN 16
#define INFO_MAX    320
#define CHANNEL_MAX (sizeof "stile:" + SESSION_LEN)

/* channel: "stile:" and the digits of a new session, where it hears what concerns it; info: "pid
 * host command". 0 or an errno value. */
int redis_identity_new(char channel[CHANNEL_MAX], char info[INFO_MAX], const struct engine *engine);

/* The session's digits, then 24 of its own: a new one for each claim, so that what is late of an
 * earlier one can never touch a later one. 0 or an errno value. */
int redis_identity_draw_owner(char owner[OWNER_LEN + 1], const char *channel, struct loop *loop);

#endif
