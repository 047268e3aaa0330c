/* The keys of a name, and what is sent with them. */
#include <string.h>

#include "engines/redlock/redlock.h"

/* No name and no prefix has the mark: no lock can be called as a key that belongs to another. */
static const char *const suffixes[NAME_KEYS] = {"", KEY_MARK "fence", KEY_MARK "queue"};

void keys_of(struct keys *keys, const struct redlock *redlock, const char *name, size_t len)
{
    family_write(keys->key, keys->room, suffixes, NAME_KEYS, redlock->prefix, name, len);
}

bool keys_are_ours(const struct redlock *redlock, const char *name)
{
    size_t len = strlen(redlock->prefix);
    return strncmp(NODE_KEY, redlock->prefix, len) == 0 && strcmp(NODE_KEY + len, name) == 0;
}

bool keys_derive(const struct redlock *redlock, const char *key, size_t len)
{
    return family_is_derived(suffixes, NAME_KEYS, redlock->prefix, key, len);
}

/* Without fences there are neither F nor N. */
void script_keys(struct call *call, const struct redlock *redlock, const struct keys *keys,
                 const char *which)
{
    call->n = 0;
    for (; *which; which++) {
        if (*which == 'K')
            call->args[call->n++] = keys->key[KEY];
        else if (*which == 'Q')
            call->args[call->n++] = keys->key[KEY_QUEUE];
        else if (*which == 'F' && redlock->fenced)
            call->args[call->n++] = keys->key[KEY_FENCE];
        else if (*which == 'N' && redlock->fenced)
            call->args[call->n++] = CONN_TEXT(NODE_KEY);
    }
    call->n_keys = call->n;
}

void script_add(struct call *call, const char *text)
{
    call->args[call->n++] = CONN_TEXT(text);
}

enum stile_status script_send(const struct call *call, struct node *node, const struct lua *script,
                              conn_fn *fn, void *data, struct stile_error *err)
{
    return conn_eval(node->asks, script, call->args, call->n_keys, call->n, fn, data, err);
}
