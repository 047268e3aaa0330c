/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STILE_DYNAMODB_H
#define STILE_DYNAMODB_H

#include <time.h>

#include "base/container.h"
#include "engines/dynamodb/call.h"
#include "engines/dynamodb/credentials.h"
#include "engines/dynamodb/observed.h"
#include "engines/engine.h"
#include "engines/kit/doctor.h"

struct url;

#define TABLE_MAX     255
#define REGION_MAX    63
#define DDB_LOCKS_MAX 1000 /* of a client: 300 writes a second with a TTL of 10 s */
#define INFO_MAX      256
#define PATIENCE_NS   (3 * NS_PER_SEC) /* of a request; shorter for short leases */

struct dialect;

struct dynamo {
    struct engine engine;
    struct http *http;
    char url[STILE_URL_MAX + 1];
    char table[TABLE_MAX + 1];
    char region[REGION_MAX + 1];
    char scope[REGION_MAX + 32];
    const struct dialect *dialect;
    char key[TABLE_MAX + 1]; /* the name of the table's key */
    bool allow_global;
    unsigned poll_ms;    /* a waiter looks this often */
    char info[INFO_MAX]; /* "PID HOST COMMAND", as others see it */
    struct credentials credentials;
    struct call *calls; /* under way */
    struct timer call_timer;
    bool reserved;   /* that timer */
    size_t n_claims; /* held, or under way */
    struct observations observed;
    int64_t date_offset_s; /* the service's clock minus the loop's; 0: not known */
    struct call probe;     /* while opening */
    struct inspection *inspections;
    struct cell_work *cell_work;
    struct doctor_visit *visits;
};

static inline struct dynamo *dynamo_of(struct engine *engine)
{
    return (struct dynamo *)engine;
}

static inline struct loop *loop_of(const struct dynamo *dynamo)
{
    return dynamo->engine.loop;
}

/* What both the class and `stile setup`, which has no engine, begin with. */
enum stile_status ddb_configure(struct dynamo *dynamo, const struct url *url,
                                struct stile_error *err);
void ddb_dispose(struct dynamo *dynamo);

/* Seconds since 1970, by the clock of the service as far as it is known. */
static inline int64_t ddb_date(const struct dynamo *dynamo)
{
    if (!dynamo->date_offset_s)
        return time(NULL);
    return dynamo->date_offset_s + (int64_t)(loop_now(loop_of(dynamo)) / NS_PER_SEC);
}

/* The same, and 0 where it is not known: other clients judge claims by it. */
static inline int64_t ddb_known_date(const struct dynamo *dynamo)
{
    return dynamo->date_offset_s ? ddb_date(dynamo) : 0;
}

#endif
