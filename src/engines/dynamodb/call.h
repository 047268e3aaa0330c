/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One request to DynamoDB: signed, sent, repeated while it is throttled or the service is in
 * trouble, and answered once.
 *
 * A request that was refused for its rate has not been executed. One that got no answer, or an
 * answer of the 5xx kind, may have been, now or later. `doubt` says that this may be so of an
 * attempt before the one that was answered: then a condition that fails may have failed because of
 * this request itself. */
#ifndef STILE_DYNAMODB_CALL_H
#define STILE_DYNAMODB_CALL_H

#include "engines/dynamodb/http.h"
#include "engines/dynamodb/json.h"

struct dynamo;
struct call;

typedef void call_done(struct call *call);

enum call_result {
    CALL_OK,        /* reply counts */
    CALL_CONDITION, /* the condition of the write does not hold; reply may have the "Item" */
    CALL_FAILED,    /* err counts: UNCERTAIN: it may have been executed */
};

enum call_state {
    CALL_IDLE,
    CALL_SENT,
    CALL_PAUSED,   /* until at_ns */
    CALL_UNSIGNED, /* waits for credentials */
};

/* An answer and the text that it points into. */
struct reply {
    struct json *root;
    struct buffer text;
};

/* Embedded by its owner; all zero at the start. */
struct call {
    struct call *next, **link;
    struct dynamo *dynamo;
    enum call_state state;
    const char *operation;
    struct json_out body; /* the owner writes it before ddb_call_start() */
    struct transfer transfer;
    char target[64];
    uint64_t until_ns, at_ns;
    unsigned tries;
    bool doomed;         /* it fails as soon as the timer comes */
    bool fetched;        /* the credentials, because of this request */
    unsigned generation; /* of the credentials that it was last sent with */
    call_done *done;

    /* the answer */
    enum call_result result;
    const struct json *reply; /* valid inside done() only, unless it takes the whole */
    struct reply *whole;      /* set to zero by a done() that keeps it */
    struct stile_error err;
    bool doubt;
    uint64_t first_ns; /* before it was first sent; 0: it was not */
    uint64_t sent_ns;  /* before it was last sent */
    int64_t date;      /* of the service, in seconds since 1970; 0: not known */
    char type[64];     /* of the error, as the service names it; "": none */
};

/* done comes once, never from inside, no later than patience_ns from now or a little more. It may
 * start the call again, or free it. */
void ddb_call_start(struct dynamo *dynamo, struct call *call, const char *operation,
                    uint64_t patience_ns, call_done *done);
/* No answer comes. True: it may have been executed, or still be. */
bool ddb_call_cancel(struct call *call);

void ddb_reply_free(struct reply *reply);

static inline bool call_is_pending(const struct call *call)
{
    return call->state != CALL_IDLE;
}

void ddb_calls_go_on(struct dynamo *dynamo); /* the credentials are there, or can't be had */
void ddb_calls_on_time(struct timer *timer); /* of dynamo->call_timer */

#endif
