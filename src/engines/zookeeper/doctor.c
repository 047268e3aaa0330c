/* examine(): every server of the URL is asked the four-letter words, one after the other, each over
 * a connection of its own, which the server closes behind its answer. diagnosis.c tells what
 * follows. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "engines/zookeeper/diagnosis.h"

#define PATIENCE_NS (3 * NS_PER_SEC)
#define TEXT_MAX    (64u << 10)

/* One server of the URL. */
struct call {
    struct visit *visit;
    struct seen_server *server;
    const struct zoo_host *host;
    size_t address; /* of the host's, that is tried */
    enum word word;
    struct watch watch;
    bool sent, over;
    char *text;
    size_t n;
};

struct visit {
    struct visit *next; /* of zoo->visits */
    struct query *query;
    struct task task; /* connections that fail at once */
    struct timer timer;
    struct seen seen;
    struct call *calls;
    size_t pending;
};

static struct loop *loop_of(const struct visit *visit)
{
    return visit->query->engine->loop;
}

/* ---- the end ---- */

static void hang_up(struct call *call)
{
    loop_unwatch(loop_of(call->visit), &call->watch);
    if (call->watch.fd >= 0)
        close(call->watch.fd);
    call->watch.fd = -1;
    free(call->text);
    call->text = NULL;
    call->n = 0;
}

static void visit_free(struct visit *visit)
{
    struct loop *loop = loop_of(visit);
    struct visit **at = &zoo_of(visit->query->engine)->visits;
    while (*at != visit)
        at = &(*at)->next;
    *at = visit->next;
    for (size_t i = 0; i < visit->seen.n; i++)
        hang_up(&visit->calls[i]);
    loop_forget(loop, &visit->task);
    loop_disarm(loop, &visit->timer);
    loop_unreserve(loop, 1);
    free(visit->calls);
    free(visit->seen.servers);
    free(visit);
}

static void tell(void *data, const struct stile_finding *finding)
{
    struct visit *visit = data;
    visit->query->engine->events->finding(visit->query, finding);
}

static void explain(struct stile_error *why, const struct seen_server *first)
{
    if (why->status == STILE_UNREACHABLE)
        error_set(why, STILE_UNREACHABLE, why->native, "no server answers; %s: %s", first->where,
                  strerror(first->error ? first->error : ETIMEDOUT));
}

/* Without any answer there is nothing to tell but why. */
static void finish(struct visit *visit)
{
    struct query *query = visit->query;
    struct stile_error why = visit->seen.error;
    bool any = visit->seen.given_ms > 0;
    for (size_t i = 0; i < visit->seen.n; i++)
        any = any || visit->seen.servers[i].answered;
    if (any)
        diagnose(&visit->seen, tell, visit);
    else
        explain(&why, &visit->seen.servers[0]);
    visit_free(visit);
    query->engine->events->done(query, any ? NULL : &why);
}

static void on_patience(struct timer *timer)
{
    struct visit *visit = (struct visit *)((char *)timer - offsetof(struct visit, timer));
    for (size_t i = 0; i < visit->seen.n; i++) {
        struct call *call = &visit->calls[i];
        if (call->watch.fd >= 0 && !call->server->answered)
            call->server->error = ETIMEDOUT;
    }
    finish(visit);
}

/* ---- one word ---- */

/* Not there at this address: perhaps at the next one of the same name. */
static void fail(struct call *call, int error)
{
    if (!call->server->answered)
        call->server->error = error;
    if (call->server->answered)
        call->word++;
    else if (++call->address >= call->host->n_addresses)
        call->word = WORDS;
    hang_up(call);
    loop_soon(loop_of(call->visit), &call->visit->task);
}

static void understand(struct call *call)
{
    call->text[call->n] = '\0';
    if (call->n > 0)
        seen_read(call->server, call->word, call->text);
    call->word++;
    hang_up(call);
    loop_soon(loop_of(call->visit), &call->visit->task);
}

static void on_ready(struct watch *watch, uint32_t events)
{
    struct call *call = (struct call *)((char *)watch - offsetof(struct call, watch));
    (void)events;
    if (!call->sent) {
        call->sent = send(watch->fd, word_texts[call->word], 4, MSG_NOSIGNAL) == 4;
        int error = call->sent ? loop_watch(loop_of(call->visit), watch, EPOLLIN) : errno;
        if (error)
            fail(call, error);
        return;
    }
    ssize_t n = recv(watch->fd, call->text + call->n, TEXT_MAX - 1 - call->n, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0)
        fail(call, errno);
    else if (n == 0 || (call->n += (size_t)n) == TEXT_MAX - 1)
        understand(call);
}

static int dial(struct call *call)
{
    const struct sockaddr_storage *address = &call->host->addresses[call->address];
    socklen_t size =
        address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    call->sent = false;
    call->text = malloc(TEXT_MAX);
    call->watch.fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (!call->text || call->watch.fd < 0)
        return call->text ? errno : ENOMEM;
    if (connect(call->watch.fd, (const struct sockaddr *)address, size) && errno != EINPROGRESS)
        return errno;
    return loop_watch(loop_of(call->visit), &call->watch, EPOLLOUT);
}

static void next_word(struct call *call)
{
    int error = call->host->n_addresses ? dial(call) : EADDRNOTAVAIL;
    if (error)
        fail(call, error);
}

/* ---- all of them ---- */

static void on_task(struct task *task)
{
    struct visit *visit = (struct visit *)((char *)task - offsetof(struct visit, task));
    for (size_t i = 0; i < visit->seen.n; i++) {
        struct call *call = &visit->calls[i];
        if (call->over || call->watch.fd >= 0)
            continue;
        call->over = call->word == WORDS;
        visit->pending -= call->over;
        if (!call->over)
            next_word(call);
    }
    if (visit->pending == 0)
        finish(visit);
}

static bool is_named_before(const struct zoo *zoo, size_t i)
{
    for (size_t j = 0; j < i; j++) {
        if (hosts_are_one(&zoo->hosts[i], &zoo->hosts[j]))
            return true;
    }
    return false;
}

static void plan(struct visit *visit, const struct zoo *zoo)
{
    for (size_t i = 0; i < zoo->n_hosts; i++) {
        struct seen_server *server = &visit->seen.servers[i];
        *server = (struct seen_server){
            .where = zoo->hosts[i].where, .again = is_named_before(zoo, i), .followers = -1};
        visit->calls[i] = (struct call){.visit = visit,
                                        .over = server->again,
                                        .server = server,
                                        .host = &zoo->hosts[i],
                                        .watch = {.fd = -1, .fn = on_ready}};
        visit->pending += !server->again;
    }
    visit->seen.n = zoo->n_hosts;
    visit->seen.asked_ms = zoo->main->asked_ms;
    visit->seen.given_ms = zoo->main->state == SESSION_UP ? zoo->main->timeout_ms : 0;
    visit->seen.error = zoo->session_error;
}

void doctor_examine(struct engine *engine, struct query *query)
{
    struct zoo *zoo = zoo_of(engine);
    struct stile_error err;
    struct visit *visit = calloc(1, sizeof *visit);
    struct seen_server *servers = calloc(zoo->n_hosts, sizeof *servers);
    struct call *calls = calloc(zoo->n_hosts, sizeof *calls);
    if (!visit || !servers || !calls || loop_reserve(engine->loop, 1)) {
        free(visit);
        free(servers);
        free(calls);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    *visit = (struct visit){.next = zoo->visits,
                            .query = query,
                            .task.fn = on_task,
                            .timer.fn = on_patience,
                            .seen.servers = servers,
                            .calls = calls};
    zoo->visits = visit;
    plan(visit, zoo);
    loop_arm(engine->loop, &visit->timer, loop_now(engine->loop) + PATIENCE_NS);
    loop_soon(engine->loop, &visit->task);
}

void doctor_close(struct zoo *zoo)
{
    while (zoo->visits)
        visit_free(zoo->visits);
}

void doctor_forked(struct zoo *zoo)
{
    for (struct visit *visit = zoo->visits; visit; visit = visit->next) {
        for (size_t i = 0; i < visit->seen.n; i++) {
            if (visit->calls[i].watch.fd >= 0)
                close(visit->calls[i].watch.fd);
        }
    }
}
