/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile cell update: a cell's value through a command, written back if nothing has changed
 * meanwhile.
 *
 * The command reads the value on its stdin and writes the new one to its stdout. It may run several
 * times: each time with the value as it is then. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cell.h"

struct update {
    const struct options *options;
    struct stile_client *client;
    char value[STILE_CELL_MAX + 1]; /* what the command has written */
    int code;                       /* why nothing is written; 0: it is */
};

/* ---- the pipes ---- */

/* What is still to be written to the command, and where. */
struct input {
    int fd; /* -1: all of it is written, or the command reads no more */
    const char *at;
    size_t left;
};

static void close_input(struct input *input)
{
    if (input->fd >= 0)
        close(input->fd);
    input->fd = -1;
}

static void feed(struct input *input)
{
    ssize_t n = write(input->fd, input->at, input->left);
    if (n > 0) {
        input->at += n;
        input->left -= (size_t)n;
    }
    /* EPIPE: a command need not read its input. */
    if (input->left == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
        close_input(input);
}

/* Until the command has closed its stdout. False: it wrote too much, or reading failed. The client
 * is driven meanwhile: a command may take longer than its server keeps a silent connection. */
static bool exchange(struct update *u, struct input *input, int from, size_t *size)
{
    *size = 0;
    if (input->left == 0)
        close_input(input);
    for (;;) {
        struct pollfd fds[] = {{.fd = from, .events = POLLIN},
                               {.fd = input->fd, .events = POLLOUT},
                               {.fd = stile_client_fd(u->client), .events = POLLIN}};
        if (poll(fds, 3, -1) < 0)
            continue;
        if (fds[2].revents != 0)
            stile_client_dispatch(u->client);
        if (fds[1].revents != 0)
            feed(input);
        if (fds[0].revents == 0)
            continue;
        ssize_t n = read(from, u->value + *size, STILE_CELL_MAX + 1 - *size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0;
        *size += (size_t)n;
        if (*size > STILE_CELL_MAX)
            return false;
    }
}

/* ---- the command ---- */

/* The command gets the signals that we ignore back: with SIGPIPE ignored, `yes | head` runs on. */
static int spawn(pid_t *pid, char *const *command, int in, int out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    int failed = posix_spawnp(pid, command[0], &actions, &attributes, command, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

static int code_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int cannot_start(const struct update *u, int failure)
{
    say("cell update: %s: %s", u->options->command[0], strerror(failure));
    return failure == ENOENT ? EXIT_NO_COMMAND : EXIT_CANNOT_EXEC;
}

/* 0: *size bytes of the new value. */
static int run_command(struct update *u, const struct stile_cell *now, size_t *size)
{
    int to[2], from[2], status;
    pid_t pid;
    if (pipe2(to, O_CLOEXEC) < 0)
        return cannot_start(u, errno);
    if (pipe2(from, O_CLOEXEC) < 0) {
        int failure = errno;
        close(to[0]);
        close(to[1]);
        return cannot_start(u, failure);
    }
    int failed = spawn(&pid, u->options->command, to[0], from[1]);
    close(to[0]);
    close(from[1]);
    struct input input = {.fd = to[1], .at = now->value, .left = now->size};
    (void)fcntl(input.fd, F_SETFL, O_NONBLOCK);
    bool fits = failed == 0 && exchange(u, &input, from[0], size);
    close_input(&input);
    close(from[0]);
    if (failed != 0)
        return cannot_start(u, failed);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!fits) {
        say("cell update: %s wrote more than %d bytes, the limit of a cell", u->options->command[0],
            STILE_CELL_MAX);
        return EXIT_USAGE;
    }
    int code = code_of(status);
    if (code != 0)
        say("cell update: the command ended with %d; nothing is written", code);
    return code;
}

static int change(struct stile_cell_next *next, const struct stile_cell *now, void *data)
{
    struct update *u = data;
    char version[24];
    snprintf(version, sizeof version, "%" PRIu64, now->version);
    setenv("STILE_CELL_VERSION", version, 1);
    u->code = run_command(u, now, &next->size);
    next->value = u->value;
    return u->code;
}

static int update(struct options *options)
{
    static struct update u;
    struct stile_cell_options how = cell_options(options);
    struct stile_error err = {0};
    uint64_t version = 0;
    u.options = options;
    int code = engine_open(&u.client, options, 0, "stile cell");
    if (code != 0)
        return code;
    signal(SIGPIPE, SIG_IGN);
    enum stile_status status =
        stile_cell_update(&version, u.client, options->args[0], change, &u, &how, &err);
    stile_client_close(u.client);
    if (u.code != 0)
        return u.code;
    if (status != STILE_OK)
        return cell_say_failure("cell update", status, &err);
    printf("%" PRIu64 "\n", version);
    return finish_output(0);
}

const struct verb verb_cell_update = {
    .name = "cell update",
    .accepts = OPT_KEEP | OPT_TOKEN | OPT_ISSUER | OPT_STRICT | OPT_COMMAND,
    .min_args = 1,
    .max_args = 1,
    .argument = "KEY",
    .operands = "KEY -- CMD [ARG...]",
    .about =
        "Runs CMD with the value of the cell KEY on its stdin (nothing, if there is no cell), and "
        "writes CMD's stdout to the cell if that has not changed meanwhile. Otherwise CMD runs "
        "again with the new value, up to 20 times. CMD finds STILE_CELL_VERSION in its "
        "environment, 0 if there is no cell. If CMD fails, nothing is written, and its exit code "
        "is the command's. Prints the new version.",
    .run = update,
};
