/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/postgres/names.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define ESCAPE     '\1'
#define PACKED_MAX 9

/* ---- as text ---- */

static bool is_utf8(const char *name, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_length(NULL, name + i, len - i);
        if (n == 0)
            return false;
    }
    return true;
}

void postgres_text_store(char *out, const char *text, size_t len)
{
    if (is_utf8(text, len)) {
        memcpy(out, text, len);
        out[len] = '\0';
        return;
    }
    *out++ = ESCAPE;
    *out = '\0';
    for (size_t i = 0; i < len; i++)
        out += sprintf(out, "%02x", (unsigned char)text[i]);
}

void postgres_name_store(char out[STORED_MAX], const char *name, size_t len)
{
    postgres_text_store(out, name, len);
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool postgres_text_restore(char *out, size_t max, const char *stored)
{
    size_t len = strlen(stored);
    if (len == 0 || len > (*stored == ESCAPE ? 2 * max + 1 : max))
        return false;
    if (*stored != ESCAPE) {
        memcpy(out, stored, len + 1);
        return true;
    }
    for (stored++; *stored; stored += 2) {
        int high = hex_value(stored[0]), low = high < 0 ? -1 : hex_value(stored[1]);
        if (low < 0)
            return false;
        *out++ = (char)(high << 4 | low);
    }
    *out = '\0';
    return true;
}

bool postgres_name_restore(char out[STILE_NAME_MAX + 1], const char *stored)
{
    return postgres_text_restore(out, STILE_NAME_MAX, stored);
}

/* ---- as a number ---- */

static uint32_t crc32_of(const char *name, size_t len)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < len; i++) {
        crc ^= (unsigned char)name[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return ~crc;
}

static int64_t sha1_head(const char *name, size_t len)
{
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    uint64_t head = 0;
    EVP_Digest(name, len, digest, NULL, EVP_sha1(), NULL);
    for (int i = 7; i >= 0; i--)
        head = head << 8 | digest[i];
    return (int64_t)head;
}

static void write_pair(struct key *key, uint64_t both)
{
    key->form = KEY_TWO;
    snprintf(key->number, sizeof key->number, "%" PRId32 ",%" PRId32, (int32_t)(both >> 32),
             (int32_t)both);
}

/* Seven bits for each character, then a zero, then ones up to the end: as two integers. */
static bool is_packed(struct key *key, const char *name, size_t len)
{
    uint64_t both = 0;
    if (len > PACKED_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)name[i] > 127)
            return false;
        both = both << 7 | (unsigned char)name[i];
    }
    both <<= 1;
    for (size_t i = len; i < PACKED_MAX; i++)
        both = both << 7 | 127;
    write_pair(key, both);
    return true;
}

/* 16 hex digits are a bigint, 8 and 8 with a comma are two integers. */
static bool is_hex(struct key *key, const char *name, size_t len)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    bool two = len == 17 && name[8] == ',';
    if ((len != 16 && !two) || strspn(name, digits) != (two ? 8 : 16) ||
        (two && strspn(name + 9, digits) != 8))
        return false;
    uint64_t high = strtoull(name, NULL, 16);
    if (two) {
        write_pair(key, high << 32 | strtoull(name + 9, NULL, 16));
    } else {
        key->form = KEY_ONE;
        snprintf(key->number, sizeof key->number, "%" PRId64, (int64_t)high);
    }
    return true;
}

static bool read_number(const char **at, long long least, long long most)
{
    const char *digits = *at + (**at == '-');
    char *end;
    if (*digits < '0' || *digits > '9')
        return false;
    errno = 0;
    long long value = strtoll(*at, &end, 10);
    bool good = !errno && value >= least && value <= most;
    *at = end;
    return good;
}

static bool is_written_out(struct key *key, const char *name)
{
    const char *at = name + 1;
    if (*name != '#' || strlen(at) >= sizeof key->number)
        return false;
    if (read_number(&at, INT64_MIN, INT64_MAX) && !*at)
        key->form = KEY_ONE;
    else {
        at = name + 1;
        if (!read_number(&at, INT32_MIN, INT32_MAX) || *at++ != ',' ||
            !read_number(&at, INT32_MIN, INT32_MAX) || *at)
            return false;
        key->form = KEY_TWO;
    }
    strcpy(key->number, name + 1);
    return true;
}

void postgres_key_make(struct key *key, enum dialect dialect, const char *name, size_t len)
{
    *key = (struct key){.form = KEY_HASH};
    if (is_written_out(key, name))
        return;
    switch (dialect) {
    case DIALECT_SQL:
        break;
    case DIALECT_WITH_ADVISORY_LOCK:
        key->form = KEY_TWO;
        snprintf(key->number, sizeof key->number, "%" PRIu32 ",0",
                 crc32_of(name, len) & UINT32_C(0x7fffffff));
        break;
    case DIALECT_DJANGO:
        key->form = KEY_ONE;
        snprintf(key->number, sizeof key->number, "%" PRId32, (int32_t)crc32_of(name, len));
        break;
    case DIALECT_MADELSON:
        if (is_packed(key, name, len) || is_hex(key, name, len))
            break;
        /* fall through */
    case DIALECT_PALS:
        key->form = KEY_ONE;
        snprintf(key->number, sizeof key->number, "%" PRId64, sha1_head(name, len));
        break;
    }
}

bool postgres_dialect_named(enum dialect *dialect, const char *name)
{
    static const char *const names[] = {"sql", "with_advisory_lock", "django-pglocks", "pals",
                                        "madelson"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            *dialect = (enum dialect)i;
            return true;
        }
    }
    return false;
}
