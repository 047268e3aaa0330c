/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/mysql/options.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/url.h"
#include "engines/mysql/my.h"

#define PATIENCE_S 5
#define NAME_PORT  3306

const char *const maria_options_params[] = {
    "mode", "dialect", "table", "sessions", "allow",         "socket", "tls",
    "ca",   "cert",    "key",   "insecure", "password_file", NULL};

/* ---- reading ---- */

static enum stile_status set(char **to, const char *from, struct stile_error *err)
{
    if (!from)
        return STILE_OK;
    *to = strdup(from);
    return *to ? STILE_OK : error_set(err, STILE_NOMEM, 0, "out of memory");
}

static enum stile_status read_dialect(struct options *o, const struct url *url,
                                      struct stile_error *err)
{
    const char *dialect = url_param(url, "dialect");
    if (!dialect && !url_param(url, "table"))
        return STILE_OK;
    if (o->mode != MODE_TABLE || !dialect || strcmp(dialect, "shedlock") != 0)
        return error_set(err, STILE_MISUSE, 0,
                         "dialect= is shedlock, in mode=table, and table= its table");
    return sql_shedlock_read_table(&o->table, url, err);
}

static enum stile_status read_mode(struct options *o, const struct url *url,
                                   struct stile_error *err)
{
    static const char *const names[] = {
        [MODE_GETLOCK] = "getlock", [MODE_TABLE] = "table", [MODE_ROW] = "row"};
    const char *mode = url_param(url, "mode");
    o->mode = MODE_GETLOCK;
    for (size_t i = 0; mode && i < sizeof names / sizeof *names; i++) {
        if (strcmp(mode, names[i]) == 0)
            o->mode = (enum my_mode)i;
    }
    if (mode && strcmp(mode, names[o->mode]) != 0)
        return error_set(err, STILE_MISUSE, 0, "mode= is getlock, table or row");
    return read_dialect(o, url, err);
}

static enum stile_status read_secret(struct options *o, const struct url *url,
                                     struct stile_error *err)
{
    const char *password = url->password;
    char secret[URL_SECRET_MAX];
    enum stile_status status = url_secret(&password, url, "password_file", secret, err);
    if (!status)
        status = set(&o->password, password, err);
    explicit_bzero(secret, sizeof secret);
    return status;
}

static enum stile_status read_tls(struct options *o, const struct url *url, struct stile_error *err)
{
    bool tls = false;
    enum stile_status status = url_param_bool(&tls, url, "tls", err);
    if (!status)
        status = url_param_bool(&o->insecure, url, "insecure", err);
    if (status)
        return status;
    bool asked = strcmp(url->scheme, "mysqls") == 0 || tls || o->ca || o->cert || o->key;
    bool near = !o->host || sql_host_is_local(o->host, strlen(o->host));
    o->tls = asked || (!near && !o->insecure);
    if (asked && !o->host)
        return error_set(err, STILE_MISUSE, 0,
                         "TLS needs a host in the URL: a Unix socket has no TLS");
    if (o->insecure && !o->host)
        return error_set(err, STILE_MISUSE, 0,
                         "insecure applies to TLS, and a Unix socket has none");
    if (o->tls && !tls && url_param(url, "tls"))
        return error_set(err, STILE_MISUSE, 0,
                         "tls=%s, but mysqls://, ca=, cert=, key= and hosts other than this one "
                         "need TLS; insecure does without it",
                         url_param(url, "tls"));
    return STILE_OK;
}

static enum stile_status read_place(struct options *o, const struct url *url,
                                    struct stile_error *err)
{
    const char *host = url->n_hosts && *url->hosts[0].host ? url->hosts[0].host : NULL;
    if (url->n_hosts > 1)
        return error_set(err, STILE_MISUSE, 0,
                         "only one server is allowed: its locks are not known to any other");
    if (host && url_param(url, "socket"))
        return error_set(err, STILE_MISUSE, 0, "a host or socket=, not both");
    o->port = host && url->hosts[0].port ? url->hosts[0].port : NAME_PORT;
    enum stile_status status = set(&o->host, host, err);
    if (!status)
        status = set(&o->socket, url_param(url, "socket"), err);
    if (!status && url->user && *url->user)
        status = set(&o->user, url->user, err);
    if (!status && strlen(url->path) > 1)
        status = set(&o->database, url->path + 1, err);
    return status;
}

enum stile_status maria_options_read(struct options *o, const struct url *url,
                                     struct stile_error *err)
{
    o->patience_ns = PATIENCE_S * NS_PER_SEC;
    enum stile_status status = read_mode(o, url, err);
    if (!status)
        status = sql_options_sessions(&o->sessions, &o->allow_pooler, url, err);
    if (!status)
        status = read_place(o, url, err);
    if (!status)
        status = read_secret(o, url, err);
    if (!status)
        status = set(&o->ca, url_param(url, "ca"), err);
    if (!status)
        status = set(&o->cert, url_param(url, "cert"), err);
    if (!status)
        status = set(&o->key, url_param(url, "key"), err);
    return status ? status : read_tls(o, url, err);
}

void maria_options_free(struct options *o)
{
    char *all[] = {o->table,  o->host, o->user, o->password, o->database,
                   o->socket, o->ca,   o->cert, o->key};
    if (o->password)
        explicit_bzero(o->password, strlen(o->password));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    *o = (struct options){0};
}

/* ---- for the library ---- */

/* The library makes the whole process ignore SIGPIPE, which is not ours to decide. It sends with
 * MSG_NOSIGNAL anyway. */
static MYSQL *new_handle(void)
{
    struct sigaction before;
    sigaction(SIGPIPE, NULL, &before);
    MYSQL *conn = mysql_init(NULL);
    sigaction(SIGPIPE, &before, NULL);
    return conn;
}

static void set_tls(MYSQL *conn, const struct options *o)
{
    my_bool yes = 1, verify = !o->insecure;
    mysql_options(conn, MYSQL_OPT_SSL_ENFORCE, &yes);
    mysql_options(conn, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verify);
    if (o->ca)
        mysql_options(conn, MYSQL_OPT_SSL_CA, o->ca);
    if (o->cert)
        mysql_options(conn, MYSQL_OPT_SSL_CERT, o->cert);
    if (o->key)
        mysql_options(conn, MYSQL_OPT_SSL_KEY, o->key);
}

MYSQL *maria_options_prepare_blocking(const struct options *o)
{
    unsigned seconds = PATIENCE_S, protocol = o->host ? MYSQL_PROTOCOL_TCP : MYSQL_PROTOCOL_SOCKET;
    my_bool no = 0;
    MYSQL *conn = new_handle();
    if (!conn)
        return NULL;
    mysql_options(conn, MYSQL_OPT_PROTOCOL, &protocol);
    mysql_options(conn, MYSQL_OPT_CONNECT_TIMEOUT, &seconds);
    mysql_options(conn, MYSQL_OPT_RECONNECT, &no); /* a new session has no locks */
    unsigned none = 0;
    mysql_options(conn, MYSQL_OPT_LOCAL_INFILE, &none);
    mysql_options(conn, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    if (o->tls)
        set_tls(conn, o);
    return conn;
}

MYSQL *maria_options_prepare(const struct options *o)
{
    MYSQL *conn = maria_options_prepare_blocking(o);
    if (conn && mysql_options(conn, MYSQL_OPT_NONBLOCK, 0)) {
        mysql_close(conn);
        return NULL;
    }
    return conn;
}
