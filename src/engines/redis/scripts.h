/* What the server does for us, each in one step and on its own clock. Keys of a name, in this
 * order:
 *
 *     KEYS[1] K       string, expires: the owner (exclusive), "~S" or "~N" while there are members,
 *                     "~hTOKEN" for a hold_at_least or lock-delay that is left
 *     KEYS[2] queue   zset of entries by the time they came, in microseconds; and "~gap", see below
 *     KEYS[3] by      string, "owner record" of an exclusive holder, expires with K
 *     KEYS[4] token   the counter that all names with this prefix (in a Cluster: and in this slot)
 *                     share: the token of the latest grant of any of them; the only key that stays
 *     KEYS[5] members zset of owners (shared, slots) by the time they end; "~h..." is nobody's
 *     KEYS[6] info    hash owner -> record of members
 *     KEYS[7] gap     string, "until seen", expires: no waiter is served before `until`; `seen` is
 *                     when another client's key was last seen in a waiter's way
 *
 * A record is "token seconds microseconds ttl hold delay slots": when it was granted, and what was
 * requested, in milliseconds. An entry is "owner mode px ttl hold delay slots"; a mode is x, s or
 * n. An owner is 40 hex digits, of which the first 16 name its session: what a waiter or holder
 * must hear is published at stile:<16 digits>, as "g owner" (granted for a second; confirm it),
 * "h owner ms" (look after so long), "b owner" (taken away). A session that nobody listens for is
 * dead, and the next waiter is served in the same step.
 *
 * "~gap" in the queue stands for all the clients that know no queue and poll K. When it is its
 * turn, K stays free for a while: pollers have no other chance against a queue that never runs dry.
 * It comes up two seconds after a queue began and every ten seconds from then on; where another
 * client's key has been seen lately, after as long as that one kept us waiting. */
#ifndef STILE_REDIS_SCRIPTS_H
#define STILE_REDIS_SCRIPTS_H

#include "engines/redis/lua.h"

#define SCRIPT_KEYS 7
#define TAKE_KEYS   4 /* of take, and of confirm for an exclusive one */
#define GIVE_KEYS   3

struct scripts {
    /* The short way, where nobody else wants the name; 0: nothing was done, take the long one. */
    struct lua take; /* owner px terms -> token | 0; exclusive */
    struct lua give; /* owner -> above 0 | 0; exclusive, without hold_at_least */
    /* owner mode px terms slots wait again gaps behind -> {1, token} | {0, ms, rank, foreign};
     * gaps: 1 to leave gaps; behind: ms for which another client's key was in its way */
    struct lua claim;
    struct lua look;    /* owner mode px terms slots -> {1}: ask again | {0, ms, rank, foreign} */
    struct lua confirm; /* owner mode px -> token | 0 */
    struct lua resume;  /* owner, ttl or "", ttl -> {token, mode, ttl, hold, delay, slots, held} */
    struct lua release; /* owner mode px terms hold delay -> 1 released, 2 withdrawn, 0 neither */
    struct lua renew;  /* for each claim its keys, and owner mode px -> {1|0, or 2: unknown, ...} */
    struct lua show;   /* stem -> {K, pttl, token, by, now, members..., queue} */
    struct lua break_; /* token -> 1 broken, 0 not held, -1 another grant */
};

void scripts_init(struct scripts *scripts);

#endif
