/* Requests of a connection, and queues of them. resp.c has the functions. */
#ifndef STILE_REDIS_REQUEST_H
#define STILE_REDIS_REQUEST_H

#include "engines/redis/connection.h"

struct request {
    struct request *next;
    conn_fn *fn; /* NULL: forgotten or answered */
    void *data;
    uint64_t put_ns;   /* when it was sent */
    uint64_t until_ns; /* its deadline */
    uint64_t end;      /* of its bytes in the stream */
    bool in_doubt;     /* its connection broke after it was sent */
    bool secret;       /* wiped when freed */
    bool asking;       /* send ASKING before it (Cluster) */
    uint8_t hops;      /* how often it was redirected */
    bool forgotten;    /* the server no longer has its script: send the source */
    const struct lua *lua;
    size_t n;   /* with lua: all arguments, EVAL and the script included */
    size_t len; /* of bytes: the whole command, or with lua what follows the script */
    char bytes[];
};

struct request_queue {
    struct request *first, **tail;
    size_t n, bytes;
};

struct request *redis_request_new(const struct conn_arg *args, size_t n); /* NULL: no memory */
struct request *redis_request_new_eval(const struct lua *lua, const struct conn_arg *args,
                                       size_t n_keys, size_t n);
void redis_request_free(struct request *request);

/* Sends it: a script by its SHA1, or with its source. 0, or the error of stream_write(): then part
 * of it may be in the stream, which can no longer be used. */
int redis_request_write(struct request *request, struct stream *stream, bool with_source);

void redis_requests_init(struct request_queue *queue);
void redis_requests_push(struct request_queue *queue, struct request *request);
struct request *redis_requests_pop(struct request_queue *queue); /* NULL: empty */
void redis_requests_append(struct request_queue *queue, struct request_queue *more);
bool redis_requests_cancel(struct request_queue *queue, const void *data); /* true: there was one */
void redis_requests_forget(struct request_queue *queue, const void *data);
void redis_requests_clear(struct request_queue *queue);

#endif
