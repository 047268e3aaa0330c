/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The scripts that run on a node, each in one step and on the node's clock. Their files, with keys,
 * arguments and replies, are scripts/NAME.lua. Keys of a name (keys.c):
 *
 *     lock     string, expires: the owner; "~h" for the rest of a hold_at_least, or without
 *              fences "~h since pid host command": when it was granted, in ms of the node's clock
 *     fence    string, expires after a week: "token owner pid host command" of the last grant.
 *              Missing, it reads as the highest of all fences of the node; without an owner, it is
 *              what that was when the key was given
 *     queue    list of waiting entries, "owner pid host command"
 *     broken   string, expires after an hour: a line "owner pid host" for each key that `stile
 *              break` has deleted, the latest first; so that its holder learns why
 *     last     string, expires after 30 days: "token record", the record of the last holder
 *
 * and one of the node, NODE_KEY, a hash: group, highest (of all tokens written to its fences),
 * longest (lease asked for, ms), was (epochs before the present one), quiet (until when it takes no
 * claims and hands nothing over, ms of its clock), seat (the node's label), seats (the labels of
 * all members of its epoch), n (how many they are), next (the group of another size to which it has
 * agreed), past (groups before this one).
 *
 * An owner is 40 hex digits, of which the first 16 name its session. The session subscribes to
 * stile:<16 digits> and receives "g owner fence lock" (the key is yours for a second),
 * "y owner fence lock" (the same, from a claim that gives way), "h owner ms" (you are next: look by
 * yourself after so long), "b owner pid host" (broken, by that process) and "p owner" (is anybody
 * listening?). A session that nobody is subscribed for is dead, and skipped. */
#ifndef STILE_REDLOCK_SCRIPTS_H
#define STILE_REDLOCK_SCRIPTS_H

#include "engines/redis/lua.h"

#define NODE_KEY "stile:node"

/* The first element of a reply to claim, queue, fence and confirm. */
enum {
    REPLY_OTHER_EPOCH = -1, /* and group, was, members, past: another group, or another epoch */
    REPLY_TAKEN,            /* and pttl, holder, place in the queue */
    REPLY_OURS,             /* and its fence */
    REPLY_CONFIRMED,        /* and its fence: ours, and for the full time. Of claim and fence it is
                               the fence alone */
};

extern const struct lua redlock_script_claim;
extern const struct lua redlock_script_queue; /* claim without fences */
extern const struct lua redlock_script_fence;
extern const struct lua redlock_script_confirm;
extern const struct lua redlock_script_release;
extern const struct lua redlock_script_yield;
extern const struct lua redlock_script_renew;
extern const struct lua redlock_script_show;
extern const struct lua redlock_script_holder;
extern const struct lua redlock_script_break;
extern const struct lua redlock_script_check;
extern const struct lua redlock_script_history;
/* What becomes of a node's group. All but follow reply with the node's report. */
extern const struct lua redlock_script_change;
extern const struct lua redlock_script_follow;
extern const struct lua redlock_script_adopt;
extern const struct lua redlock_script_record;
extern const struct lua redlock_script_close;

extern const struct lua *const redlock_scripts[]; /* all of them, and NULL */

#endif
