/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The other process: one client, a few locks, one command a line on stdin, one answer a line on
 * stdout. It ends when its stdin does, and never outlives the suite. */
#include "contract.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#define LOCKS_MAX 8
/* A forked copy must outlive its parent, but not for ever if the suite is gone as well. */
#define STRAY_LIFE_S 120

static struct {
    struct stile_client *client;
    struct stile_lock *locks[LOCKS_MAX];
    size_t n;
    int loss_reported; /* an eventfd: the lost callback has been called */
} child;

static void answer(enum stile_status status, const char *good)
{
    if (status)
        printf("failed %s\n", stile_status_name(status));
    else
        printf("%s\n", good);
}

static struct stile_lock *last(void)
{
    return child.n ? child.locks[child.n - 1] : NULL;
}

static void on_lost(struct stile_lock *lock, void *data)
{
    (void)lock, (void)data;
    eventfd_write(child.loss_reported, 1);
}

static void unhex(char *out, size_t size, const char *hex)
{
    size_t n = 0;
    unsigned byte;
    while (n + 1 < size && sscanf(hex + 2 * n, "%2x", &byte) == 1)
        out[n++] = (char)byte;
    out[n] = '\0';
}

static void do_lock(const char *args)
{
    struct stile_lock_options *o = STILE_OPTIONS(.on_lost = on_lost);
    char hex[2 * STILE_NAME_MAX + 1], name[STILE_NAME_MAX + 1];
    unsigned mode;
    long long ttl, hold, delay;
    if (child.n == LOCKS_MAX || sscanf(args, "%u %u %lld %lld %lld %1024s", &mode, &o->slots, &ttl,
                                       &hold, &delay, hex) != 6) {
        printf("failed to understand\n");
        return;
    }
    o->mode = (enum stile_mode)mode;
    o->ttl_ms = ttl;
    o->hold_at_least_ms = hold;
    o->lock_delay_ms = delay;
    unhex(name, sizeof name, hex);
    enum stile_status status = stile_lock_new(&child.locks[child.n], child.client, name, o, NULL);
    child.n += !status;
    answer(status, "ok");
}

static void do_acquire(const char *args)
{
    unsigned long long token = 0;
    uint64_t t = 0;
    enum stile_status status = stile_lock_acquire(last(), atoll(args), NULL);
    if (!status && !stile_lock_token(last(), &t))
        token = t;
    if (status)
        answer(status, "");
    else
        printf("acquired %llu\n", token);
}

static void do_release(const char *args)
{
    (void)args;
    answer(stile_lock_release(last(), NULL), "released");
}

static void do_acquire_all(const char *args)
{
    answer(stile_locks_acquire(child.locks, child.n, atoll(args), NULL), "acquired all");
}

static void do_release_all(const char *args)
{
    (void)args;
    answer(stile_locks_release(child.locks, child.n, NULL), "released all");
}

/* "start", or the exit code. */
static void do_record(const char *args)
{
    bool start = strcmp(args, "start\n") == 0;
    answer(start ? stile_lock_record_start(last(), NULL)
                 : stile_lock_record_end(last(), atoi(args), NULL),
           "recorded");
}

/* TOKEN KEY: writes the token, too. */
static void do_put(const char *args)
{
    char hex[2 * STILE_NAME_MAX + 1], key[STILE_NAME_MAX + 1], value[32];
    unsigned long long token;
    if (sscanf(args, "%llu %1024s", &token, hex) != 2) {
        printf("failed to understand\n");
        return;
    }
    unhex(key, sizeof key, hex);
    size_t size = (size_t)sprintf(value, "%llu", token);
    answer(stile_cell_put(NULL, child.client, key, value, size, STILE_CELL_OPTIONS(.token = token),
                          NULL),
           "put");
}

typedef enum stile_status rounds_fn(struct stile_client *client, const char *key, unsigned rounds);

/* ROUNDS KEY */
static void do_rounds(const char *args, rounds_fn *fn, const char *good)
{
    char hex[2 * STILE_NAME_MAX + 1], key[STILE_NAME_MAX + 1];
    unsigned rounds;
    if (sscanf(args, "%u %1024s", &rounds, hex) != 2) {
        printf("failed to understand\n");
        return;
    }
    unhex(key, sizeof key, hex);
    answer(fn(child.client, key, rounds), good);
}

static void do_count(const char *args)
{
    do_rounds(args, count_up, "counted");
}

static void do_climb(const char *args)
{
    do_rounds(args, climb, "climbed");
}

/* Says that it runs and, if it is to, waits for a line. */
static int run_once(struct stile_once_output *output, struct stile_lock *lock, void *waits)
{
    static char text[32], line[16];
    uint64_t token = 0;
    stile_lock_token(lock, &token);
    if (*(int *)waits) {
        printf("running %llu\n", (unsigned long long)token);
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin))
            return 1;
    }
    arena_work((uint64_t)getpid(), token);
    output->size = (size_t)sprintf(text, "%llu", (unsigned long long)token);
    output->bytes = text;
    return 0;
}

/* WAITS TTL KEY: the result is the token of its run. */
static void do_once(const char *args)
{
    struct stile_once_result *result;
    char hex[2 * STILE_NAME_MAX + 1], key[STILE_NAME_MAX + 1];
    int waits;
    long long ttl;
    if (sscanf(args, "%d %lld %1024s", &waits, &ttl, hex) != 3) {
        printf("failed to understand\n");
        return;
    }
    unhex(key, sizeof key, hex);
    enum stile_status status = stile_once(&result, child.client, key, run_once, &waits,
                                          STILE_ONCE_OPTIONS(.ttl_ms = ttl), NULL);
    answer(status, status ? "" : result->bytes);
    stile_once_free(result);
}

static void do_held(const char *args)
{
    (void)args;
    printf(stile_lock_held(last()) ? "held\n" : "not held\n");
}

static bool comes(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, PATIENCE_MS) == 1;
}

static void do_lost(const char *args)
{
    (void)args;
    bool fd = comes(stile_lock_lost_fd(last())), callback = comes(child.loss_reported);
    bool held = stile_lock_held(last()), time = stile_lock_remaining_ms(last()) > 0;
    if (fd && callback && !held && !time)
        printf("lost\n");
    else
        printf("not lost: fd %d, callback %d, held %d, time left %d\n", fd, callback, held, time);
}

static void do_hammer(const char *args)
{
    unsigned rounds = (unsigned)strtoul(args, NULL, 10);
    printf("hammering\n");
    fflush(stdout);
    answer(hammer(child.locks, child.n, rounds, (uint64_t)getpid()), "hammered");
}

/* Goes in and out of the crowd; the suite's arena counts how many are in at once. */
static void do_crowd(const char *args)
{
    enum stile_status status = STILE_OK;
    for (unsigned rounds = (unsigned)strtoul(args, NULL, 10); rounds && !status; rounds--) {
        status = stile_lock_acquire(last(), PATIENCE_MS, NULL);
        if (status)
            break;
        arena_crowd_in();
        usleep(20);
        arena_crowd_out();
        status = stile_lock_release(last(), NULL);
    }
    answer(status, "crowded");
}

/* "count per_ms tolerance_ms rounds name"; the answer has the time of the last start. */
static void do_pace(const char *args)
{
    struct stile_pace_options o = stile_pace_options_init();
    char name[STILE_NAME_MAX + 1];
    unsigned rounds;
    long long per, tolerance;
    uint64_t stamp = 0;
    enum stile_status status = STILE_OK;
    if (sscanf(args, "%u %lld %lld %u %512s", &o.count, &per, &tolerance, &rounds, name) != 5) {
        printf("failed to understand\n");
        return;
    }
    o.per_ms = per;
    o.tolerance_ms = tolerance;
    for (; rounds > 0 && !status; rounds--)
        status = pace_and_stamp(child.client, name, &o, &stamp);
    if (status)
        answer(status, "");
    else
        printf("paced %llu\n", (unsigned long long)stamp);
}

static void be_a_stray(void)
{
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    alarm(STRAY_LIFE_S);
    for (;;)
        pause();
}

static void do_fork(const char *args)
{
    (void)args;
    pid_t pid = fork();
    if (pid == 0)
        be_a_stray();
    printf("forked %d\n", (int)pid);
}

/* Without fork handlers: nothing but close-on-exec is between our fds and the other program. */
static void do_spawn(const char *args)
{
    (void)args;
    char *argv[] = {"contract", "--stray", NULL};
    pid_t pid;
    int rc = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ);
    printf("spawned %d\n", rc ? -1 : (int)pid);
}

static const struct {
    const char *name;
    void (*fn)(const char *args);
} commands[] = {
    {"lock ", do_lock},
    {"acquire ", do_acquire},
    {"release\n", do_release},
    {"acquire-all ", do_acquire_all},
    {"release-all\n", do_release_all},
    {"record ", do_record},
    {"put ", do_put},
    {"count ", do_count},
    {"climb ", do_climb},
    {"once ", do_once},
    {"held\n", do_held},
    {"lost\n", do_lost},
    {"hammer ", do_hammer},
    {"crowd ", do_crowd},
    {"pace ", do_pace},
    {"fork\n", do_fork},
    {"spawn\n", do_spawn},
};

static void obey(const char *line)
{
    for (size_t i = 0; i < COUNT(commands); i++) {
        size_t len = strlen(commands[i].name);
        if (strncmp(line, commands[i].name, len) == 0) {
            commands[i].fn(line + len);
            fflush(stdout);
            return;
        }
    }
    printf("failed to understand\n");
    fflush(stdout);
}

int child_main(void)
{
    char line[4096];
    struct stile_error err = {0};
    pid_t suite_pid = (pid_t)atoi(getenv("STILE_CONTRACT_PID"));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != suite_pid)
        return 1;
    child.loss_reported = eventfd(0, EFD_CLOEXEC);
    suite.arena = arena_map();
    if (!suite.arena ||
        stile_client_open(&child.client, getenv("STILE_CONTRACT_URL"), NULL, &err)) {
        printf("cannot open: %s\n", err.message);
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "exit\n") != 0)
        obey(line);
    stile_client_close(child.client);
    close(child.loss_reported);
    return 0;
}
