/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STILE_DYNAMODB_CLAIMS_H
#define STILE_DYNAMODB_CLAIMS_H

#include "engines/dynamodb/dynamodb.h"
#include "engines/kit/lease.h"

/* Its transitions are in claims.c. */
enum claim_state {
    CLAIM_IDLE,
    CLAIM_ASKING,   /* the write that takes a free name is under way */
    CLAIM_LOOKING,  /* the item is being read */
    CLAIM_TAKING,   /* the write that joins, or replaces, the claims that were read */
    CLAIM_COUNTING, /* the lock is taken, and its token is being counted */
    CLAIM_SEALING,  /* the token is being stored with it */
    CLAIM_RESUMING,
    CLAIM_HELD,
    CLAIM_UNDECIDED,   /* it failed in doubt; core calls release() */
    CLAIM_ABANDONED,   /* withdrawn while its write was under way: waits for the answer */
    CLAIM_WITHDRAWING, /* its claim is being removed, if it is there */
    CLAIM_MARKING,     /* it was not there, and may still arrive: its id is added to "gone" */
    CLAIM_RELEASING,
    CLAIM_UNRELEASED, /* the release failed, or is in doubt; core calls release() again */
};

/* The state of a claim. */
struct dynamo_claim {
    struct leased leased; /* its owner value */
    struct dynamo *dynamo;
    enum claim_state state;
    struct call call;
    struct call renewal;
    unsigned tries;
    bool doubt; /* one of its writes may have been executed, or may be yet */
    bool doubtful_release;
    bool was_busy;    /* the last time: the item is read before it is written */
    bool sweep;       /* the release also clears "gone" */
    uint64_t sent_ns; /* before the first write of this attempt was sent; 0: none was */
    uint64_t counted; /* the token, before it is granted */
    uint64_t hold_until_ns;
    uint64_t ghost_number; /* of the ghost that the release leaves */
    uint64_t number;       /* of the claim, as the last answer had it */
    char version[37];      /* dialect=amazon: what the last renewal writes */
};

static inline struct dynamo_claim *dynamo_claim_of(struct claim *claim)
{
    return (struct dynamo_claim *)claim->state;
}

void ddb_claim(struct engine *engine, struct claim *claim);
void ddb_release(struct engine *engine, struct claim *claim);
void ddb_renew(struct engine *engine, struct claim *const *claims, size_t n);
extern const struct engine_detached ddb_detached;

#endif
