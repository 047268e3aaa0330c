/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The key under which a name is locked.
 *
 * MySQL takes 64 bytes and ignores case; MariaDB takes 192 and compares bytes. A name that the
 * server can distinguish from all others is its own key, so that a plain GET_LOCK('name') takes the
 * same lock. The key of any other name is a readable prefix, '#' and 40 digits of its SHA-256;
 * and so is that of a name that looks like such a key. */
#ifndef STILE_MYSQL_NAMES_H
#define STILE_MYSQL_NAMES_H

#include <stdbool.h>

#include "base/error.h"

#define KEY_MAX        192
#define KEY_HEX_MAX    (2 * KEY_MAX + 1)
#define STORED_HEX_MAX (2 * STILE_NAME_MAX + 1)

void maria_name_hex(char *out, const char *bytes, size_t len); /* 2 * len + 1 */
/* mariadb: the server compares bytes, and has room for more of them. */
void maria_name_key(char out[KEY_MAX + 1], bool mariadb, const char *name, size_t len);

#endif
