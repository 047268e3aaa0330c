/* examine(): sends the four-letter words to every server of the URL, one after the other, each over
 * a connection of its own, which the server closes after its answer. doctor_rules.c judges the
 * answers. Host names are resolved first: two of them may be the same server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/doctor.h"
#include "io/resolve.h"

#define TIMEOUT_NS (3 * NS_PER_SEC)
#define TEXT_MAX   (64u << 10)

/* One server of the URL. */
struct server_probe {
    struct examination *examination;
    struct server_facts *server;
    const struct zk_host *host;
    struct resolve *resolve;
    struct addrinfo *addresses;
    struct stream *stream;
    enum word word;
    bool over;
    struct buffer text;
};

struct examination {
    struct examination *next; /* of zk->examinations */
    struct query *query;
    struct task task; /* sends the next words */
    struct timer timer;
    struct ensemble_facts facts;
    struct server_probe *probes;
    size_t unresolved; /* names */
    size_t pending;    /* servers that have not answered every word */
};

static struct loop *loop_of(const struct examination *examination)
{
    return examination->query->engine->loop;
}

/* ---- its end ---- */

static void close_stream(struct server_probe *probe)
{
    stream_free(probe->stream);
    probe->stream = NULL;
    buffer_free(&probe->text);
}

static void examination_free(struct examination *examination)
{
    struct loop *loop = loop_of(examination);
    struct examination **at = &zk_of(examination->query->engine)->examinations;
    while (*at != examination)
        at = &(*at)->next;
    *at = examination->next;
    for (size_t i = 0; i < examination->facts.n; i++) {
        close_stream(&examination->probes[i]);
        resolve_free(examination->probes[i].resolve);
        if (examination->probes[i].addresses)
            freeaddrinfo(examination->probes[i].addresses);
    }
    loop_forget(loop, &examination->task);
    loop_disarm(loop, &examination->timer);
    loop_unreserve(loop, 1);
    free(examination->probes);
    free(examination->facts.servers);
    free(examination);
}

static void report_finding(void *data, const struct stile_finding *finding)
{
    struct examination *examination = data;
    examination->query->engine->events->finding(examination->query, finding);
}

static void explain(struct stile_error *why, const struct server_facts *first)
{
    if (why->status == STILE_UNREACHABLE)
        error_set(why, STILE_UNREACHABLE, why->native, "no server answers; %s: %s", first->where,
                  *first->error ? first->error : strerror(ETIMEDOUT));
}

/* Without any answer the only thing to report is why. */
static void finish(struct examination *examination)
{
    struct query *query = examination->query;
    struct stile_error why = examination->facts.error;
    bool any = examination->facts.given_ms > 0;
    for (size_t i = 0; i < examination->facts.n; i++)
        any = any || examination->facts.servers[i].answered;
    if (any)
        zk_doctor_judge(&examination->facts, report_finding, examination);
    else
        explain(&why, &examination->facts.servers[0]);
    examination_free(examination);
    query->engine->events->done(query, any ? NULL : &why);
}

static void set_error(struct server_probe *probe, const char *text)
{
    if (!probe->server->answered)
        snprintf(probe->server->error, sizeof probe->server->error, "%.150s", text);
}

static void on_timeout(struct timer *timer)
{
    struct examination *examination = container_of(timer, struct examination, timer);
    for (size_t i = 0; i < examination->facts.n; i++) {
        if (!examination->probes[i].over)
            set_error(&examination->probes[i], strerror(ETIMEDOUT));
    }
    finish(examination);
}

/* ---- one word ---- */

static void next_later(struct server_probe *probe)
{
    close_stream(probe);
    loop_soon(loop_of(probe->examination), &probe->examination->task);
}

static void fail(struct server_probe *probe, const char *why)
{
    set_error(probe, why);
    probe->word = probe->server->answered ? probe->word + 1 : WORDS;
    next_later(probe);
}

static void read_answer(struct server_probe *probe)
{
    if (buffer_put(&probe->text, "", 1) == 0)
        zk_doctor_read_answer(probe->server, probe->word, buffer_at(&probe->text));
    probe->word++;
    next_later(probe);
}

static void on_opened(struct stream *stream)
{
    struct server_probe *probe = stream_owner(stream);
    if (stream_write(stream, zk_doctor_words[probe->word], 4))
        fail(probe, "out of memory");
}

static void on_data(struct stream *stream, const void *bytes, size_t n)
{
    struct server_probe *probe = stream_owner(stream);
    size_t room = TEXT_MAX - 1 - buffer_len(&probe->text);
    if (buffer_put(&probe->text, bytes, n < room ? n : room))
        fail(probe, "out of memory");
    else if (n >= room)
        read_answer(probe);
}

static void on_closed(struct stream *stream, const struct stile_error *why)
{
    struct server_probe *probe = stream_owner(stream);
    if (buffer_len(&probe->text) > 0)
        read_answer(probe);
    else
        fail(probe, why->native > 0 ? strerror(why->native) : why->message);
}

static const struct stream_events stream_events = {
    .opened = on_opened, .data = on_data, .closed = on_closed};

static void next_word(struct server_probe *probe)
{
    struct zk *zk = zk_of(probe->examination->query->engine);
    const struct stream_target target = {.host = probe->host->name,
                                         .port = probe->host->port,
                                         .tls = zk->tls,
                                         .timeout_ns = TIMEOUT_NS};
    struct stile_error why;
    if (stream_open(&probe->stream, loop_of(probe->examination), &target, &stream_events, probe,
                    &why)) {
        probe->stream = NULL;
        fail(probe, why.message);
    }
}

/* ---- all servers ---- */

static bool are_same(const struct server_probe *a, const struct server_probe *b)
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

static void find_duplicates(struct examination *examination)
{
    for (size_t i = 0; i < examination->facts.n; i++) {
        struct server_probe *probe = &examination->probes[i];
        for (size_t j = 0; j < i; j++)
            probe->server->duplicate =
                probe->server->duplicate || are_same(probe, &examination->probes[j]);
        probe->over = probe->over || probe->server->duplicate;
        examination->pending += !probe->over;
    }
}

static void on_task(struct task *task)
{
    struct examination *examination = container_of(task, struct examination, task);
    for (size_t i = 0; i < examination->facts.n; i++) {
        struct server_probe *probe = &examination->probes[i];
        if (probe->over || probe->stream)
            continue;
        probe->over = probe->word == WORDS;
        examination->pending -= probe->over;
        if (!probe->over)
            next_word(probe);
    }
    if (examination->pending == 0)
        finish(examination);
}

static void on_name_known(struct examination *examination)
{
    if (--examination->unresolved > 0)
        return;
    find_duplicates(examination);
    loop_soon(loop_of(examination), &examination->task);
}

static void on_resolved(void *data, struct addrinfo *found, const struct stile_error *err)
{
    struct server_probe *probe = data;
    resolve_free(probe->resolve);
    probe->resolve = NULL;
    probe->addresses = found;
    probe->over = !found;
    if (!found)
        set_error(probe, err->message);
    on_name_known(probe->examination);
}

static void resolve_host(struct server_probe *probe)
{
    struct stile_error why;
    const struct zk_host *host = probe->host;
    if (resolve_numeric(&probe->addresses, host->name, host->port) == 0) {
        on_name_known(probe->examination);
        return;
    }
    probe->addresses = NULL;
    if (resolve_start(&probe->resolve, loop_of(probe->examination), host->name, host->port,
                      on_resolved, probe, &why)) {
        probe->resolve = NULL;
        probe->over = true;
        set_error(probe, why.message);
        on_name_known(probe->examination);
    }
}

static void prepare(struct examination *examination, const struct zk *zk)
{
    for (size_t i = 0; i < zk->n_hosts; i++) {
        struct server_facts *server = &examination->facts.servers[i];
        *server =
            (struct server_facts){.where = zk->hosts[i].where, .followers = -1, .connections = -1};
        examination->probes[i] = (struct server_probe){
            .examination = examination, .server = server, .host = &zk->hosts[i]};
    }
    examination->unresolved = examination->facts.n = zk->n_hosts;
    examination->facts.asked_ms = zk->main->asked_ms;
    examination->facts.given_ms = zk->main->state == SESSION_UP ? zk->main->timeout_ms : 0;
    examination->facts.error = zk->session_error;
}

void zk_doctor_examine(struct engine *engine, struct query *query)
{
    struct zk *zk = zk_of(engine);
    struct stile_error err;
    struct examination *examination = calloc(1, sizeof *examination);
    struct server_facts *servers = calloc(zk->n_hosts, sizeof *servers);
    struct server_probe *probes = calloc(zk->n_hosts, sizeof *probes);
    if (!examination || !servers || !probes || loop_reserve(engine->loop, 1)) {
        free(examination);
        free(servers);
        free(probes);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    *examination = (struct examination){.next = zk->examinations,
                                        .query = query,
                                        .task.fn = on_task,
                                        .timer.fn = on_timeout,
                                        .facts.servers = servers,
                                        .probes = probes};
    zk->examinations = examination;
    prepare(examination, zk);
    loop_arm(engine->loop, &examination->timer, loop_now(engine->loop) + TIMEOUT_NS);
    for (size_t i = 0; i < zk->n_hosts; i++)
        resolve_host(&examination->probes[i]);
}

void zk_doctor_close(struct zk *zk)
{
    while (zk->examinations)
        examination_free(zk->examinations);
}

void zk_doctor_forked(struct zk *zk)
{
    for (struct examination *examination = zk->examinations; examination;
         examination = examination->next) {
        for (size_t i = 0; i < examination->facts.n; i++) {
            stream_forked(examination->probes[i].stream);
            resolve_forked(examination->probes[i].resolve);
        }
    }
}
