/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Plain TCP forwarding in the loop of `stile torture`. */
#include "torture_proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CHUNK       16384
#define HOST_MAX    256
#define PATIENCE_MS 1000 /* for each address, to find the one that answers */

/* ---- the hosts of a URL ---- */

static const struct {
    const char *scheme, *port;
} schemes[] = {
    {"redis", "6379"},      {"redlock", "6379"}, {"etcd", "2379"},
    {"zk", "2181"},         {"mysql", "3306"},   {"postgres", "5432"},
    {"postgresql", "5432"}, {"mariadb", "3306"}, {"zookeeper", "2181"},
};

static const char *port_of(const char *url, size_t len)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        if (strlen(schemes[i].scheme) == len && strncmp(schemes[i].scheme, url, len) == 0)
            return schemes[i].port;
    }
    return NULL;
}

/* A socket that is connected to the address, or -1. */
static int try_address(const struct addrinfo *at)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    bool done = connect(fd, at->ai_addr, at->ai_addrlen) == 0;
    if (!done && errno == EINPROGRESS && poll(&polled, 1, PATIENCE_MS) == 1)
        done = getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
    if (done)
        return fd;
    close(fd);
    return -1;
}

/* The first address that answers, else the first one. */
static bool resolve(struct proxy_host *host, const char *name, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;
    if (getaddrinfo(name, port, &hints, &found) != 0)
        return false;
    const struct addrinfo *chosen = found;
    for (const struct addrinfo *at = found; at != NULL && found->ai_next != NULL;
         at = at->ai_next) {
        int fd = try_address(at);
        if (fd < 0)
            continue;
        close(fd);
        chosen = at;
        break;
    }
    memcpy(&host->address, chosen->ai_addr, chosen->ai_addrlen);
    host->size = chosen->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

/* text: "host", "host:port", "[::1]:port". */
static bool read_host(struct proxy_host *host, const char *text, size_t len, const char *port)
{
    char name[HOST_MAX];
    if (len == 0 || len >= sizeof name)
        return false;
    memcpy(name, text, len);
    name[len] = '\0';
    char *end = name[0] == '[' ? strchr(name, ']') : name + strcspn(name, ":");
    if (end == NULL)
        return false;
    if (end[*end == ']'] == ':')
        port = end + (*end == ']') + 1;
    *end = '\0';
    return resolve(host, name[0] == '[' ? name + 1 : name, port);
}

static bool asks_for_tls(const char *rest)
{
    return strstr(rest, "sslmode=verify") != NULL || strstr(rest, "tls=") != NULL ||
           strstr(rest, "ca=") != NULL;
}

const char *proxy_aim(struct proxy_target *target, const char *url)
{
    *target = (struct proxy_target){0};
    const char *colon = strstr(url, "://");
    const char *port = colon != NULL ? port_of(url, (size_t)(colon - url)) : NULL;
    if (port == NULL)
        return "only plain redis, redlock, etcd, zk, postgres and mysql URLs lead through it";
    const char *at = colon + 3, *end = at + strcspn(at, "/?");
    if (strstr(end, "socket=") != NULL || strstr(end, "host=") != NULL || asks_for_tls(end))
        return "a Unix socket or a verified server name does not lead through it";
    for (const char *c = at; c < end; c++)
        at = *c == '@' ? c + 1 : at;
    target->before = (size_t)(at - url);
    target->after = (size_t)(end - url);
    while (at <= end && target->n_hosts < PROXY_HOSTS_MAX) {
        size_t len = strcspn(at, ",/?");
        if (!read_host(&target->hosts[target->n_hosts++], at, len, port))
            return "a host of the URL cannot be resolved";
        at += len + 1;
    }
    return at <= end ? "the URL has too many hosts" : NULL;
}

/* ---- connections ---- */

/* What was read from one end and not yet written to the other. */
struct flow {
    char bytes[CHUNK];
    size_t len, sent;
};

struct link;

struct end {
    struct source source;
    struct link *link;
    struct end *other;
    struct flow out; /* to be written here */
    bool connecting;
};

struct link {
    struct end client, server;
    struct proxy *proxy;
    struct link *next;
};

struct gate {
    struct source source; /* listens */
    struct proxy *proxy;
    const struct proxy_host *host;
    uint16_t port;
};

struct proxy {
    const struct proxy_target *target;
    struct gate gates[PROXY_HOSTS_MAX];
    size_t n_gates;
    struct link *links;
    bool silent;
};

static void close_end(struct end *end, bool abruptly)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    if (abruptly)
        setsockopt(end->source.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    poller_watch(&end->source, 0);
    close(end->source.fd);
}

static void close_link(struct link *link, bool abruptly)
{
    struct link **at = &link->proxy->links;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    close_end(&link->client, abruptly);
    close_end(&link->server, abruptly);
    free(link);
}

/* Reads only what it can pass on: a slow reader slows its writer down, as without a proxy. */
static void watch_end(struct end *end)
{
    bool wants_out = end->connecting || end->out.len > 0;
    bool wants_in = !end->connecting && !end->other->connecting && end->other->out.len == 0;
    uint32_t events = (wants_out ? EPOLLOUT : 0u) | (wants_in ? EPOLLIN : 0u);
    poller_watch(&end->source, end->link->proxy->silent ? 0 : events);
}

static void watch_link(struct link *link)
{
    watch_end(&link->client);
    watch_end(&link->server);
}

static bool is_passing(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* False: the connection is over. */
static bool flush(struct end *end)
{
    struct flow *flow = &end->out;
    while (flow->len > 0) {
        ssize_t n = send(end->source.fd, flow->bytes + flow->sent, flow->len, MSG_NOSIGNAL);
        if (n < 0)
            return is_passing(n);
        flow->sent += (size_t)n;
        flow->len -= (size_t)n;
    }
    flow->sent = 0;
    return true;
}

static bool forward(struct end *from)
{
    struct flow *flow = &from->other->out;
    if (flow->len > 0)
        return true;
    ssize_t n = recv(from->source.fd, flow->bytes, sizeof flow->bytes, 0);
    if (n <= 0)
        return is_passing(n);
    flow->len = (size_t)n;
    return flush(from->other);
}

static bool finish_connecting(struct end *end)
{
    int error = 0;
    socklen_t size = sizeof error;
    end->connecting = false;
    return getsockopt(end->source.fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

static void on_end(struct source *source, uint32_t events)
{
    struct end *end = (struct end *)source;
    struct link *link = end->link;
    bool alive = true;
    if (end->connecting)
        alive = finish_connecting(end);
    else if (events & EPOLLOUT)
        alive = flush(end);
    if (alive && !end->connecting && (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)))
        alive = forward(end);
    if (alive)
        watch_link(link);
    else
        close_link(link, false);
}

static int connect_to(const struct proxy_host *host, bool *connecting)
{
    int fd = socket(host->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    *connecting = connect(fd, (const struct sockaddr *)&host->address, host->size) < 0;
    if (!*connecting || errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

static void set_end(struct end *end, struct link *link, struct end *other, int fd)
{
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    end->source = (struct source){.fd = fd, .ready = on_end};
    end->link = link;
    end->other = other;
}

static void on_gate(struct source *source, uint32_t events)
{
    struct gate *gate = (struct gate *)source;
    bool connecting = false;
    (void)events;
    int client = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0)
        return;
    int server = connect_to(gate->host, &connecting);
    struct link *link = server >= 0 ? calloc(1, sizeof *link) : NULL;
    if (link == NULL) {
        close(client);
        if (server >= 0)
            close(server);
        return;
    }
    set_end(&link->client, link, &link->server, client);
    set_end(&link->server, link, &link->client, server);
    link->server.connecting = connecting;
    link->proxy = gate->proxy;
    link->next = gate->proxy->links;
    gate->proxy->links = link;
    watch_link(link);
}

/* ---- one worker's proxy ---- */

static bool open_gate(struct gate *gate, struct proxy *proxy, const struct proxy_host *host)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *gate = (struct gate){.source = {.fd = fd, .ready = on_gate}, .proxy = proxy, .host = host};
    if (fd < 0)
        return false;
    proxy->n_gates++;
    if (bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, SOMAXCONN) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        return false;
    gate->port = ntohs(address.sin_port);
    return poller_watch(&gate->source, EPOLLIN);
}

struct proxy *proxy_open(const struct proxy_target *target)
{
    struct proxy *proxy = calloc(1, sizeof *proxy);
    if (proxy == NULL)
        return NULL;
    proxy->target = target;
    for (size_t i = 0; i < target->n_hosts; i++) {
        if (!open_gate(&proxy->gates[i], proxy, &target->hosts[i])) {
            int error = errno;
            proxy_close(proxy);
            errno = error;
            return NULL;
        }
    }
    return proxy;
}

void proxy_close(struct proxy *proxy)
{
    if (proxy == NULL)
        return;
    proxy_reset(proxy);
    for (size_t i = 0; i < proxy->n_gates; i++) {
        poller_watch(&proxy->gates[i].source, 0);
        close(proxy->gates[i].source.fd);
    }
    free(proxy);
}

bool proxy_rewrite(char *out, size_t size, const struct proxy *proxy, const char *url)
{
    int len = snprintf(out, size, "%.*s", (int)proxy->target->before, url);
    for (size_t i = 0; i < proxy->n_gates && (size_t)len < size; i++)
        len += snprintf(out + len, size - (size_t)len, "%s127.0.0.1:%u", i > 0 ? "," : "",
                        (unsigned)proxy->gates[i].port);
    if ((size_t)len < size)
        len += snprintf(out + len, size - (size_t)len, "%s", url + proxy->target->after);
    return (size_t)len < size;
}

static void set_silent(struct proxy *proxy, bool silent)
{
    proxy->silent = silent;
    for (size_t i = 0; i < proxy->n_gates; i++)
        poller_watch(&proxy->gates[i].source, silent ? 0 : EPOLLIN);
    for (struct link *link = proxy->links; link != NULL; link = link->next)
        watch_link(link);
}

void proxy_silence(struct proxy *proxy)
{
    set_silent(proxy, true);
}

void proxy_resume(struct proxy *proxy)
{
    set_silent(proxy, false);
}

void proxy_reset(struct proxy *proxy)
{
    while (proxy->links != NULL)
        close_link(proxy->links, true);
}
