/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A table on a file without a name, and the processes that use it played by several mappings. */
#ifndef STILE_LOCAL_TABLE_KIT_H
#define STILE_LOCAL_TABLE_KIT_H

#include "unit/local_kit.h"

/* One "process": a mapping of its own, with its own life. */
struct user {
    struct store store;
    int epoch_calls;
    bool epoch_fails;
};

/* The first user makes the file, further ones join it. */
void user_make(struct user *user);
void user_copy(struct user *user, const struct user *other); /* a file of its own, with the same */
void user_join(struct user *user, const struct user *other);
void user_die(struct user *user);   /* its life ends; what it has begun stays as it is */
void user_close(struct user *user); /* the same, and its mapping goes */

/* A transaction, that must not fail. */
void user_begin(struct tx *tx, struct user *user);
void user_commit(struct tx *tx);
uint32_t user_open_name(struct tx *tx, const char *name);
void user_fill(struct user *user); /* some names, claims and a session */

/* A copy of all cells that count: not the lock, nor the journal. */
union cell *table_copy(const struct store *store);
void table_expect_same(const struct store *store, const union cell *copy);

#endif
