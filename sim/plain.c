/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/plain.h"

#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "io/stream.h"

#define UNANSWERED_MAX 16

enum command { SET, EXPIRE, DELETE };

/* One that was sent. */
struct request {
    enum command command;
    uint64_t at_ns, ttl_ns;
};

struct plain {
    struct process *process;
    const struct server *server;
    const char *name, *key, *owner; /* of the lock; what SET stores at the key */
    void (*granted)(void *data);
    void *data;
    struct stream *stream;
    struct buffer in;
    struct request requests[UNANSWERED_MAX]; /* without an answer, the first one first */
    unsigned n_requests;
    bool asks, holds;
    uint32_t claim;
    uint64_t ttl_ns, every_ns;
    bool jitter;
    struct random random;
};

/* ---- the history ---- */

static void tell(const struct plain *plain, enum event_kind kind, enum stile_status status,
                 uint64_t deadline_ns)
{
    world_trace("%s %s %s", plain->process->name, history_kind_text(kind), plain->name);
    history_add(world_history(), &(struct event){.ns = world_now(),
                                                 .kind = kind,
                                                 .client = plain->process->number,
                                                 .claim = plain->claim,
                                                 .deadline_ns = deadline_ns,
                                                 .status = status});
}

static void tell_asked(struct plain *plain)
{
    uint64_t until_ns = plain->every_ns > 0 ? UINT64_MAX : world_now();
    plain->claim = history_ask_more(world_history(),
                                    &(struct event){.ns = world_now(),
                                                    .client = plain->process->number,
                                                    .until_ns = until_ns,
                                                    .lease_ns = plain->ttl_ns},
                                    plain->name);
    world_trace("%s asks for %s by hand", plain->process->name, plain->name);
}

static uint64_t end_of(const struct request *request)
{
    return request->ttl_ns > 0 ? request->at_ns + request->ttl_ns : UINT64_MAX;
}

/* ---- answers ---- */

static void try_again(void *data);

static void set_answered(struct plain *plain, const struct request *request, bool done)
{
    plain->asks = false;
    if (done) {
        plain->holds = true;
        tell(plain, EVENT_GRANTED, STILE_OK, end_of(request));
        plain->granted(plain->data);
        return;
    }
    if (plain->every_ns == 0) {
        tell(plain, EVENT_ANSWERED, STILE_HELD, 0);
        return;
    }
    uint64_t pause_ns = plain->every_ns;
    if (plain->jitter)
        pause_ns = pause_ns / 2 + random_below(&plain->random, pause_ns);
    plain->asks = true;
    world_at(world_now() + pause_ns, try_again, plain);
}

static void answered(struct plain *plain, const struct request *request, bool done)
{
    if (request->command == SET)
        set_answered(plain, request, done);
    else if (request->command == EXPIRE && plain->holds && done)
        tell(plain, EVENT_RENEWED, STILE_OK, end_of(request));
    else if (request->command == DELETE)
        tell(plain, EVENT_ENDED, done ? STILE_OK : STILE_LOST, 0);
}

static void answer_first(struct plain *plain, bool done)
{
    struct request request = plain->requests[0];
    plain->n_requests--;
    memmove(plain->requests, plain->requests + 1, plain->n_requests * sizeof *plain->requests);
    answered(plain, &request, done);
}

/* "+OK" and ":1": done; "$-1", ":0" and an error: not done. */
static void on_data(struct stream *stream, const void *bytes, size_t n)
{
    struct plain *plain = stream_owner(stream);
    buffer_put(&plain->in, bytes, n);
    while (plain->n_requests > 0 && buffer_len(&plain->in) > 0) {
        const char *line = buffer_at(&plain->in);
        const char *end = memchr(line, '\n', buffer_len(&plain->in));
        if (end == NULL)
            return;
        bool done = line[0] == '+' || (line[0] == ':' && line[1] != '0');
        buffer_drop(&plain->in, (size_t)(end - line) + 1);
        answer_first(plain, done);
    }
}

/* Programs like this take a lost answer for a no. */
static void on_closed(struct stream *stream, const struct stile_error *why)
{
    struct plain *plain = stream_owner(stream);
    (void)why;
    plain_close(plain);
    while (plain->n_requests > 0)
        answer_first(plain, false);
}

static void on_opened(struct stream *stream)
{
    (void)stream;
}

/* ---- requests ---- */

static bool connect_to_server(struct plain *plain)
{
    static const struct stream_events events = {on_opened, on_data, on_closed};
    const struct stream_target target = {.host = plain->server->host, .port = plain->server->port};
    struct stile_error err;
    return plain->stream != NULL || stream_open(&plain->stream, process_loop(plain->process),
                                                &target, &events, plain, &err) == STILE_OK;
}

static void put_words(struct buffer *out, const char *const *words, size_t n)
{
    const char *head = world_print("*%zu\r\n", n);
    buffer_put(out, head, strlen(head));
    for (size_t i = 0; i < n; i++) {
        const char *word = world_print("$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
        buffer_put(out, word, strlen(word));
    }
}

static void put_request(struct buffer *out, const struct plain *plain,
                        const struct request *request)
{
    const char *ttl = world_print("%" PRIu64, request->ttl_ns / MS);
    const char *const set[] = {"SET", plain->key, plain->owner, "NX", "PX", ttl};
    const char *const expire[] = {"PEXPIRE", plain->key, ttl};
    const char *const delete[] = {"DEL", plain->key};
    if (request->command == SET)
        put_words(out, set, request->ttl_ns > 0 ? 6 : 4);
    else if (request->command == EXPIRE)
        put_words(out, expire, 3);
    else
        put_words(out, delete, 2);
}

static void send_request(struct plain *plain, enum command command, uint64_t ttl_ns)
{
    struct request request = {command, world_now(), ttl_ns};
    struct buffer out = {0};
    if (plain->n_requests == UNANSWERED_MAX || !connect_to_server(plain))
        return;
    put_request(&out, plain, &request);
    if (stream_write(plain->stream, buffer_at(&out), buffer_len(&out)) == 0) {
        plain->requests[plain->n_requests++] = request;
        process_touch(plain->process);
    }
    buffer_free(&out);
}

static void try_again(void *data)
{
    struct plain *plain = data;
    if (plain->process->dead || !plain->asks)
        return;
    if (plain->process->paused)
        world_at(world_now() + plain->every_ns, try_again, plain);
    else
        send_request(plain, SET, plain->ttl_ns);
}

/* ---- what a client does ---- */

/* The page knows clients by the first half of the values that they store. */
struct plain *plain_new(struct process *process, const struct server *server, const char *name,
                        void (*granted)(void *data), void *data)
{
    struct plain *plain = world_alloc(sizeof *plain);
    *plain = (struct plain){.process = process,
                            .server = server,
                            .name = name,
                            .key = world_print("lock:%s", name),
                            .granted = granted,
                            .data = data,
                            .random = random_stream(world_seed(), 900 + process->number)};
    plain->owner = world_print("%016" PRIx64 "%024d", random_next(&plain->random), 0);
    return plain;
}

void plain_set(struct plain *plain, uint64_t ttl_ns, uint64_t every_ns, bool jitter)
{
    if (plain->asks || plain->holds)
        return;
    plain->asks = true;
    plain->ttl_ns = ttl_ns;
    plain->every_ns = every_ns;
    plain->jitter = jitter;
    tell_asked(plain);
    send_request(plain, SET, ttl_ns);
}

void plain_expire(struct plain *plain, uint64_t ttl_ns)
{
    send_request(plain, EXPIRE, ttl_ns);
}

void plain_delete(struct plain *plain)
{
    if (plain->holds)
        tell(plain, EVENT_RELEASED, STILE_OK, 0);
    plain->holds = false;
    send_request(plain, DELETE, 0);
}

void plain_close(struct plain *plain)
{
    stream_free(plain->stream);
    plain->stream = NULL;
    buffer_free(&plain->in);
}
