/* What a name is locked under.
 *
 * MySQL takes 64 bytes and does not tell upper from lower case; MariaDB takes 192 and compares
 * bytes. A name that the server keeps apart from all others is locked under itself, so that
 * anybody's GET_LOCK('name') meets it. Any other becomes a readable head, '#' and 40 digits of its
 * SHA-256; and so does a name that looks like one of those. */
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
