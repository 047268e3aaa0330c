/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/dynamodb/item.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

/* A claim that nobody has watched, by the service's own clock: so long after its lease that no
 * difference between the clocks of its servers matters. Without this a dead holder would keep out
 * forever those that only try, and never wait. */
#define UNSEEN_GRACE_S 60
#define DATE_END_S     (INT64_C(1) << 40)

/* ---- keys ---- */

void ddb_item_key(char key[KEY_ROOM], const char *prefix, const char *name, size_t len)
{
    char *to = stpcpy(key, prefix);
    for (size_t i = 0; i < len;) {
        size_t n = name[i] == '%' && *prefix ? 0 : utf8_length(NULL, name + i, len - i);
        if (n)
            memcpy(to, name + i, n);
        else
            sprintf(to, "%%%02X", (unsigned char)name[i]);
        to += n ? n : 3;
        i += n ? n : 1;
    }
    *to = '\0';
}

static int hex_value(const char *two)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *high = *two ? strchr(digits, two[0]) : NULL;
    const char *low = high && two[1] ? strchr(digits, two[1]) : NULL;
    return low ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

size_t ddb_item_name(char name[STILE_NAME_MAX + 1], const char *prefix, const char *key)
{
    char again[KEY_ROOM];
    size_t n = 0, skip = strlen(prefix);
    if (strncmp(key, prefix, skip) != 0)
        return 0;
    for (const char *at = key + skip; *at; at++) {
        bool escaped = *at == '%' && *prefix;
        int byte = escaped ? hex_value(at + 1) : (unsigned char)*at;
        if (n == STILE_NAME_MAX || byte <= 0)
            return 0;
        name[n++] = (char)byte;
        at += escaped ? 2 : 0;
    }
    name[n] = '\0';
    ddb_item_key(again, prefix, name, n);
    return strcmp(again, key) == 0 ? n : 0;
}

/* ---- reading ---- */

const struct json *ddb_attribute(const struct json *object, const char *name, const char *type)
{
    return ddb_json_get(ddb_json_get(object, name), type);
}

bool ddb_item_is(const struct dynamo *d, const struct json *attributes, const char *prefix,
                 const char *name, size_t len)
{
    char key[KEY_ROOM];
    const char *found = ddb_json_text(ddb_attribute(attributes, d->key, "S"));
    ddb_item_key(key, prefix, name, len);
    return found && strcmp(found, key) == 0;
}

static bool has_number(uint64_t *number, const struct json *object, const char *name)
{
    return ddb_json_u64(number, ddb_attribute(object, name, "N"));
}

static uint64_t number_of(const struct json *object, const char *name)
{
    uint64_t number;
    (void)has_number(&number, object, name);
    return number;
}

/* Seconds since 1970; 0: not known, or not what this program writes. */
static int64_t date_of(const struct json *object, const char *name)
{
    uint64_t date = number_of(object, name);
    return date < DATE_END_S ? (int64_t)date : 0;
}

static uint64_t ms_of(const struct json *object, const char *name)
{
    uint64_t ms = number_of(object, name);
    return ms < LEASE_MS_MAX ? ms : LEASE_MS_MAX;
}

static const char *text_of(const struct json *object, const char *name)
{
    const char *text = ddb_json_text(ddb_attribute(object, name, "S"));
    return text ? text : "";
}

static enum stile_mode mode_of(const char *letter)
{
    return *letter == 's' ? STILE_SHARED : *letter == 'n' ? STILE_SLOTS : STILE_EXCLUSIVE;
}

static uint64_t life_ms(const struct item_claim *claim)
{
    uint64_t lease = claim->ghost ? 0 : claim->ttl_ms + claim->delay_ms;
    return lease > claim->hold_ms ? lease : claim->hold_ms;
}

static void observe(struct item_claim *claim, struct dynamo *d, int64_t written_s, uint64_t seen_ns)
{
    uint64_t since = ddb_observed_since(&d->observed, claim->id, claim->number, seen_ns);
    int64_t age_s = written_s && ddb_known_date(d) ? ddb_date(d) - written_s : 0;
    claim->ends_ns = since + life_ms(claim) * NS_PER_MS + NS_PER_MS;
    claim->over = loop_now(loop_of(d)) >= claim->ends_ns ||
                  age_s > (int64_t)(life_ms(claim) / 1000) + UNSEEN_GRACE_S;
}

/* A claim without its mode, its lease or its number is not of this program: it must not be taken
 * for one that is over. */
static bool is_claim(const struct json *map)
{
    uint64_t number;
    const char *mode = text_of(map, "m");
    return *mode && !mode[1] && strchr("xsn", *mode) && has_number(&number, map, "t") &&
           has_number(&number, map, "r");
}

/* False: it is no claim. */
static bool read_claim(struct item_claim *claim, const struct item *item, const struct json *member,
                       struct dynamo *d, uint64_t seen_ns)
{
    const struct json *map = ddb_json_get(member, "M"), *ghost = ddb_attribute(map, "g", "BOOL");
    *claim = (struct item_claim){.id = member->key,
                                 .mode = mode_of(text_of(map, "m")),
                                 .slots = number_of(map, "n"),
                                 .number = number_of(map, "r"),
                                 .ttl_ms = ms_of(map, "t"),
                                 .hold_ms = ms_of(map, "h"),
                                 .delay_ms = ms_of(map, "d"),
                                 .ghost = ghost && ghost->truth,
                                 .granted_s = date_of(map, "s"),
                                 .info = text_of(map, "i"),
                                 .proclaimed = text_of(map, "p")};
    claim->token_given = ddb_json_u64(&claim->token, ddb_attribute(map, "k", "N"));
    if (!claim->token_given)
        claim->token = item->token;
    observe(claim, d, date_of(map, "a"), seen_ns);
    return is_claim(map);
}

static int by_token(const void *a, const void *b)
{
    uint64_t x = ((const struct item_claim *)a)->token, y = ((const struct item_claim *)b)->token;
    return x < y ? -1 : x > y;
}

static size_t count(const struct json *parent)
{
    size_t n = 0;
    for (const struct json *child = parent ? parent->child : NULL; child; child = child->next)
        n++;
    return n;
}

static enum stile_status foreign_claims(struct stile_error *err)
{
    return error_set(err, STILE_CORRUPT, 0,
                     "the item's claims are damaged, or of another program: delete the item when "
                     "nothing uses it");
}

enum stile_status ddb_item_read(struct item *item, struct dynamo *d, const struct json *attributes,
                                uint64_t seen_ns, struct stile_error *err)
{
    const struct json *claims = ddb_attribute(attributes, "claims", "M");
    *item = (struct item){.exists = attributes != NULL,
                          .token = number_of(attributes, "token"),
                          .until = number_of(attributes, "until"),
                          .v = number_of(attributes, "v"),
                          .gone = count(ddb_attribute(attributes, "gone", "SS"))};
    size_t n = count(claims);
    if (ddb_json_get(attributes, "claims") && (!claims || claims->type != JSON_OBJECT))
        return error_set(err, STILE_CORRUPT, 0, "the item's claims are not a map");
    if (n && !has_number(&item->v, attributes, "v"))
        return foreign_claims(err);
    item->claims = calloc(n + 1, sizeof *item->claims);
    if (!item->claims)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    for (const struct json *at = n ? claims->child : NULL; at; at = at->next) {
        if (!read_claim(&item->claims[item->n++], item, at, d, seen_ns))
            return foreign_claims(err);
    }
    qsort(item->claims, item->n, sizeof *item->claims, by_token);
    return STILE_OK;
}

void ddb_item_free(struct item *item)
{
    free(item->claims);
    item->claims = NULL;
}

const struct item_claim *ddb_item_find(const struct item *item, const char *id)
{
    for (size_t i = 0; i < item->n; i++) {
        if (strcmp(item->claims[i].id, id) == 0)
            return &item->claims[i];
    }
    return NULL;
}

static bool excludes(const struct item_claim *claim, enum stile_mode mode)
{
    return claim->mode != mode || mode == STILE_EXCLUSIVE;
}

bool ddb_item_admits(const struct item *item, enum stile_mode mode, uint64_t slots,
                     uint64_t *ends_ns)
{
    size_t excluding = 0, others = 0;
    *ends_ns = NEVER;
    for (size_t i = 0; i < item->n; i++) {
        const struct item_claim *claim = &item->claims[i];
        if (claim->over)
            continue;
        excluding += excludes(claim, mode);
        others++;
        if (claim->ends_ns < *ends_ns)
            *ends_ns = claim->ends_ns;
    }
    return excluding == 0 && (mode != STILE_SLOTS || others < slots);
}
