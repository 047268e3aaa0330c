/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs of cells and guards share. */
#ifndef STILE_CLI_CELL_H
#define STILE_CLI_CELL_H

#include "cli.h"

/* As say_failure(); a version that is another one is an answer, not a failure: exit 1. */
int cell_say_failure(const char *verb, enum stile_status status, const struct stile_error *err);
/* --if-version, --token, --issuer and --strict. */
struct stile_cell_options cell_options(const struct options *options);
/* --issuer, else $STILE_ISSUER if the token is $STILE_TOKEN; NULL: not known. */
const char *fence_issuer(const struct options *options, uint64_t token);
/* All of it, into a buffer of STILE_CELL_MAX + 1 bytes. 0, or an exit code after a message. */
int cell_read_value(int fd, char *value, size_t *size, const char *verb, const char *from);

#endif
