/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Names and keys.
 *
 * The server's texts are UTF-8 without NUL. A name that is UTF-8 is stored as it is. Any other
 * name is stored as the control character 1, which no name contains, followed by its bytes in
 * hex. So distinct names stay distinct, and the usual ones are readable. */
#ifndef STILE_POSTGRES_NAMES_H
#define STILE_POSTGRES_NAMES_H

#include <stdbool.h>

#include "base/error.h"

#define STORED_MAX (2 * STILE_NAME_MAX + 2)

void postgres_name_store(char out[STORED_MAX], const char *name, size_t len);
bool postgres_name_restore(char out[STILE_NAME_MAX + 1],
                           const char *stored); /* false: not written by stile */

/* Any other text in the same way: out has room for 2 * len + 2 bytes, or for max + 1. */
void postgres_text_store(char *out, const char *text, size_t len);
bool postgres_text_restore(char *out, size_t max, const char *stored);

/* What an advisory lock is taken on. The two-integer and the one-integer spaces are disjoint. */
enum key_form {
    KEY_HASH, /* hashtextextended(text, 0), computed by the server */
    KEY_ONE,  /* text is a bigint */
    KEY_TWO,  /* text is two integers with a comma */
    KEY_FORMS,
};

enum dialect {
    DIALECT_SQL,
    DIALECT_WITH_ADVISORY_LOCK,
    DIALECT_DJANGO,
    DIALECT_PALS,
    DIALECT_MADELSON,
};

struct key {
    enum key_form form;
    char number[28]; /* for KEY_ONE and KEY_TWO */
};

/* `#12345` and `#1,42` are the integers themselves, in every dialect. */
void postgres_key_make(struct key *key, enum dialect dialect, const char *name, size_t len);
bool postgres_dialect_named(enum dialect *dialect, const char *name);

#endif
