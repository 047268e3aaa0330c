/* The keys of a name, and what is sent with them. */
#include <string.h>

#include "engines/redis/redis.h"

static const char *const suffixes[SCRIPT_KEYS] = {"",       ":queue",   ":by",
                                                  ":fence", ":members", ":info"};

size_t keys_room(const struct redis *redis, size_t name_len)
{
    return FAMILY_ROOM(SCRIPT_KEYS, strlen(redis->prefix), name_len);
}

char *keys_write(struct conn_arg args[SCRIPT_KEYS], char *room, const struct redis *redis,
                 const char *name, size_t name_len)
{
    return family_write(args, room, suffixes, SCRIPT_KEYS, redis->prefix, name, name_len);
}

bool key_is_derived(const struct redis *redis, const char *key, size_t len)
{
    return family_is_derived(suffixes, SCRIPT_KEYS, redis->prefix, key, len);
}

void call_begin(struct call *call, size_t n_keys, const struct redis *redis, const char *name,
                size_t name_len)
{
    family_write(call->args, call->room, suffixes, n_keys, redis->prefix, name, name_len);
    call->n = call->n_keys = n_keys;
}

void call_add(struct call *call, const char *text)
{
    call->args[call->n++] = CONN_TEXT(text);
}

enum stile_status call_send(const struct call *call, struct redis *redis, const struct lua *script,
                            conn_fn *fn, void *data, struct stile_error *err)
{
    struct node *node = route_to_key(redis, &call->args[0]);
    return node_eval(node, script, call->args, call->n_keys, call->n, fn, data, err);
}
