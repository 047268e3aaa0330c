/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/session_client.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "io/stream.h"

#define UNANSWERED_MAX 16

enum statement { LOCK, TRY, TOKEN, CHECK, UNLOCK, END };

struct session_client {
    struct process *process;
    const struct server *server;
    const char *name; /* of the lock */
    void (*granted)(void *data, uint64_t token);
    void *data;
    struct stream *stream; /* NULL: not connected, or the connection has ended */
    struct buffer in;
    enum statement statements[UNANSWERED_MAX]; /* without an answer, the first one first */
    unsigned n_statements;
    bool asks, holds; /* as far as it knows */
    bool over;        /* the connection has ended while it did not look */
    uint32_t claim;
    uint64_t token;
};

/* ---- the history ---- */

static void tell(const struct session_client *client, enum event_kind kind,
                 enum stile_status status)
{
    world_trace("%s %s %s", client->process->name, history_kind_text(kind), client->name);
    history_add(world_history(), &(struct event){.ns = world_now(),
                                                 .kind = kind,
                                                 .client = client->process->number,
                                                 .claim = client->claim,
                                                 .token = client->token,
                                                 .deadline_ns = UINT64_MAX,
                                                 .status = status});
}

static void tell_asked(struct session_client *client, bool waits)
{
    client->claim = history_ask_more(world_history(),
                                     &(struct event){.ns = world_now(),
                                                     .client = client->process->number,
                                                     .until_ns = waits ? UINT64_MAX : world_now()},
                                     client->name);
    world_trace("%s asks for %s with SQL", client->process->name, client->name);
}

static void give_up(struct session_client *client, enum stile_status status)
{
    client->asks = false;
    tell(client, EVENT_ANSWERED, status);
}

static void lose(struct session_client *client)
{
    client->holds = false;
    tell(client, EVENT_LOST, STILE_LOST);
}

/* ---- statements ---- */

static void on_opened(struct stream *stream);
static void on_data(struct stream *stream, const void *bytes, size_t n);
static void on_closed(struct stream *stream, const struct stile_error *why);

static bool connect_to_server(struct session_client *client)
{
    static const struct stream_events events = {on_opened, on_data, on_closed};
    const struct stream_target target = {.host = client->server->host,
                                         .port = client->server->port};
    struct stile_error err;
    return client->stream != NULL || stream_open(&client->stream, process_loop(client->process),
                                                 &target, &events, client, &err) == STILE_OK;
}

static const char *text_of(const struct session_client *client, enum statement statement,
                           const char *whom)
{
    static const char *const functions[] = {[LOCK] = "pg_advisory_lock",
                                            [TRY] = "pg_try_advisory_lock",
                                            [UNLOCK] = "pg_advisory_unlock"};
    if (statement == TOKEN)
        return "SELECT nextval('tokens')\n";
    if (statement == CHECK)
        return "SELECT 1\n";
    if (statement == END)
        return world_print("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                           "WHERE application_name = '%s'\n",
                           whom);
    return world_print("SELECT %s(hashtextextended('%s', 0))\n", functions[statement],
                       client->name);
}

static void send_statement(struct session_client *client, enum statement statement,
                           const char *whom)
{
    const char *text = text_of(client, statement, whom);
    if (client->n_statements == UNANSWERED_MAX || !connect_to_server(client) ||
        stream_write(client->stream, text, strlen(text)) != 0)
        return;
    client->statements[client->n_statements++] = statement;
    process_touch(client->process);
}

/* ---- answers ---- */

static void has_token(struct session_client *client, const char *text)
{
    client->asks = false;
    client->holds = true;
    client->token = strtoull(text, NULL, 10);
    tell(client, EVENT_GRANTED, STILE_OK);
    client->granted(client->data, client->token);
}

static void answered(struct session_client *client, enum statement statement, const char *text)
{
    bool yes = text[0] != 'f';
    if (statement == TOKEN)
        has_token(client, text);
    else if ((statement == LOCK || statement == TRY) && yes)
        send_statement(client, TOKEN, NULL);
    else if (statement == TRY)
        give_up(client, STILE_HELD);
    else if (statement == UNLOCK)
        tell(client, EVENT_ENDED, yes ? STILE_OK : STILE_LOST);
    else if (statement == CHECK && client->holds)
        tell(client, EVENT_ACTED, STILE_OK);
}

static void take_first(struct session_client *client)
{
    client->n_statements--;
    memmove(client->statements, client->statements + 1,
            client->n_statements * sizeof *client->statements);
}

/* The server's last words are no answer: the end of the connection follows. */
static void on_data(struct stream *stream, const void *bytes, size_t n)
{
    struct session_client *client = stream_owner(stream);
    buffer_put(&client->in, bytes, n);
    while (buffer_len(&client->in) > 0) {
        const char *line = buffer_at(&client->in);
        const char *end = memchr(line, '\n', buffer_len(&client->in));
        if (end == NULL)
            return;
        const char *text = world_print("%.*s", (int)(end - line), line);
        buffer_drop(&client->in, (size_t)(end - line) + 1);
        if (strncmp(text, "FATAL", 5) == 0 || client->n_statements == 0)
            continue;
        enum statement statement = client->statements[0];
        take_first(client);
        answered(client, statement, text);
    }
}

static void on_closed(struct stream *stream, const struct stile_error *why)
{
    struct session_client *client = stream_owner(stream);
    bool looks = client->n_statements > 0;
    (void)why;
    session_client_close(client);
    if (client->asks)
        give_up(client, STILE_UNREACHABLE);
    else if (client->holds && looks)
        lose(client);
    else
        client->over = client->holds;
    for (; client->n_statements > 0; take_first(client)) {
        if (client->statements[0] == UNLOCK)
            tell(client, EVENT_ENDED, STILE_LOST);
    }
}

static void on_opened(struct stream *stream)
{
    (void)stream;
}

/* ---- what a client does ---- */

/* Using the connection shows that it has ended. */
static bool notices_its_end(struct session_client *client)
{
    if (!client->over)
        return false;
    client->over = false;
    lose(client);
    return true;
}

struct session_client *session_client_new(struct process *process, const struct server *server,
                                          const char *name,
                                          void (*granted)(void *data, uint64_t token), void *data)
{
    struct session_client *client = world_alloc(sizeof *client);
    *client = (struct session_client){
        .process = process, .server = server, .name = name, .granted = granted, .data = data};
    return client;
}

void session_client_lock(struct session_client *client, bool waits)
{
    if (client->asks || client->holds)
        return;
    client->asks = true;
    client->token = 0;
    tell_asked(client, waits);
    send_statement(client, waits ? LOCK : TRY, NULL);
}

void session_client_unlock(struct session_client *client)
{
    if (!client->holds || notices_its_end(client))
        return;
    client->holds = false;
    tell(client, EVENT_RELEASED, STILE_OK);
    send_statement(client, UNLOCK, NULL);
}

void session_client_check(struct session_client *client)
{
    if (client->holds && !notices_its_end(client))
        send_statement(client, CHECK, NULL);
}

void session_client_end(struct session_client *client, const char *whom)
{
    if (!client->asks && !notices_its_end(client))
        send_statement(client, END, whom);
}

void session_client_close(struct session_client *client)
{
    stream_free(client->stream);
    client->stream = NULL;
    buffer_free(&client->in);
}
