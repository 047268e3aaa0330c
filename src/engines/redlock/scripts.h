/* What a node does for us, each in one step and on its own clock. Keys of a name:
 *
 *     K        string, expires: the owner; "~h" for a hold_at_least that is left
 *     :fence   F, string, expires after a week: "token owner pid host command" of the last grant;
 *              missing, it reads as the highest of all fences of the node
 *     :queue   Q, list of waiting entries, "owner pid host command"
 *
 * and one of the node, NODE_KEY (N), a hash: group, highest (of all tokens written to its fences),
 * longest (lease asked for, ms), was (epochs before the present one), quiet (until when it takes no
 * claims and hands over nothing, ms of its clock).
 *
 * An owner is 40 hex digits, of which the first 16 name its session; at stile:<16 digits> it hears
 * "g owner fence K" (K is yours for a second), "y owner fence K" (the same, from one who gives
 * way), "h owner ms" (you are the next: look by yourself
 * after so long) and "b owner" (taken away). Nobody listening there is dead, and skipped. */
#ifndef STILE_REDLOCK_SCRIPTS_H
#define STILE_REDLOCK_SCRIPTS_H

#include "engines/redis/lua.h"

#define NODE_KEY  "stile:node"
#define FENCE_MS  604800000
#define FENCE_TXT "604800000"
#define WAS_TXT   "296" /* bytes: the latest eight or more */

/* What the first element of an answer to claim, line, fence and confirm says. */
enum {
    SAYS_APART = -1, /* and its group: it is of another one, or of another epoch */
    SAYS_TAKEN,      /* and pttl, holder, place in line */
    SAYS_MINE,       /* and its fence */
    SAYS_FIRM,       /* and its fence: ours, and for the full time */
};

struct lock_scripts {
    struct lua claim;   /* K F Q N; owner px group guess wait again entry */
    struct lua line;    /* K Q; owner px wait again entry: the same without a fence */
    struct lua fence;   /* K F N; owner px group token entry */
    struct lua confirm; /* K [F N]; owner px -> and the age of the grant in ms */
    struct lua release; /* K Q [F N]; owner left entry -> 1 ours, 0 not; entry "": is in no line */
    struct lua yield;   /* K Q [F N]; owner to entry: to somebody, or to the next; and in line */
    struct lua renew;   /* K...; owner px ... -> {1|0, or 2: unknown, ...} */
    struct lua show;    /* K Q [F] -> {K, pttl, F, age, queue} */
    struct lua break_;  /* K Q [F N]; token -> 1 broken, 0 not held, -1 another grant */
    struct lua change;  /* N; from to was -> {1|0, group, highest, longest, was}; was "": its own */
    struct lua follow;  /* N; group was: to this one, if it is in one of those */
    struct lua adopt;   /* N; group highest longest mark was -> 1, or 0: the mark is another */
};

void lock_scripts_init(struct lock_scripts *scripts);

#endif
