/* examine(): every server of the URL is asked the four-letter words, one after the other, each over
 * a connection of its own, which the server closes behind its answer. diagnosis.c says what
 * follows. Names are looked up first: two of them may be one server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/doctor.h"
#include "io/resolve.h"

#define PATIENCE_NS (3 * NS_PER_SEC)
#define TEXT_MAX    (64u << 10)

/* One server of the URL. */
struct call {
    struct visit *visit;
    struct seen_server *server;
    const struct zoo_host *host;
    struct resolve *resolve;
    struct addrinfo *addresses;
    struct stream *stream;
    enum word word;
    bool over;
    struct buffer text;
};

struct visit {
    struct visit *next; /* of zoo->visits */
    struct query *query;
    struct task task; /* the next words */
    struct timer timer;
    struct seen seen;
    struct call *calls;
    size_t names;   /* that are being looked up */
    size_t pending; /* servers that are being asked */
};

static struct loop *loop_of(const struct visit *visit)
{
    return visit->query->engine->loop;
}

/* ---- the end ---- */

static void hang_up(struct call *call)
{
    stream_free(call->stream);
    call->stream = NULL;
    buffer_free(&call->text);
}

static void visit_free(struct visit *visit)
{
    struct loop *loop = loop_of(visit);
    struct visit **at = &zoo_of(visit->query->engine)->visits;
    while (*at != visit)
        at = &(*at)->next;
    *at = visit->next;
    for (size_t i = 0; i < visit->seen.n; i++) {
        hang_up(&visit->calls[i]);
        resolve_free(visit->calls[i].resolve);
        if (visit->calls[i].addresses)
            freeaddrinfo(visit->calls[i].addresses);
    }
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
                  *first->error ? first->error : strerror(ETIMEDOUT));
}

/* Without any answer there is nothing to report but why. */
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

static void set_error(struct call *call, const char *text)
{
    if (!call->server->answered)
        snprintf(call->server->error, sizeof call->server->error, "%.150s", text);
}

static void on_patience(struct timer *timer)
{
    struct visit *visit = (struct visit *)((char *)timer - offsetof(struct visit, timer));
    for (size_t i = 0; i < visit->seen.n; i++) {
        if (!visit->calls[i].over)
            set_error(&visit->calls[i], strerror(ETIMEDOUT));
    }
    finish(visit);
}

/* ---- one word ---- */

static void go_on(struct call *call)
{
    hang_up(call);
    loop_soon(loop_of(call->visit), &call->visit->task);
}

static void fail(struct call *call, const char *why)
{
    set_error(call, why);
    call->word = call->server->answered ? call->word + 1 : WORDS;
    go_on(call);
}

static void understand(struct call *call)
{
    if (buffer_put(&call->text, "", 1) == 0)
        seen_read(call->server, call->word, buffer_at(&call->text));
    call->word++;
    go_on(call);
}

static void on_opened(struct stream *stream)
{
    struct call *call = stream_owner(stream);
    if (stream_write(stream, word_texts[call->word], 4))
        fail(call, "out of memory");
}

static void on_data(struct stream *stream, const void *bytes, size_t n)
{
    struct call *call = stream_owner(stream);
    size_t room = TEXT_MAX - 1 - buffer_len(&call->text);
    if (buffer_put(&call->text, bytes, n < room ? n : room))
        fail(call, "out of memory");
    else if (n >= room)
        understand(call);
}

static void on_closed(struct stream *stream, const struct stile_error *why)
{
    struct call *call = stream_owner(stream);
    if (buffer_len(&call->text) > 0)
        understand(call);
    else
        fail(call, why->native > 0 ? strerror(why->native) : why->message);
}

static const struct stream_events stream_events = {
    .opened = on_opened, .data = on_data, .closed = on_closed};

static void next_word(struct call *call)
{
    struct zoo *zoo = zoo_of(call->visit->query->engine);
    const struct stream_target target = {.host = call->host->name,
                                         .port = call->host->port,
                                         .tls = zoo->tls,
                                         .timeout_ns = PATIENCE_NS};
    struct stile_error why;
    if (stream_open(&call->stream, loop_of(call->visit), &target, &stream_events, call, &why)) {
        call->stream = NULL;
        fail(call, why.message);
    }
}

/* ---- all of them ---- */

static bool are_one(const struct call *a, const struct call *b)
{
    for (const struct addrinfo *one = a->addresses; one; one = one->ai_next) {
        for (const struct addrinfo *two = b->addresses; two; two = two->ai_next) {
            if (one->ai_addrlen == two->ai_addrlen &&
                memcmp(one->ai_addr, two->ai_addr, one->ai_addrlen) == 0)
                return true;
        }
    }
    return false;
}

static void find_repeated(struct visit *visit)
{
    for (size_t i = 0; i < visit->seen.n; i++) {
        struct call *call = &visit->calls[i];
        for (size_t j = 0; j < i; j++)
            call->server->again = call->server->again || are_one(call, &visit->calls[j]);
        call->over = call->over || call->server->again;
        visit->pending += !call->over;
    }
}

static void on_task(struct task *task)
{
    struct visit *visit = (struct visit *)((char *)task - offsetof(struct visit, task));
    for (size_t i = 0; i < visit->seen.n; i++) {
        struct call *call = &visit->calls[i];
        if (call->over || call->stream)
            continue;
        call->over = call->word == WORDS;
        visit->pending -= call->over;
        if (!call->over)
            next_word(call);
    }
    if (visit->pending == 0)
        finish(visit);
}

static void name_found(struct visit *visit)
{
    if (--visit->names > 0)
        return;
    find_repeated(visit);
    loop_soon(loop_of(visit), &visit->task);
}

static void on_resolved(void *data, struct addrinfo *found, const struct stile_error *err)
{
    struct call *call = data;
    resolve_free(call->resolve);
    call->resolve = NULL;
    call->addresses = found;
    call->over = !found;
    if (!found)
        set_error(call, err->message);
    name_found(call->visit);
}

static void look_up(struct call *call)
{
    struct stile_error why;
    const struct zoo_host *host = call->host;
    if (resolve_numeric(&call->addresses, host->name, host->port) == 0) {
        name_found(call->visit);
        return;
    }
    call->addresses = NULL;
    if (resolve_start(&call->resolve, loop_of(call->visit), host->name, host->port, on_resolved,
                      call, &why)) {
        call->resolve = NULL;
        call->over = true;
        set_error(call, why.message);
        name_found(call->visit);
    }
}

static void plan(struct visit *visit, const struct zoo *zoo)
{
    for (size_t i = 0; i < zoo->n_hosts; i++) {
        struct seen_server *server = &visit->seen.servers[i];
        *server =
            (struct seen_server){.where = zoo->hosts[i].where, .followers = -1, .connections = -1};
        visit->calls[i] = (struct call){.visit = visit, .server = server, .host = &zoo->hosts[i]};
    }
    visit->names = visit->seen.n = zoo->n_hosts;
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
    for (size_t i = 0; i < zoo->n_hosts; i++)
        look_up(&visit->calls[i]);
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
            stream_forked(visit->calls[i].stream);
            resolve_forked(visit->calls[i].resolve);
        }
    }
}
