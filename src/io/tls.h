/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* TLS between a stream and its socket: bytes in, bytes out, no I/O of its own.
 *
 * Implemented on OpenSSL's memory BIOs, so that sending stays with the stream (MSG_NOSIGNAL, one
 * send per turn). Chain and host name are verified unless `insecure` is written out; nothing below
 * TLS 1.2. */
#ifndef STILE_TLS_H
#define STILE_TLS_H

#include "base/error.h"

/* Shared by all connections to one server: certificates are read once. */
struct tls_context;

struct tls_options {
    const char *ca;          /* file with trusted certificates; NULL: the system's */
    const char *cert, *key;  /* client certificate, or NULL; key NULL: in the same file */
    const char *server_name; /* the name in the certificate; NULL: the host connected to */
    const char *alpn;        /* the ALPN protocol; NULL: none */
    bool insecure;           /* trust any certificate */
};

enum stile_status tls_context_new(struct tls_context **context, const struct tls_options *options,
                                  struct stile_error *err);
void tls_context_free(struct tls_context *context);

struct tls;

/* The context must outlive it. */
enum stile_status tls_new(struct tls **tls, struct tls_context *context, const char *host,
                          struct stile_error *err);
void tls_free(struct tls *tls);

enum tls_step {
    TLS_MORE,   /* put more from the peer; there may be something to take */
    TLS_READY,  /* handshake: done; decrypt: *n bytes have come */
    TLS_FAILED, /* err says why; there may be an alert to take */
};

enum stile_status tls_put(struct tls *tls, const void *bytes, size_t n, struct stile_error *err);
size_t tls_take(struct tls *tls, void *bytes, size_t n); /* for the socket; 0: nothing left */
enum tls_step tls_handshake(struct tls *tls, struct stile_error *err);
enum stile_status tls_encrypt(struct tls *tls, const void *bytes, size_t n,
                              struct stile_error *err);
enum tls_step tls_decrypt(struct tls *tls, void *bytes, size_t *n, struct stile_error *err);

#endif
