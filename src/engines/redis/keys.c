/* The keys of a name, and the arguments that are sent with them. */
#include <string.h>

#include "engines/redis/redis.h"

static const char mode_letters[] = {
    [STILE_EXCLUSIVE] = 'x', [STILE_SHARED] = 's', [STILE_SLOTS] = 'n'};

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

/* ---- numbers ---- */

static uint64_t whole_ms(uint64_t ns)
{
    return (ns + NS_PER_MS - 1) / NS_PER_MS;
}

/* How long the key lives without us: the lease and lock-delay, or what is left of hold_at_least. */
static uint64_t px_of(const struct claim *claim, uint64_t held_ns)
{
    uint64_t lease = claim->ttl_ns + claim->delay_ns;
    uint64_t hold = claim->hold_ns > held_ns ? claim->hold_ns - held_ns : 0;
    return whole_ms(lease > hold ? lease : hold);
}

/* snprintf() takes longer than all else that is done to send a claim. */
static void write_number(char out[NUMBER_MAX], uint64_t value)
{
    char digits[NUMBER_MAX];
    size_t n = 0, at = 0;
    do
        digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n > 0)
        out[at++] = digits[--n];
    out[at] = '\0';
}

void numbers_of(struct numbers *n, const struct claim *claim, uint64_t held_ns)
{
    write_number(n->slots, claim->slots);
    write_number(n->px, px_of(claim, held_ns));
    write_number(n->hold, whole_ms(claim->hold_ns));
    write_number(n->delay, whole_ms(claim->delay_ns));
    n->mode[0] = mode_letters[claim->mode];
    n->mode[1] = '\0';
}
