#include "engines/redis/request.h"

#include <stdlib.h>
#include <string.h>

/* "$" or "*", the digits of a size_t, CR LF. */
#define HEADER_MAX 24
#define HEAD_MAX   128

/* ---- formatting ---- */

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
        *r = (struct request){.len = len};
    return r;
}

struct request *request_new(const struct conn_arg *args, size_t n)
{
    struct request *r = alloc(header_size(n) + bulks_size(args, n));

    if (r)
        put_bulks(put_header(r->bytes, '*', n), args, n);
    return r;
}

struct request *request_new_eval(const struct lua *lua, const struct conn_arg *args, size_t n_keys,
                                 size_t n)
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

void request_free(struct request *r)
{
    if (r && r->secret)
        explicit_bzero(r->bytes, r->len);
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

int request_write(struct request *r, struct stream *stream, bool with_source)
{
    int rc = 0;

    if (r->lua)
        rc = with_source || r->forgotten ? write_source(r, stream) : write_name(r, stream);
    if (!rc)
        rc = stream_write(stream, r->bytes, r->len);
    r->end = rc ? UINT64_MAX : stream_written(stream);
    return rc;
}

/* ---- lines ---- */

void line_init(struct request_line *line)
{
    *line = (struct request_line){0};
    line->tail = &line->first;
}

void line_push(struct request_line *line, struct request *r)
{
    r->next = NULL;
    *line->tail = r;
    line->tail = &r->next;
    line->n++;
    line->bytes += r->len;
}

struct request *line_pop(struct request_line *line)
{
    struct request *r = line->first;

    if (!r)
        return NULL;
    line->first = r->next;
    if (!line->first)
        line->tail = &line->first;
    line->n--;
    line->bytes -= r->len;
    return r;
}

void line_append(struct request_line *line, struct request_line *more)
{
    if (!more->first)
        return;
    *line->tail = more->first;
    line->tail = more->tail;
    line->n += more->n;
    line->bytes += more->bytes;
    line_init(more);
}

void line_forget(struct request_line *line, const void *data)
{
    for (struct request *r = line->first; r; r = r->next)
        if (r->data == data)
            r->fn = NULL;
}

bool line_cancel(struct request_line *line, const void *data)
{
    struct request_line rest;
    bool any = false;

    line_init(&rest);
    for (struct request *r; (r = line_pop(line));) {
        if (r->data != data) {
            line_push(&rest, r);
            continue;
        }
        any = true;
        request_free(r);
    }
    line_append(line, &rest);
    return any;
}

void line_clear(struct request_line *line)
{
    for (struct request *r; (r = line_pop(line));)
        request_free(r);
}
