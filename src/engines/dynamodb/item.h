/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The item of a name, and its keys.
 *
 *     key     S  "lock/NAME" (bytes of the name that are not UTF-8, and "%", as %XX)
 *     token   N  the highest that was granted; never goes back
 *     until   N  the last token that the item may grant by itself: then the table's counter gives
 *                it the next TOKEN_BLOCK
 *     v       N  grows when the claims change, but not with renewals
 *     claims  M  id -> claim; empty or missing: free
 *     gone   SS  ids of claims that were withdrawn and may still arrive: they are not granted
 *     ends    N  seconds since 1970: the table's TTL may delete the item after that
 *
 * and a claim:
 *
 *     m  S  x, s or n: exclusive, shared, one of `n` slots     n  N  slots
 *     r  N  changes with every renewal
 *     k  N  its token; missing: the item's
 *     t  N  lease in ms                                        d  N  lock-delay in ms
 *     h  N  what was left of hold_at_least at the last renewal, in ms
 *     g  BOOL  a ghost: nobody holds it, and it ends when h is over
 *     a  N  when it was last written, s N when granted: seconds by the service's clock
 *     i  S  PID HOST COMMAND                                   p  S  the proclaimed value
 *
 * An item that is made anew, because it is the first or because the old one was deleted, takes its
 * tokens from the counter while the claim is in it: so they are larger than all before. */
#ifndef STILE_DYNAMODB_ITEM_H
#define STILE_DYNAMODB_ITEM_H

#include "engines/dynamodb/dynamodb.h"

#define OWNER_LEN    32
#define KEY_ROOM     (3 * STILE_NAME_MAX + 16)
#define LEASE_MS_MAX (UINT64_C(366) * 24 * 3600 * 1000)
#define KEY_AMAZON   ""             /* the name as it is */
#define KEY_TOKENS   "stile/tokens" /* the table's counter: the highest that any item may grant */
#define TOKEN_BLOCK  (UINT64_C(1) << 10)
/* A new counter starts at so many for each second since 1970. It cannot get ahead of that later:
 * DynamoDB limits an item to 1,000 writes a second. */
#define TOKENS_PER_S (UINT64_C(1) << 20)
#define KEY_LOCK     "lock/"
#define KEY_CELL     "cell/"

void ddb_item_key(char key[KEY_ROOM], const char *prefix, const char *name, size_t len);
/* Returns the length; 0: it is no key that ddb_item_key() makes with this prefix. */
size_t ddb_item_name(char name[STILE_NAME_MAX + 1], const char *prefix, const char *key);

/* Whether an answer is about the item of this name. */
bool ddb_item_is(const struct dynamo *dynamo, const struct json *attributes, const char *prefix,
                 const char *name, size_t len);

struct item_claim {
    const char *id;
    enum stile_mode mode;
    uint64_t slots, number, token, ttl_ms, hold_ms, delay_ms;
    bool token_given; /* else it is the item's */
    bool ghost;
    bool over;                     /* it was seen unchanged for as long as it may live */
    uint64_t ends_ns;              /* when it will be, by the loop's clock */
    int64_t granted_s;             /* 0: not known */
    const char *info, *proclaimed; /* "" if not known */
};

struct item {
    bool exists;
    uint64_t token, until, v, gone;
    const char *version;       /* dialect=amazon */
    struct item_claim *claims; /* with the largest token last */
    size_t n;
};

/* Reads and observes; texts point into the reply. seen_ns: before which the claims were as they
 * are here. The claims are freed by ddb_item_free(), also after an error. */
enum stile_status ddb_item_read(struct item *item, struct dynamo *dynamo,
                                const struct json *attributes, uint64_t seen_ns,
                                struct stile_error *err);
void ddb_item_free(struct item *item);
const struct item_claim *ddb_item_find(const struct item *item,
                                       const char *id); /* NULL: not there */

/* Whether the claims that are not over let one of this mode in. ends_ns: when the first of those in
 * its way ends if it is not renewed. */
bool ddb_item_admits(const struct item *item, enum stile_mode mode, uint64_t slots,
                     uint64_t *ends_ns);

/* value.M.NAME.N and the like, of an attribute in DynamoDB's form. */
const struct json *ddb_attribute(const struct json *object, const char *name, const char *type);

#endif
