/* What a node does for us, each in one step and on its own clock. Keys of a name (keys.c):
 *
 *     K        string, expires: the owner; "~h" for a hold_at_least that is left
 *     fence    F, string, expires after a week: "token owner pid host command" of the last grant;
 *              missing, it reads as the highest of all fences of the node; without an owner, it
 *              is what that was when the key was given
 *     queue    Q, list of waiting entries, "owner pid host command"
 *
 * and one of the node, NODE_KEY (N), a hash: group, highest (of all tokens written to its fences),
 * longest (lease asked for, ms), was (epochs before the present one), quiet (until when it takes no
 * claims and hands over nothing, ms of its clock), seat (its own label), seats (those of all
 * members of its epoch), n (how many they are), next (the group of another size to which it has
 * agreed), past (groups before this one).
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
#define WAS_TXT   "328" /* bytes: the latest eight or more */

/* In the order of survey.c. */
#define NODE_FIELDS "'group','highest','longest','was','seat','seats','n','next','past'"

/* What the first element of an answer to claim, line, fence and confirm says. */
enum {
    SAYS_APART = -1, /* and group, was, seats, past: of another group, or of another epoch */
    SAYS_TAKEN,      /* and pttl, holder, place in line */
    SAYS_MINE,       /* and its fence */
    SAYS_FIRM,       /* and its fence: ours, and for the full time */
};

struct lock_scripts {
    struct lua claim;   /* K F Q N; owner px group guess wait again entry */
    struct lua line;    /* K Q; owner px wait again entry: the same without a fence */
    struct lua fence;   /* K F N; owner px group token entry */
    struct lua confirm; /* K [F N]; owner px [id] -> and the age of the grant in ms */
    struct lua release; /* K Q [F N]; owner left entry -> 1 ours, 0 not; entry "": is in no line */
    struct lua yield;   /* K Q [F N]; owner to entry: to somebody, or to the next; and in line */
    struct lua renew;   /* K... [N]; owner px ... [id] -> {1|0, or 2: unknown, ...} */
    struct lua show;    /* K Q [F] -> {K, pttl, F, age, queue} */
    struct lua break_;  /* K Q [F N]; token -> 1 broken, 0 not held, -1 another grant */
    /* These answer {1|0, NODE_FIELDS}; 0: the node was not as expected, and is as before. */
    struct lua change; /* N; from to was seats n; was "": its own; seats "": as they are */
    struct lua adopt;  /* N; group highest longest from was seats n past */
    struct lua record; /* N; group seats n */
    struct lua close;  /* N; group next */
    struct lua follow; /* N; group was seats -> 1: to this one, if it is in one of those */
};

void lock_scripts_init(struct lock_scripts *scripts);

#endif
