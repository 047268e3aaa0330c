/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
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

struct visit {
    struct doctor_visit base;
    struct ensemble_facts facts;
    /* One for each server of the URL; facts.servers are behind them. */
    struct server_probe {
        struct visit *visit;
        struct server_facts *server;
        const struct zk_host *host;
        struct resolve *resolve;
        struct addrinfo *addresses;
        struct stream *stream;
        enum word word;
        struct buffer text;
    } probes[];
};

static struct visit *visit_of(struct doctor_visit *base)
{
    return container_of(base, struct visit, base);
}

static struct loop *loop_of(const struct server_probe *probe)
{
    return probe->visit->base.query->engine->loop;
}

static void set_error(struct server_probe *probe, const char *text)
{
    if (!probe->server->answered)
        snprintf(probe->server->error, sizeof probe->server->error, "%.150s", text);
}

/* ---- addresses ---- */

static void on_resolved(void *data, struct addrinfo *found, const struct stile_error *err)
{
    struct server_probe *probe = data;
    resolve_free(probe->resolve);
    probe->resolve = NULL;
    probe->addresses = found;
    if (!found)
        set_error(probe, err->message);
    doctor_answered(&probe->visit->base);
}

static void resolve_host(struct server_probe *probe)
{
    const struct zk_host *host = probe->host;
    struct stile_error why;
    doctor_asked(&probe->visit->base);
    if (resolve_numeric(&probe->addresses, host->name, host->port) == 0) {
        doctor_answered(&probe->visit->base);
        return;
    }
    probe->addresses = NULL;
    if (resolve_start(&probe->resolve, loop_of(probe), host->name, host->port, on_resolved, probe,
                      &why)) {
        probe->resolve = NULL;
        on_resolved(probe, NULL, &why);
    }
}

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

static bool is_duplicate(const struct server_probe *probe)
{
    for (const struct server_probe *other = probe->visit->probes; other < probe; other++) {
        if (are_same(probe, other))
            return true;
    }
    return false;
}

/* ---- words ---- */

static void next_word(struct server_probe *probe);

static void close_stream(struct server_probe *probe)
{
    stream_free(probe->stream);
    probe->stream = NULL;
    buffer_free(&probe->text);
}

/* A server that has answered none so far would not answer the others, either. */
static void skip_word(struct server_probe *probe, const char *why)
{
    set_error(probe, why);
    probe->word = probe->server->answered ? probe->word + 1 : WORDS;
}

static void fail(struct server_probe *probe, const char *why)
{
    skip_word(probe, why);
    next_word(probe);
}

static void read_answer(struct server_probe *probe)
{
    if (buffer_put(&probe->text, "", 1) == 0)
        zk_doctor_read_answer(probe->server, probe->word, buffer_at(&probe->text));
    probe->word++;
    next_word(probe);
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
    const struct zk *zk = zk_of(probe->visit->base.query->engine);
    const struct stream_target target = {.host = probe->host->name,
                                         .port = probe->host->port,
                                         .tls = zk->tls,
                                         .timeout_ns = TIMEOUT_NS};
    struct stile_error why;
    close_stream(probe);
    for (; probe->word < WORDS; skip_word(probe, why.message)) {
        if (!stream_open(&probe->stream, loop_of(probe), &target, &stream_events, probe, &why))
            return;
        probe->stream = NULL;
    }
    doctor_answered(&probe->visit->base);
}

/* ---- the visit ---- */

static void prepare(struct visit *visit)
{
    const struct zk *zk = zk_of(visit->base.query->engine);
    visit->facts = (struct ensemble_facts){
        .asked_ms = zk->main->asked_ms,
        .given_ms = zk->main->state == SESSION_UP ? zk->main->timeout_ms : 0,
        .error = zk->session_error,
    };
    visit->facts.servers = (struct server_facts *)(visit->probes + zk->n_hosts);
    visit->facts.n = zk->n_hosts;
    for (size_t i = 0; i < zk->n_hosts; i++) {
        visit->facts.servers[i] =
            (struct server_facts){.where = zk->hosts[i].where, .followers = -1, .connections = -1};
        visit->probes[i] = (struct server_probe){
            .visit = visit, .server = &visit->facts.servers[i], .host = &zk->hosts[i]};
    }
}

static void ask_words(struct visit *visit)
{
    for (size_t i = 0; i < visit->facts.n; i++) {
        struct server_probe *probe = &visit->probes[i];
        probe->server->duplicate = is_duplicate(probe);
        if (!probe->addresses || probe->server->duplicate)
            continue;
        doctor_asked(&visit->base);
        next_word(probe);
    }
}

static bool visit_ask(struct doctor_visit *base, unsigned round)
{
    struct visit *visit = visit_of(base);
    if (round == 0)
        prepare(visit);
    for (size_t i = 0; round == 0 && i < visit->facts.n; i++)
        resolve_host(&visit->probes[i]);
    if (round == 1)
        ask_words(visit);
    return round <= 1;
}

/* Without any answer the only thing to report is why. */
static void visit_judge(struct doctor_visit *base, struct stile_error *err)
{
    struct visit *visit = visit_of(base);
    const struct server_facts *first = visit->facts.servers;
    bool any = visit->facts.given_ms > 0;
    for (size_t i = 0; i < visit->facts.n; i++) {
        struct server_probe *probe = &visit->probes[i];
        if (!*probe->server->error)
            set_error(probe, strerror(ETIMEDOUT));
        any = any || probe->server->answered;
    }
    if (any)
        zk_doctor_judge(&visit->facts, doctor_report_to_query, base->query);
    else if (visit->facts.error.status == STILE_UNREACHABLE)
        error_set(err, STILE_UNREACHABLE, visit->facts.error.native, "no server answers; %s: %s",
                  first->where, first->error);
    else
        *err = visit->facts.error;
}

static void visit_leave(struct doctor_visit *base)
{
    struct visit *visit = visit_of(base);
    for (size_t i = 0; i < visit->facts.n; i++) {
        close_stream(&visit->probes[i]);
        resolve_free(visit->probes[i].resolve);
        if (visit->probes[i].addresses)
            freeaddrinfo(visit->probes[i].addresses);
    }
}

static void visit_forked(struct doctor_visit *base)
{
    struct visit *visit = visit_of(base);
    for (size_t i = 0; i < visit->facts.n; i++) {
        stream_forked(visit->probes[i].stream);
        resolve_forked(visit->probes[i].resolve);
    }
}

void zk_doctor_examine(struct engine *engine, struct query *query)
{
    static const struct doctor_plan plan = {
        .ask = visit_ask, .judge = visit_judge, .leave = visit_leave, .forked = visit_forked};
    struct zk *zk = zk_of(engine);
    size_t each = sizeof(struct server_probe) + sizeof(struct server_facts);
    doctor_visit_begin(&plan, sizeof(struct visit) + zk->n_hosts * each, TIMEOUT_NS, query,
                       &zk->visits);
}
