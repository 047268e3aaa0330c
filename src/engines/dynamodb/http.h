/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP by libcurl's multi interface, in the loop of the client.
 *
 * libcurl resends a request by itself when a connection that was kept alive has ended without an
 * answer. So `times` counts how often the request may have been executed: an answer to the second
 * may speak of what the first one did. */
#ifndef STILE_DYNAMODB_HTTP_H
#define STILE_DYNAMODB_HTTP_H

#include <curl/curl.h>

#include "base/buffer.h"
#include "base/error.h"
#include "io/loop.h"

#define HTTP_ACTIVE_MAX  32 /* connections; other requests wait */
#define HTTP_BULK_MAX    12 /* of them, for bulk requests */
#define HTTP_HEADERS_MAX 4
#define HTTP_REPLY_MAX   (4u << 20)
#define HTTP_SOCKETS_MAX (3 * HTTP_ACTIVE_MAX) /* two addresses at once, and a resolver */

struct http;
struct transfer;

/* All but the list and the answer is the owner's, and stays valid until done(). */
struct transfer {
    struct transfer *next, **link;
    struct http *http;  /* NULL: not under way */
    const char *method; /* NULL: POST */
    const char *url;
    const char *headers[HTTP_HEADERS_MAX]; /* NULL: no more */
    const char *body;
    size_t body_len;
    const char *scope; /* as CURLOPT_AWS_SIGV4 takes it; NULL: not signed */
    const char *key_id, *secret;
    uint64_t timeout_ms;
    bool direct; /* past all proxies */
    bool bulk;   /* one of many: they and all others are sent in turn */

    /* Never from inside ddb_http_start(). err: there was no answer; else code and reply count. */
    void (*done)(struct transfer *transfer, const struct stile_error *err);

    /* the answer */
    long code;
    struct buffer reply;
    unsigned times;   /* how often it may have been sent; 0: never */
    uint64_t sent_ns; /* the loop's time before it was sent */
    int64_t date;     /* of the server, in seconds since 1970; 0: none was given */

    CURL *easy;
    char why[CURL_ERROR_SIZE]; /* libcurl's words; "": none */
    struct curl_slist *list;
    bool starved; /* there was no memory to send it */
    bool queued;  /* waits for one of the connections */
};

enum stile_status ddb_http_open(struct http **http, struct loop *loop, const char *ca,
                                struct stile_error *err);
void ddb_http_free(struct http *http); /* no answer comes afterwards */
void ddb_http_forked(struct http *http);

void ddb_http_start(struct http *http, struct transfer *transfer);
void ddb_http_cancel(struct transfer *transfer); /* no answer comes; it may be executed */

#endif
