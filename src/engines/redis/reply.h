/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a reply, by shape. A server that is broken, hostile, or answers for another client may
 * send anything that RESP allows: replies are read only through these functions. Each takes any
 * reply, also NULL, and returns NULL, 0 or false for what is not there. */
#ifndef STILE_REDIS_REPLY_H
#define STILE_REDIS_REPLY_H

#include <hiredis/hiredis.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* An array of n elements or more. */
static inline bool is_array(const redisReply *reply, size_t n)
{
    return reply && reply->type == REDIS_REPLY_ARRAY && reply->elements >= n;
}

/* errors.h has its meaning. */
static inline bool is_error(const redisReply *reply)
{
    return reply && reply->type == REDIS_REPLY_ERROR;
}

static inline bool is_number(const redisReply *reply)
{
    return reply && reply->type == REDIS_REPLY_INTEGER;
}

static inline bool is_token(const redisReply *reply)
{
    return is_number(reply) && reply->integer > 0;
}

/* A string, which ends with a NUL and may have others in it; else NULL. */
static inline const char *text_of(const redisReply *reply)
{
    return reply && reply->type == REDIS_REPLY_STRING ? reply->str : NULL;
}

static inline bool is_text(const redisReply *reply, const char *text)
{
    const char *found = text_of(reply);
    return found && strcmp(found, text) == 0;
}

/* ---- of an array ---- */

static inline size_t length_of(const redisReply *reply)
{
    return is_array(reply, 0) ? reply->elements : 0;
}

static inline const redisReply *element_at(const redisReply *reply, size_t i)
{
    return i < length_of(reply) ? reply->element[i] : NULL;
}

static inline long long number_at(const redisReply *reply, size_t i)
{
    const redisReply *element = element_at(reply, i);
    return is_number(element) ? element->integer : 0;
}

/* A length of time, or a count: never below 0, and small enough to be multiplied by a million. */
static inline uint64_t count_at(const redisReply *reply, size_t i)
{
    long long number = number_at(reply, i), most = LLONG_MAX / 1000000;
    return number < 0 ? 0 : (uint64_t)(number < most ? number : most);
}

/* 0: there is none. */
static inline uint64_t token_at(const redisReply *reply, size_t i)
{
    long long number = number_at(reply, i);
    return number > 0 ? (uint64_t)number : 0;
}

static inline const char *text_at(const redisReply *reply, size_t i)
{
    return text_of(element_at(reply, i));
}

#endif
