/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of GET_LOCK that wait for no disk: UUID_SHORT() in the statement that takes the lock, and
 * an epoch that is on disk. */
#ifndef STILE_MYSQL_TOKENS_H
#define STILE_MYSQL_TOKENS_H

#include "engines/mysql/my.h"

enum draw {
    DRAW_TAKEN,     /* the lock is another session's */
    DRAW_GRANTED,   /* ours, with a token */
    DRAW_HELD_BACK, /* ours, but a hold keeps the name back */
    DRAW_AGAIN, /* ours, but what is known of the epoch is too old for the number that was drawn */
    DRAW_BEGIN, /* ours, but an epoch has to begin first */
};

/* One try, or a wait, for the lock and a draw; ttl_ns not 0: the lease comes first. NULL without
 * memory. */
char *maria_draw_try(struct sql_claim *c, uint64_t ttl_ns);
char *maria_draw_wait(struct sql_claim *c, uint64_t ttl_ns);
/* Draws for a lock that is ours in the server. */
char *maria_draw_again(struct sql_claim *c, bool begin);
/* The answer to either. */
enum draw maria_draw_read(struct sql_claim *c, const struct answer *a, uint64_t *token);
/* After a failed maria_draw_again(): what it may have left in the session. */
char *maria_draw_undo(struct sql_claim *c);

/* ---- describe.c: the rows that say which client holds what ---- */

void maria_describe_init(struct my *my);
void maria_describe_later(struct my *my);
/* slot of struct sql_database */
void maria_note(struct sql_claim *c, bool holds);
/* All that is not described yet, before a question about it. */
void maria_describe_now(struct my *my);
/* The row of one claim, with its hold and delay: on disk when it is answered. */
char *maria_describe_hold(struct sql_claim *c);

#endif
