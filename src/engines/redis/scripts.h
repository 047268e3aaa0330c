/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* The scripts that run on the server, each in one step and by the server's clock. Their files, with
 * keys, arguments and replies, are scripts/NAME.lua. Keys of a name, in this order:
 *
 *     1 lock     string, expires: "owner record" of an exclusive holder, "~S" or "~N" while there are
 *                members, "~hrecord client" for the rest of a hold_at_least or lock-delay
 *     2 queue    zset of entries by the time they came, in microseconds; and "~gap", see below
 *     3 counter  the token of the latest grant; all names with this prefix (in a Cluster: and in
 *                this slot) share it; the only key that stays
 *     4 members  zset of owners (shared, slots) by the time they end; "~h..." has no owner
 *     5 records  hash owner -> record of members
 *     6 gap      string, "until seen", expires: no waiter is served before `until`; `seen` is when
 *                another client's key was last seen in a waiter's way
 *     7 broken   string, expires after an hour: a line "owner pid host" for each grant that
 *                `stile break` has ended, the latest first; so that its holder learns why
 *     8 last     string, expires after 30 days: "token record", the record of the last holder
 *
 * A record is "token seconds microseconds ttl hold delay slots": when it was granted ("0 0": the
 * lock's expiry shows it), and what was requested, in milliseconds. An entry is "owner mode px ttl
 * hold delay slots"; a mode is x, s or n. The last four of both are the terms. An owner is 40 hex
 * digits, of which the first 16 name its session: messages to a waiter or holder are published at
 * stile:<16 digits>, as "g owner" (granted for a second; confirm it), "h owner ms" (look after so
 * long), "b owner pid host" (broken, by that process). A session without a subscriber is dead, and
 * the next waiter is served in the same step.
 *
 * "~gap" in the queue stands for the clients that have no queue and poll the lock. When it is first,
 * the lock stays free for a while: pollers have no other chance against a queue that never runs
 * dry. The first gap comes two seconds after a queue began, the next after 3 s, then one every 20 s;
 * after another client's key was seen, gaps come more often (lib/functions.lua, claim.lua). */
/* clang-format on */
#ifndef STILE_REDIS_SCRIPTS_H
#define STILE_REDIS_SCRIPTS_H

#include "engines/redis/lua.h"

#define SCRIPT_KEYS 6
#define LOSS_KEYS   7 /* of renew, check and break */
#define ALL_KEYS    8
#define TAKE_KEYS   3 /* of take, and of confirm for an exclusive one */
#define GIVE_KEYS   2
#define COUNTER_KEY 2 /* among those of all scripts, from 0 */

extern const struct lua redis_script_take;
extern const struct lua redis_script_give;
extern const struct lua redis_script_claim;
extern const struct lua redis_script_look;
extern const struct lua redis_script_confirm;
extern const struct lua redis_script_resume;
extern const struct lua redis_script_release;
extern const struct lua redis_script_renew;
extern const struct lua redis_script_show;
extern const struct lua redis_script_latest;
extern const struct lua redis_script_break;
extern const struct lua redis_script_check;
extern const struct lua redis_script_history;
extern const struct lua redis_script_cell_get;
extern const struct lua redis_script_cell_list;
extern const struct lua redis_script_cell_put;
extern const struct lua redis_script_cell_guard;
extern const struct lua redis_script_pace;
extern const struct lua redis_script_doctor_lease;
extern const struct lua redis_script_doctor_rights;

extern const struct lua *const redis_scripts[]; /* all of them, and NULL */

#endif
