/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Three parties in one directory, and other processes that can be killed. */
#ifndef STILE_LOCAL_THREE_H
#define STILE_LOCAL_THREE_H

#include <sys/types.h>

#include "unit/local_kit.h"

extern char dir[64];
extern struct party a, b, c;

int three_open(void **state);
int three_close(void **state); /* and checks what they leave */

struct other {
    pid_t pid;
};

/* Does that with a claim, says so, and lives until it is killed. */
struct other other_start(const char *name, struct bid_options options, enum said said);
void other_kill(struct other *other);

#endif
