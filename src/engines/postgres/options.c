/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/postgres/options.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/url.h"
#include "engines/postgres/pg.h"
#include "io/resolve.h"

#define ADDRESSES_MAX 8
#define POLL_MS       300
#define POLL_MAX_MS   1000 /* for poll=0 as well: a holder may die without waking anyone */

/* The first ones are ours; the others are libpq's keywords. */
const char *const postgres_options_params[] = {"mode",
                                               "dialect",
                                               "table",
                                               "sessions",
                                               "allow",
                                               "locks",
                                               "poll",
                                               "host",
                                               "hostaddr",
                                               "port",
                                               "user",
                                               "password",
                                               "dbname",
                                               "passfile",
                                               "service",
                                               "connect_timeout",
                                               "client_encoding",
                                               "options",
                                               "application_name",
                                               "fallback_application_name",
                                               "keepalives",
                                               "keepalives_idle",
                                               "keepalives_interval",
                                               "keepalives_count",
                                               "tcp_user_timeout",
                                               "channel_binding",
                                               "sslmode",
                                               "sslcompression",
                                               "sslcert",
                                               "sslkey",
                                               "sslpassword",
                                               "sslrootcert",
                                               "sslcrl",
                                               "sslcrldir",
                                               "sslsni",
                                               "requirepeer",
                                               "ssl_min_protocol_version",
                                               "ssl_max_protocol_version",
                                               "krbsrvname",
                                               "gssencmode",
                                               "gsslib",
                                               "target_session_attrs",
                                               NULL};
#define OURS 7

/* ---- the list for libpq ---- */

static size_t find(const struct options *o, const char *keyword)
{
    size_t i = 0;
    while (i < o->n && strcmp(o->keywords[i], keyword) != 0)
        i++;
    return i;
}

enum stile_status postgres_options_set(struct options *o, const char *keyword, const char *value,
                                       struct stile_error *err)
{
    size_t i = find(o, keyword);
    char *copy = strdup(value);
    if (!copy || i == KEYWORDS_MAX) {
        free(copy);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    if (i == o->n)
        o->keywords[o->n++] = keyword;
    else
        explicit_bzero(o->values[i], strlen(o->values[i]));
    free(o->values[i]);
    o->values[i] = copy;
    return STILE_OK;
}

const char *postgres_options_get(const struct options *o, const char *keyword)
{
    size_t i = find(o, keyword);
    return i < o->n && *o->values[i] ? o->values[i] : NULL;
}

static enum stile_status set_default(struct options *o, const char *keyword, const char *value,
                                     struct stile_error *err)
{
    return postgres_options_get(o, keyword) ? STILE_OK
                                            : postgres_options_set(o, keyword, value, err);
}

void postgres_options_free(struct options *o)
{
    for (size_t i = 0; i < o->n; i++) {
        explicit_bzero(o->values[i], strlen(o->values[i]));
        free(o->values[i]);
        o->values[i] = NULL;
    }
    o->n = 0;
    free(o->table);
    o->table = NULL;
    free(o->written.host);
    free(o->written.hostaddr);
    free(o->written.port);
    memset(&o->written, 0, sizeof o->written);
}

/* ---- hosts ---- */

static enum stile_status set_hosts(struct options *o, const struct url *url,
                                   struct stile_error *err)
{
    char hosts[STILE_URL_MAX], ports[URL_HOSTS_MAX * 6 + 1];
    int at = 0, port_at = 0;
    for (size_t i = 0; i < url->n_hosts; i++) {
        const char *comma = i ? "," : "";
        at += snprintf(hosts + at, sizeof hosts - (size_t)at, "%s%s", comma, url->hosts[i].host);
        port_at += snprintf(ports + port_at, sizeof ports - (size_t)port_at, "%s", comma);
        if (url->hosts[i].port)
            port_at +=
                snprintf(ports + port_at, sizeof ports - (size_t)port_at, "%u", url->hosts[i].port);
    }
    if (url->n_hosts == 0)
        return STILE_OK;
    enum stile_status status = postgres_options_set(o, "host", hosts, err);
    bool any = strspn(ports, ",") != strlen(ports);
    return status || !any ? status : postgres_options_set(o, "port", ports, err);
}

static bool is_near(const char *host, size_t len)
{
    return len == 0 || *host == '/' || *host == '@' || sql_host_is_local(host, len);
}

/* Whether all hosts are on this machine. */
static bool all_near(const char *hosts)
{
    for (const char *at = hosts ? hosts : "";; at++) {
        size_t len = strcspn(at, ",");
        if (!is_near(at, len))
            return false;
        at += len;
        if (!*at)
            return true;
    }
}

static const char *value_of(const PQconninfoOption *list, const char *keyword)
{
    while (list->keyword && strcmp(list->keyword, keyword) != 0)
        list++;
    return list->keyword ? list->val : NULL;
}

/* Only libpq knows the host and the sslmode of a service, and only once it has begun to connect.
 * It reports "prefer" where no mode was given. */
static bool service_is_safe(const struct options *o)
{
    PGconn *conn = PQconnectStartParams(o->keywords, (const char *const *)o->values, 0);
    PQconninfoOption *list = conn ? PQconninfo(conn) : NULL;
    const char *mode = list ? value_of(list, "sslmode") : NULL;
    bool safe =
        list && ((mode && strcmp(mode, "prefer") != 0) ||
                 (all_near(value_of(list, "host")) && all_near(value_of(list, "hostaddr"))));
    PQconninfoFree(list);
    PQfinish(conn);
    return safe;
}

/* libpq's own default accepts an unencrypted connection. */
static enum stile_status set_tls(struct options *o, struct stile_error *err)
{
    const char *host = postgres_options_get(o, "host"),
               *address = postgres_options_get(o, "hostaddr");
    if (postgres_options_get(o, "sslmode") || secure_getenv("PGSSLMODE"))
        return STILE_OK;
    bool near = postgres_options_get(o, "service") || secure_getenv("PGSERVICE")
                    ? service_is_safe(o)
                    : all_near(host ? host : secure_getenv("PGHOST")) &&
                          all_near(address ? address : secure_getenv("PGHOSTADDR"));
    return near ? STILE_OK : postgres_options_set(o, "sslmode", "verify-full", err);
}

static enum stile_status set_place(struct options *o, const struct url *url,
                                   struct stile_error *err)
{
    enum stile_status status = set_hosts(o, url, err);
    if (!status && url->user && *url->user)
        status = postgres_options_set(o, "user", url->user, err);
    if (!status && url->password)
        status = postgres_options_set(o, "password", url->password, err);
    if (!status && strlen(url->path) > 1)
        status = postgres_options_set(o, "dbname", url->path + 1, err);
    for (size_t i = 0; i < url->n_params && !status; i++) {
        size_t known = 0;
        while (strcmp(postgres_options_params[known], url->params[i].key) != 0)
            known++;
        if (known >= OURS)
            status =
                postgres_options_set(o, postgres_options_params[known], url->params[i].value, err);
    }
    return status;
}

/* While a statement waits inside the server, nothing is received: only the kernel can notice
 * that the network is cut. */
static enum stile_status set_defaults(struct options *o, struct stile_error *err)
{
    static const char *const defaults[][2] = {
        {"client_encoding", "UTF8"}, {"keepalives_idle", "10"},     {"keepalives_interval", "5"},
        {"keepalives_count", "3"},   {"tcp_user_timeout", "25000"}, {"connect_timeout", "5"}};
    enum stile_status status = set_tls(o, err);
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults && !status; i++)
        status = set_default(o, defaults[i][0], defaults[i][1], err);
    if (!status)
        status = postgres_options_set(o, "client_encoding", "UTF8", err);
    if (status)
        return status;
    long seconds = strtol(postgres_options_get(o, "connect_timeout"), NULL, 10);
    o->patience_ns = (uint64_t)(seconds > 0 && seconds < 600 ? seconds : 5) * NS_PER_SEC;
    return STILE_OK;
}

static char *copy_of(const struct options *o, const char *keyword)
{
    const char *value = postgres_options_get(o, keyword);
    return value ? strdup(value) : NULL;
}

static void forget_written(struct options *o)
{
    free(o->written.host);
    free(o->written.hostaddr);
    free(o->written.port);
    memset(&o->written, 0, sizeof o->written);
    o->pinned = false;
}

static void remember_written(struct options *o)
{
    if (o->pinned)
        return;
    o->written.host = copy_of(o, "host");
    o->written.hostaddr = copy_of(o, "hostaddr");
    o->written.port = copy_of(o, "port");
    o->pinned = true;
}

enum stile_status postgres_options_pin(struct options *o, const PGconn *conn,
                                       struct stile_error *err)
{
    const char *address = PQhostaddr(conn);
    remember_written(o);
    enum stile_status status = postgres_options_set(o, "host", PQhost(conn), err);
    if (!status)
        status = postgres_options_set(o, "port", PQport(conn), err);
    if (!status && address && *address)
        status = postgres_options_set(o, "hostaddr", address, err);
    return status;
}

/* libpq takes an empty value for none. */
void postgres_options_unpin(struct options *o)
{
    if (!o->pinned)
        return;
    postgres_options_set(o, "host", o->written.host ? o->written.host : "", NULL);
    postgres_options_set(o, "hostaddr", o->written.hostaddr ? o->written.hostaddr : "", NULL);
    postgres_options_set(o, "port", o->written.port ? o->written.port : "", NULL);
    forget_written(o);
}

/* ---- resolving hosts ---- */

/* One of a list with commas. */
struct part {
    const char *at;
    size_t len;
};

static struct part part_of(const char *list, size_t i)
{
    const char *at = list ? list : "";
    for (; i > 0 && *at; i--) {
        at += strcspn(at, ",");
        at += *at == ',';
    }
    return (struct part){at, strcspn(at, ",")};
}

static size_t count_parts(const char *list)
{
    size_t n = 1;
    for (; *list; list++)
        n += *list == ',';
    return n;
}

/* The name in the i-th place if it has no address yet, else "". */
static void read_name(char name[NI_MAXHOST], const struct options *o, size_t i)
{
    struct part host = part_of(postgres_options_get(o, "host"), i);
    struct addrinfo *found;
    name[0] = '\0';
    if (host.len == 0 || host.len >= NI_MAXHOST || strchr("/@", *host.at) ||
        part_of(postgres_options_get(o, "hostaddr"), i).len > 0)
        return;
    memcpy(name, host.at, host.len);
    name[host.len] = '\0';
    if (resolve_numeric(&found, name, 0) != 0)
        return;
    freeaddrinfo(found);
    name[0] = '\0';
}

bool postgres_options_next_name(char name[NI_MAXHOST], const struct options *o)
{
    const char *hosts = postgres_options_get(o, "host");
    const char *addresses = postgres_options_get(o, "hostaddr");
    size_t n = hosts ? count_parts(hosts) : 0;
    name[0] = '\0';
    if (addresses && count_parts(addresses) != n)
        return false; /* libpq refuses it */
    for (size_t i = 0; i < n && !name[0]; i++)
        read_name(name, o, i);
    return name[0];
}

struct list {
    char text[STILE_URL_MAX];
    size_t len;
};

/* The lists as they are written anew. */
struct places {
    struct list hosts, addresses, ports;
    size_t n;
};

static bool has_room(const struct list *list, struct part part)
{
    return list->len + part.len + 2 <= sizeof list->text;
}

static void put(struct list *list, struct part part)
{
    memcpy(list->text + list->len, part.at, part.len);
    list->len += part.len;
    list->text[list->len] = '\0';
}

/* What does not fit is left out: there are others. */
static void put_place(struct places *p, struct part host, struct part address, struct part port)
{
    static const struct part comma = {",", 1};
    if (!has_room(&p->hosts, host) || !has_room(&p->addresses, address) ||
        !has_room(&p->ports, port))
        return;
    if (p->n++) {
        put(&p->hosts, comma);
        put(&p->addresses, comma);
        put(&p->ports, comma);
    }
    put(&p->hosts, host);
    put(&p->addresses, address);
    put(&p->ports, port);
}

/* The host name is repeated for each address: the certificate is compared with it. */
static void put_found(struct places *p, const struct addrinfo *found, struct part host,
                      struct part port)
{
    char one[NI_MAXHOST];
    for (int n = 0; found && n < ADDRESSES_MAX; found = found->ai_next, n++) {
        if (getnameinfo(found->ai_addr, found->ai_addrlen, one, sizeof one, NULL, 0,
                        NI_NUMERICHOST) == 0)
            put_place(p, host, (struct part){one, strlen(one)}, port);
    }
}

enum stile_status postgres_options_set_addresses(struct options *o, const char *name,
                                                 const struct addrinfo *found,
                                                 struct stile_error *err)
{
    const char *hosts = postgres_options_get(o, "host"), *ports = postgres_options_get(o, "port");
    const char *addresses = postgres_options_get(o, "hostaddr");
    struct places p = {.n = 0};
    char unresolved[NI_MAXHOST];
    for (size_t i = 0; hosts && i < count_parts(hosts); i++) {
        read_name(unresolved, o, i);
        if (strcmp(unresolved, name) == 0)
            put_found(&p, found, part_of(hosts, i), part_of(ports, i));
        else
            put_place(&p, part_of(hosts, i), part_of(addresses, i), part_of(ports, i));
    }
    if (p.n == 0)
        return error_set(err, STILE_UNREACHABLE, 0, "%s has no address", name);
    remember_written(o);
    enum stile_status status = postgres_options_set(o, "host", p.hosts.text, err);
    if (!status && ports && strchr(ports, ',')) /* a single one counts for all hosts */
        status = postgres_options_set(o, "port", p.ports.text, err);
    return status ? status : postgres_options_set(o, "hostaddr", p.addresses.text, err);
}

/* libpq checks these only when it connects, ignores connect_timeout on an asynchronous
 * connection, and takes sslsni=yes for no: so they are checked here. */
static enum stile_status check_numbers(const struct url *url, struct stile_error *err)
{
    static const struct {
        const char *key;
        unsigned max;
    } numbers[] = {{"connect_timeout", INT_MAX},  {"keepalives", 1},
                   {"keepalives_idle", INT_MAX},  {"keepalives_interval", INT_MAX},
                   {"keepalives_count", INT_MAX}, {"tcp_user_timeout", INT_MAX},
                   {"sslcompression", 1},         {"sslsni", 1}};
    enum stile_status status = STILE_OK;
    unsigned value;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !status; i++)
        status = url_param_number(&value, url, numbers[i].key, 0, numbers[i].max, err);
    return status;
}

/* ---- options of stile ---- */

static enum stile_status read_mode(struct options *o, const struct url *url,
                                   struct stile_error *err)
{
    const char *mode = url_param(url, "mode"), *dialect = url_param(url, "dialect");
    o->mode = mode && strcmp(mode, "table") == 0 ? MODE_TABLE
              : mode && strcmp(mode, "row") == 0 ? MODE_ROW
                                                 : MODE_ADVISORY;
    if (mode && o->mode == MODE_ADVISORY && strcmp(mode, "advisory") != 0)
        return error_set(err, STILE_MISUSE, 0, "mode= is advisory, table or row");
    if (o->mode == MODE_TABLE && dialect && strcmp(dialect, "shedlock") == 0)
        return sql_shedlock_read_table(&o->table, url, err);
    if (url_param(url, "table"))
        return error_set(
            err, STILE_MISUSE, 0,
            "table= is about mode=table&dialect=shedlock: our own is always stile.claim");
    if (dialect && o->mode != MODE_ADVISORY)
        return error_set(
            err, STILE_MISUSE, 0,
            "dialect= selects the keys of mode=advisory; in mode=table it can be shedlock");
    if (dialect && !postgres_dialect_named(&o->dialect, dialect))
        return error_set(err, STILE_MISUSE, 0,
                         "dialect= is sql, with_advisory_lock, django-pglocks, pals or madelson");
    return STILE_OK;
}

static enum stile_status read_locks(struct options *o, const struct url *url,
                                    struct stile_error *err)
{
    const char *text = url_param(url, "locks");
    char *end;
    if (!text)
        return STILE_OK;
    o->locks = strtoull(text, &end, 10);
    if (o->mode != MODE_ADVISORY || *text < '1' || *text > '9' || *end || strlen(text) > 9)
        return error_set(err, STILE_MISUSE, 0, "locks= is a number from 1 on, for mode=advisory");
    return STILE_OK;
}

/* How often to look while the holder is a foreign client, which wakes no waiters. The wait
 * inside the server and mode=table, whose holders are all ours, do not need it. */
static enum stile_status read_poll(struct options *o, const struct url *url,
                                   struct stile_error *err)
{
    unsigned ms = POLL_MS;
    if (url_param(url, "poll") && o->mode != MODE_ADVISORY)
        return error_set(err, STILE_MISUSE, 0,
                         "poll= applies to mode=advisory: the other modes need no polling");
    enum stile_status status = url_param_number(&ms, url, "poll", 0, POLL_MAX_MS, err);
    o->poll_ns = (ms ? ms : POLL_MAX_MS) * NS_PER_MS;
    return status;
}

enum stile_status postgres_options_read(struct options *o, const struct url *url,
                                        struct stile_error *err)
{
    enum stile_status status = read_mode(o, url, err);
    if (!status)
        status = read_locks(o, url, err);
    if (!status)
        status = read_poll(o, url, err);
    if (!status)
        status = check_numbers(url, err);
    if (!status)
        status = sql_options_sessions(&o->sessions, &o->allow_pooler, url, err);
    if (!status)
        status = set_place(o, url, err);
    if (!status)
        status = set_defaults(o, err);
    return status;
}
