/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/dynamodb/http.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/container.h"

#define HTTP_TIMERS 1
#define FD_SCAN_MAX 4096
#define IDLE_MAX    HTTP_ACTIVE_MAX

/* Of libcurl's: a connection, or what its resolver wakes it by. */
struct http_socket {
    struct watch watch; /* fd -1: free */
    bool connection;
    struct http *http;
};

struct http {
    struct loop *loop;
    CURLM *multi;
    char *ca; /* NULL: the system's */
    struct timer timer;
    struct task collect;
    struct sender sender;
    struct transfer *active;
    struct transfer *waiting[2], **tails[2]; /* bulk ones in the second queue */
    bool bulk_next;
    size_t n_active, n_bulk; /* n_bulk: of those */
    CURL *idle[IDLE_MAX];
    size_t n_idle;
    struct http_socket sockets[HTTP_SOCKETS_MAX];
    int wakeup[2]; /* libcurl's own */
};

/* ---- progress ---- */

static void put_back(struct http *http, CURL *easy)
{
    if (http->n_idle < IDLE_MAX)
        http->idle[http->n_idle++] = easy;
    else
        curl_easy_cleanup(easy);
}

static void leave(struct transfer *t)
{
    struct http *http = t->http;
    *t->link = t->next;
    if (t->next)
        t->next->link = t->link;
    else if (t->queued)
        http->tails[t->bulk] = t->link;
    if (!t->queued) {
        http->n_active--;
        http->n_bulk -= t->bulk;
    }
    if (t->easy) {
        curl_multi_remove_handle(http->multi, t->easy);
        put_back(http, t->easy);
    }
    if (http->waiting[0] || http->waiting[1])
        loop_gather(http->loop, &http->sender);
    curl_slist_free_all(t->list);
    t->list = NULL;
    t->easy = NULL;
    t->http = NULL;
    t->starved = false;
}

/* Its words may quote a name from the certificate. */
static void explain(struct transfer *t, CURLcode code, struct stile_error *err)
{
    bool unverified = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
    for (char *at = t->why; *at; at++)
        *at = (unsigned char)*at < ' ' || (unsigned char)*at > '~' ? '?' : *at;
    error_set(err, t->times ? STILE_UNCERTAIN : STILE_UNREACHABLE, (int)code, "%.200s%s",
              *t->why ? t->why : curl_easy_strerror(code),
              unverified ? "; ca=FILE names the certificates to verify with" : "");
}

static void end_transfer(struct transfer *t, CURLcode code)
{
    struct stile_error err;
    if (!code)
        curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->code);
    leave(t);
    explain(t, code, &err);
    t->done(t, code ? &err : NULL);
}

static bool end_starved(struct http *http)
{
    for (struct transfer *t = http->active; t; t = t->next) {
        if (!t->starved)
            continue;
        loop_soon(http->loop, &http->collect);
        end_transfer(t, CURLE_OUT_OF_MEMORY);
        return true;
    }
    return false;
}

/* An answer may start or cancel any other transfer, or close the client: so one at a time. */
static void collect(struct task *task)
{
    struct http *http = container_of(task, struct http, collect);
    int left;
    if (end_starved(http))
        return;
    for (CURLMsg *message; (message = curl_multi_info_read(http->multi, &left));) {
        struct transfer *t = NULL;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &t);
        if (left)
            loop_soon(http->loop, &http->collect);
        end_transfer(t, code);
        return;
    }
}

static void act(struct http *http, curl_socket_t fd, int events)
{
    int running;
    curl_multi_socket_action(http->multi, fd, events, &running);
}

static void on_socket(struct watch *watch, uint32_t events)
{
    struct http_socket *s = container_of(watch, struct http_socket, watch);
    struct http *http = s->http;
    act(http, watch->fd,
        (events & EPOLLIN ? CURL_CSELECT_IN : 0) | (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
            (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0));
    collect(&http->collect);
}

static void on_timer(struct timer *timer)
{
    struct http *http = container_of(timer, struct http, timer);
    act(http, CURL_SOCKET_TIMEOUT, 0);
    collect(&http->collect);
}

/* ---- what libcurl asks for ---- */

static struct http_socket *find_socket(struct http *http, curl_socket_t fd)
{
    for (size_t i = 0; i < HTTP_SOCKETS_MAX; i++) {
        if (http->sockets[i].watch.fd == fd)
            return &http->sockets[i];
    }
    return NULL;
}

/* libcurl takes a failure of this callback for the end of all transfers, now and later: so only the
 * one that is concerned ends. */
static void starve(struct http *http, CURL *easy)
{
    struct transfer *t = NULL;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &t);
    if (t)
        t->starved = true;
    loop_soon(http->loop, &http->collect);
}

static void free_socket(struct http *http, struct http_socket *s)
{
    if (s->watch.slot)
        loop_unwatch(http->loop, &s->watch);
    *s = (struct http_socket){.watch = {.fd = -1, .fn = on_socket}, .http = http};
}

/* A connection stays in the table until it is closed: so that it is known after a fork. */
static void unwatch_socket(struct http *http, struct http_socket *s)
{
    if (!s->connection)
        free_socket(http, s);
    else if (s->watch.slot)
        loop_unwatch(http->loop, &s->watch);
}

static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *at)
{
    struct http *http = data;
    struct http_socket *s = find_socket(http, fd);
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
    (void)at;
    if (what == CURL_POLL_REMOVE) {
        if (s)
            unwatch_socket(http, s);
        return 0;
    }
    if (!s && (s = find_socket(http, -1)))
        s->watch.fd = fd;
    if (!s || loop_watch(http->loop, &s->watch, events))
        starve(http, easy);
    return 0;
}

static int set_timer(CURLM *multi, long ms, void *data)
{
    struct http *http = data;
    (void)multi;
    if (ms < 0)
        loop_disarm(http->loop, &http->timer);
    else
        loop_arm(http->loop, &http->timer, loop_now(http->loop) + (uint64_t)ms * NS_PER_MS);
    return 0;
}

static curl_socket_t open_socket(void *data, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct http_socket *s = find_socket(data, -1);
    (void)purpose;
    if (!s)
        return CURL_SOCKET_BAD;
    s->watch.fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    s->connection = s->watch.fd >= 0;
    return s->watch.fd;
}

static int close_socket(void *data, curl_socket_t fd)
{
    struct http *http = data;
    struct http_socket *s = find_socket(http, fd);
    if (s)
        free_socket(http, s);
    return close(fd);
}

static size_t take_body(char *bytes, size_t size, size_t n, void *data)
{
    struct transfer *t = data;
    bool fits = buffer_len(&t->reply) + size * n <= HTTP_REPLY_MAX;
    return fits && !buffer_put(&t->reply, bytes, size * n) ? size * n : 0;
}

static size_t take_header(char *line, size_t size, size_t n, void *data)
{
    struct transfer *t = data;
    char date[64];
    size_t len = size * n;
    if (len > 5 && len < sizeof date && strncasecmp(line, "date:", 5) == 0) {
        memcpy(date, line + 5, len - 5);
        date[len - 5] = '\0';
        time_t seconds = curl_getdate(date, NULL);
        t->date = seconds > 0 ? seconds : 0;
    }
    return len;
}

/* The only word of libcurl that a request goes out, also when it is sent again. */
static int note_sending(CURL *easy, curl_infotype type, char *bytes, size_t n, void *data)
{
    struct transfer *t = data;
    (void)easy, (void)bytes, (void)n;
    t->times += type == CURLINFO_HEADER_OUT;
    return 0;
}

/* ---- starting ---- */

static void set_connection(struct http *http, struct transfer *t)
{
    CURL *easy = t->easy;
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)t->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, http);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, http);
    if (http->ca)
        curl_easy_setopt(easy, CURLOPT_CAINFO, http->ca);
    if (t->direct)
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
}

static void set_request(struct transfer *t)
{
    CURL *easy = t->easy;
    t->why[0] = '\0';
    curl_easy_setopt(easy, CURLOPT_PRIVATE, t);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->why);
    curl_easy_setopt(easy, CURLOPT_URL, t->url);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, t->list);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(easy, CURLOPT_VERBOSE, 1L);
    curl_easy_setopt(easy, CURLOPT_DEBUGFUNCTION, note_sending);
    curl_easy_setopt(easy, CURLOPT_DEBUGDATA, t);
    if (t->body) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)t->body_len);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, t->body);
    }
    if (t->method)
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, t->method);
    if (t->scope) {
        curl_easy_setopt(easy, CURLOPT_AWS_SIGV4, t->scope);
        curl_easy_setopt(easy, CURLOPT_USERNAME, t->key_id);
        curl_easy_setopt(easy, CURLOPT_PASSWORD, t->secret);
    }
}

static bool make_headers(struct transfer *t)
{
    for (size_t i = 0; i < HTTP_HEADERS_MAX && t->headers[i]; i++) {
        struct curl_slist *list = curl_slist_append(t->list, t->headers[i]);
        if (!list)
            return false;
        t->list = list;
    }
    return true;
}

static CURL *take_easy(struct http *http)
{
    if (!http->n_idle)
        return curl_easy_init();
    CURL *easy = http->idle[--http->n_idle];
    curl_easy_reset(easy);
    return easy;
}

/* False: out of memory. */
static bool launch(struct http *http, struct transfer *t)
{
    t->easy = take_easy(http);
    if (!t->easy || !make_headers(t))
        return false;
    set_connection(http, t);
    set_request(t);
    t->sent_ns = loop_now(http->loop);
    return !curl_multi_add_handle(http->multi, t->easy);
}

static void unqueue(struct http *http, struct transfer *t)
{
    http->waiting[t->bulk] = t->next;
    *(t->next ? &t->next->link : &http->tails[t->bulk]) = &http->waiting[t->bulk];
    t->queued = false;
    t->next = http->active;
    t->link = &http->active;
    if (t->next)
        t->next->link = &t->next;
    http->active = t;
    http->n_active++;
    http->n_bulk += t->bulk;
}

/* In turn: a release must not wait for the renewals of a thousand locks, nor they for claims. */
static struct transfer *next_waiting(struct http *http)
{
    struct transfer *bulk = http->n_bulk < HTTP_BULK_MAX ? http->waiting[1] : NULL;
    struct transfer *other = http->waiting[0];
    struct transfer *next = (http->bulk_next && bulk) || !other ? bulk : other;
    http->bulk_next = next != bulk;
    return next;
}

/* Right before a thread sleeps: what was started in this turn leaves together. */
static void send_gathered(struct sender *sender)
{
    struct http *http = container_of(sender, struct http, sender);
    struct transfer *t;
    while (http->n_active < HTTP_ACTIVE_MAX && (t = next_waiting(http))) {
        unqueue(http, t);
        t->starved = !launch(http, t);
    }
    act(http, CURL_SOCKET_TIMEOUT, 0);
    loop_soon(http->loop, &http->collect);
}

void ddb_http_start(struct http *http, struct transfer *t)
{
    t->http = http;
    t->times = 0;
    t->code = 0;
    t->date = 0;
    buffer_free(&t->reply);
    t->queued = true;
    t->next = NULL;
    t->link = http->tails[t->bulk];
    *http->tails[t->bulk] = t;
    http->tails[t->bulk] = &t->next;
    loop_gather(http->loop, &http->sender);
}

void ddb_http_cancel(struct transfer *t)
{
    if (t->http)
        leave(t);
    buffer_free(&t->reply);
}

/* ---- the beginning and the end ---- */

static int readable_bytes(int fd)
{
    int n = 0;
    return ioctl(fd, FIONREAD, &n) ? -1 : n;
}

static int unread_bytes(int fd)
{
    int n = 0;
    return ioctl(fd, SIOCOUTQ, &n) ? -1 : n;
}

static bool may_be_of_curl(int fd)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    int flags = fcntl(fd, F_GETFD);
    return flags >= 0 && !(flags & FD_CLOEXEC) &&
           !getsockname(fd, (struct sockaddr *)&address, &len) && address.ss_family == AF_UNIX;
}

/* libcurl has a pair of sockets by which curl_multi_wakeup() ends a wait; they would reach every
 * program that the user's starts. A byte on its way shows which they are: the user's own sockets,
 * of which stdin may be one, have such a byte before that, or never. */
static void mark_wakeup(struct http *http)
{
    bool empty[FD_SCAN_MAX];
    for (int fd = 0; fd < FD_SCAN_MAX; fd++)
        empty[fd] = may_be_of_curl(fd) && readable_bytes(fd) == 0 && unread_bytes(fd) == 0;
    curl_multi_wakeup(http->multi);
    for (int fd = 0; fd < FD_SCAN_MAX; fd++) {
        if (!empty[fd])
            continue;
        int *end = readable_bytes(fd) == 1 ? &http->wakeup[0]
                   : unread_bytes(fd) > 0  ? &http->wakeup[1]
                                           : NULL;
        if (!end || *end >= 0)
            continue;
        *end = fd;
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
}

static void init_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void set_multi(struct http *http)
{
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
    curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)HTTP_ACTIVE_MAX);
    curl_multi_setopt(http->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
}

enum stile_status ddb_http_open(struct http **out, struct loop *loop, const char *ca,
                                struct stile_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct http *http = calloc(1, sizeof *http);
    pthread_once(&once, init_curl);
    if (!http || loop_reserve(loop, HTTP_TIMERS)) {
        free(http);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    *http = (struct http){.loop = loop,
                          .timer.fn = on_timer,
                          .collect.fn = collect,
                          .sender.fn = send_gathered,
                          .wakeup = {-1, -1}};
    for (size_t i = 0; i < 2; i++)
        http->tails[i] = &http->waiting[i];
    for (size_t i = 0; i < HTTP_SOCKETS_MAX; i++)
        http->sockets[i] = (struct http_socket){.watch = {.fd = -1, .fn = on_socket}, .http = http};
    http->ca = ca ? strdup(ca) : NULL;
    http->multi = curl_multi_init();
    if (!http->multi || (ca && !http->ca)) {
        ddb_http_free(http);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    set_multi(http);
    mark_wakeup(http);
    *out = http;
    return STILE_OK;
}

void ddb_http_free(struct http *http)
{
    if (!http)
        return;
    while (http->active)
        ddb_http_cancel(http->active);
    for (size_t i = 0; i < 2; i++) {
        while (http->waiting[i])
            ddb_http_cancel(http->waiting[i]);
    }
    for (size_t i = 0; i < http->n_idle; i++)
        curl_easy_cleanup(http->idle[i]);
    curl_multi_cleanup(http->multi);
    loop_disarm(http->loop, &http->timer);
    loop_forget(http->loop, &http->collect);
    loop_ungather(http->loop, &http->sender);
    loop_unreserve(http->loop, HTTP_TIMERS);
    free(http->ca);
    free(http);
}

void ddb_http_forked(struct http *http)
{
    for (size_t i = 0; http && i < HTTP_SOCKETS_MAX; i++) {
        if (http->sockets[i].connection)
            close(http->sockets[i].watch.fd);
    }
    for (size_t i = 0; http && i < 2; i++) {
        if (http->wakeup[i] >= 0)
            close(http->wakeup[i]);
    }
}
