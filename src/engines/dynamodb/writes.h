/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The conditional writes of a claim: what stands in their requests. Each names the claim by its id,
 * so it is safe to repeat. */
#ifndef STILE_DYNAMODB_WRITES_H
#define STILE_DYNAMODB_WRITES_H

#include "engines/dynamodb/claims.h"
#include "engines/dynamodb/item.h"

/* The table and the key; the caller writes the rest of the object. */
void ddb_write_begin(struct call *call, const struct dynamo *dynamo, const char *prefix,
                     const char *name, size_t len);
void ddb_write_look(struct call *call, struct dynamo *dynamo, const char *prefix, const char *name,
                    size_t len);

/* Takes the next n tokens of the table for this claim. */
void ddb_write_count(struct dynamo_claim *c, uint64_t n);

/* What differs between the layouts of a table. */
struct dialect {
    const char *kind; /* of keys: "lock/" */
    /* Of the items that list shows: a condition in terms of #a, the attribute, and :x, the value.
     */
    const char *listed, *attribute, *value;

    enum stile_status (*read)(struct item *item, struct dynamo *dynamo,
                              const struct json *attributes, uint64_t seen_ns,
                              struct stile_error *err);
    bool (*holds)(const struct json *attributes, const char *owner); /* no ghost of it */

    /* Takes a name that is free. */
    void (*ask)(struct dynamo_claim *c);
    /* Joins the claims of the item, in place of those that are over; changes nothing if any of
     * this was changed since it was read. */
    void (*take)(struct dynamo_claim *c, const struct item *item);
    /* With which a claim that is in the item is granted; 0: it is counted first. */
    uint64_t (*token)(const struct item *item, const struct item_claim *claim);
    uint64_t block; /* so many tokens are counted at once */
    /* Stores the first of a block with the lock, if that is still this claim's. */
    void (*seal)(struct dynamo_claim *c, uint64_t token);
    void (*renew)(struct dynamo_claim *c, struct call *call, uint64_t hold_ms);
    /* Whether an answer that has the claim was given to this renewal, and to no earlier one. */
    bool (*renewed)(struct dynamo_claim *c, const struct json *attributes);
    /* ghost_ms: leaves a ghost for so long; 0: nothing. If one of the claim's requests may still
     * arrive, that is not granted. */
    void (*release)(struct dynamo_claim *c, uint64_t ghost_ms);
    /* May be NULL: the same for a claim that has not arrived. */
    void (*mark)(struct dynamo_claim *c);
    void (*break_)(struct call *call, struct dynamo *dynamo, const char *name, size_t len,
                   const struct item *item, uint64_t token);
};

extern const struct dialect ddb_own;

#endif
