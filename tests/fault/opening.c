/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile_client_open_async() of one engine, driven by poll() in one thread:
 *
 *     fault-opening URL [FILTER]
 *
 * The URL names real servers by host and port; where a test needs a server that is silent or down,
 * it puts ports of its own in their place. The silent server is played by the thread that drives
 * the client: an open that blocked would wait for itself, and end as UNREACHABLE. */
#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "stile.h"

#define PATIENCE_MS 30000 /* more is a hang */
#define STEPS_MAX   2000
#define HOSTS_MAX   16
#define FDS_MAX     1024

#define assert_status(actual, expected)                                                            \
    assert_string_equal(stile_status_name(actual), stile_status_name(STILE_##expected))

static const char *url;

/* ---- what the callbacks report ---- */

struct answer {
    unsigned times;
    enum stile_status status;
    char message[512];
    int pipe; /* where to say so; 0: nowhere */
};

static void take_answer(struct answer *answer, enum stile_status status,
                        const struct stile_error *err)
{
    answer->times++;
    answer->status = status;
    snprintf(answer->message, sizeof answer->message, "%s", err ? err->message : "");
    if (answer->pipe)
        assert_int_equal(write(answer->pipe, "", 1), 1);
}

static void on_opened(struct stile_client *client, enum stile_status status,
                      const struct stile_error *err, void *data)
{
    assert_non_null(client);
    take_answer(data, status, err);
}

static void on_lock(struct stile_lock *lock, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    (void)lock;
    take_answer(data, status, err);
}

/* ---- driving ---- */

static struct stile_client *begin(struct answer *answer, const char *at, bool examine)
{
    struct stile_client *client;
    struct stile_error err = {0};
    *answer = (struct answer){0};
    if (stile_client_open_async(&client, at,
                                STILE_CLIENT_OPTIONS(.threadless = true, .examine = examine),
                                on_opened, answer, &err))
        fail_msg("%s", err.message);
    assert_int_equal(answer->times, 0);
    return client;
}

static void step(struct stile_client *client)
{
    struct pollfd fd = {.fd = stile_client_fd(client), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
    assert_status(stile_client_dispatch(client), OK);
}

static void finish(struct stile_client *client, const struct answer *answer)
{
    while (!answer->times)
        step(client);
    assert_int_equal(answer->times, 1);
}

static void take_and_give_back(struct stile_client *client, const char *name)
{
    struct answer answer = {0};
    struct stile_lock *lock;
    assert_status(stile_lock_new(&lock, client, name, NULL, NULL), OK);
    assert_status(stile_lock_acquire_async(lock, PATIENCE_MS, on_lock, &answer), OK);
    finish(client, &answer);
    if (answer.status)
        fail_msg("%s", answer.message);
    answer = (struct answer){0};
    assert_status(stile_lock_release_async(lock, on_lock, &answer), OK);
    finish(client, &answer);
    assert_status(answer.status, OK);
}

/* ---- forked children ---- */

struct fds {
    bool open[FDS_MAX];
};

static void read_fds(struct fds *fds)
{
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    *fds = (struct fds){0};
    for (struct dirent *entry; (entry = readdir(dir));) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd != dirfd(dir) && fd < FDS_MAX)
            fds->open[fd] = true;
    }
    closedir(dir);
}

/* A child that kept a connection would keep its session, and with it the locks, of its parent. */
static void check_child(const struct fds *before)
{
    pid_t pid = fork();
    int status;
    assert_true(pid >= 0);
    if (pid == 0) {
        struct fds now;
        int extra = 0;
        read_fds(&now);
        for (int fd = 0; fd < FDS_MAX; fd++)
            extra += now.open[fd] && !before->open[fd];
        _exit(extra);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- servers that are silent, or down ---- */

struct silent {
    size_t n;
    int listen_fds[HOSTS_MAX];
    unsigned ports[HOSTS_MAX];
    int fd; /* the first connection that was accepted */
};

static void listen_silently(struct silent *silent, size_t n)
{
    assert_true(n <= HOSTS_MAX);
    *silent = (struct silent){.n = n, .fd = -1};
    for (size_t i = 0; i < n; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof at;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
        assert_int_equal(listen(fd, 16), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
        silent->listen_fds[i] = fd;
        silent->ports[i] = ntohs(at.sin_port);
    }
}

static void hang_up(struct silent *silent)
{
    for (size_t i = 0; i < silent->n; i++)
        close(silent->listen_fds[i]);
    if (silent->fd >= 0)
        close(silent->fd);
}

/* "scheme://user@", the hosts, and the rest. */
struct parts {
    int head;
    size_t hosts;
    const char *rest;
};

static struct parts split(void)
{
    const char *at = strstr(url, "://");
    assert_non_null(at);
    at += 3;
    size_t len = strcspn(at, "/?");
    const char *user = memchr(at, '@', len);
    const char *hosts = user ? user + 1 : at, *rest = at + len;
    struct parts parts = {.head = (int)(hosts - url), .hosts = 1, .rest = rest};
    for (; hosts < rest; hosts++)
        parts.hosts += *hosts == ',';
    return parts;
}

/* The URL with these ports for those of its servers. */
static void redirect(char *out, size_t size, const struct silent *silent)
{
    struct parts parts = split();
    size_t used = (size_t)snprintf(out, size, "%.*s", parts.head, url);
    for (size_t i = 0; i < silent->n && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s127.0.0.1:%u", i ? "," : "",
                                 silent->ports[i]);
    assert_true(used < size);
    snprintf(out + used, size - used, "%s", parts.rest);
}

/* Until the client is connected and waits for an answer. MySQL's server has the first word. */
static void until_it_waits(struct stile_client *client, struct silent *silent)
{
    struct pollfd fds[HOSTS_MAX + 1];
    char byte;
    while (silent->fd < 0) {
        for (size_t i = 0; i < silent->n; i++)
            fds[i] = (struct pollfd){.fd = silent->listen_fds[i], .events = POLLIN};
        fds[silent->n] = (struct pollfd){.fd = stile_client_fd(client), .events = POLLIN};
        assert_true(poll(fds, silent->n + 1, PATIENCE_MS) > 0);
        for (size_t i = 0; silent->fd < 0 && i < silent->n; i++) {
            if (fds[i].revents)
                silent->fd = accept4(silent->listen_fds[i], NULL, NULL, SOCK_CLOEXEC);
        }
        assert_status(stile_client_dispatch(client), OK);
    }
    bool heard = strncmp(url, "mysql", 5) == 0;
    while (!heard) {
        struct pollfd pair[] = {{.fd = silent->fd, .events = POLLIN},
                                {.fd = stile_client_fd(client), .events = POLLIN}};
        assert_true(poll(pair, 2, PATIENCE_MS) > 0);
        heard = pair[0].revents && read(silent->fd, &byte, 1) == 1;
        assert_status(stile_client_dispatch(client), OK);
    }
}

/* ---- tests ---- */

static void opened_without_waiting_it_locks(void **state)
{
    struct answer answer;
    (void)state;
    struct stile_client *client = begin(&answer, url, false);
    assert_status(stile_lock_new(&(struct stile_lock *){NULL}, client, "early", NULL, NULL),
                  MISUSE);
    finish(client, &answer);
    if (answer.status)
        fail_msg("%s", answer.message);
    take_and_give_back(client, "opening");
    stile_client_close(client);
    assert_int_equal(answer.times, 1);
}

/* Closed and forked after no turn of the loop, after one, after two, until it is open by then. */
static void close_at_every_step(bool examine)
{
    for (unsigned steps = 0;; steps++) {
        struct answer answer;
        struct fds before;
        read_fds(&before);
        struct stile_client *client = begin(&answer, url, examine);
        for (unsigned i = 0; i < steps && !answer.times; i++)
            step(client);
        bool opened = answer.times;
        check_child(&before);
        stile_client_close(client);
        assert_int_equal(answer.times, 1);
        if (opened) {
            assert_status(answer.status, OK);
            break;
        }
        assert_status(answer.status, CANCELLED);
        assert_true(steps < STEPS_MAX);
    }
}

static void closed_at_every_step(void **state)
{
    (void)state;
    close_at_every_step(false);
    opened_without_waiting_it_locks(state); /* whatever those attempts have left */
}

static void closed_at_every_step_for_the_doctor(void **state)
{
    (void)state;
    close_at_every_step(true);
}

static void a_silent_server_blocks_nothing(void **state)
{
    struct silent silent;
    struct answer answer;
    struct fds before;
    char at[1024];
    (void)state;
    listen_silently(&silent, split().hosts);
    redirect(at, sizeof at, &silent);
    read_fds(&before);
    struct stile_client *client = begin(&answer, at, false);
    until_it_waits(client, &silent);
    assert_int_equal(answer.times, 0);
    before.open[silent.fd] = true;
    check_child(&before);
    stile_client_close(client);
    assert_int_equal(answer.times, 1);
    assert_status(answer.status, CANCELLED);
    hang_up(&silent);
}

static void a_server_that_is_down_is_reported(void **state)
{
    struct silent silent;
    struct answer answer;
    char at[1024];
    (void)state;
    listen_silently(&silent, split().hosts);
    redirect(at, sizeof at, &silent);
    hang_up(&silent);
    struct stile_client *client = begin(&answer, at, false);
    finish(client, &answer);
    assert_status(answer.status, UNREACHABLE);
    assert_non_null(strstr(answer.message, "opening "));
    stile_client_close(client);
    assert_int_equal(answer.times, 1);
}

static void with_a_thread_of_its_own_it_opens_by_itself(void **state)
{
    struct answer answer = {0};
    struct stile_client *client;
    struct stile_lock *lock;
    int ends[2];
    char byte;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    answer.pipe = ends[1];
    assert_status(stile_client_open_async(&client, url, NULL, on_opened, &answer, NULL), OK);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    if (answer.status)
        fail_msg("%s", answer.message);
    assert_status(stile_lock_new(&lock, client, "opening", NULL, NULL), OK);
    assert_status(stile_lock_acquire(lock, PATIENCE_MS, NULL), OK);
    stile_client_close(client);
    assert_int_equal(answer.times, 1);
    close(ends[0]);
    close(ends[1]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_at_every_step),
        cmocka_unit_test(closed_at_every_step_for_the_doctor),
        cmocka_unit_test(opened_without_waiting_it_locks),
        cmocka_unit_test(a_silent_server_blocks_nothing),
        cmocka_unit_test(a_server_that_is_down_is_reported),
        cmocka_unit_test(with_a_thread_of_its_own_it_opens_by_itself),
    };
    if (argc < 2) {
        fprintf(stderr, "usage: %s URL [FILTER]\n", argv[0]);
        return 2;
    }
    url = argv[1];
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name("opening", tests, NULL, NULL);
}
