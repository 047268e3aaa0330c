/* The keys of a name, and what is sent with them. */
#include <string.h>

#include "engines/redis/redis.h"

static const char *const suffixes[SCRIPT_KEYS] = {"",    ":fence",   ":queue",
                                                  ":by", ":members", ":info"};

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

size_t keys_room(const struct redis *redis, size_t name_len)
{
    return SCRIPT_KEYS * (2 * (strlen(redis->prefix) + name_len) + 16);
}

/* K = prefix + name. What belongs to it begins with a brace, as no K does, and lives in K's slot:
 * {K}:fence, or with the tag that K has itself, {tag}K:fence. */
char *keys_write(struct conn_arg args[SCRIPT_KEYS], char *room, const struct redis *redis,
                 const char *name, size_t name_len)
{
    size_t prefix_len = strlen(redis->prefix), len = prefix_len + name_len;
    const char *key = room, *tag;
    char *at = add(add(room, redis->prefix, prefix_len), name, name_len);
    size_t tag_len = tag_of(&tag, key, len);
    args[0] = (struct conn_arg){key, len};
    for (size_t i = 1; i < SCRIPT_KEYS; i++) {
        char *start = at;
        at = tag_len ? add(at, tag, tag_len) : add(at, "{", 1);
        at = add(at, key, len);
        at = tag_len ? at : add(at, "}", 1);
        at = add(at, suffixes[i], strlen(suffixes[i]));
        args[i] = (struct conn_arg){start, (size_t)(at - start)};
    }
    return at;
}

bool key_is_derived(const char *key, size_t len)
{
    const char *tag;
    if (!tag_of(&tag, key, len) || tag != key)
        return false;
    for (size_t i = 1; i < SCRIPT_KEYS; i++) {
        size_t n = strlen(suffixes[i]);
        if (len > n && memcmp(key + len - n, suffixes[i], n) == 0)
            return true;
    }
    return false;
}

void call_begin(struct call *call, const struct redis *redis, const char *name, size_t name_len)
{
    keys_write(call->args, call->room, redis, name, name_len);
    call->n = SCRIPT_KEYS;
}

void call_add(struct call *call, const char *text)
{
    call->args[call->n++] = CONN_TEXT(text);
}

enum stile_status call_send(const struct call *call, struct redis *redis, const struct lua *script,
                            conn_fn *fn, void *data, struct stile_error *err)
{
    return conn_eval(redis->asks, script, call->args, SCRIPT_KEYS, call->n, fn, data, err);
}
