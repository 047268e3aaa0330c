/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The least that a conditional write to a ZooKeeper server costs: setData with the version that the
 * last one returned, over a socket that does nothing else. Any client library does more. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "engines/zookeeper/jute.h"

#define PATH       "/bench-swap"
#define SESSION_MS 30000
#define EXISTS     (-110)

static int server = -1;
static char path[64]; /* of our node */
static struct jute_writer writer;
static int32_t version = -1; /* of the node; -1: there is none */

static void fail(const char *what)
{
    bench_die("zookeeper: %s: %s", what, strerror(errno));
}

static void connect_to(const char *url)
{
    const char *host = strstr(url, "//") ? strstr(url, "//") + 2 : url;
    const char *colon = strchr(host, ':');
    char port[8] = "";
    if (colon)
        snprintf(port, sizeof port, "%.*s", (int)strspn(colon + 1, "0123456789"), colon + 1);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)bench_number(port))};
    int one = 1;
    server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server < 0 || connect(server, (struct sockaddr *)&address, sizeof address) ||
        setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
        fail(url);
}

/* Sends the packet in the writer and reads one. */
static struct jute_reader ask(void)
{
    static char reply[4096];
    size_t n, got = 0, want = 4;
    const char *packet = zk_jute_end(&writer, &n);
    if (!packet || write(server, packet, n) != (ssize_t)n)
        fail("writing");
    while (got < want) {
        ssize_t more = read(server, reply + got, sizeof reply - got);
        if (more <= 0)
            fail("reading");
        got += (size_t)more;
        struct jute_reader length = {.at = reply, .end = reply + got};
        want = got < 4 ? 4 : 4 + (size_t)(uint32_t)zk_jute_read_int(&length);
        if (want > sizeof reply)
            bench_die("zookeeper: a reply of %zu bytes", want);
    }
    return (struct jute_reader){.at = reply + 4, .end = reply + want};
}

static void begin(enum jute_request type, const void *value, size_t size)
{
    zk_jute_begin(&writer);
    zk_jute_write_int(&writer, 1);
    zk_jute_write_int(&writer, type);
    zk_jute_write_string(&writer, path);
    zk_jute_write_bytes(&writer, value, size);
}

/* The reader stands behind the server's code, which is no error. */
static struct jute_reader ask_for(const char *what)
{
    struct jute_reader reader = ask();
    (void)zk_jute_read_int(&reader);
    (void)zk_jute_read_long(&reader);
    int32_t code = zk_jute_read_int(&reader);
    if (code || reader.bad)
        bench_die("zookeeper: %s %s: %d", what, path, code);
    return reader;
}

static void create(const void *value, size_t size)
{
    begin(JUTE_CREATE, value, size);
    zk_jute_write_int(&writer, 1); /* one ACL: all permissions, for all */
    zk_jute_write_int(&writer, 31);
    zk_jute_write_string(&writer, "world");
    zk_jute_write_string(&writer, "anyone");
    zk_jute_write_int(&writer, JUTE_PERSISTENT);
    (void)ask_for("creating");
    version = 0;
}

static void *open_swap(const char *url, const char *key)
{
    snprintf(path, sizeof path, "/bench-%s-%d", key, (int)getpid());
    connect_to(url);
    zk_jute_begin(&writer);
    zk_jute_write_int(&writer, 0);
    zk_jute_write_long(&writer, 0);
    zk_jute_write_int(&writer, SESSION_MS);
    zk_jute_write_long(&writer, 0);
    zk_jute_write_bytes(&writer, "0123456789abcdef", 16);
    zk_jute_write_bool(&writer, false);
    (void)ask();
    return &version;
}

static void swap(void *handle, const void *value, size_t size)
{
    struct jute_stat stat;
    (void)handle;
    if (version < 0) {
        create(value, size);
        return;
    }
    begin(JUTE_SET_DATA, value, size);
    zk_jute_write_int(&writer, version);
    struct jute_reader reader = ask_for("writing");
    zk_jute_read_stat(&reader, &stat);
    if (reader.bad || stat.version != version + 1)
        bench_die("zookeeper: %s has the version %d", path, (int)stat.version);
    version = stat.version;
}

const struct swap_subject swap_zookeeper = {.name = "zookeeper", .open = open_swap, .swap = swap};
