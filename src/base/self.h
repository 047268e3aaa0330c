/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* This process as `stile show` describes it. Control characters become '?'. */
#ifndef STILE_SELF_H
#define STILE_SELF_H

#include <stddef.h>

#define SELF_HOST_MAX 64

/* Without spaces; "?": not known. */
void self_host(char host[SELF_HOST_MAX + 1]);

/* The label if there is one, else the name of the program, as far as there is room; "?" where it
 * is not known. */
void self_command(char *out, size_t size, const char *label);

#endif
