/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/name.h"

#include <string.h>

static bool is_control(unsigned char c)
{
    return c < 0x20 || c == 0x7f;
}

enum stile_status name_check(const char *name, size_t len, struct stile_error *err)
{
    if (len == 0)
        return error_set(err, STILE_MISUSE, 0, "the name is empty");
    if (len > STILE_NAME_MAX)
        return error_set(err, STILE_MISUSE, 0, "the name has %zu bytes, %d is the limit", len,
                         STILE_NAME_MAX);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        if (is_control(c))
            return error_set(err, STILE_MISUSE, 0,
                             "the name has a control character (0x%02x) at byte %zu", c, i + 1);
    }
    return STILE_OK;
}

static uint64_t load(const char *bytes, size_t n)
{
    uint64_t word = 0;

    memcpy(&word, bytes, n);
    return word;
}

/* Each step is a bijection of the state for a given word, and of the word for a given state: names
 * that differ in one word only never meet before the last mixing, which is a bijection as well. */
static uint64_t absorb(uint64_t hash, uint64_t word)
{
    word *= UINT64_C(0x9e3779b97f4a7c15);
    word ^= word >> 32;
    hash ^= word * UINT64_C(0xd6e8feb86659fd93);
    return (hash << 27 | hash >> 37) * UINT64_C(0xa0761d6478bd642f);
}

static uint64_t avalanche(uint64_t hash)
{
    hash ^= hash >> 32;
    hash *= UINT64_C(0xd6e8feb86659fd93);
    hash ^= hash >> 32;
    hash *= UINT64_C(0xd6e8feb86659fd93);
    return hash ^ hash >> 32;
}

uint64_t name_hash(const char *name, size_t len)
{
    uint64_t hash = len;
    size_t at = 0;

    for (; at + sizeof(uint64_t) <= len; at += sizeof(uint64_t))
        hash = absorb(hash, load(name + at, sizeof(uint64_t)));
    if (at < len)
        hash = absorb(hash, load(name + at, len - at));
    return avalanche(hash);
}
