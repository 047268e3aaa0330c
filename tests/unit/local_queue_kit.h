/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One user of a table, and what it does in one transaction each. */
#ifndef STILE_LOCAL_QUEUE_KIT_H
#define STILE_LOCAL_QUEUE_KIT_H

#include "unit/local_table_kit.h"

#define START_NS (1000 * NS_PER_SEC)

extern struct user user;
extern struct tx tx;
extern struct wakeups wakeups; /* of the last transaction */

int table_set_up(void **state);
int table_tear_down(void **state); /* and checks what is left */

void table_begin(void);
void table_commit(void);

/* In a transaction. */
uint32_t table_open_name(const char *name);
uint32_t table_find_name(const char *name);

/* A transaction each. */
uint32_t table_enter(const char *name, uint64_t session, enum stile_mode mode, uint32_t slots);
void table_leave(uint32_t claim, enum leave_how how);

const struct claim_cell *table_claim(uint32_t index);
bool table_is_held(uint32_t index);
bool table_was_woken(uint64_t session);
uint32_t table_n_woken(void);

#endif
