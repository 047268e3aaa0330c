/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/etcd/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX 1000000
#define SHOWN_MAX   STILE_PROCLAIM_MAX

/* ---- entries ---- */

static bool grow(struct view *view)
{
    size_t cap = view->cap ? 2 * view->cap : 64;
    struct entry *entries =
        cap > ENTRIES_MAX ? NULL : realloc(view->entries, cap * sizeof *entries);
    if (!entries)
        return false;
    view->entries = entries;
    view->cap = cap;
    return true;
}

static void entry_free(struct entry *entry)
{
    free(entry->name);
    free(entry->key);
    free(entry->value);
}

/* Another program's value may be long, or no text at all. */
static void copy_shown(char shown[SHOWN_MAX + 1], const ProtobufCBinaryData *value)
{
    size_t n = value->len < SHOWN_MAX ? value->len : SHOWN_MAX;
    for (size_t i = 0; i < n; i++)
        shown[i] = (char)(value->data[i] < ' ' || value->data[i] == 127 ? '?' : value->data[i]);
    shown[n] = '\0';
}

/* Shown in place of the holder's command. */
static char *foreign_text(const Etcd__KeyValue *kv)
{
    char key[SHOWN_MAX + 1], *text;
    copy_shown(key, &kv->key);
    return asprintf(&text, "not a lock: the key %s", key) < 0 ? NULL : text;
}

static bool add(struct view *view, const char *name, const struct key_suffix *suffix, bool foreign,
                const Etcd__KeyValue *kv)
{
    if (view->n == view->cap && !grow(view))
        return false;
    struct entry *entry = &view->entries[view->n];
    *entry = (struct entry){.name = strdup(name),
                            .suffix = *suffix,
                            .revision = kv->create_revision,
                            .lease = kv->lease,
                            .foreign = foreign,
                            .age_ms = -1};
    entry->key = malloc(offsetof(struct key, bytes) + kv->key.len);
    entry->value = foreign ? foreign_text(kv) : strdup("");
    if (!entry->name || !entry->key || !entry->value) {
        entry_free(entry);
        return false;
    }
    entry->key->len = kv->key.len;
    memcpy(entry->key->bytes, kv->key.data, kv->key.len);
    view->n++;
    return true;
}

static bool is_wanted(const struct view *view, const char *name)
{
    if (view->only)
        return strcmp(name, view->only) == 0;
    return !view->prefix || strncmp(name, view->prefix, strlen(view->prefix)) == 0;
}

/* A key in our way is shown, whatever its owner; but not every key with a lease is a lock's. */
static bool is_wanted_plain(const struct view *view, const char *name, const Etcd__KeyValue *kv)
{
    return is_wanted(view, name) && (view->only || kv->lease);
}

static bool read_wanted(char *name, struct key_suffix *suffix, const struct view *view,
                        const struct etcd *etcd, const Etcd__KeyValue *kv)
{
    if (etcd_key_parse(name, suffix, etcd, kv))
        return is_wanted(view, name);
    return etcd_key_parse_plain(name, suffix, etcd, kv) && is_wanted_plain(view, name, kv);
}

/* The same rule as for a claim on it (queue.c): show must not report a name as free that cannot be
 * locked. */
static bool read_foreign(char *name, struct key_suffix *suffix, const struct view *view,
                         const struct etcd *etcd, const Etcd__KeyValue *kv)
{
    struct key start;
    if (!view->only || kv->key.len >= KEY_MAX)
        return false;
    etcd_key_of_name(&start, etcd, view->only, strlen(view->only));
    if (kv->key.len <= start.len || memcmp(kv->key.data, start.bytes, start.len) != 0 ||
        !etcd_suffix_parse(suffix, kv->key.data + start.len, kv->key.len - start.len) ||
        etcd_suffix_is_plain(etcd, kv, start.len))
        return false;
    strcpy(name, view->only);
    return true;
}

enum stile_status etcd_view_add(struct view *view, const struct etcd *etcd,
                                const Etcd__RangeResponse *range, struct stile_error *err)
{
    char name[KEY_MAX];
    struct key_suffix suffix;
    for (size_t i = 0; i < range->n_kvs; i++) {
        const Etcd__KeyValue *kv = range->kvs[i];
        bool wanted = read_wanted(name, &suffix, view, etcd, kv);
        bool foreign = !wanted && read_foreign(name, &suffix, view, etcd, kv);
        if ((wanted || foreign) && !add(view, name, &suffix, foreign, kv))
            return error_set(err, STILE_NOMEM, 0, "out of memory, or too many keys");
    }
    return STILE_OK;
}

/* etcd3's Lock is an empty key; a list does not take other programs' plain keys for locks. */
bool etcd_view_value(struct view *view, size_t at, const Etcd__KeyValue *kv)
{
    struct entry *entry = &view->entries[at];
    char value[SHOWN_MAX + 1];
    copy_shown(value, &kv->value);
    free(entry->value);
    entry->value = strdup(etcd_value_parse(&entry->slots, &entry->suffix, value));
    entry->dropped = entry->suffix.plain && !view->only && kv->value.len > 0;
    return entry->value != NULL;
}

/* The owner of the plain key holds; a claim's own key comes before its ghosts. */
static int in_line(const void *a, const void *b)
{
    const struct entry *one = a, *two = b;
    int order = strcmp(one->name, two->name);
    if (!order)
        order = two->suffix.plain - one->suffix.plain;
    if (!order)
        order = (one->revision > two->revision) - (one->revision < two->revision);
    return order ? order : one->suffix.ghost - two->suffix.ghost;
}

static int by_lease(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a, two = *(const int64_t *)b;
    return (one > two) - (one < two);
}

static enum stile_status collect_owners(struct view *view, size_t max, struct stile_error *err)
{
    int64_t *leases = malloc((view->n + 1) * sizeof *leases);
    size_t n = 0;
    if (!leases)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    for (size_t i = 0; i < view->n; i++)
        leases[i] = view->entries[i].lease;
    qsort(leases, view->n, sizeof *leases, by_lease);
    for (size_t i = 0; i < view->n; i++) {
        if (n == 0 || leases[n - 1] != leases[i])
            leases[n++] = leases[i];
    }
    n = n < max ? n : max;
    view->owners = calloc(n + 1, sizeof *view->owners);
    for (size_t i = 0; view->owners && i < n; i++)
        view->owners[i] = (struct lease_owner){.lease = leases[i], .ttl = -1};
    view->n_owners = view->owners ? n : 0;
    free(leases);
    return view->owners ? STILE_OK : error_set(err, STILE_NOMEM, 0, "out of memory");
}

static int64_t number_in(const uint8_t *bytes, size_t n, int base)
{
    char text[24] = "";
    if (n > 0 && n < sizeof text)
        memcpy(text, bytes, n);
    return (int64_t)strtoull(text, NULL, base);
}

void etcd_view_since(struct view *view, const Etcd__KeyValue *kv, int64_t now_ms)
{
    size_t at = kv->key.len;
    while (at > 0 && kv->key.data[at - 1] != '/')
        at--;
    int64_t revision = number_in(kv->key.data + at, kv->key.len - at, 16);
    int64_t since = number_in(kv->value.data, kv->value.len, 10);
    for (size_t i = 0; i < view->n; i++) {
        struct entry *entry = &view->entries[i];
        if (entry->revision == revision && entry->lease == kv->lease && since <= now_ms)
            entry->age_ms = now_ms - since;
    }
}

static bool has_line_key(const struct view *view, size_t plain)
{
    const struct entry *entry = &view->entries[plain];
    for (size_t i = plain + 1; i < view->n && strcmp(view->entries[i].name, entry->name) == 0;
         i++) {
        if (view->entries[i].lease == entry->lease)
            return true;
    }
    return false;
}

/* A claim of ours has two keys, and is one claim. */
static void drop_plain_of_ours(struct view *view)
{
    size_t n = 0;
    for (size_t i = 0; i < view->n; i++) {
        if (view->entries[i].dropped || (view->entries[i].suffix.plain && has_line_key(view, i)))
            entry_free(&view->entries[i]);
        else
            view->entries[n++] = view->entries[i];
    }
    view->n = n;
}

enum stile_status etcd_view_sort(struct view *view, size_t max, struct stile_error *err)
{
    if (view->n > 1)
        qsort(view->entries, view->n, sizeof *view->entries, in_line);
    drop_plain_of_ours(view);
    return collect_owners(view, max, err);
}

struct lease_owner *etcd_view_owner(struct view *view, int64_t lease)
{
    return view->n_owners
               ? bsearch(&lease, view->owners, view->n_owners, sizeof *view->owners, by_lease)
               : NULL;
}

void etcd_view_empty(struct view *view)
{
    for (size_t i = 0; i < view->n; i++)
        entry_free(&view->entries[i]);
    for (size_t i = 0; i < view->n_owners; i++)
        free(view->owners[i].info);
    free(view->entries);
    free(view->owners);
    *view = (struct view){.only = view->only, .prefix = view->prefix};
}

/* ---- claims ---- */

static void cut_info(struct lease_owner *owner)
{
    char *rest;
    if (owner->cut)
        return;
    owner->cut = true;
    owner->host = owner->command = "";
    snprintf(owner->lease_hex, sizeof owner->lease_hex, "%" PRIx64, (uint64_t)owner->lease);
    if (!owner->info)
        return;
    owner->pid = strtoll(owner->info, &rest, 10);
    if (*rest != ' ')
        return;
    char *host = rest + 1, *space = strchr(host, ' ');
    owner->host = host;
    if (space) {
        *space = '\0';
        owner->command = space + 1;
    }
    snprintf(owner->self, sizeof owner->self, "%" PRId64 "@%s", owner->pid, host);
}

/* What a role for the name alone leaves of its holder. */
static void fill_from_value(struct stile_claim_info *claim, const struct entry *ghost)
{
    int64_t pid;
    const char *host = etcd_value_self(&pid, ghost->value);
    if (!host)
        return;
    claim->pid = pid;
    claim->host = host;
}

static void fill_claim(struct stile_claim_info *claim, struct view *view, const struct entry *entry)
{
    struct lease_owner *owner = etcd_view_owner(view, entry->lease);
    *claim = (struct stile_claim_info){.ghost = entry->suffix.ghost,
                                       .mode = entry->suffix.mode,
                                       .age_ms = entry->age_ms,
                                       .host = "",
                                       .command = "",
                                       .owner = "",
                                       .proclaimed = entry->suffix.ghost ? "" : entry->value};
    if (entry->foreign) {
        claim->command = entry->value;
        claim->proclaimed = "";
        claim->expires_ms = STILE_NO_DEADLINE;
        return;
    }
    if (!owner)
        return;
    cut_info(owner);
    claim->pid = owner->pid;
    claim->host = owner->host;
    claim->command = owner->command;
    claim->owner = owner->lease_hex;
    int64_t pid;
    if (entry->age_ms < 0 && (owner->info || etcd_value_self(&pid, entry->value)))
        claim->age_ms = 0; /* ours, and so young that it has not said yet */
    if (strcmp(claim->proclaimed, owner->self) == 0)
        claim->proclaimed = ""; /* the default value, not a proclamation */
    claim->expires_ms = owner->ttl > 0 ? owner->ttl * 1000 : 0;
    if (entry->suffix.ghost && !owner->pid)
        fill_from_value(claim, entry);
}

/* What is before the next one. */
struct counts {
    size_t others[3]; /* by mode */
};

static bool holds(const struct counts *before, const struct entry *entry)
{
    size_t exclusive = before->others[STILE_EXCLUSIVE], shared = before->others[STILE_SHARED],
           slots = before->others[STILE_SLOTS];
    switch (entry->suffix.mode) {
    case STILE_SHARED:
        return exclusive + slots == 0;
    case STILE_SLOTS:
        return exclusive + shared == 0 && (slots == 0 || slots < entry->slots);
    default:
        return exclusive + shared + slots == 0;
    }
}

static void extend(struct stile_claim_info *claim, struct view *view, const struct entry *ghost)
{
    struct stile_claim_info other;
    fill_claim(&other, view, ghost);
    if (other.expires_ms > claim->expires_ms)
        claim->expires_ms = other.expires_ms;
}

/* Holders come first; the order among holders and among waiters is kept. */
static void part_holders(struct stile_info *info, struct stile_claim_info *claims, size_t n)
{
    size_t holders = 0;
    for (size_t i = 0; i < n; i++) {
        struct stile_claim_info claim = claims[i];
        if (!claim.held)
            continue;
        memmove(claims + holders + 1, claims + holders, (i - holders) * sizeof *claims);
        claims[holders++] = claim;
    }
    info->holders = holders;
    info->waiters = n - holders;
    info->claims = claims;
}

size_t etcd_view_name(struct view *view, size_t at, struct stile_info *info,
                      struct stile_claim_info *claims)
{
    const char *name = view->entries[at].name;
    struct counts before = {{0}};
    int64_t revision = 0;
    size_t n = 0;
    /* The last token of a name that is free is not known: no token so far is greater than this. */
    *info = (struct stile_info){.name = name, .token = (uint64_t)view->revision};
    for (; at < view->n && strcmp(view->entries[at].name, name) == 0; at++) {
        const struct entry *entry = &view->entries[at];
        if (n > 0 && entry->revision == revision) {
            extend(&claims[n - 1], view, entry);
            continue;
        }
        revision = entry->revision;
        fill_claim(&claims[n], view, entry);
        claims[n].held = holds(&before, entry);
        if (claims[n].held)
            claims[n].token = info->token = (uint64_t)revision;
        before.others[entry->suffix.mode]++;
        n++;
    }
    part_holders(info, claims, n);
    return at;
}
