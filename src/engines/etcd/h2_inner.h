/* The inside of an HTTP/2 connection, shared by h2.c and h2_receive.c. */
#ifndef STILE_ETCD_H2_INNER_H
#define STILE_ETCD_H2_INNER_H

#include <nghttp2/nghttp2.h>

#include "engines/etcd/http2.h"

struct h2 {
    struct loop *loop;
    const struct h2_events *events;
    void *owner;
    struct stream *stream;
    nghttp2_session *session;
    char authority[300];
    bool tls, up, receiving, freed;
    struct task end_task;
    struct stile_error why;
    uint64_t heard_ns;
};

void h2_fail(struct h2 *h2, const char *what); /* it does not speak as it should; told later */
void h2_fail_memory(struct h2 *h2);
void h2_drop(struct h2_call *call);                          /* nothing comes of it any more */
void h2_set_callbacks(nghttp2_session_callbacks *callbacks); /* h2_receive.c */

#endif
