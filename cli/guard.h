/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Where a guard is: a resource in an engine, or a file. */
#ifndef STILE_CLI_GUARD_H
#define STILE_CLI_GUARD_H

#include "cell.h"

struct guard_place {
    char *resource;              /* in the client's engine */
    struct stile_client *client; /* NULL: a file */
    char *path;                  /* the file */
    bool owned;                  /* the client is ours to close */
};

/* Opens the engine of url, or finds the file RESOURCE in the directory of a file: URL. 0, or an
 * exit code after a message. */
int guard_place_open(struct guard_place *place, const char *verb, const char *url,
                     const char *resource);
/* For a client that is open already. */
void guard_place_use(struct guard_place *place, struct stile_client *client, const char *resource);
void guard_place_close(struct guard_place *place);

/* Splits URL#RESOURCE. *url, which is "" for the engine of the lock itself, is to be freed. 0, or
 * an exit code after a message. */
int guard_split(char **url, const char **resource, const char *verb, const char *text);

#endif
