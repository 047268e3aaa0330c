/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A directory for the local engine, and processes that try to use it. */
#ifndef STILE_LOCAL_PLACE_KIT_H
#define STILE_LOCAL_PLACE_KIT_H

#include "unit/local_kit.h"

extern char dir[64];

int place_make(void **state);
int place_remove(void **state);
void place_path(char path[128], const char *name); /* of a file in it */

int place_open(void); /* the status */
void place_expect_refused(const char *path, enum stile_status expected, const char *word);

/* In a process of its own, for what can't be undone. Its exit code, or 128 + signal. */
int child_run(int (*act)(void));
void child_expect(int (*act)(void), enum stile_status expected);
/* In a child: dir is a disk of that many MiB; where nothing can be mounted, a limit on file sizes
 * has to do. 0 or an errno value. */
int place_shrink(unsigned mib);
/* In a child: it has a mount namespace of its own. */
bool place_may_mount(void);
/* Zeroed memory that children share with us. */
void *child_shared(size_t size);

#endif
