/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Option structs that grow: each starts with its size according to the caller's header. */
#ifndef STILE_OPTIONS_H
#define STILE_OPTIONS_H

#include "base/error.h"

/* The size of a struct that ends with this member. */
#define OPTIONS_UP_TO(type, member) (offsetof(type, member) + sizeof((type *)0)->member)

/* One kind of options. */
struct options_kind {
    const char *name;  /* "lock options" */
    const char *macro; /* that fills in the size */
    size_t size;       /* in this version */
    size_t least;      /* in the first one */
};

/* Copies the caller's options, NULL for none. Members that a smaller struct of an earlier version
 * lacks are zero. A larger struct of a later version is accepted if it asks for nothing that this
 * version does not know. */
enum stile_status options_read(void *to, const void *from, const struct options_kind *kind,
                               struct stile_error *err);

#endif
