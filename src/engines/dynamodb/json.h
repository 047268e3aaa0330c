/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* JSON, as far as DynamoDB needs it. Replies come from the network: nothing is believed before it
 * is checked, and size, depth and number of values are bounded. */
#ifndef STILE_DYNAMODB_JSON_H
#define STILE_DYNAMODB_JSON_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

#define JSON_DEPTH_MAX  24
#define JSON_VALUES_MAX (1u << 18)

/* ---- reading ---- */

enum json_type {
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER, /* its text; never converted to a double */
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

struct json {
    enum json_type type;
    bool truth;
    const char *text; /* of a string: NUL-terminated, without NUL inside; of a number: len counts */
    size_t len;
    const char *key; /* of a member of an object; else NULL */
    struct json *child, *next;
};

/* Parses text in place; text[len] must be writable. NULL: malformed, too large, or no memory. The
 * root is freed with free(), and points into the text. */
struct json *ddb_json_parse(char *text, size_t len);

/* All take NULL, and return NULL or false where there is nothing of that type. */
const struct json *ddb_json_get(const struct json *object, const char *key);
const char *ddb_json_text(const struct json *value);
/* A string or number of digits only; *number is 0 if it is anything else. */
bool ddb_json_u64(uint64_t *number, const struct json *value);

/* Decodes base64 into out, which has room for 3/4 of the text. False: malformed. */
bool ddb_json_base64(void *out, size_t *size, const struct json *value);

/* ---- writing ---- */

/* All zero at the start. */
struct json_out {
    struct buffer buffer;
    bool failed; /* out of memory */
};

/* The format is JSON with ' for ". In it,
 *   %s  a string (const char *), quoted and escaped; must be UTF-8
 *   %u  a number (uint64_t) in quotes, as DynamoDB writes numbers
 *   %d  the same of an int64_t
 *   %r  text that is JSON already (const char *)
 *   %b  bytes (const void *, size_t) in base64, quoted */
void ddb_json_write(struct json_out *out, const char *format, ...);
const char *ddb_json_end(struct json_out *out); /* NUL-terminated; NULL: failed */
void ddb_json_out_free(struct json_out *out);

#endif
