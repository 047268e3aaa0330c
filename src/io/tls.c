/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "io/tls.h"

#include <arpa/inet.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tls_context {
    SSL_CTX *ssl;
    bool insecure;
    char server_name[]; /* "": the host's */
};

struct tls {
    SSL *ssl;
    BIO *in, *out; /* the ssl's */
};

/* ---- why not ---- */

/* Messages for alerts and protocol errors, and what to do about them. */
static const char *advice(int reason)
{
    switch (reason) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
        return " (the server does not speak TLS at this port)";
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
        return " (does it want a client certificate? parameters cert= and key=)";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
        return " (the server does not accept our client certificate)";
    default:
        return "";
    }
}

/* The first error in OpenSSL's queue is the cause; the later ones only pass it on. */
static enum stile_status fail(struct stile_error *err, const char *what)
{
    unsigned long code = ERR_peek_error();
    const char *why = ERR_reason_error_string(code);
    int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;

    ERR_clear_error();
    if (ERR_SYSTEM_ERROR(code))
        return error_errno(err, STILE_REFUSED, ERR_GET_REASON(code), "TLS: %s", what);
    return error_set(err, STILE_REFUSED, ERR_GET_REASON(code), "TLS: %s: %s%s", what,
                     why ? why : "no reason given", advice(reason));
}

static enum stile_status fail_at(struct stile_error *err, const char *what, const char *path)
{
    char text[160];

    snprintf(text, sizeof text, "%s '%s'", what, path);
    return fail(err, text);
}

static enum stile_status no_memory(struct stile_error *err)
{
    ERR_clear_error();
    return error_set(err, STILE_NOMEM, 0, "TLS: out of memory");
}

static enum stile_status distrust(long result, struct stile_error *err)
{
    const char *advice = "its CA is given by the parameter ca=";

    if (result == X509_V_ERR_HOSTNAME_MISMATCH || result == X509_V_ERR_IP_ADDRESS_MISMATCH)
        advice = "it is for another host; server_name= says which one to expect";
    else if (result == X509_V_ERR_CERT_HAS_EXPIRED || result == X509_V_ERR_CERT_NOT_YET_VALID)
        advice = "renew it on the server, or set the clock";
    ERR_clear_error();
    return error_set(err, STILE_REFUSED, (int)result,
                     "TLS: the server's certificate is not trusted: %s (%s)",
                     X509_verify_cert_error_string(result), advice);
}

/* ---- contexts ---- */

static enum stile_status load_trust(SSL_CTX *ssl, const struct tls_options *o,
                                    struct stile_error *err)
{
    if (o->insecure) {
        SSL_CTX_set_verify(ssl, SSL_VERIFY_NONE, NULL);
        return STILE_OK;
    }
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    int ok = o->ca ? SSL_CTX_load_verify_file(ssl, o->ca) : SSL_CTX_set_default_verify_paths(ssl);
    if (ok == 1)
        return STILE_OK;
    return o->ca ? fail_at(err, "reading the CA file", o->ca) : fail(err, "the system's CAs");
}

/* OpenSSL's default would prompt on the terminal. */
static int no_passphrase(char *buffer, int size, int writing, void *data)
{
    (void)buffer, (void)size, (void)writing, (void)data;
    return -1;
}

static enum stile_status load_own(SSL_CTX *ssl, const struct tls_options *o,
                                  struct stile_error *err)
{
    if (!o->cert)
        return o->key ? error_set(err, STILE_MISUSE, 0, "TLS: key= is given without cert=")
                      : STILE_OK;
    const char *key = o->key ? o->key : o->cert;
    SSL_CTX_set_default_passwd_cb(ssl, no_passphrase);
    if (SSL_CTX_use_certificate_chain_file(ssl, o->cert) != 1)
        return fail_at(err, "reading the client certificate", o->cert);
    if (SSL_CTX_use_PrivateKey_file(ssl, key, SSL_FILETYPE_PEM) != 1)
        return fail_at(err, "reading the client key, which may have no passphrase,", key);
    return STILE_OK;
}

static enum stile_status announce(SSL_CTX *ssl, const char *protocol, struct stile_error *err)
{
    unsigned char list[32];
    size_t len = protocol ? strlen(protocol) : 0;

    if (len == 0)
        return STILE_OK;
    if (len >= sizeof list)
        return error_set(err, STILE_MISUSE, 0, "TLS: the name of the protocol is too long");
    list[0] = (unsigned char)len;
    memcpy(list + 1, protocol, len);
    return SSL_CTX_set_alpn_protos(ssl, list, (unsigned)len + 1) == 0 ? STILE_OK : no_memory(err);
}

enum stile_status tls_context_new(struct tls_context **out, const struct tls_options *o,
                                  struct stile_error *err)
{
    const char *name = o->server_name ? o->server_name : "";
    struct tls_context *context = calloc(1, sizeof *context + strlen(name) + 1);

    if (!context)
        return no_memory(err);
    strcpy(context->server_name, name);
    context->insecure = o->insecure;
    context->ssl = SSL_CTX_new(TLS_client_method());
    enum stile_status status = context->ssl ? STILE_OK : fail(err, "starting OpenSSL");
    if (!status) {
        SSL_CTX_set_min_proto_version(context->ssl, TLS1_2_VERSION);
        status = load_trust(context->ssl, o, err);
    }
    if (!status)
        status = load_own(context->ssl, o, err);
    if (!status)
        status = announce(context->ssl, o->alpn, err);
    if (status)
        tls_context_free(context);
    else
        *out = context;
    return status;
}

void tls_context_free(struct tls_context *context)
{
    if (!context)
        return;
    SSL_CTX_free(context->ssl);
    free(context);
}

/* ---- one connection ---- */

/* An address is verified as an address, a name as a name; only names are sent in the hello. */
static enum stile_status expect_host(SSL *ssl, const char *host, bool insecure,
                                     struct stile_error *err)
{
    unsigned char address[16];
    bool numeric = inet_pton(AF_INET, host, address) || inet_pton(AF_INET6, host, address);
    int ok = numeric || SSL_set_tlsext_host_name(ssl, host);

    if (ok && !insecure)
        ok = numeric ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host)
                     : SSL_set1_host(ssl, host);
    return ok ? STILE_OK : fail(err, "the server's name");
}

static bool make_parts(struct tls *tls, SSL_CTX *context)
{
    tls->ssl = SSL_new(context);
    tls->in = BIO_new(BIO_s_mem());
    tls->out = BIO_new(BIO_s_mem());
    if (tls->ssl && tls->in && tls->out) {
        SSL_set_bio(tls->ssl, tls->in, tls->out);
        SSL_set_connect_state(tls->ssl);
        return true;
    }
    BIO_free(tls->in);
    BIO_free(tls->out);
    return false;
}

enum stile_status tls_new(struct tls **out, struct tls_context *context, const char *host,
                          struct stile_error *err)
{
    struct tls *tls = calloc(1, sizeof *tls);

    if (!tls)
        return no_memory(err);
    enum stile_status status = make_parts(tls, context->ssl) ? STILE_OK : no_memory(err);
    if (!status && context->server_name[0])
        host = context->server_name;
    if (!status && host)
        status = expect_host(tls->ssl, host, context->insecure, err);
    else if (!status && !context->insecure)
        status = error_set(err, STILE_MISUSE, 0,
                           "TLS over a Unix socket has no host to verify: give server_name=");
    if (status)
        tls_free(tls);
    else
        *out = tls;
    return status;
}

void tls_free(struct tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    free(tls);
}

/* ---- bytes ---- */

enum stile_status tls_put(struct tls *tls, const void *bytes, size_t n, struct stile_error *err)
{
    return BIO_write(tls->in, bytes, (int)n) == (int)n ? STILE_OK : no_memory(err);
}

size_t tls_take(struct tls *tls, void *bytes, size_t n)
{
    int got = BIO_read(tls->out, bytes, n > INT_MAX ? INT_MAX : (int)n);

    return got > 0 ? (size_t)got : 0;
}

enum tls_step tls_handshake(struct tls *tls, struct stile_error *err)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(tls->ssl);
    if (rc == 1)
        return TLS_READY;
    if (SSL_get_error(tls->ssl, rc) == SSL_ERROR_WANT_READ)
        return TLS_MORE;
    long result = SSL_get_verify_result(tls->ssl);
    if (result != X509_V_OK && (SSL_get_verify_mode(tls->ssl) & SSL_VERIFY_PEER))
        distrust(result, err);
    else
        fail(err, "handshake");
    return TLS_FAILED;
}

enum stile_status tls_encrypt(struct tls *tls, const void *bytes, size_t n, struct stile_error *err)
{
    const char *at = bytes;

    while (n > 0) {
        ERR_clear_error();
        int put = SSL_write(tls->ssl, at, n > INT_MAX ? INT_MAX : (int)n);
        if (put <= 0)
            return fail(err, "sending");
        at += put;
        n -= (size_t)put;
    }
    return STILE_OK;
}

enum tls_step tls_decrypt(struct tls *tls, void *bytes, size_t *n, struct stile_error *err)
{
    ERR_clear_error();
    int got = SSL_read(tls->ssl, bytes, *n > INT_MAX ? INT_MAX : (int)*n);
    *n = got > 0 ? (size_t)got : 0;
    if (got > 0)
        return TLS_READY;
    int reason = SSL_get_error(tls->ssl, got);
    if (reason == SSL_ERROR_WANT_READ)
        return TLS_MORE;
    if (reason == SSL_ERROR_ZERO_RETURN)
        error_set(err, STILE_UNREACHABLE, 0, "the server closed the connection");
    else
        fail(err, "receiving");
    return TLS_FAILED;
}
