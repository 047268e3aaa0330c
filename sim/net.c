/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "io/stream.h"
#include "io/tls.h"

#define USUAL_MIN_NS (50 * US)
#define USUAL_MAX_NS (400 * US)
#define SLOW_MAX_NS  (30 * MS)
#define PROBE_NS     (20 * MS) /* how often a blocked direction is tried */
#define TIMEOUT_NS   (5 * SEC)

#define PROCESSES_MAX 64

/* One piece under way. */
struct flight {
    struct flight *next;
    uint64_t number, at_ns;
    bool held;           /* by net_hold() */
    bool held_up, noted; /* told to the observer; noted: its end */
    size_t n;
    char bytes[];
};

enum stream_state { CONNECTING, OPEN, CLOSED };

struct stream {
    struct loop *loop;
    struct process *process;
    const struct stream_events *events;
    void *owner;
    enum stream_state state;
    struct connection *connection;
    struct buffer out, in;
    uint64_t written, sent;
    struct sender sender;
    struct timer timer;
    struct readable readable;
    bool came_up;  /* the server has accepted it */
    bool came_end; /* behind what is in `in` */
    bool reserved;
    int why; /* errno */
};

static struct net {
    struct server *servers[SERVERS_MAX];
    size_t n_servers;
    struct path paths[PROCESSES_MAX][SERVERS_MAX];
    struct random random;
    uint64_t n_flights, n_connections;
    const struct net_observer *observer; /* NULL: there is none */
} net;

void net_begin(void)
{
    net = (struct net){.random = random_stream(world_seed(), 1)};
}

void net_add(struct server *server)
{
    server->number = (uint32_t)net.n_servers;
    net.servers[net.n_servers++] = server;
}

void net_observe(const struct net_observer *observer)
{
    net.observer = observer;
}

struct path *net_path(const struct process *process, const struct server *server)
{
    return &net.paths[process->number % PROCESSES_MAX][server->number];
}

void net_unblock(struct path *path)
{
    *path = (struct path){0};
}

size_t net_count(void)
{
    return net.n_servers;
}

struct server *net_server(size_t number)
{
    return net.servers[number];
}

static struct server *find_server(const char *host, uint16_t port)
{
    for (size_t i = 0; host != NULL && i < net.n_servers; i++) {
        if (strcmp(net.servers[i]->host, host) == 0 && net.servers[i]->port == port)
            return net.servers[i];
    }
    return NULL;
}

static uint64_t delay(const struct path *path)
{
    uint64_t ns = random_between(&net.random, USUAL_MIN_NS, USUAL_MAX_NS);
    if (random_once_in(&net.random, 50))
        ns += random_below(&net.random, SLOW_MAX_NS);
    return ns + (path->delay_ns != 0 ? random_below(&net.random, path->delay_ns) : 0);
}

/* ---- the way of bytes ---- */

static void pump(struct connection *connection, enum direction way);

static void pump_to_server(void *data)
{
    ((struct connection *)data)->pumping[TO_SERVER] = false;
    pump(data, TO_SERVER);
}

static void pump_to_client(void *data)
{
    ((struct connection *)data)->pumping[TO_CLIENT] = false;
    pump(data, TO_CLIENT);
}

static void pump_at(struct connection *connection, enum direction way, uint64_t at_ns)
{
    if (connection->pumping[way])
        return;
    connection->pumping[way] = true;
    world_at(at_ns, way == TO_SERVER ? pump_to_server : pump_to_client, connection);
}

/* n 0: the end of this direction. */
static void send_piece(struct connection *connection, enum direction way, const void *bytes,
                       size_t n)
{
    const struct path *path = net_path(connection->process, connection->server);
    struct flight *flight = world_alloc(sizeof *flight + n);
    uint64_t at_ns = world_now() + delay(path);
    if (way == TO_CLIENT && connection->server->slow_ns != 0)
        at_ns += random_below(&net.random, connection->server->slow_ns);
    if (at_ns < connection->latest_ns[way])
        at_ns = connection->latest_ns[way];
    connection->latest_ns[way] = at_ns;
    flight->at_ns = at_ns;
    flight->n = n;
    memcpy(flight->bytes, bytes, n);
    flight->number = ++net.n_flights;
    if (net.observer != NULL)
        net.observer->sent(flight->number, connection, way, bytes, n);
    *connection->last[way] = flight;
    connection->last[way] = &flight->next;
    pump_at(connection, way, connection->first[way]->at_ns);
}

static void server_hears_end(struct connection *connection)
{
    if (connection->ended)
        return;
    connection->ended = true;
    connection->server->class->closed(connection);
}

static void note_end(struct flight *flight, bool arrived)
{
    bool noted = flight->noted;
    flight->noted = true;
    if (net.observer == NULL || noted)
        return;
    if (arrived)
        net.observer->arrived(flight->number);
    else
        net.observer->lost(flight->number);
}

static void arrive_at_server(struct connection *connection, struct flight *flight)
{
    note_end(flight, !connection->ended);
    if (connection->ended)
        return;
    if (flight->n == 0) {
        server_hears_end(connection);
        return;
    }
    buffer_put(&connection->received, flight->bytes, flight->n);
    connection->server->class->data(connection);
}

static void arrive_at_client(struct connection *connection, struct flight *flight)
{
    struct stream *stream = connection->stream;
    bool open = stream != NULL && stream->state != CLOSED;
    note_end(flight, open);
    if (!open)
        return;
    if (flight->n == 0) {
        stream->came_end = true;
        stream->why = 0;
    } else {
        buffer_put(&stream->in, flight->bytes, flight->n);
    }
    process_readable(stream->process, &stream->readable);
}

static bool is_blocked(const struct connection *connection, enum direction way)
{
    return net_path(connection->process, connection->server)->blocked[way] ||
           (way == TO_SERVER && (connection->server->stopped || connection->blocked));
}

static void note_held_up(struct flight *flight)
{
    if (net.observer != NULL && !flight->held_up)
        net.observer->held_up(flight->number);
    flight->held_up = true;
}

static void pump(struct connection *connection, enum direction way)
{
    while (connection->first[way] != NULL) {
        struct flight *flight = connection->first[way];
        if (flight->at_ns > world_now()) {
            pump_at(connection, way, flight->at_ns);
            return;
        }
        if (flight->held || is_blocked(connection, way)) {
            note_held_up(flight);
            pump_at(connection, way, world_now() + PROBE_NS);
            return;
        }
        connection->first[way] = flight->next;
        if (flight->next == NULL)
            connection->last[way] = &connection->first[way];
        if (way == TO_SERVER)
            arrive_at_server(connection, flight);
        else
            arrive_at_client(connection, flight);
    }
}

void connection_reply(struct connection *connection, const void *bytes, size_t n)
{
    if (!connection->ended && n > 0)
        send_piece(connection, TO_CLIENT, bytes, n);
}

void connection_end(struct connection *connection)
{
    if (connection->ended)
        return;
    send_piece(connection, TO_CLIENT, "", 0);
    server_hears_end(connection);
}

void server_continue(struct server *server)
{
    for (struct connection *each = server->connections; each != NULL; each = each->next)
        pump(each, TO_SERVER);
}

void server_dispose(struct server *server)
{
    for (struct connection *each = server->connections; each != NULL; each = each->next)
        buffer_free(&each->received);
}

/* ---- one piece ---- */

struct place {
    struct connection *connection;
    enum direction way;
    struct flight *flight;
};

static bool find_in(struct place *place, struct connection *connection, uint64_t piece)
{
    for (unsigned way = TO_SERVER; way <= TO_CLIENT; way++) {
        for (struct flight *each = connection->first[way]; each != NULL; each = each->next) {
            if (each->number != piece)
                continue;
            *place = (struct place){connection, (enum direction)way, each};
            return true;
        }
    }
    return false;
}

static bool find_piece(struct place *place, uint64_t piece)
{
    for (size_t i = 0; i < net.n_servers; i++) {
        for (struct connection *each = net.servers[i]->connections; each != NULL;
             each = each->next) {
            if (find_in(place, each, piece))
                return true;
        }
    }
    return false;
}

const struct connection *net_connection_of(uint64_t piece)
{
    struct place place;
    return find_piece(&place, piece) ? place.connection : NULL;
}

void net_hold(uint64_t piece)
{
    struct place place;
    if (!find_piece(&place, piece))
        return;
    place.flight->held = true;
    note_held_up(place.flight);
}

void net_let_go(uint64_t piece)
{
    struct place place;
    if (!find_piece(&place, piece))
        return;
    place.flight->held = false;
    pump(place.connection, place.way);
}

void net_delay(uint64_t piece, uint64_t ns)
{
    struct place place;
    if (!find_piece(&place, piece))
        return;
    place.flight->at_ns += ns;
    note_held_up(place.flight);
}

void net_lose(uint64_t piece)
{
    struct place place;
    if (find_piece(&place, piece))
        connection_cut(place.connection, false);
}

/* ---- connecting ---- */

static void end_at_client(struct stream *stream, int why)
{
    if (stream == NULL || stream->state == CLOSED)
        return;
    stream->came_end = true;
    stream->why = why;
    process_readable(stream->process, &stream->readable);
}

static void come_up(void *data)
{
    struct connection *connection = data;
    struct stream *stream = connection->stream;
    if (stream == NULL || stream->state != CONNECTING)
        return;
    if (is_blocked(connection, TO_CLIENT)) {
        world_at(world_now() + PROBE_NS, come_up, connection);
        return;
    }
    stream->came_up = true;
    process_readable(stream->process, &stream->readable);
}

static void refuse(void *data)
{
    struct connection *connection = data;
    end_at_client(connection->stream, ECONNREFUSED);
}

/* A stopped server's kernel still accepts. */
static void knock(void *data)
{
    struct connection *connection = data;
    const struct path *path = net_path(connection->process, connection->server);
    if (connection->stream == NULL || connection->stream->state != CONNECTING)
        return;
    if (path->blocked[TO_SERVER]) {
        world_at(world_now() + PROBE_NS, knock, connection);
    } else if (connection->server->down || connection->process->vanished) {
        connection->ended = true;
        world_at(world_now() + delay(path), refuse, connection);
    } else {
        connection->accepted = true;
        connection->next = connection->server->connections;
        connection->server->connections = connection;
        connection->server->class->accepted(connection);
        world_at(world_now() + delay(path), come_up, connection);
    }
}

static void no_server(void *data)
{
    end_at_client(data, EHOSTUNREACH);
}

static void connect_stream(struct stream *stream, const struct stream_target *target)
{
    struct server *server = find_server(target->host, target->port);
    if (server == NULL || stream->process->over || stream->process->vanished) {
        world_at(world_now(), no_server, stream);
        return;
    }
    struct connection *connection = world_alloc(sizeof *connection);
    *connection =
        (struct connection){.server = server, .process = stream->process, .stream = stream};
    connection->number = ++net.n_connections;
    connection->last[TO_SERVER] = &connection->first[TO_SERVER];
    connection->last[TO_CLIENT] = &connection->first[TO_CLIENT];
    stream->connection = connection;
    world_at(world_now() + delay(net_path(stream->process, server)), knock, connection);
}

/* ---- streams ---- */

static void close_stream(struct stream *stream)
{
    if (stream->state == CLOSED)
        return;
    stream->state = CLOSED;
    loop_disarm(stream->loop, &stream->timer);
    if (stream->reserved)
        loop_unreserve(stream->loop, 1);
    stream->reserved = false;
    loop_ungather(stream->loop, &stream->sender);
    process_unreadable(stream->process, &stream->readable);
    buffer_free(&stream->in);
    buffer_free(&stream->out);
    if (stream->connection != NULL) {
        stream->connection->stream = NULL;
        if (stream->connection->accepted && !stream->process->dead)
            send_piece(stream->connection, TO_SERVER, "", 0);
    }
}

static void report_end(struct stream *stream, int why)
{
    struct stile_error err;
    if (why != 0)
        error_errno(&err, STILE_UNREACHABLE, why, "the connection");
    else
        error_set(&err, STILE_UNREACHABLE, 0, "the server closed the connection");
    close_stream(stream);
    stream->events->closed(stream, &err);
}

static void deliver(struct readable *readable)
{
    struct stream *stream = container_of(readable, struct stream, readable);
    if (stream->state == CONNECTING && stream->came_up) {
        stream->state = OPEN;
        loop_disarm(stream->loop, &stream->timer);
        if (buffer_len(&stream->out) > 0)
            loop_gather(stream->loop, &stream->sender);
        stream->events->opened(stream);
    }
    while (stream->state == OPEN && buffer_len(&stream->in) > 0) {
        struct buffer piece = stream->in;
        stream->in = (struct buffer){0};
        stream->events->data(stream, buffer_at(&piece), buffer_len(&piece));
        buffer_free(&piece);
    }
    if (stream->state != CLOSED && stream->came_end)
        report_end(stream, stream->why);
}

static void on_timeout(struct timer *timer)
{
    report_end(container_of(timer, struct stream, timer), ETIMEDOUT);
}

static void send_out(struct sender *sender)
{
    struct stream *stream = container_of(sender, struct stream, sender);
    if (stream->state != OPEN || buffer_len(&stream->out) == 0)
        return;
    send_piece(stream->connection, TO_SERVER, buffer_at(&stream->out), buffer_len(&stream->out));
    buffer_drop(&stream->out, buffer_len(&stream->out));
    stream->sent = stream->written;
}

enum stile_status stream_open(struct stream **out, struct loop *loop,
                              const struct stream_target *target,
                              const struct stream_events *events, void *owner,
                              struct stile_error *err)
{
    struct stream *stream = world_alloc(sizeof *stream);
    *stream = (struct stream){.loop = loop,
                              .process = process_of_loop(loop),
                              .events = events,
                              .owner = owner,
                              .sender.fn = send_out,
                              .timer.fn = on_timeout,
                              .readable.deliver = deliver};
    if (loop_reserve(loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    stream->reserved = true;
    loop_arm(loop, &stream->timer,
             loop_now(loop) + (target->timeout_ns != 0 ? target->timeout_ns : TIMEOUT_NS));
    connect_stream(stream, target);
    *out = stream;
    return STILE_OK;
}

void *stream_owner(const struct stream *stream)
{
    return stream->owner;
}

int stream_write(struct stream *stream, const void *bytes, size_t n)
{
    if (stream->state == CLOSED)
        return EPIPE;
    if (buffer_len(&stream->out) + n > STREAM_OUT_MAX)
        return ENOBUFS;
    if (buffer_put(&stream->out, bytes, n))
        return ENOMEM;
    stream->written += n;
    if (stream->state == OPEN)
        loop_gather(stream->loop, &stream->sender);
    return 0;
}

void stream_flush(struct stream *stream)
{
    send_out(&stream->sender);
}

uint64_t stream_sent(const struct stream *stream)
{
    return stream->sent;
}

uint64_t stream_written(const struct stream *stream)
{
    return stream->written;
}

bool stream_has_unread(const struct stream *stream)
{
    return buffer_len(&stream->in) > 0 || stream->came_end;
}

/* The memory is the world's. */
void stream_free(struct stream *stream)
{
    if (stream != NULL)
        close_stream(stream);
}

void stream_forked(struct stream *stream)
{
    (void)stream;
}

enum stile_status tls_context_new(struct tls_context **context, const struct tls_options *options,
                                  struct stile_error *err)
{
    (void)context, (void)options;
    return error_set(err, STILE_UNSUPPORTED, 0, "there is no TLS in the simulator");
}

void tls_context_free(struct tls_context *context)
{
    (void)context;
}

/* ---- faults ---- */

static void lose_flights(struct connection *connection, enum direction way)
{
    for (struct flight *each = connection->first[way]; each != NULL; each = each->next)
        note_end(each, false);
    connection->first[way] = NULL;
    connection->last[way] = &connection->first[way];
}

void connection_cut(struct connection *connection, bool after)
{
    if (connection->ended)
        return;
    if (after && !connection->server->stopped) {
        for (struct flight *each = connection->first[TO_SERVER]; each != NULL && !connection->ended;
             each = each->next)
            arrive_at_server(connection, each);
    }
    lose_flights(connection, TO_SERVER);
    lose_flights(connection, TO_CLIENT);
    server_hears_end(connection);
    end_at_client(connection->stream, ECONNRESET);
}

void connection_cut_late(struct connection *connection, uint64_t late_ns)
{
    if (connection->ended || connection->stream == NULL)
        return;
    for (struct flight *each = connection->first[TO_SERVER]; each != NULL; each = each->next) {
        each->at_ns += late_ns;
        note_held_up(each);
    }
    connection->latest_ns[TO_SERVER] += late_ns;
    lose_flights(connection, TO_CLIENT);
    end_at_client(connection->stream, ECONNRESET);
}

void server_cut(struct server *server)
{
    for (struct connection *each = server->connections; each != NULL; each = each->next)
        connection_cut(each, false);
}

void process_cut(struct process *process, bool silently)
{
    for (size_t i = 0; i < net.n_servers; i++) {
        for (struct connection *each = net.servers[i]->connections; each != NULL;
             each = each->next) {
            if (each->process != process)
                continue;
            each->stream = NULL;
            if (!silently && !each->ended)
                send_piece(each, TO_SERVER, "", 0);
        }
    }
}
