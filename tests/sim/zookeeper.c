/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated ZooKeeper beside a real one: the same random requests of three clients get the same
 * replies and events, down to the transactions' numbers. zookeeper.py starts the real one.
 *
 * Usage: sim-zookeeper-wire PORT */
#include "sim/zookeeper_server.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define ROUNDS     2500
#define CLIENTS    3
#define TICK_NS    (500 * MS) /* as zookeeper.py sets it */
#define PATIENCE_S 20
#define TEXT_MAX   4096
#define PASSWORD   16

enum { JUTE_PING = 11, JUTE_XID_PING = -2, REAL = 0, SIMULATED = 1 };

/* One end of a client: at the real server, or at the simulated one. */
struct end {
    int fd;
    struct zk_client *simulated;
    struct buffer in;
    bool over; /* the server has hung up */
    int64_t session;
    char password[PASSWORD];
    int64_t zxid; /* the greatest seen */
    char events[TEXT_MAX];
};

static int port;
static struct zk_ensemble *ensemble;
static struct end clients[CLIENTS][2];
static struct jute_writer writer;
static struct random dice;
static int32_t xid;

/* ---- bytes ---- */

static void write_in(void *owner, const void *bytes, size_t n)
{
    struct end *end = owner;
    buffer_put(&end->in, bytes, n);
}

static void end_in(void *owner)
{
    ((struct end *)owner)->over = true;
}

static const struct zk_client_events events = {.write = write_in, .end = end_in};

static void dial(struct end *end, int which)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    const int at_once = 1;
    buffer_drop(&end->in, buffer_len(&end->in));
    end->over = false;
    if (which == SIMULATED) {
        end->simulated = zk_client_new(&ensemble->members[0], &events, end, "client");
        return;
    }
    end->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(end->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(end->fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    assert_int_equal(connect(end->fd, (const struct sockaddr *)&address, sizeof address), 0);
}

static void drop(struct end *end, int which)
{
    if (which == REAL)
        close(end->fd);
    else
        zk_client_gone(end->simulated);
}

static void send_to(struct end *end, int which, const char *bytes, size_t n)
{
    if (which == REAL)
        assert_int_equal(send(end->fd, bytes, n, MSG_NOSIGNAL), n);
    else
        assert_int_equal(zk_client_receive(end->simulated, bytes, n), n);
}

static void receive_more(struct end *end, int which)
{
    char bytes[16384];
    if (which == SIMULATED) {
        assert_true(world_step(world_now() + SEC));
        return;
    }
    ssize_t n = recv(end->fd, bytes, sizeof bytes, 0);
    assert_true(n >= 0);
    end->over = n == 0;
    buffer_put(&end->in, bytes, (size_t)n);
}

/* The next packet, or false: the server has hung up. */
static bool next_packet(struct jute_reader *reader, struct end *end, int which)
{
    static char packet[1 << 16];
    for (;;) {
        size_t n = buffer_len(&end->in);
        uint32_t len = 0;
        if (n >= 4)
            memcpy(&len, buffer_at(&end->in), 4);
        len = ntohl(len);
        if (n >= 4 && n - 4 >= len) {
            memcpy(packet, buffer_at(&end->in) + 4, len);
            buffer_drop(&end->in, 4 + len);
            *reader = (struct jute_reader){.at = packet, .end = packet + len};
            return true;
        }
        if (end->over)
            return false;
        receive_more(end, which);
    }
}

/* ---- replies as text, without what must differ ---- */

static void add(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(char *text, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, TEXT_MAX - used, format, args);
    va_end(args);
}

static void add_owner(char *text, int64_t owner, int which)
{
    for (int i = 0; i < CLIENTS; i++) {
        if (owner != 0 && clients[i][which].session == owner) {
            add(text, " of client %d", i);
            return;
        }
    }
    add(text, " of %" PRIx64, (uint64_t)owner);
}

static void add_stat(char *text, struct jute_reader *reader, int which)
{
    struct jute_stat stat;
    zk_jute_read_stat(reader, &stat);
    add(text, " czxid %" PRId64 " mzxid %" PRId64 " pzxid %" PRId64, stat.czxid, stat.mzxid,
        stat.pzxid);
    add(text, " versions %d %d %d, %d bytes, %d children%s%s", stat.version, stat.cversion,
        stat.aversion, stat.data_length, stat.num_children, stat.ctime != 0 ? "" : " timeless",
        stat.mtime != 0 ? "" : " never changed");
    add_owner(text, stat.ephemeral_owner, which);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_strings(char *text, struct jute_reader *reader)
{
    struct jute_strings strings;
    zk_jute_read_strings(reader, &strings);
    if (strings.n > 1)
        qsort(strings.list, strings.n, sizeof *strings.list, by_text);
    for (size_t i = 0; i < strings.n; i++)
        add(text, " %s", strings.list[i]);
    zk_jute_strings_free(&strings);
}

static void add_results(char *text, struct jute_reader *reader, int which)
{
    for (bool done = false; !done && !reader->bad;) {
        int32_t type = zk_jute_read_int(reader);
        done = zk_jute_read_bool(reader);
        add(text, " [%d %d", type, zk_jute_read_int(reader));
        if (type == JUTE_SET_DATA)
            add_stat(text, reader, which);
        if (type == -1 && !done)
            add(text, " %d", zk_jute_read_int(reader));
        add(text, "]");
    }
}

static void add_body(char *text, struct jute_reader *reader, int32_t type, int which)
{
    size_t n;
    const char *data;
    switch (type) {
    case JUTE_CREATE:
    case JUTE_CREATE_CONTAINER:
        add(text, " %s", zk_jute_read_string(reader));
        add_stat(text, reader, which);
        break;
    case JUTE_SYNC:
        add(text, " %s", zk_jute_read_string(reader));
        break;
    case JUTE_GET_DATA:
        data = zk_jute_read_bytes(reader, &n);
        add(text, " %s%.*s", data != NULL ? "=" : "null", (int)n, data != NULL ? data : "");
        add_stat(text, reader, which);
        break;
    case JUTE_GET_CHILDREN:
        add_strings(text, reader);
        add_stat(text, reader, which);
        break;
    case JUTE_GET_EPHEMERALS:
        add_strings(text, reader);
        break;
    case JUTE_MULTI:
        add_results(text, reader, which);
        break;
    case JUTE_EXISTS:
    case JUTE_SET_DATA:
        add_stat(text, reader, which);
        break;
    default:
        break;
    }
    add(text, "%s", reader->bad || reader->at != reader->end ? " UNREADABLE" : "");
}

static void add_event(struct end *end, struct jute_reader *reader)
{
    int32_t type = zk_jute_read_int(reader), state = zk_jute_read_int(reader);
    add(end->events, " (event %d %d %s)", type, state, zk_jute_read_string(reader));
}

/* Reads until the reply; events come before it. */
static void read_reply(char text[TEXT_MAX], struct end *end, int which, int32_t type)
{
    struct jute_reader reader;
    *text = '\0';
    while (next_packet(&reader, end, which)) {
        int32_t of = zk_jute_read_int(&reader);
        int64_t zxid = zk_jute_read_long(&reader);
        int32_t rc = zk_jute_read_int(&reader);
        if (of == JUTE_XID_EVENT) {
            add(end->events, zxid == -1 && rc == 0 ? "" : " odd");
            add_event(end, &reader);
            continue;
        }
        end->zxid = zxid > end->zxid ? zxid : end->zxid;
        add(text, "reply to %d, zxid %" PRId64 ", code %d", of, zxid, rc);
        if (rc == ZOK)
            add_body(text, &reader, type, which);
        return;
    }
    add(text, "it has hung up");
}

/* ---- requests ---- */

static const char *one_of(const char *const *texts, size_t n)
{
    return texts[random_below(&dice, n)];
}

#define ONE_OF(...)                                                                                \
    one_of((const char *const[]){__VA_ARGS__},                                                     \
           sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

static const char *draw_path(void)
{
    if (random_once_in(&dice, 30))
        return ONE_OF("", "a", "/a/", "/a//b", "/a/.", "/zookeeper", "/zookeeper/none", "a/b");
    return ONE_OF("/", "/a", "/b", "/c", "/a/b", "/a/c", "/b/c", "/c/d", "/a/b/c", "/b/n0000000001",
                  "/a/n0000000000", "/b/n0000000003");
}

static int32_t draw_version(void)
{
    return random_once_in(&dice, 2) ? -1 : (int32_t)random_below(&dice, 3);
}

static void write_data(void)
{
    const char *data = ONE_OF("", "1", "some text", NULL);
    zk_jute_write_bytes(&writer, data, data != NULL ? strlen(data) : 0);
}

static void write_creation(int32_t type)
{
    static const int32_t modes[] = {JUTE_PERSISTENT, JUTE_EPHEMERAL, JUTE_EPHEMERAL_SEQUENTIAL};
    int32_t mode = type == JUTE_CREATE_CONTAINER ? JUTE_CONTAINER : modes[random_below(&dice, 3)];
    const char *path =
        mode == JUTE_EPHEMERAL_SEQUENTIAL ? ONE_OF("/a/n", "/b/n", "/a/", "/c/d/n") : draw_path();
    zk_jute_write_string(&writer, path);
    write_data();
    zk_jute_write_int(&writer, 1);
    zk_jute_write_int(&writer, 31);
    zk_jute_write_string(&writer, "world");
    zk_jute_write_string(&writer, "anyone");
    zk_jute_write_int(&writer, mode);
}

static void write_deletion(void)
{
    zk_jute_write_string(&writer, draw_path());
    zk_jute_write_int(&writer, draw_version());
}

static void write_setting(void)
{
    zk_jute_write_string(&writer, draw_path());
    write_data();
    zk_jute_write_int(&writer, draw_version());
}

static void write_multi(void)
{
    for (uint64_t n = random_between(&dice, 0, 3); n > 0; n--) {
        bool sets = random_once_in(&dice, 2);
        zk_jute_write_int(&writer, sets ? JUTE_SET_DATA : JUTE_DELETE);
        zk_jute_write_bool(&writer, false);
        zk_jute_write_int(&writer, -1);
        if (sets)
            write_setting();
        else
            write_deletion();
    }
    zk_jute_write_int(&writer, -1);
    zk_jute_write_bool(&writer, true);
    zk_jute_write_int(&writer, -1);
}

/* Paths that are no paths end the connection. */
static void write_watches(int64_t zxid)
{
    zk_jute_write_long(&writer, zxid);
    for (int list = 0; list < 3; list++) {
        int32_t n = (int32_t)random_below(&dice, 3);
        zk_jute_write_int(&writer, n);
        for (int32_t i = 0; i < n; i++)
            zk_jute_write_string(&writer, ONE_OF("/a", "/b", "/c", "/a/b", "/a/c", "/b/c"));
    }
}

static void write_request(int32_t type, int64_t zxid)
{
    switch (type) {
    case JUTE_CREATE:
    case JUTE_CREATE_CONTAINER:
        write_creation(type);
        break;
    case JUTE_DELETE:
        write_deletion();
        break;
    case JUTE_SET_DATA:
        write_setting();
        break;
    case JUTE_MULTI:
        write_multi();
        break;
    case JUTE_SET_WATCHES:
        write_watches(zxid);
        break;
    case JUTE_GET_EPHEMERALS:
        zk_jute_write_string(&writer, "/");
        break;
    case JUTE_SYNC:
        zk_jute_write_string(&writer, draw_path());
        break;
    case JUTE_EXISTS:
    case JUTE_GET_DATA:
    case JUTE_GET_CHILDREN:
        zk_jute_write_string(&writer, draw_path());
        zk_jute_write_bool(&writer, random_once_in(&dice, 2));
        break;
    default:
        break;
    }
}

/* ---- both at once ---- */

/* Sends both the packet in the writer, and compares what they answer. */
static void exchange(unsigned client, int32_t type)
{
    char replies[2][TEXT_MAX];
    size_t n;
    const char *packet = zk_jute_end(&writer, &n);
    for (int which = 0; which < 2; which++) {
        send_to(&clients[client][which], which, packet, n);
        read_reply(replies[which], &clients[client][which], which, type);
    }
    if (strcmp(replies[REAL], replies[SIMULATED]) != 0)
        fail_msg("client %u, type %d\n real:      %s\n simulated: %s", client, type, replies[REAL],
                 replies[SIMULATED]);
}

static void request(unsigned client, int32_t type)
{
    int32_t of = type == JUTE_PING          ? JUTE_XID_PING
                 : type == JUTE_SET_WATCHES ? JUTE_XID_SET_WATCHES
                                            : ++xid;
    zk_jute_begin(&writer);
    zk_jute_write_int(&writer, of);
    zk_jute_write_int(&writer, type);
    write_request(type, random_once_in(&dice, 2) ? 0 : clients[client][REAL].zxid);
    exchange(client, type);
}

/* Events are in order, but for those of a session's end: servers keep its nodes in a set. */
static void sort_events(char *text)
{
    char copy[TEXT_MAX], *parts[256], *rest = copy;
    size_t n = 0;
    strcpy(copy, text);
    for (char *part; n < 256 && (part = strsep(&rest, "()")) != NULL;)
        parts[n++] = part;
    qsort(parts, n, sizeof *parts, by_text);
    *text = '\0';
    for (size_t i = 0; i < n; i++)
        add(text, "%s", parts[i]);
}

/* A ping's reply comes behind all events. */
static void compare_events(bool in_order)
{
    for (unsigned i = 0; i < CLIENTS; i++) {
        request(i, JUTE_PING);
        char *real = clients[i][REAL].events, *simulated = clients[i][SIMULATED].events;
        if (!in_order)
            sort_events(real), sort_events(simulated);
        if (strcmp(real, simulated) != 0)
            fail_msg("client %u\n real:      %s\n simulated: %s", i, real, simulated);
        *real = *simulated = '\0';
    }
}

/* ---- sessions ---- */

struct greeting {
    int64_t zxid;
    int32_t timeout_ms;
    bool resumes, wrong_password;
};

static void write_greeting(const struct end *end, const struct greeting *greeting)
{
    char password[PASSWORD] = {0};
    memcpy(password, end->password, greeting->resumes ? PASSWORD : 0);
    password[3] = (char)(password[3] ^ greeting->wrong_password);
    zk_jute_begin(&writer);
    zk_jute_write_int(&writer, 0);
    zk_jute_write_long(&writer, greeting->zxid);
    zk_jute_write_int(&writer, greeting->timeout_ms);
    zk_jute_write_long(&writer, greeting->resumes ? end->session : 0);
    zk_jute_write_bytes(&writer, password, sizeof password);
    zk_jute_write_bool(&writer, false);
}

static void read_greeting(char text[TEXT_MAX], struct end *end, int which, bool resumes)
{
    struct jute_reader reader;
    size_t n;
    *text = '\0';
    if (!next_packet(&reader, end, which)) {
        add(text, "it has hung up");
        return;
    }
    (void)zk_jute_read_int(&reader);
    add(text, "timeout %d", zk_jute_read_int(&reader));
    int64_t session = zk_jute_read_long(&reader);
    const char *password = zk_jute_read_bytes(&reader, &n);
    add(text, ", %s session, %zu bytes%s", session == 0 ? "no" : "a", n,
        zk_jute_read_bool(&reader) || reader.at != reader.end ? ", more" : "");
    if (session != 0 && !resumes) {
        end->session = session;
        memcpy(end->password, password, PASSWORD);
    } else if (session != 0) {
        add(text, session == end->session ? ", the same" : ", another");
    }
}

static void greet(unsigned client, const struct greeting *greeting)
{
    char replies[2][TEXT_MAX];
    for (int which = 0; which < 2; which++) {
        struct end *end = &clients[client][which];
        size_t n;
        dial(end, which);
        write_greeting(end, greeting);
        const char *packet = zk_jute_end(&writer, &n);
        send_to(end, which, packet, n);
        read_greeting(replies[which], end, which, greeting->resumes);
    }
    if (strcmp(replies[REAL], replies[SIMULATED]) != 0)
        fail_msg("a greeting\n real:      %s\n simulated: %s", replies[REAL], replies[SIMULATED]);
}

static void drop_both(unsigned client)
{
    for (int which = 0; which < 2; which++)
        drop(&clients[client][which], which);
}

static int32_t draw_timeout(void)
{
    static const int32_t timeouts_ms[] = {1, 1000, 1500, 4000, 10000, 20000};
    return timeouts_ms[random_below(&dice, 6)];
}

/* Its old session ends on both, or is taken up again. */
static void reconnect(unsigned client)
{
    bool resumes = random_once_in(&dice, 2);
    if (!resumes)
        request(client, JUTE_CLOSE_SESSION);
    drop_both(client);
    for (int i = 0; resumes && i < 2; i++) { /* in vain */
        const struct greeting odd = {.zxid = i == 0 ? INT64_C(1) << 40 : 0,
                                     .timeout_ms = draw_timeout(),
                                     .resumes = true,
                                     .wrong_password = i == 1};
        greet(client, &odd);
        drop_both(client);
    }
    greet(client, &(struct greeting){.zxid = resumes ? clients[client][REAL].zxid : 0,
                                     .timeout_ms = draw_timeout(),
                                     .resumes = resumes});
}

/* ---- the tests ---- */

static int set_up(void **state)
{
    (void)state;
    world_begin(1, NULL);
    net_begin();
    dice = random_stream(2, 0);
    ensemble = sim_zk_new(1, TICK_NS);
    for (unsigned i = 0; i < CLIENTS; i++)
        greet(i, &(struct greeting){.timeout_ms = draw_timeout()});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CLIENTS; i++) {
        drop_both(i);
        buffer_free(&clients[i][REAL].in);
        buffer_free(&clients[i][SIMULATED].in);
    }
    buffer_free(&writer.buffer);
    sim_zk_dispose(ensemble);
    world_end();
    return 0;
}

static void requests_have_the_same_answers(void **state)
{
    static const int32_t types[] = {
        JUTE_CREATE,       JUTE_CREATE,       JUTE_CREATE,        JUTE_CREATE_CONTAINER,
        JUTE_DELETE,       JUTE_DELETE,       JUTE_EXISTS,        JUTE_GET_DATA,
        JUTE_GET_CHILDREN, JUTE_SET_DATA,     JUTE_SET_DATA,      JUTE_SYNC,
        JUTE_MULTI,        JUTE_MULTI,        JUTE_SET_WATCHES,   JUTE_EXISTS,
        JUTE_GET_DATA,     JUTE_GET_CHILDREN, JUTE_GET_EPHEMERALS};
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        unsigned client = (unsigned)random_below(&dice, CLIENTS);
        bool reconnects = random_once_in(&dice, 50);
        if (reconnects)
            reconnect(client);
        else
            request(client, types[random_below(&dice, sizeof types / sizeof *types)]);
        compare_events(!reconnects);
    }
    assert_int_equal(sim_zk_failures(), 0);
}

/* Neither server ends a session before its time. */
static void silent_sessions_expire(void **state)
{
    (void)state;
    request(0, JUTE_CLOSE_SESSION);
    drop_both(0);
    greet(0, &(struct greeting){.timeout_ms = 1000});
    for (int which = 0; which < 2; which++) {
        struct jute_reader reader;
        struct timespec before, after;
        uint64_t began_ns = world_now();
        clock_gettime(CLOCK_MONOTONIC, &before);
        assert_false(next_packet(&reader, &clients[0][which], which));
        clock_gettime(CLOCK_MONOTONIC, &after);
        if (which == REAL)
            assert_true((after.tv_sec - before.tv_sec) * 1000 +
                            (after.tv_nsec - before.tv_nsec) / 1000000 >=
                        900);
        else
            assert_in_range(world_now() - began_ns, SEC, SEC + TICK_NS + 100 * MS);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_have_the_same_answers),
        cmocka_unit_test(silent_sessions_expire),
    };
    if (argc != 2)
        return 2;
    port = atoi(argv[1]);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
