/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Small text helpers: hex digits, and several texts packed behind a struct in one allocation. */
#ifndef STILE_TEXT_H
#define STILE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Lower-case, NUL-terminated: out has room for 2 * n + 1. */
static inline void hex_encode(char *out, const void *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *from = bytes;
    for (size_t i = 0; i < n; i++) {
        *out++ = digits[from[i] >> 4];
        *out++ = digits[from[i] & 15];
    }
    *out = '\0';
}

/* The length of the UTF-8 character at s (shortest form, no surrogates), or 0. *code may be NULL.
 */
size_t utf8_length(uint32_t *code, const char *s, size_t left);

/* The bytes of a text with its NUL; 0 for NULL. */
size_t text_size(const char *text);
/* Copies a text to *at and moves *at behind it. NULL stays NULL. */
const char *text_pack(char **at, const char *text);

#endif
