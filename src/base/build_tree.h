/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A program or library that runs from the tree it was built in (build/cli/stile,
 * build/src/libstile.so) uses the modules and helper programs of that tree. */
#ifndef STILE_BUILD_TREE_H
#define STILE_BUILD_TREE_H

#include <stdbool.h>
#include <stddef.h>

/* directory: the part of that name in the tree, as "src". False: this code is installed, or the
 * directory cannot be trusted. */
bool build_tree_find(char *directory, size_t size, const char *part);

#endif
