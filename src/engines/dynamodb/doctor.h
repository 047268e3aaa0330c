/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the doctor learns of the table, and what follows from it. */
#ifndef STILE_DYNAMODB_DOCTOR_H
#define STILE_DYNAMODB_DOCTOR_H

#include "engines/dynamodb/table.h"

enum doctor_question {
    ASK_DESCRIBE,
    ASK_TTL,
    ASK_READ,
    ASK_WRITE,
    ASK_SCAN,
    DOCTOR_QUESTIONS,
};

struct doctor_reply {
    bool asked, answered, denied, missing, unsigned_; /* missing: the table, or the operation */
    struct stile_error err;                           /* status 0: it was granted */
};

struct doctor_facts {
    char where[TABLE_MAX + REGION_MAX + 16];
    struct doctor_reply replies[DOCTOR_QUESTIONS];
    struct table_facts table; /* if it was described */
    bool described, ttl, ttl_known;
    bool plain; /* http:, and not on this machine */
    bool clock_known;
    int64_t ahead_s; /* this machine's clock */
    bool allow_global;
    const char *key;
};

extern const struct doctor_rule ddb_doctor_rules[];
extern const char *const ddb_doctor_operations[DOCTOR_QUESTIONS];
void ddb_doctor_examine(struct engine *engine, struct query *query);

#endif
