/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Guarded files in a temporary directory, which is the working directory meanwhile. */
#ifndef STILE_TEST_FILE_KIT_H
#define STILE_TEST_FILE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stile.h>

/* For cmocka: each test in a directory of its own. */
int file_kit_enter(void **state);
int file_kit_leave(void **state);

void remove_tree(const char *dir);

enum stile_status put(const char *path, const char *text, uint64_t token);
void must_put(const char *path, const char *text, uint64_t token);

/* The content; "": there is no such file. Valid until the next call. */
const char *content(const char *path);
void write_plainly(const char *path, const char *text);

uint64_t highest(const char *path);
const char *issuer(const char *path); /* valid until the next call */

/* How many entries a directory has, "." and ".." left out. */
unsigned entries(const char *dir);
unsigned open_descriptors(void);

#endif
