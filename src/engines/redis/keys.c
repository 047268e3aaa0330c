#include <string.h>

#include "engines/redis/redis.h"

static const char *const suffixes[SCRIPT_KEYS] = {"",    ":fence",   ":queue",
                                                  ":by", ":members", ":info"};

/* What a Cluster hashes instead of the whole key: the text between the first { and the } behind it.
 */
static bool has_tag(const char *key, size_t len)
{
    const char *open = memchr(key, '{', len);
    const char *close = open ? memchr(open, '}', len - (size_t)(open - key)) : NULL;
    return close && close > open + 1;
}

void keys_of(struct keys *keys, const struct redis *redis, const char *name, size_t name_len)
{
    size_t prefix_len = strlen(redis->prefix), len = prefix_len + name_len;
    char *key = keys->text[0];
    memcpy(key, redis->prefix, prefix_len);
    memcpy(key + prefix_len, name, name_len);
    keys->args[0] = (struct conn_arg){key, len};
    bool tagged = has_tag(key, len);
    for (size_t i = 1; i < SCRIPT_KEYS; i++) {
        char *at = keys->text[i];
        if (!tagged)
            *at++ = '{';
        memcpy(at, key, len);
        at += len;
        if (!tagged)
            *at++ = '}';
        size_t suffix_len = strlen(suffixes[i]);
        memcpy(at, suffixes[i], suffix_len);
        keys->args[i] = (struct conn_arg){keys->text[i], (size_t)(at - keys->text[i]) + suffix_len};
    }
}

bool key_is_derived(const char *key, size_t len)
{
    if (!has_tag(key, len))
        return false;
    for (size_t i = 1; i < SCRIPT_KEYS; i++) {
        size_t n = strlen(suffixes[i]);
        if (len > n && memcmp(key + len - n, suffixes[i], n) == 0)
            return true;
    }
    return false;
}
