#include "engines/redis/family.h"

#include <string.h>

#include "engines/redis/slot.h"

static char *add(char *at, const char *bytes, size_t n)
{
    memcpy(at, bytes, n);
    return at + n;
}

/* What belongs to K begins with a brace, as no K does but with a prefix that asks for it, and lives
 * in K's slot: {K}:fence, or with the tag that K has itself, {tag}K:fence. Where K has no tag, but
 * a brace that would end one early, a tag is made for K's slot. */
char *family_write(struct conn_arg *args, char *room, const char *const *suffixes, size_t n,
                   const char *prefix, const char *name, size_t name_len)
{
    size_t prefix_len = strlen(prefix), len = prefix_len + name_len;
    const char *key = room, *tag;
    char made[SLOT_TEXT + 2] = {'{', '?', '?', '?', '}'};
    char *at = add(add(room, prefix, prefix_len), name, name_len);
    size_t tag_len = slot_tag(&tag, key, len);
    if (!tag_len && memchr(key, '}', len)) {
        slot_text(made + 1, slot_of(key, len));
        tag = made;
        tag_len = sizeof made;
    }
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

/* {K} and a suffix, or {tag}K and a suffix; K begins with the prefix. */
bool family_is_derived(const char *const *suffixes, size_t n, const char *prefix, const char *key,
                       size_t len)
{
    const char *tag;
    size_t prefix_len = strlen(prefix), tag_len = slot_tag(&tag, key, len);
    if (!tag_len || tag != key)
        return false;
    for (size_t i = 1; i < n; i++) {
        size_t end = strlen(suffixes[i]);
        if (len < tag_len + end || memcmp(key + len - end, suffixes[i], end) != 0)
            continue;
        const char *rest = len == tag_len + end ? key + 1 : key + tag_len;
        if (len - (size_t)(rest - key) >= prefix_len && memcmp(rest, prefix, prefix_len) == 0)
            return true;
    }
    return false;
}
