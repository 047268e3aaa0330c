/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "servers/redis_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGS_MAX    64
#define ATTEMPTS    5 /* somebody else may get the port first */
#define PATIENCE_MS 20000

static void fail(const char *what)
{
    (void)fprintf(stderr, "# %s: %s\n", what, strerror(errno));
    abort();
}

void make_directory(char *path, size_t size)
{
    snprintf(path, size, "/tmp/stile-test-XXXXXX");
    if (!mkdtemp(path))
        fail("mkdtemp");
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) ||
        getsockname(fd, (struct sockaddr *)&address, &len))
        fail("looking for a free port");
    close(fd);
    return ntohs(address.sin_port);
}

void make_certificates(const char *directory)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        execl(CERTS, CERTS, directory, NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        (void)fprintf(stderr, "# certificates can't be made (package openssl)\n");
        abort();
    }
}

static _Noreturn void become_server(struct redis_server *s, int log_fd)
{
    char port[8], tls_port[8];
    const char *argv[ARGS_MAX] = {
        "redis-server", "--port",       port,    "--bind",    "127.0.0.1", "--dir",
        s->dir,         "--unixsocket", s->path, "--save",    "",          "--appendonly",
        "no",           "--daemonize",  "no",    "--logfile", "",
    };
    size_t n = 17;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(port, sizeof port, "%u", s->port);
    snprintf(tls_port, sizeof tls_port, "%u", s->tls_port);
    for (const char *const *arg = s->args; arg && *arg && n < ARGS_MAX - 1; arg++) {
        argv[n++] = strcmp(*arg, "@DIR@") == 0   ? s->dir
                    : strcmp(*arg, "@TLS@") == 0 ? tls_port
                                                 : *arg;
    }
    argv[n] = NULL;
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    if (getenv("STILE_NOSYNC_LIBRARY"))
        setenv("LD_PRELOAD", getenv("STILE_NOSYNC_LIBRARY"), 1);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* Reads its log until it says that it is ready. False: it ended first. */
static bool wait_ready(int fd, char *log, size_t size)
{
    size_t used = 0;

    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, PATIENCE_MS) == 0)
            return false;
        ssize_t n = read(fd, log + used, size - 1 - used);
        if (n <= 0)
            return false;
        used += (size_t)n;
        log[used] = '\0';
        if (strstr(log, "eady to accept connections") || used == size - 1)
            return true;
    }
}

static bool run(struct redis_server *s, char *log, size_t size)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC))
        fail("pipe");
    s->pid = fork();
    if (s->pid < 0)
        fail("fork");
    if (s->pid == 0)
        become_server(s, fds[1]);
    close(fds[1]);
    log[0] = '\0';
    bool ready = wait_ready(fds[0], log, size);
    close(fds[0]); /* it ignores SIGPIPE */
    if (!ready)
        redis_server_kill(s, SIGKILL);
    return ready;
}

void redis_server_start(struct redis_server *s, const char *const *args)
{
    static char log[32768];

    *s = (struct redis_server){.args = args};
    make_directory(s->dir, sizeof s->dir);
    snprintf(s->path, sizeof s->path, "%s/socket", s->dir);
    for (int i = 0; i < ATTEMPTS; i++) {
        s->port = free_port();
        s->tls_port = free_port();
        if (run(s, log, sizeof log))
            return;
    }
    (void)fprintf(stderr, "# redis-server (package redis-server) does not start:\n# %s\n", log);
    remove_tree(s->dir);
    abort();
}

void redis_server_restart(struct redis_server *s)
{
    static char log[32768];

    if (!run(s, log, sizeof log)) {
        (void)fprintf(stderr, "# redis-server does not start again:\n# %s\n", log);
        abort();
    }
}

void redis_server_kill(struct redis_server *s, int number)
{
    if (s->pid <= 0)
        return;
    kill(s->pid, number);
    while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    s->pid = 0;
}

void redis_server_stop(struct redis_server *s)
{
    redis_server_kill(s, SIGKILL);
    remove_tree(s->dir);
}
