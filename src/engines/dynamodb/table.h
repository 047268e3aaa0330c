/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What DescribeTable says, as far as it matters for locks. */
#ifndef STILE_DYNAMODB_TABLE_H
#define STILE_DYNAMODB_TABLE_H

#include "engines/dynamodb/dynamodb.h"

#define TTL_ATTRIBUTE "ends"

struct table_facts {
    char status[32]; /* "ACTIVE" */
    char keys[160];  /* "key (S)", as a person would write them */
    bool key_fits;
    size_t replicas; /* in other regions, each of which accepts writes */
    bool strong;     /* and they agree before a write is answered */
    bool provisioned, unprotected;
};

void ddb_table_ask(struct call *call, struct dynamo *dynamo, const char *operation,
                   uint64_t patience_ns, call_done *done);
void ddb_table_read(struct table_facts *facts, const struct dynamo *dynamo,
                    const struct json *reply);
/* Whether locks on it would be locks. */
enum stile_status ddb_table_check(const struct table_facts *facts, const struct dynamo *dynamo,
                                  struct stile_error *err);

#endif
