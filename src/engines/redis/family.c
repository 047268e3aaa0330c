#include "engines/redis/family.h"

#include <string.h>

/* What a Cluster hashes instead of the whole key: the text between the first { and the } behind it.
 * Its length with both, or 0. */
static size_t tag_of(const char **tag, const char *key, size_t len)
{
    const char *open = memchr(key, '{', len);
    const char *close = open ? memchr(open, '}', len - (size_t)(open - key)) : NULL;
    *tag = open;
    return close && close > open + 1 ? (size_t)(close - open) + 1 : 0;
}

static char *add(char *at, const char *bytes, size_t n)
{
    memcpy(at, bytes, n);
    return at + n;
}

/* What belongs to K begins with a brace, as no K does, and lives in K's slot: {K}:fence, or with
 * the tag that K has itself, {tag}K:fence. */
char *family_write(struct conn_arg *args, char *room, const char *const *suffixes, size_t n,
                   const char *prefix, const char *name, size_t name_len)
{
    size_t prefix_len = strlen(prefix), len = prefix_len + name_len;
    const char *key = room, *tag;
    char *at = add(add(room, prefix, prefix_len), name, name_len);
    size_t tag_len = tag_of(&tag, key, len);
    args[0] = (struct conn_arg){key, len};
    for (size_t i = 1; i < n; i++) {
        char *start = at;
        at = tag_len ? add(at, tag, tag_len) : add(at, "{", 1);
        at = add(at, key, len);
        at = tag_len ? at : add(at, "}", 1);
        at = add(at, suffixes[i], strlen(suffixes[i]));
        args[i] = (struct conn_arg){start, (size_t)(at - start)};
    }
    return at;
}

bool family_is_derived(const char *const *suffixes, size_t n, const char *key, size_t len)
{
    const char *tag;
    if (!tag_of(&tag, key, len) || tag != key)
        return false;
    for (size_t i = 1; i < n; i++) {
        size_t end = strlen(suffixes[i]);
        if (len > end && memcmp(key + len - end, suffixes[i], end) == 0)
            return true;
    }
    return false;
}
