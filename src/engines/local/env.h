/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* An environment: one directory, opened and mapped once per process and shared by its clients. */
#ifndef STILE_LOCAL_ENV_H
#define STILE_LOCAL_ENV_H

#include <pthread.h>

#include "engines/local/dir.h"
#include "engines/local/store.h"
#include "io/loop.h"

struct env {
    struct env *next;
    unsigned refs;
    struct dir dir;
    struct store store;
    uint64_t time_offset_ns; /* what our time namespace adds to CLOCK_BOOTTIME; may wrap around */
    pthread_mutex_t cells_mutex; /* one client at a time */
    struct cell_file *cells;     /* cell_file.h; NULL: no cell was asked for yet */
};

/* path "": the default directory. The loop is used for random numbers only. */
enum stile_status local_env_open(struct env **env, const char *path, bool allow_fuse,
                                 struct loop *loop, struct stile_error *err);
void local_env_close(struct env *env);

/* In a forked child: closes the file descriptors once every client has called it. */
void local_env_forked(struct env *env);

/* What a time namespace adds to CLOCK_BOOTTIME, from the text of timens_offsets. */
uint64_t local_env_time_offset(const char *text);

/* A new id for `live`, never 0. 0 or an errno value. */
int local_env_random_id(uint64_t *id, struct loop *loop);

/* cell_file.c: closes what was opened for cells, if anything; also in a forked child. */
void local_cells_close(struct env *env);

/* load.c: maps the state file, or makes a fresh one. alone: no other process has the directory
 * open. */
enum stile_status local_load_state(struct env *env, bool alone, uint64_t now_ns,
                                   struct stile_error *err);
void local_load_drop(struct env *env);

/* Removes some of what dead sessions have left, and some names that have been idle for long, with
 * about that many edits. found: something was removed. */
enum stile_status local_load_tidy(struct env *env, bool *found, uint32_t edits, uint64_t now_ns,
                                  struct stile_error *err);

/* A larger table with claims to keep is not checked when it is opened, because opening must cost
 * the same for any number of names. Damage in it is found on use; dead claims are removed by the
 * next claim of the same name, and gradually by local_load_tidy(). */
#define CHECKED_CELLS_MAX (AT_FIRST + 1024)

/* check.c: checks every cell of a file that no other process uses. CORRUPT if any is damaged, lost
 * or wrongly linked. */
enum stile_status local_check_all(struct store *store, bool *in_use, struct stile_error *err);

#endif
