/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of every shape for everything that asks a Redis server: redis, its Sentinels and its
 * Cluster, and redlock. A server of the target's own answers each command, by the bytes of the
 * input, as a server would, or with something that only RESP allows; it publishes what nobody
 * expects. What the engine makes of it must end, and touch no memory but its own.
 *
 * The first byte says which engine, the second what is done with it; then one byte a command. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engines/registry.h"
#include "fuzz/fuzz.h"

extern const struct engine_class redis_class, redlock_class;

/* In place of the library's registry: the engines inside, and not as a module. */
const struct engine_entry engine_registry[] = {
    {.name = "redis", .schemes = "redis redis+cluster redis+sentinel", .class = &redis_class},
    {.name = "redlock", .schemes = "redlock", .class = &redlock_class},
    {.name = NULL},
};

#define NODES     3
#define WORDS_MAX 64
#define OWNER     40

/* ---- the input ---- */

static struct {
    pthread_mutex_t mutex;
    const uint8_t *data;
    size_t size, at;
    bool clustered;
    unsigned round; /* connections of an earlier input say nothing of this one */
    int listener;   /* the last that subscribed */
    char owner[OWNER + 1];
} input = {.mutex = PTHREAD_MUTEX_INITIALIZER, .listener = -1};

static uint16_t ports[NODES];

static unsigned next(void)
{
    return input.at < input.size ? input.data[input.at++] : 0;
}

static unsigned pick(unsigned n)
{
    return next() % n;
}

/* ---- replies ---- */

struct out {
    char bytes[1 << 16];
    size_t n;
};

static void put(struct out *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out->bytes + out->n, sizeof out->bytes - out->n, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < sizeof out->bytes - out->n)
        out->n += (size_t)n;
}

static void put_text(struct out *out, const char *text)
{
    put(out, "$%zu\r\n%s\r\n", strlen(text), text);
}

static const char *const texts[] = {
    "",          "~S",      "~h5",    "~N",    "x", "0",       "-1",        "99999999999999999999",
    "5 1 2 3",   "g ",      "master", "slave", "?", "message", "subscribe", "m",
    "127.0.0.1", "a b c d", "s 5",    "[::1]", "~", "n",       "0.5",       "1e308",
    "65536"};

static const char *const errors[] = {"MOVED 5 127.0.0.1:1",
                                     "MOVED 99999 :0",
                                     "ASK 1 [::1]:5",
                                     "MOVED",
                                     "ASK 5 ",
                                     "TRYAGAIN x",
                                     "CLUSTERDOWN x",
                                     "READONLY x",
                                     "MASTERDOWN x",
                                     "NOSCRIPT x",
                                     "ERR Error running script (call to f): @user_script:",
                                     "LOADING x",
                                     "WRONGTYPE x",
                                     "NOPERM x",
                                     "",
                                     "-",
                                     "ERR max number of clients"};

static const long long numbers[] = {0,  1,         2,         -1,        5,    1000,
                                    -2, 1LL << 53, INT64_MAX, INT64_MIN, 16383};

static void put_any(struct out *out, unsigned depth)
{
    char long_text[601];
    switch (pick(depth < 4 ? 10 : 7)) {
    case 0:
    case 1:
        put(out, ":%lld\r\n", numbers[pick(sizeof numbers / sizeof *numbers)]);
        break;
    case 2:
        put_text(out, texts[pick(sizeof texts / sizeof *texts)]);
        break;
    case 3:
        put_text(out, input.owner);
        break;
    case 4:
        put(out, pick(2) ? "$-1\r\n" : "*-1\r\n");
        break;
    case 5:
        put(out, "-%s\r\n", errors[pick(sizeof errors / sizeof *errors)]);
        break;
    case 6:
        memset(long_text, 'a', sizeof long_text - 1);
        long_text[sizeof long_text - 1] = '\0';
        put_text(out, long_text + pick(256));
        break;
    default: {
        unsigned n = pick(11);
        put(out, "*%u\r\n", n);
        for (unsigned i = 0; i < n; i++)
            put_any(out, depth + 1);
    }
    }
}

/* ---- as a server would ---- */

static void put_info(struct out *out, unsigned node)
{
    char info[512];
    snprintf(info, sizeof info,
             "# Server\r\nredis_version:7.0.15\r\nrole:master\r\nmaxmemory:0\r\n"
             "maxmemory_policy:noeviction\r\nrun_id:%040u\r\ncluster_enabled:%d\r\n"
             "connected_slaves:%u\r\nuptime_in_seconds:%u\r\n",
             node, input.clustered, pick(3), pick(100));
    put_text(out, info);
}

/* What scripts answer, of the forms that some script has. */
static void put_script(struct out *out)
{
    switch (pick(11)) {
    case 0:
        put(out, ":1\r\n");
        break;
    case 1:
        put(out, "*2\r\n:1\r\n:5\r\n");
        break;
    case 2:
        put(out, "*4\r\n:0\r\n:20\r\n:%u\r\n:%u\r\n", pick(4), pick(2));
        break;
    case 3:
        put(out, "*1\r\n:%u\r\n", pick(3));
        break;
    case 4:
        put(out, "*7\r\n");
        put_text(out, pick(2) ? input.owner : "~S");
        put(out, ":1000\r\n$1\r\n5\r\n");
        put_any(out, 2);
        put_text(out, "1700000000000");
        put_any(out, 1);
        put_any(out, 1);
        break;
    case 5:
        put(out, "*7\r\n:5\r\n$1\r\nx\r\n:1000\r\n:0\r\n:0\r\n:0\r\n:0\r\n");
        break;
    case 6:
        put(out, "*5\r\n");
        put_text(out, input.owner);
        put(out, ":1000\r\n$1\r\n5\r\n:3\r\n");
        put_any(out, 2);
        break;
    case 7:
        put(out, "*%u\r\n", 3 + pick(8));
        for (unsigned i = 0; i < 11; i++)
            put_any(out, 3);
        break;
    case 8:
        put(out, "*1\r\n"); /* cells, listed */
        __attribute__((fallthrough));
    case 9:
        put(out, "*5\r\n:%u\r\n$1\r\n5\r\n:7\r\n$3\r\na:b\r\n", pick(5));
        put_any(out, 2);
        break;
    default:
        put(out, ":0\r\n");
    }
}

static bool is(const char *word, const char *verb)
{
    return strcasecmp(word, verb) == 0;
}

static void put_right(struct out *out, char *const *words, unsigned node)
{
    char port[8];
    snprintf(port, sizeof port, "%u", ports[node]);
    if (is(words[0], "INFO")) {
        put_info(out, node);
    } else if (is(words[0], "ROLE")) {
        put(out, "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n");
    } else if (is(words[0], "SUBSCRIBE")) {
        put(out, "*3\r\n$9\r\nsubscribe\r\n");
        put_text(out, words[1]);
        put(out, ":1\r\n");
    } else if (is(words[0], "CLUSTER")) {
        put(out, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%s\r\n", port);
    } else if (is(words[0], "SENTINEL")) {
        put(out, "*2\r\n$9\r\n127.0.0.1\r\n");
        put_text(out, port);
    } else if (is(words[0], "SCAN")) {
        put(out, "*2\r\n$1\r\n0\r\n*3\r\n$6\r\nlock:x\r\n$14\r\nstile:cell:{x}\r\n");
        put_any(out, 3);
    } else if (is(words[0], "EVAL") || is(words[0], "EVALSHA") || is(words[0], "HMGET")) {
        put_script(out);
    } else {
        put(out, "+OK\r\n");
    }
}

static void publish(void)
{
    static const char *const kinds[] = {"g %s", "h %s 5", "b %s", "h %s -1 1", "g %s 9", "%s"};
    char message[128];
    struct out *out = calloc(1, sizeof *out);
    MUST(out);
    snprintf(message, sizeof message, kinds[pick(6)], input.owner);
    if (pick(4)) {
        put(out, "*3\r\n$7\r\nmessage\r\n$5\r\nstile\r\n");
        put_text(out, message);
    } else {
        put_any(out, 0);
    }
    (void)!send(input.listener, out->bytes, out->n, MSG_NOSIGNAL | MSG_DONTWAIT);
    free(out);
}

/* With nothing left of the input, no further answer is of any use, and all ends soon. */
static void answer(struct out *out, int fd, char *const *words, size_t n, unsigned node)
{
    for (size_t i = 1; i < n; i++)
        if (strlen(words[i]) == OWNER && i > 2)
            memcpy(input.owner, words[i], OWNER);
    if (is(words[0], "SUBSCRIBE"))
        input.listener = fd;
    if (input.at >= input.size && !is(words[0], "CLIENT"))
        put(out, "-NOPERM the end\r\n");
    else if (input.at < input.size && next() >= 176)
        put_any(out, 0);
    else
        put_right(out, words, node);
    if (input.listener >= 0 && input.at < input.size && next() >= 200)
        publish();
}

/* ---- the server ---- */

struct guest {
    int fd;
    unsigned node, round;
    FILE *file;
};

static char *read_word(FILE *file)
{
    size_t n = 0;
    if (fscanf(file, "$%zu", &n) != 1 || n > 1 << 20 || fgetc(file) != '\r' || fgetc(file) != '\n')
        return NULL;
    char *word = calloc(1, n + 3);
    MUST(word);
    if (fread(word, 1, n + 2, file) != n + 2) {
        free(word);
        return NULL;
    }
    word[n] = '\0';
    return word;
}

static size_t read_words(FILE *file, char *words[WORDS_MAX])
{
    size_t n = 0, i = 0;
    if (fscanf(file, "*%zu", &n) != 1 || n == 0 || fgetc(file) != '\r' || fgetc(file) != '\n')
        return 0;
    for (; i < n; i++) {
        char *word = read_word(file);
        if (!word)
            break;
        if (i < WORDS_MAX)
            words[i] = word;
        else
            free(word);
    }
    size_t kept = i < WORDS_MAX ? i : WORDS_MAX;
    for (size_t k = 0; i < n && k < kept; k++)
        free(words[k]);
    return i < n ? 0 : kept;
}

static bool serve(const struct guest *guest, char *const *words, size_t n, struct out *out)
{
    pthread_mutex_lock(&input.mutex);
    bool current = guest->round == input.round;
    out->n = 0;
    if (current)
        answer(out, guest->fd, words, n, guest->node);
    bool sent = current && send(guest->fd, out->bytes, out->n, MSG_NOSIGNAL) >= 0;
    pthread_mutex_unlock(&input.mutex);
    return sent;
}

static void *host(void *data)
{
    struct guest *guest = data;
    char *words[WORDS_MAX];
    static _Thread_local struct out room;
    struct out *out = &room;
    for (size_t n; (n = read_words(guest->file, words)) > 0;) {
        bool go_on = serve(guest, words, n, out);
        for (size_t i = 0; i < n; i++)
            free(words[i]);
        if (!go_on)
            break;
    }
    pthread_mutex_lock(&input.mutex);
    if (input.listener == guest->fd)
        input.listener = -1;
    fclose(guest->file);
    pthread_mutex_unlock(&input.mutex);
    free(guest);
    return NULL;
}

static void *reception(void *data)
{
    unsigned node = (unsigned)(size_t)data >> 16;
    int listen_fd = (int)((size_t)data & 0xffff), one = 1;
    for (;;) {
        struct guest *guest = calloc(1, sizeof *guest);
        pthread_t thread;
        MUST(guest);
        do
            guest->fd = accept(listen_fd, NULL, NULL);
        while (guest->fd < 0 && (errno == EINTR || errno == ECONNABORTED));
        MUST(guest->fd >= 0);
        setsockopt(guest->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        guest->node = node;
        guest->round = __atomic_load_n(&input.round, __ATOMIC_SEQ_CST);
        guest->file = fdopen(guest->fd, "r");
        MUST(guest->file && pthread_create(&thread, NULL, host, guest) == 0);
        pthread_detach(thread);
    }
    return NULL;
}

static void start_servers(void)
{
    for (size_t i = 0; i < NODES; i++) {
        struct sockaddr_in place = {.sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof place;
        pthread_t thread;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        MUST(fd >= 0 && bind(fd, (struct sockaddr *)&place, len) == 0 && listen(fd, 64) == 0);
        MUST(getsockname(fd, (struct sockaddr *)&place, &len) == 0);
        ports[i] = ntohs(place.sin_port);
        MUST(pthread_create(&thread, NULL, reception, (void *)(i << 16 | (size_t)fd)) == 0);
        pthread_detach(thread);
    }
}

/* ---- what is asked for ---- */

static int ignore_info(const struct stile_info *info, void *data)
{
    (void)data;
    for (size_t i = 0; i < info->holders + info->waiters; i++) {
        const struct stile_claim_info *claim = &info->claims[i];
        MUST(claim->owner && claim->host && claim->command);
        MUST(claim->age_ms >= -1 && claim->held == (i < info->holders));
    }
    return 1;
}

static int ignore_finding(const struct stile_finding *finding, void *data)
{
    (void)data;
    MUST(finding->id && finding->what);
    return 0;
}

static void lock(struct stile_client *client, unsigned how)
{
    static const struct {
        enum stile_mode mode;
        int64_t wait_ms;
        bool again;
    } ways[] = {{STILE_EXCLUSIVE, 0, false},
                {STILE_EXCLUSIVE, 30, false},
                {STILE_SHARED, 20, false},
                {STILE_SLOTS, 0, false},
                {STILE_EXCLUSIVE, 0, true}};
    struct stile_lock *one;
    struct stile_lock_options options =
        *STILE_OPTIONS(.mode = ways[how % 5].mode, .slots = 2, .ttl_ms = 40, .renew_ms = 10,
                       .owner = how % 7 == 6 ? "0123456789012345678901234567890123456789" : NULL);
    if (options.mode != STILE_SLOTS)
        options.slots = 0;
    if (stile_lock_new(&one, client, "x", &options, NULL))
        return;
    enum stile_status status = how % 7 == 6 ? stile_lock_resume(one, NULL)
                                            : stile_lock_acquire(one, ways[how % 5].wait_ms, NULL);
    if (!status && ways[how % 5].again)
        usleep(30000); /* it is renewed meanwhile */
    if (!status && how % 3 == 0 && !stile_lock_record_start(one, NULL))
        stile_lock_record_end(one, 0, NULL);
    if (!status)
        stile_lock_release(one, NULL);
    stile_lock_free(one);
}

static int ignore_cell(const struct stile_cell *one, void *data)
{
    (void)data;
    MUST(one->key && one->issuer);
    return 0;
}

static void use_cell(struct stile_client *client, unsigned how)
{
    struct stile_cell *one;
    switch (how % 5) {
    case 0:
        if (!stile_cell_get(&one, client, "x", NULL))
            stile_cell_free(one);
        break;
    case 1:
        stile_cell_put(NULL, client, "x", "value", 5, STILE_CELL_OPTIONS(.token = 5), NULL);
        break;
    case 2:
        stile_cell_list(client, how % 2 ? "" : "{x", ignore_cell, NULL, NULL);
        break;
    case 3:
        stile_cell_watch(client, "x", 50, ignore_cell, NULL, NULL);
        break;
    default:
        stile_guard_raise(client, "x", 5, STILE_GUARD_OPTIONS(.issuer = "a:b"), NULL);
    }
}

static void use(struct stile_client *client, unsigned what)
{
    switch (what % 8) {
    case 0:
        stile_show(client, "x", ignore_info, NULL, NULL);
        break;
    case 1:
        stile_list(client, "", ignore_info, NULL, NULL);
        break;
    case 2:
        stile_break(client, "x", what / 8, NULL);
        break;
    case 3:
        stile_watch(client, "x", 50, ignore_info, NULL, NULL);
        break;
    case 4:
        use_cell(client, what / 8);
        break;
    default:
        lock(client, what / 8);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {"redis://127.0.0.1:%u",
                                       "redis+cluster://127.0.0.1:%u",
                                       "redis+sentinel://127.0.0.1:%u/m",
                                       "redis://127.0.0.1:%u?wait_replicas=1&wait_timeout=5",
                                       "redlock://127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u",
                                       "redlock://127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u?fence=no"};
    char url[160];
    struct stile_client *client;
    if (!ports[0])
        start_servers();
    if (size < 3)
        return 0;
    pthread_mutex_lock(&input.mutex);
    input.round++;
    input.data = data;
    input.clustered = data[0] % 6 == 1;
    input.size = size;
    input.at = 2;
    input.listener = -1;
    memset(input.owner, '0', OWNER);
    pthread_mutex_unlock(&input.mutex);
    snprintf(url, sizeof url, urls[data[0] % 6], ports[0], ports[1], ports[2]);
    bool examine = data[1] % 16 == 15;
    if (!stile_client_open(&client, url,
                           STILE_CLIENT_OPTIONS(.threadless = true, .examine = examine), NULL)) {
        if (examine)
            stile_doctor(client, 0, ignore_finding, NULL, NULL);
        else
            use(client, data[1]);
        stile_client_close(client);
    }
    pthread_mutex_lock(&input.mutex);
    input.round++;
    input.data = NULL; /* a connection that is accepted late finds nothing */
    input.size = input.at = 0;
    pthread_mutex_unlock(&input.mutex);
    return 0;
}
