/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* RESP: formatting requests, and reading replies of bounded size. */
#include <stdlib.h>
#include <string.h>

#include "engines/redis/resp.h"

/* ---- replies ---- */

/* A header, and the end of a string. */
#define AROUND_A_BULK 32

struct resp {
    redisReader *reader;
    const redisReplyObjectFunctions *inner; /* hiredis's own */
    size_t bytes, elements;                 /* of the reply that is being read */
    const char *excess;                     /* what there was too much of */
    const char *foreign;                    /* what there was that Redis does not send */
};

/* hiredis 1.x reads RESP3, too, and grows its stack of tasks. */
#if HIREDIS_MAJOR >= 1
typedef size_t n_elements;
#define TASK(reader, i) (*(reader)->task[i])
#else
typedef int n_elements;
#define TASK(reader, i) ((reader)->rstack[i])
#endif

#define RESP3 "a type of RESP3, which was not requested"

/* ---- what hiredis calls to make a reply ---- */

static bool is_resp2(const redisReadTask *task)
{
    return task->type >= REDIS_REPLY_STRING && task->type <= REDIS_REPLY_ERROR;
}

/* A reply is freed by a function that calls itself: its depth must have a bound. */
static bool is_too_deep(const redisReadTask *task)
{
    unsigned depth = 0;

    while ((task = task->parent))
        depth++;
    return depth > RESP_DEPTH_MAX;
}

static void *bounded_string(const redisReadTask *task, char *text, size_t len)
{
    struct resp *resp = task->privdata;

    if (!is_resp2(task))
        resp->foreign = RESP3;
    resp->bytes += len;
    if (len > RESP_BULK_MAX || resp->bytes > RESP_REPLY_MAX)
        resp->excess = "bytes";
    return resp->excess || resp->foreign ? NULL : resp->inner->createString(task, text, len);
}

static void *bounded_array(const redisReadTask *task, n_elements elements)
{
    struct resp *resp = task->privdata;
    long long n = (long long)elements;

    if (!is_resp2(task))
        resp->foreign = RESP3;
    if (is_too_deep(task))
        resp->foreign = "too many arrays inside one another";
    if (n > 0)
        resp->elements += (size_t)n;
    if (n < 0 || resp->elements > RESP_ELEMENTS_MAX)
        resp->excess = "elements";
    return resp->excess || resp->foreign ? NULL : resp->inner->createArray(task, elements);
}

static void *plain_integer(const redisReadTask *task, long long value)
{
    return ((struct resp *)task->privdata)->inner->createInteger(task, value);
}

static void *plain_nil(const redisReadTask *task)
{
    return ((struct resp *)task->privdata)->inner->createNil(task);
}

#if HIREDIS_MAJOR >= 1
/* Without these hiredis would put a number in the place of a pointer. */
static void *no_double(const redisReadTask *task, double value, char *text, size_t len)
{
    (void)value, (void)text, (void)len;
    ((struct resp *)task->privdata)->foreign = RESP3;
    return NULL;
}

static void *no_bool(const redisReadTask *task, int value)
{
    (void)value;
    ((struct resp *)task->privdata)->foreign = RESP3;
    return NULL;
}
#endif

static redisReplyObjectFunctions bounded = {.createString = bounded_string,
                                            .createArray = bounded_array,
                                            .createInteger = plain_integer,
                                            .createNil = plain_nil,
#if HIREDIS_MAJOR >= 1
                                            .createDouble = no_double,
                                            .createBool = no_bool,
#endif
                                            .freeObject = freeReplyObject};

/* ---- the reader ---- */

struct resp *redis_resp_new(void)
{
    struct resp *resp = calloc(1, sizeof *resp);

    if (!resp)
        return NULL;
    resp->reader = redisReaderCreate();
    if (!resp->reader) {
        free(resp);
        return NULL;
    }
    resp->inner = resp->reader->fn;
    resp->reader->fn = &bounded;
    resp->reader->privdata = resp;
    return resp;
}

void redis_resp_free(struct resp *resp)
{
    if (!resp)
        return;
    redisReaderFree(resp->reader);
    free(resp);
}

enum stile_status redis_resp_feed(struct resp *resp, const void *bytes, size_t n,
                                  struct stile_error *err)
{
    if (redisReaderFeed(resp->reader, bytes, n) == REDIS_OK)
        return STILE_OK;
    return error_set(err, STILE_NOMEM, 0, "reading a reply: out of memory");
}

static enum resp_step too_big(const char *what, struct stile_error *err)
{
    error_set(
        err, STILE_REFUSED, 0,
        "a reply of the server has too many %s (at most %u a string, %u a reply, %d elements)",
        what, RESP_BULK_MAX, RESP_REPLY_MAX, RESP_ELEMENTS_MAX);
    return RESP_BAD;
}

/* The length that stands where the reader waits for a string, or 0. The digits may still be
 * incomplete: then so is the number, which is only smaller. */
static unsigned long long promised(const redisReader *reader)
{
    unsigned long long n = 0;
    bool is_string = reader->ridx >= 0 && TASK(reader, reader->ridx).type == REDIS_REPLY_STRING;

    for (size_t at = reader->pos; is_string && at < reader->len && n <= RESP_BULK_MAX; at++) {
        if (reader->buf[at] < '0' || reader->buf[at] > '9')
            break;
        n = n * 10 + (unsigned)(reader->buf[at] - '0');
    }
    return n;
}

static enum resp_step bad(const struct resp *resp, struct stile_error *err)
{
    const redisReader *reader = resp->reader;

    if (resp->excess)
        return too_big(resp->excess, err);
    if (resp->foreign)
        error_set(err, STILE_REFUSED, 0, "what the server sends is not Redis: %s", resp->foreign);
    else if (reader->err == REDIS_ERR_OOM)
        error_set(err, STILE_NOMEM, 0, "reading a reply: out of memory");
    else if (strstr(reader->errstr, "\"\\x15\""))
        error_set(err, STILE_REFUSED, 0, "the server speaks TLS at this port: use rediss://");
    else
        error_set(err, STILE_REFUSED, 0, "what the server sends is not Redis: %s", reader->errstr);
    return RESP_BAD;
}

enum resp_step redis_resp_next(struct resp *resp, redisReply **reply, struct stile_error *err)
{
    redisReader *reader = resp->reader;
    void *got = NULL;

    if (redisReaderGetReply(reader, &got) != REDIS_OK)
        return bad(resp, err);
    if (got) {
        resp->bytes = resp->elements = 0;
        *reply = got;
        return RESP_REPLY;
    }
    if (promised(reader) > RESP_BULK_MAX ||
        reader->len - reader->pos > RESP_BULK_MAX + AROUND_A_BULK)
        return too_big("bytes", err);
    return RESP_MORE;
}

/* ---- formatting ---- */

/* "$" or "*", the digits of a size_t, CR LF. */
#define HEADER_MAX 24
#define HEAD_MAX   128

static size_t digits(size_t n)
{
    size_t count = 1;

    while (n >= 10) {
        n /= 10;
        count++;
    }
    return count;
}

static size_t header_size(size_t n)
{
    return 1 + digits(n) + 2;
}

static size_t bulks_size(const struct conn_arg *args, size_t n)
{
    size_t size = 0;

    for (size_t i = 0; i < n; i++)
        size += header_size(args[i].len) + args[i].len + 2;
    return size;
}

static char *put_header(char *to, char type, size_t n)
{
    size_t count = digits(n);

    *to = type;
    for (size_t i = count; i > 0; i--, n /= 10)
        to[i] = (char)('0' + n % 10);
    memcpy(to + 1 + count, "\r\n", 2);
    return to + 1 + count + 2;
}

static char *put_bulks(char *to, const struct conn_arg *args, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to = put_header(to, '$', args[i].len);
        if (args[i].len > 0)
            memcpy(to, args[i].bytes, args[i].len);
        to += args[i].len;
        memcpy(to, "\r\n", 2);
        to += 2;
    }
    return to;
}

/* ---- requests ---- */

static struct request *alloc(size_t len)
{
    struct request *r = malloc(sizeof *r + len);

    if (r)
        *r = (struct request){.link.len = len};
    return r;
}

struct request *redis_request_new(const struct conn_arg *args, size_t n)
{
    struct request *r = alloc(header_size(n) + bulks_size(args, n));

    if (r)
        put_bulks(put_header(r->bytes, '*', n), args, n);
    return r;
}

struct request *redis_request_new_eval(const struct lua *lua, const struct conn_arg *args,
                                       size_t n_keys, size_t n)
{
    char text[HEADER_MAX];
    struct conn_arg keys = {text + 1, digits(n_keys)};
    struct request *r = alloc(bulks_size(&keys, 1) + bulks_size(args, n));

    if (!r)
        return NULL;
    r->lua = lua;
    r->n = n + 3;
    put_header(text, '#', n_keys);
    put_bulks(put_bulks(r->bytes, &keys, 1), args, n);
    return r;
}

void redis_request_free(struct request *r)
{
    if (r && r->secret)
        explicit_bzero(r->bytes, r->link.len);
    free(r);
}

static int write_name(struct request *r, struct stream *stream)
{
    char head[HEAD_MAX];
    struct conn_arg args[] = {CONN_TEXT("EVALSHA"), CONN_TEXT(r->lua->sha1)};
    char *end = put_bulks(put_header(head, '*', r->n), args, 2);

    return stream_write(stream, head, (size_t)(end - head));
}

static int write_source(struct request *r, struct stream *stream)
{
    char head[HEAD_MAX];
    struct conn_arg eval = CONN_TEXT("EVAL");
    char *end = put_bulks(put_header(head, '*', r->n), &eval, 1);

    end = put_header(end, '$', r->lua->len);
    int rc = stream_write(stream, head, (size_t)(end - head));
    if (!rc)
        rc = stream_write(stream, r->lua->source, r->lua->len);
    return rc ? rc : stream_write(stream, "\r\n", 2);
}

int redis_request_write(struct request *r, struct stream *stream, bool with_source)
{
    int rc = 0;

    if (r->lua)
        rc = with_source || r->forgotten ? write_source(r, stream) : write_name(r, stream);
    if (!rc)
        rc = stream_write(stream, r->bytes, r->link.len);
    r->link.end = rc ? UINT64_MAX : stream_written(stream);
    return rc;
}
