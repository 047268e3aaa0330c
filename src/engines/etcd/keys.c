/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: "<prefix><name>/<lease>" as Go's concurrency.Mutex, "<prefix><name>/read/<...>" and
 * "/write/<...>" as its recipe's RWMutex, "/slots/<...>" of our own: there the lease has eight more
 * digits, which distinguish the claims of one client. A ghost's key is that of its claim with a
 * dash and a number behind it.
 *
 * A claim on "a" must not wait for "a/b", whose keys start with "a/" too: so the suffix behind the
 * name is checked. And a name whose last part is "read" is distinguished from the readers of the
 * name before it by an escape, which is used for nothing else but '%' itself. */
#include "engines/etcd/keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "engines/etcd/etcd.h"

#define LEASE_DIGITS_MIN 8 /* of an id that a server has chosen; most have 15 or 16 */

static const char *const directories[] = {
    [STILE_EXCLUSIVE] = "write/", [STILE_SHARED] = "read/", [STILE_SLOTS] = "slots/"};

/* Behind the prefix. No lock and no other client has such keys, because names have no control
 * characters; and there is no NUL, so a shell can pass them to etcdctl. */
#define CELLS "\1stile/cell/"
static const char *const cell_suffixes[] = {
    [CELL_VALUE] = "", [CELL_TOKEN] = "\1token", [CELL_ISSUER] = "\1issuer"};

static void append(struct key *key, const char *bytes, size_t n)
{
    if (n > 0) /* a server's empty key has no bytes at all */
        memcpy(key->bytes + key->len, bytes, n);
    key->len += n;
}

static void copy(struct key *to, const struct key *from)
{
    to->len = from->len;
    memcpy(to->bytes, from->bytes, from->len);
}

static void append_text(struct key *key, const char *text)
{
    append(key, text, strlen(text));
}

static void append_escaped(struct key *key, unsigned char byte)
{
    char text[4];
    snprintf(text, sizeof text, "%%%02x", byte);
    append_text(key, text);
}

/* Whether these bytes are the name of a directory, without its slash. */
static bool is_directory(const char *bytes, size_t n)
{
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) {
        size_t len = strlen(directories[i]) - 1;
        if (n == len && memcmp(bytes, directories[i], len) == 0)
            return true;
    }
    return false;
}

void etcd_key_of_name(struct key *key, const struct etcd *etcd, const char *name, size_t len)
{
    size_t last = len;
    while (last > 0 && name[last - 1] != '/')
        last--;
    bool mistakable = is_directory(name + last, len - last);
    key->len = 0;
    append_text(key, etcd->prefix);
    for (size_t i = 0; i < len; i++) {
        if (name[i] == '%' || (mistakable && i == last))
            append_escaped(key, (unsigned char)name[i]);
        else
            append(key, name + i, 1);
    }
    append_text(key, "/");
}

void etcd_key_of_plain(struct key *key, const struct etcd *etcd, const char *name, size_t len)
{
    key->len = 0;
    append_text(key, etcd->prefix);
    append(key, name, len);
}

/* The first key after all that start so; "\0" means the end of all keys. */
void etcd_key_range_end(struct key *end, const struct key *start)
{
    copy(end, start);
    while (end->len > 0 && end->bytes[end->len - 1] == 0xff)
        end->len--;
    if (end->len > 0 && !(end->len == 1 && end->bytes[0] == 0))
        end->bytes[end->len - 1]++;
    else
        append(end, "", end->len == 0 ? 1 : 0);
}

/* Up to the last slash: what follows may be escaped in the key of one name and not of another.
 * Names have no control characters, so keys that begin with one are not read: there may be a
 * million records. */
void etcd_keys_of_list(struct key *start, struct key *end, const struct etcd *etcd,
                       const char *prefix, size_t len)
{
    size_t escape = strcspn(prefix, "%");
    len = len < escape ? len : escape;
    while (len > 0 && prefix[len - 1] != '/')
        len--;
    start->len = 0;
    append_text(start, etcd->prefix);
    append(start, prefix, len);
    etcd_key_range_end(end, start);
    if (len == 0)
        append_text(start, " ");
}

/* A key that is too long for us is cut off, and all that begin so are skipped: none is a lock's. */
bool etcd_key_after(struct key *after, const ProtobufCBinaryData *key)
{
    bool fits = key->len < KEY_MAX;
    struct key start = {.len = 0};
    append(&start, (const char *)key->data, fits ? key->len : KEY_MAX - 1);
    if (!fits) {
        etcd_key_range_end(after, &start);
        return after->len > 1 || after->bytes[0] != 0;
    }
    append(&start, "", 1);
    copy(after, &start);
    return true;
}

static bool is_less(const struct key *one, const struct key *two)
{
    size_t n = one->len < two->len ? one->len : two->len;
    int order = memcmp(one->bytes, two->bytes, n);
    return order ? order < 0 : one->len < two->len;
}

/* The queue of "x/read" is at "x/%72ead/", and its plain key far behind that. */
void etcd_keys_of_name(struct key *start, struct key *end, const struct etcd *etcd,
                       const char *name, size_t len)
{
    struct key plain;
    etcd_key_of_name(start, etcd, name, len);
    etcd_key_range_end(end, start);
    if (!etcd->plain_key)
        return;
    etcd_key_of_plain(&plain, etcd, name, len);
    if (is_less(&plain, start))
        copy(start, &plain);
    append(&plain, "", 1);
    if (is_less(end, &plain))
        copy(end, &plain);
}

static void append_lease(struct key *key, int64_t lease)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIx64, (uint64_t)lease);
    append_text(key, text);
}

void etcd_key_of_claim(struct key *key, const struct etcd *etcd, const struct claim *claim,
                       int64_t lease, uint32_t number)
{
    char text[16] = "";
    etcd_key_of_name(key, etcd, claim->name, claim->name_len);
    if (claim->mode != STILE_EXCLUSIVE || etcd->rwmutex)
        append_text(key, directories[claim->mode]);
    append_lease(key, lease);
    if (number)
        snprintf(text, sizeof text, "%08" PRIx32, number);
    append_text(key, text);
}

void etcd_key_of_ghost(struct key *key, const struct key *own, unsigned number)
{
    char text[16];
    copy(key, own);
    snprintf(text, sizeof text, "-%u", number);
    append_text(key, text);
}

/* Names have no control characters: this key is not a lock's. */
void etcd_key_of_owner(struct key *key, const struct etcd *etcd, int64_t lease)
{
    key->len = 0;
    append_text(key, etcd->prefix);
    append(key, "\0stile/", 7);
    append_lease(key, lease);
}

void etcd_key_of_since(struct key *key, const struct etcd *etcd, int64_t lease, int64_t revision)
{
    etcd_key_of_owner(key, etcd, lease);
    append_text(key, "/");
    append_lease(key, revision);
}

void etcd_key_of_break(struct key *key, const struct etcd *etcd, int64_t lease, int64_t revision)
{
    etcd_key_of_since(key, etcd, lease, revision);
    append_text(key, "/broken");
}

/* No NUL here: a shell can pass this key to `etcdctl get`. */
void etcd_key_of_record(struct key *key, const struct etcd *etcd, const char *name, size_t len)
{
    key->len = 0;
    append_text(key, etcd->prefix);
    append_text(key, "\1stile/last/");
    append(key, name, len);
}

static void key_of_cells(struct key *key, const struct etcd *etcd, const char *prefix, size_t len)
{
    key->len = 0;
    append_text(key, etcd->prefix);
    append_text(key, CELLS);
    append(key, prefix, len);
}

void etcd_keys_of_cell(struct cell_keys *keys, const struct etcd *etcd, const char *name,
                       size_t len)
{
    key_of_cells(&keys->value, etcd, name, len);
    copy(&keys->token, &keys->value);
    append_text(&keys->token, cell_suffixes[CELL_TOKEN]);
    copy(&keys->issuer, &keys->value);
    append_text(&keys->issuer, cell_suffixes[CELL_ISSUER]);
}

/* No byte of a name is as small as those behind it: between the keys of a cell is no other's. */
void etcd_keys_around_cell(struct key *start, struct key *end, const struct etcd *etcd,
                           const char *name, size_t len)
{
    key_of_cells(start, etcd, name, len);
    copy(end, start);
    append_text(end, "\2");
}

void etcd_keys_of_cells(struct key *start, struct key *end, const struct etcd *etcd,
                        const char *prefix, size_t len)
{
    key_of_cells(start, etcd, prefix, len);
    etcd_key_range_end(end, start);
}

bool etcd_key_is_informational(const struct etcd *etcd, const ProtobufCBinaryData *key)
{
    size_t prefix = strlen(etcd->prefix);
    return key->len > prefix && key->data[prefix] == '\0';
}

/* An observer of concurrency.Election shows it as the leader's, and so does `etcdctl get`. */
void etcd_value_of_claim(char value[VALUE_MAX], const struct etcd *etcd, const struct claim *claim)
{
    const char *said = claim->proclaim ? claim->proclaim : etcd->self;
    if (claim->mode == STILE_SLOTS)
        snprintf(value, VALUE_MAX, "%u %s", claim->slots, said);
    else
        snprintf(value, VALUE_MAX, "%s", said);
}

const char *etcd_value_parse(unsigned *slots, const struct key_suffix *suffix, const char *value)
{
    char *rest;
    *slots = 0;
    if (suffix->mode != STILE_SLOTS)
        return value;
    *slots = (unsigned)strtoul(value, &rest, 10);
    return *rest == ' ' ? rest + 1 : rest;
}

const char *etcd_value_self(int64_t *pid, const char *value)
{
    char *rest;
    *pid = strtoll(value, &rest, 10);
    if (*pid <= 0 || *value < '1' || *value > '9' || *rest != '@' || !rest[1] || strchr(rest, ' '))
        return NULL;
    return rest + 1;
}

bool etcd_suffix_parse(struct key_suffix *suffix, const uint8_t *bytes, size_t n)
{
    *suffix = (struct key_suffix){.mode = STILE_EXCLUSIVE};
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) {
        size_t len = strlen(directories[i]);
        if (n > len && memcmp(bytes, directories[i], len) == 0) {
            suffix->mode = (enum stile_mode)i;
            bytes += len;
            n -= len;
            break;
        }
    }
    suffix->ghost = memchr(bytes, '-', n) != NULL;
    return n > 0 && !memchr(bytes, '/', n);
}

static int digit(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_lease(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (digit(bytes[i]) < 0 && bytes[i] != '-')
            return false;
    }
    return n > 0;
}

static size_t count(const uint8_t *bytes, size_t n, const char *digits)
{
    size_t i = 0;
    while (i < n && bytes[i] && strchr(digits, bytes[i]))
        i++;
    return i;
}

/* A claim's suffix is the lease it is bound to; a ghost's is a lease's digits and a number. */
bool etcd_suffix_is_plain(const struct etcd *etcd, const Etcd__KeyValue *kv, size_t at)
{
    const uint8_t *bytes = kv->key.data + at;
    size_t n = kv->key.len - at;
    struct key lease;
    if (!etcd->plain_key || memchr(bytes, '/', n))
        return false;
    lease.len = 0;
    append_lease(&lease, kv->lease);
    size_t hex = count(bytes, n, "0123456789abcdef");
    if (hex == n)
        return n != lease.len || memcmp(bytes, lease.bytes, n) != 0;
    return hex < LEASE_DIGITS_MIN || bytes[hex] != '-' || hex + 1 == n ||
           count(bytes + hex + 1, n - hex - 1, "0123456789") != n - hex - 1;
}

static size_t last_slash(const uint8_t *bytes, size_t n)
{
    while (n > 0 && bytes[n - 1] != '/')
        n--;
    return n;
}

static void unescape(char *name, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool escape =
            bytes[i] == '%' && i + 2 < n && digit(bytes[i + 1]) >= 0 && digit(bytes[i + 2]) >= 0;
        *name++ = (char)(escape ? digit(bytes[i + 1]) * 16 + digit(bytes[i + 2]) : bytes[i]);
        i += escape ? 2 : 0;
    }
    *name = '\0';
}

static bool is_printable(const char *name)
{
    for (; *name; name++) {
        if ((unsigned char)*name < ' ' || *name == 127)
            return false;
    }
    return true;
}

/* A lock's key is bound to a lease and has a suffix: other programs' keys lack one of them. */
bool etcd_key_parse(char *name, struct key_suffix *suffix, const struct etcd *etcd,
                    const Etcd__KeyValue *kv)
{
    size_t prefix = strlen(etcd->prefix), n = kv->key.len;
    const uint8_t *bytes = kv->key.data;
    if (n <= prefix || n > KEY_MAX - 1 || kv->lease == 0 || memchr(bytes, '\0', n))
        return false;
    size_t at = last_slash(bytes, n);
    if (at < prefix + 2 || !is_lease(bytes + at, n - at))
        return false;
    size_t before = last_slash(bytes, at - 1);
    if (before > prefix && is_directory((const char *)bytes + before, at - 1 - before))
        at = before;
    if (at < prefix + 2 || !etcd_suffix_parse(suffix, bytes + at, n - at) ||
        etcd_suffix_is_plain(etcd, kv, at))
        return false;
    unescape(name, bytes + prefix, at - 1 - prefix);
    return *name && strlen(name) <= STILE_NAME_MAX && is_printable(name);
}

bool etcd_key_parse_plain(char *name, struct key_suffix *suffix, const struct etcd *etcd,
                          const Etcd__KeyValue *kv)
{
    size_t prefix = strlen(etcd->prefix), n = kv->key.len;
    if (!etcd->plain_key || n <= prefix || n - prefix > STILE_NAME_MAX ||
        memchr(kv->key.data, '\0', n))
        return false;
    *suffix = (struct key_suffix){.mode = STILE_EXCLUSIVE, .plain = true};
    memcpy(name, kv->key.data + prefix, n - prefix);
    name[n - prefix] = '\0';
    return is_printable(name);
}

enum cell_part etcd_key_parse_cell(char name[STILE_NAME_MAX + 1], const struct etcd *etcd,
                                   const ProtobufCBinaryData *key)
{
    struct key start;
    key_of_cells(&start, etcd, "", 0);
    if (key->len <= start.len || memcmp(key->data, start.bytes, start.len) != 0)
        return CELL_NOTHING;
    const uint8_t *bytes = key->data + start.len;
    size_t n = key->len - start.len;
    const uint8_t *end = memchr(bytes, '\1', n);
    size_t len = end ? (size_t)(end - bytes) : n;
    if (name_check((const char *)bytes, len, NULL))
        return CELL_NOTHING;
    memcpy(name, bytes, len);
    name[len] = '\0';
    for (int part = CELL_VALUE; part < CELL_NOTHING; part++) {
        const char *suffix = cell_suffixes[part];
        if (n - len == strlen(suffix) && memcmp(bytes + len, suffix, n - len) == 0)
            return (enum cell_part)part;
    }
    return CELL_NOTHING;
}
