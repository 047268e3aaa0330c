/* The keys of a name, and the arguments that are sent with them. */
#include <string.h>

#include "engines/redis/redis.h"
#include "engines/redis/slot.h"

static const char mode_letters[] = {
    [STILE_EXCLUSIVE] = 'x', [STILE_SHARED] = 's', [STILE_SLOTS] = 'n'};

/* No name has a control character and no prefix may have one (place_prefix()), so that no K looks
 * like any other key of ours, and what is beside one K is never beside another. */
static const char *const suffixes[] = {
    "", KEY_MARK "queue", KEY_MARK "by", KEY_MARK "members", KEY_MARK "info", KEY_MARK "gap"};
#define FAMILY   (sizeof suffixes / sizeof *suffixes)
#define TOKEN_AT 3 /* in the scripts' order; the others are K's own */

/* All names share it, so that it also counts for a K that is another prefix and another name to
 * somebody else; in a Cluster it has to be in K's slot. */
static char *write_shared(char *at, const struct redis *redis, uint16_t slot, const char *what)
{
    if (redis->cluster) {
        *at++ = '{';
        slot_text(at, slot);
        at += SLOT_TEXT;
        *at++ = '}';
    }
    return stpcpy(stpcpy(at, "stile:" KEY_MARK), what);
}

static char *write_keys(struct conn_arg *args, char *room, size_t n, const struct redis *redis,
                        const char *name, size_t name_len)
{
    struct conn_arg family[FAMILY];
    bool counts = n > TOKEN_AT;
    char *at = family_write(family, room, suffixes, n - counts, redis->prefix, name, name_len);
    for (size_t i = 0; i < n - counts; i++)
        args[i + (i >= TOKEN_AT)] = family[i];
    if (!counts)
        return at;
    uint16_t slot = redis->cluster ? slot_of(family[0].bytes, family[0].len) : 0;
    char *end = write_shared(at, redis, slot, "token");
    args[TOKEN_AT] = (struct conn_arg){at, (size_t)(end - at)};
    return end;
}

size_t keys_room(const struct redis *redis, size_t name_len)
{
    return FAMILY_ROOM(FAMILY, strlen(redis->prefix), name_len) + SHARED_ROOM;
}

char *keys_write(struct conn_arg args[SCRIPT_KEYS], char *room, const struct redis *redis,
                 const char *name, size_t name_len)
{
    return write_keys(args, room, SCRIPT_KEYS, redis, name, name_len);
}

void key_of_clients(char stem[SHARED_ROOM], const struct redis *redis, uint16_t slot)
{
    write_shared(stem, redis, slot, "client:");
}

bool key_is_derived(const char *key, size_t len)
{
    return memchr(key, KEY_MARK[0], len) != NULL;
}

void call_begin(struct call *call, size_t n_keys, const struct redis *redis, const char *name,
                size_t name_len)
{
    write_keys(call->args, call->room, n_keys, redis, name, name_len);
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
void number_write(char out[NUMBER_MAX], uint64_t value)
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

static char *add_number(char *at, const char *number)
{
    *at++ = ' ';
    return stpcpy(at, number);
}

void numbers_of(struct numbers *n, const struct claim *claim, uint64_t held_ns)
{
    number_write(n->slots, claim->slots);
    number_write(n->px, px_of(claim, held_ns));
    number_write(n->ttl, whole_ms(claim->ttl_ns));
    number_write(n->hold, whole_ms(claim->hold_ns));
    number_write(n->delay, whole_ms(claim->delay_ns));
    char *at = add_number(add_number(n->terms, n->ttl), n->hold);
    add_number(add_number(at, n->delay), n->slots);
    n->mode[0] = mode_letters[claim->mode];
    n->mode[1] = '\0';
}

bool claim_take_mode(struct claim *claim, const char *letter)
{
    for (size_t i = 0; i < sizeof mode_letters; i++) {
        if (letter[0] == mode_letters[i] && !letter[1]) {
            claim->mode = (enum stile_mode)i;
            return true;
        }
    }
    return false;
}
