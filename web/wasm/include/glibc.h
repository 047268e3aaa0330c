/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Included before everything else: names that wasi-libc lacks or defines differently from glibc. */
#ifndef STILE_WASM_GLIBC_H
#define STILE_WASM_GLIBC_H

#include <stddef.h>
#include <string.h>

/* In the words of glibc: they are in the trace of a run. Its strerror_r() returns the text, that of
 * POSIX a number. */
const char *glibc_strerror(int number);
#define strerror(number)              glibc_strerror(number)
#define strerror_r(number, buffer, n) glibc_strerror(number)

void qsort_r(void *items, size_t n, size_t size,
             int (*compare)(const void *one, const void *other, void *data), void *data);

#endif
