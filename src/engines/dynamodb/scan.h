/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* All items whose names begin alike, in byte order. DynamoDB can only read the whole table for
 * that, and sends those that match. */
#ifndef STILE_DYNAMODB_SCAN_H
#define STILE_DYNAMODB_SCAN_H

#include "engines/dynamodb/dynamodb.h"

struct scanned {
    char name[STILE_NAME_MAX + 1];
    const struct json *attributes;
};

/* Embedded by its owner; all zero at the start. */
struct scan {
    struct dynamo *dynamo;
    struct call call;
    const char *kind;      /* of keys: "lock/" */
    const char *condition; /* of items, in terms of #a, the attribute, and :x, the value */
    const char *attribute, *value;
    const char *projection; /* as JSON: the names of all but #k and #a; NULL: all attributes */
    const char *prefix;     /* borrowed */
    size_t prefix_len;
    struct reply *pages;
    size_t n_pages;
    const char *after; /* the key that the last page ended with; in that page */
    struct scanned *items;
    size_t n, cap;
    void (*done)(struct scan *scan, const struct stile_error *err);
};

/* All up to prefix_len, and done, are set. */
void ddb_scan_start(struct dynamo *dynamo, struct scan *scan);
void ddb_scan_free(struct scan *scan); /* also while it is under way */

#endif
