/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/mysql/names.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <string.h>

#define MYSQL_MAX 64
#define DIGITS    40
#define HEAD_MAX  (MYSQL_MAX - 1 - DIGITS)

void maria_name_hex(char *out, const char *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        *out++ = digits[(unsigned char)bytes[i] >> 4];
        *out++ = digits[bytes[i] & 15];
    }
    *out = '\0';
}

/* All but lower-case letters and those ASCII characters that have no case. */
static bool has_case(unsigned char c)
{
    return c >= 127 || c < ' ' || isupper(c);
}

static bool looks_hashed(const char *name, size_t len)
{
    if (len < DIGITS + 1 || len > MYSQL_MAX || name[len - DIGITS - 1] != '#')
        return false;
    for (size_t i = len - DIGITS; i < len; i++) {
        if (!isxdigit((unsigned char)name[i]))
            return false;
    }
    return true;
}

static bool is_kept_apart(bool mariadb, const char *name, size_t len)
{
    if (len > (mariadb ? KEY_MAX : MYSQL_MAX) || looks_hashed(name, len))
        return false;
    for (size_t i = 0; i < len && !mariadb; i++) {
        if (has_case((unsigned char)name[i]))
            return false;
    }
    return true;
}

void maria_name_key(char out[KEY_MAX + 1], bool mariadb, const char *name, size_t len)
{
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    size_t head = len < HEAD_MAX ? len : HEAD_MAX;
    if (is_kept_apart(mariadb, name, len)) {
        memcpy(out, name, len);
        out[len] = '\0';
        return;
    }
    for (size_t i = 0; i < head; i++) {
        unsigned char c = (unsigned char)name[i];
        out[i] = (char)(isupper(c) ? tolower(c) : has_case(c) ? '?' : c);
    }
    EVP_Digest(name, len, digest, NULL, EVP_sha256(), NULL);
    out[head] = '#';
    maria_name_hex(out + head + 1, (const char *)digest, DIGITS / 2);
}
