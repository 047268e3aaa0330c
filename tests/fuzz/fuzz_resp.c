/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of a Redis server: whatever comes, and in whatever pieces, stays within its bounds. The
 * first byte says how long the pieces are. */
#include <stdint.h>
#include <stdlib.h>

#include "engines/redis/errors.h"
#include "engines/redis/resp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sum {
    size_t bytes, elements;
};

static void must(bool kept)
{
    if (!kept)
        abort();
}

static void add(struct sum *sum, const redisReply *reply, unsigned depth)
{
    if (reply->type == REDIS_REPLY_ARRAY) {
        must(depth <= RESP_DEPTH_MAX);
        sum->elements += reply->elements;
        for (size_t i = 0; i < reply->elements; i++)
            add(sum, reply->element[i], depth + 1);
    } else if (reply->str) {
        must(reply->len <= RESP_BULK_MAX && reply->str[reply->len] == '\0');
        sum->bytes += reply->len;
    }
}

static void look_at(const redisReply *reply)
{
    struct sum sum = {0};
    struct stile_error err = {.status = STILE_OK};

    add(&sum, reply, 0);
    must(sum.elements <= RESP_ELEMENTS_MAX && sum.bytes <= RESP_REPLY_MAX);
    must(redis_error_explain(reply, &err) == err.status);
    must((redis_error_of(reply) == REDIS_ERROR_NONE) == (err.status == STILE_OK));
}

static enum resp_step take_all(struct resp *resp)
{
    enum resp_step step;
    struct stile_error err = {.status = STILE_OK};
    redisReply *reply;

    while ((step = redis_resp_next(resp, &reply, &err)) == RESP_REPLY) {
        look_at(reply);
        freeReplyObject(reply);
    }
    must(step != RESP_BAD || (err.status && err.message[0]));
    return step;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct resp *resp = redis_resp_new();
    size_t piece = size ? (size_t)data[0] + 1 : 1;

    must(resp);
    for (size_t at = 1; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        if (redis_resp_feed(resp, data + at, n, NULL) || take_all(resp) == RESP_BAD)
            break;
    }
    redis_resp_free(resp);
    return 0;
}
