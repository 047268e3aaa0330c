/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The default engine, for a program that names none: $STILE_ENGINE, the user's file, the system's
 * file, or local:.
 *
 * A file has one line that counts: `engine = URL`. It may contain a password, and it decides which
 * locks exclude each other: a file that others could have changed is refused, and so is one that
 * cannot be read. Falling back to local: would let a second holder in without a word. */
#ifndef STILE_CONFIG_H
#define STILE_CONFIG_H

#include "base/error.h"

#define CONFIG_PATH_MAX 1024

struct default_engine {
    char url[STILE_URL_MAX + 1]; /* may contain a password: config_forget() */
    char path[CONFIG_PATH_MAX];  /* of the file that sets it, or "$STILE_ENGINE"; "": set nowhere */
    unsigned line;               /* of that file; 0: it is none */
    unsigned too_open;           /* permissions that a file with a password must not have */
    unsigned mode;               /* those that it should have */
};

/* Checks everything but the URL. */
enum stile_status config_find(struct default_engine *found, struct stile_error *err);
void config_forget(struct default_engine *found);

/* One file; found->url is "" if it does not exist or sets nothing. open_to: the permissions that it
 * may have if it contains a password. */
enum stile_status config_read(struct default_engine *found, const char *path, unsigned open_to,
                              struct stile_error *err);

#endif
