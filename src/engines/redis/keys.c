/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a name, the slot they are in, and the arguments that are sent with them. */
#include <stdbool.h>
#include <string.h>

#include "base/text.h"
#include "engines/redis/keys.h"
#include "engines/redis/redis.h"

/* ---- the slots of a Cluster ---- */

#define POLYNOMIAL 0x1021 /* CRC-16/XMODEM: from 0, most significant bit first */

static uint16_t crc_forward(uint16_t crc, unsigned bits)
{
    while (bits--)
        crc = (uint16_t)(crc << 1 ^ (crc & 0x8000 ? POLYNOMIAL : 0));
    return crc;
}

static uint16_t crc_backward(uint16_t crc, unsigned bits)
{
    while (bits--)
        crc = crc & 1 ? (uint16_t)((crc ^ POLYNOMIAL) >> 1 | 0x8000) : crc >> 1;
    return crc;
}

static uint16_t crc_of(const char *bytes, size_t n)
{
    uint16_t crc = 0;
    for (size_t i = 0; i < n; i++)
        crc = crc_forward(crc ^ (uint16_t)((unsigned char)bytes[i] << 8), 8);
    return crc;
}

/* What a Cluster hashes instead of the whole key: the text between the first { and the first }
 * behind it, unless that is empty. Its length with both braces, or 0. */
static size_t slot_tag(const char **tag, const char *key, size_t len)
{
    const char *open = memchr(key, '{', len);
    const char *close = open ? memchr(open, '}', len - (size_t)(open - key)) : NULL;
    *tag = open;
    return close && close > open + 1 ? (size_t)(close - open) + 1 : 0;
}

uint16_t redis_slot_of(const char *key, size_t len)
{
    const char *tag;
    size_t n = slot_tag(&tag, key, len);
    return (n ? crc_of(tag + 1, n - 2) : crc_of(key, len)) % SLOTS;
}

static bool is_plain(unsigned c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* Given a first character, the last two bytes follow from the wanted CRC, computed backward by 16
 * bits; four CRCs share a slot. For every slot some first character makes both of them letters or
 * digits: the tests try all slots. */
void redis_slot_text(char text[SLOT_TEXT], uint16_t slot)
{
    for (char first = '0'; first <= 'z'; first++) {
        for (unsigned high = 0; high < 4 && is_plain((unsigned char)first); high++) {
            unsigned last = crc_backward((uint16_t)(slot | high << 14), 16) ^ crc_of(&first, 1);
            if (!is_plain(last >> 8) || !is_plain(last & 0xff))
                continue;
            text[0] = first;
            text[1] = (char)(last >> 8);
            text[2] = (char)(last & 0xff);
            return;
        }
    }
}

/* ---- the keys of one name ---- */

static char *add(char *at, const char *bytes, size_t n)
{
    memcpy(at, bytes, n);
    return at + n;
}

/* Text that lives in K's slot: {K}, or with the tag that K has itself, {tag}K. Where K has no tag,
 * but a brace that would end one early, a tag is made for K's slot. */
static char *add_in_slot(char *at, const char *key, size_t len)
{
    char made[SLOT_TEXT + 2] = {'{', '?', '?', '?', '}'};
    const char *tag;
    size_t tag_len = slot_tag(&tag, key, len);
    if (!tag_len && memchr(key, '}', len)) {
        redis_slot_text(made + 1, redis_slot_of(key, len));
        tag = made;
        tag_len = sizeof made;
    }
    at = tag_len ? add(at, tag, tag_len) : add(at, "{", 1);
    at = add(at, key, len);
    return tag_len ? at : add(at, "}", 1);
}

/* A key that belongs to K begins with a brace, which K does only if its prefix does. */
char *redis_keys_of_name(struct conn_arg *args, char *room, const char *const *suffixes, size_t n,
                         const char *prefix, const char *name, size_t name_len)
{
    size_t prefix_len = strlen(prefix), len = prefix_len + name_len;
    const char *key = room;
    char *at = add(add(room, prefix, prefix_len), name, name_len);
    args[0] = (struct conn_arg){key, len};
    for (size_t i = 1; i < n; i++) {
        char *start = at;
        at = add_in_slot(at, key, len);
        at = add(at, suffixes[i], strlen(suffixes[i]));
        args[i] = (struct conn_arg){start, (size_t)(at - start)};
    }
    return at;
}

bool redis_key_is_derived(const char *key, size_t len)
{
    return memchr(key, KEY_MARK[0], len) != NULL;
}

/* ---- the keys of a resource ---- */

char *redis_key_of_resource(struct conn_arg *arg, char *at, const char *stem, const char *name,
                            size_t len)
{
    char *end = add_in_slot(stpcpy(at, stem), name, len);
    *arg = (struct conn_arg){at, (size_t)(end - at)};
    return end;
}

/* Anybody may have written the key: a name that would get another one is none. */
const char *redis_resource_of_key(size_t *len, const char *stem, const char *key, size_t key_len)
{
    const char *end = key + key_len, *tag = key + strlen(stem) + 1;
    if (key_len > RESOURCE_ROOM || tag >= end || memcmp(key, stem, strlen(stem)) != 0)
        return NULL;
    const char *close = memchr(tag, '}', (size_t)(end - tag));
    if (!close)
        return NULL;
    const char *name = close + 1 == end ? tag : close + 1;
    *len = (size_t)((name == tag ? close : end) - name);
    if (*len == 0 || *len > STILE_NAME_MAX)
        return NULL;
    char again[RESOURCE_ROOM];
    struct conn_arg arg;
    redis_key_of_resource(&arg, again, stem, name, *len);
    return arg.len == key_len && memcmp(again, key, key_len) == 0 ? name : NULL;
}

/* ---- the arguments of scripts ---- */

static const char mode_letters[] = {
    [STILE_EXCLUSIVE] = 'x', [STILE_SHARED] = 's', [STILE_SLOTS] = 'n'};

/* No name has a control character and no prefix may have one (redis_address_prefix()), so that no K
 * looks like another key of ours, and the keys of two names never coincide. */
static const char *const suffixes[] = {"",
                                       KEY_MARK "queue",
                                       KEY_MARK "members",
                                       KEY_MARK "info",
                                       KEY_MARK "gap",
                                       BROKEN_SUFFIX,
                                       LAST_SUFFIX};
#define N_SUFFIXES (sizeof suffixes / sizeof *suffixes)
#define TOKEN_AT   2 /* in the scripts' order; the other keys belong to K */

/* All names share this key, so that tokens also grow where another client splits the same K into
 * another prefix and name. In a Cluster it has to be in K's slot. */
static char *write_shared(char *at, const struct redis *redis, uint16_t slot, const char *what)
{
    if (redis->cluster) {
        *at++ = '{';
        redis_slot_text(at, slot);
        at += SLOT_TEXT;
        *at++ = '}';
    }
    return stpcpy(stpcpy(at, "stile:" KEY_MARK), what);
}

static char *write_keys(struct conn_arg *args, char *room, size_t n, const struct redis *redis,
                        const char *name, size_t name_len)
{
    struct conn_arg keys[N_SUFFIXES];
    bool counts = n > TOKEN_AT;
    char *at = redis_keys_of_name(keys, room, suffixes, n - counts, redis->prefix, name, name_len);
    for (size_t i = 0; i < n - counts; i++)
        args[i + (i >= TOKEN_AT)] = keys[i];
    if (!counts)
        return at;
    uint16_t slot = redis->cluster ? redis_slot_of(keys[0].bytes, keys[0].len) : 0;
    char *end = write_shared(at, redis, slot, "token");
    args[TOKEN_AT] = (struct conn_arg){at, (size_t)(end - at)};
    return end;
}

size_t redis_keys_room(const struct redis *redis, size_t name_len)
{
    return KEYS_ROOM(N_SUFFIXES, strlen(redis->prefix), name_len) + SHARED_ROOM;
}

char *redis_keys_write(struct conn_arg args[LOSS_KEYS], char *room, const struct redis *redis,
                       const char *name, size_t name_len)
{
    return write_keys(args, room, LOSS_KEYS, redis, name, name_len);
}

void redis_key_of_clients(char stem[SHARED_ROOM], const struct redis *redis, uint16_t slot)
{
    write_shared(stem, redis, slot, "client:");
}

void redis_call_begin(struct call *call, size_t n_keys, const struct redis *redis, const char *name,
                      size_t name_len)
{
    write_keys(call->args, call->room, n_keys, redis, name, name_len);
    call->n = call->n_keys = n_keys;
}

void redis_call_add(struct call *call, const char *text)
{
    call->args[call->n++] = CONN_TEXT(text);
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

/* snprintf() would take longer than everything else that sending a claim needs. */
void redis_number_write(char out[NUMBER_MAX], uint64_t value)
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

void redis_numbers_of(struct numbers *n, const struct claim *claim, uint64_t held_ns)
{
    redis_number_write(n->slots, claim->slots);
    redis_number_write(n->px, px_of(claim, held_ns));
    redis_number_write(n->ttl, whole_ms(claim->ttl_ns));
    redis_number_write(n->hold, whole_ms(claim->hold_ns));
    redis_number_write(n->delay, whole_ms(claim->delay_ns));
    char *at = add_number(add_number(n->terms, n->ttl), n->hold);
    add_number(add_number(at, n->delay), n->slots);
    n->mode[0] = mode_letters[claim->mode];
    n->mode[1] = '\0';
}

void redis_call_add_entry(struct call *call, struct redis_claim *claim, struct numbers *n)
{
    redis_numbers_of(n, base_of(claim), 0);
    redis_call_add(call, claim->leased.owner);
    redis_call_add(call, n->mode);
    redis_call_add(call, n->px);
    redis_call_add(call, n->terms);
}

bool redis_claim_take_mode(struct claim *claim, const char *letter)
{
    for (size_t i = 0; i < sizeof mode_letters; i++) {
        if (letter[0] == mode_letters[i] && !letter[1]) {
            claim->mode = (enum stile_mode)i;
            return true;
        }
    }
    return false;
}

/* ---- owner values ---- */

int redis_owner_draw(char owner[OWNER_LEN + 1], const char *channel, struct loop *loop)
{
    unsigned char random[(OWNER_LEN - SESSION_LEN) / 2];
    int rc = loop_random(loop, random, sizeof random);
    memcpy(owner, channel + strlen("stile:"), SESSION_LEN);
    hex_encode(owner + SESSION_LEN, random, sizeof random);
    return rc;
}
