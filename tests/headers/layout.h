/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Where a member is in its struct. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include <stddef.h>

struct place {
    const char *name;
    size_t offset;
};

extern const struct place layout_then[], layout_now[];

#endif
