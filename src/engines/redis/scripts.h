/* What the server does for us, each in one step and on its own clock. Keys of a name, in this
 * order:
 *
 *     KEYS[1] K        string, expires: the owner (exclusive), "~s" or "~n" while there are
 * members,
 *                      "~h" for a hold_at_least that is left
 *     KEYS[2] :queue   list of waiting entries, first come first
 *     KEYS[3] :by      string, "owner info" of an exclusive holder, expires a year after the grant:
 *                      which also tells when that was
 *     KEYS[4] :fence   counter, never expires: the token of the latest grant
 *     KEYS[5] :members zset of owners (shared, slots) by the time they end; "~h..." nobody's
 *     KEYS[6] :info    hash owner -> "token since info" of members
 *
 * An entry is "owner mode slots info"; a mode is x, s or n. An owner is 40 hex digits, of which the
 * first 16 name its session: what a waiter or holder must hear is published at stile:<16 digits>,
 * as "g owner" (granted for a second; confirm it), "h owner ms silent" (look by yourself after so
 * long, or earlier if what is in the way may end in silence), "b owner" (taken away). Nobody
 * listening there is dead, and the next one is served in the same step. */
#ifndef STILE_REDIS_SCRIPTS_H
#define STILE_REDIS_SCRIPTS_H

#include "engines/redis/lua.h"

#define SCRIPT_KEYS 6
#define TAKE_KEYS   4 /* of take, and of confirm for an exclusive one */
#define GIVE_KEYS   3

struct scripts {
    /* The short way, where nobody else wants the name; 0: nothing was done, take the long one. */
    struct lua take;    /* owner px info -> token | 0; exclusive */
    struct lua give;    /* owner -> above 0 | 0; exclusive, without hold_at_least */
    struct lua claim;   /* owner mode slots px info wait again -> {1, token} | {0, ms, silent} */
    struct lua confirm; /* owner mode px -> token | 0 */
    struct lua release; /* owner mode slots hold info delay -> 1 released, 2 withdrawn, 0 neither */
    struct lua renew;  /* for each claim its keys, and owner mode px -> {1|0, or 2: unknown, ...} */
    struct lua show;   /* -> {K, pttl, fence, by, now, members..., queue} */
    struct lua break_; /* token -> 1 broken, 0 not held, -1 another grant */
};

void scripts_init(struct scripts *scripts);

#endif
