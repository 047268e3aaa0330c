/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The suite's end of the two pipes; child.c has the other. */
#include "contract.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A peer gives up by itself after its patience, and then says so. */
#define ANSWER_MS (3 * PATIENCE_MS)

/* ---- starting ---- */

static struct peer **free_place(struct scene *scene)
{
    for (size_t i = 0; i < COUNT(scene->peers); i++) {
        if (!scene->peers[i])
            return &scene->peers[i];
    }
    fail_msg("too many peers in one scene");
    return NULL;
}

static void spawn(struct peer *peer, int in, int out)
{
    char *argv[] = {"contract", "--child", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    int rc = posix_spawn(&peer->pid, "/proc/self/exe", &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    assert_int_equal(rc, 0);
}

struct peer *peer_start(struct scene *scene, const char *name,
                        const struct stile_lock_options *options)
{
    struct peer **place = free_place(scene);
    struct peer *peer = calloc(1, sizeof *peer);
    int in[2], out[2];
    assert_non_null(peer);
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    peer->to = in[1];
    peer->from = out[0];
    *place = peer;
    spawn(peer, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    peer_expect(peer, "ready");
    if (name)
        peer_lock(peer, name, options);
    return peer;
}

void peer_lock(struct peer *peer, const char *name, const struct stile_lock_options *options)
{
    static const struct stile_lock_options defaults = {.size = sizeof defaults};
    const struct stile_lock_options *o = options ? options : &defaults;
    char hex[2 * STILE_NAME_MAX + 1] = "";
    for (size_t i = 0; name[i]; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)name[i]);
    peer_tell(peer, "lock %u %u %lld %lld %lld %s", (unsigned)o->mode, o->slots,
              (long long)o->ttl_ms, (long long)o->hold_at_least_ms, (long long)o->lock_delay_ms,
              hex);
    peer_expect(peer, "ok");
}

/* ---- talking ---- */

void peer_tell(struct peer *peer, const char *format, ...)
{
    char line[4096];
    va_list ap;
    va_start(ap, format);
    int len = vsnprintf(line, sizeof line - 1, format, ap);
    va_end(ap);
    assert_in_range(len, 1, sizeof line - 2);
    line[len++] = '\n';
    assert_int_equal(write(peer->to, line, (size_t)len), len);
}

const char *peer_hear(struct peer *peer)
{
    static char heard[sizeof peer->line];
    char *end;
    while (!(end = memchr(peer->line, '\n', peer->len))) {
        if (!readable(peer->from, (int64_t)ANSWER_MS * suite.soak))
            fail_msg("process %d says nothing", (int)peer->pid);
        ssize_t n = read(peer->from, peer->line + peer->len, sizeof peer->line - peer->len);
        if (n <= 0)
            fail_msg("process %d has gone", (int)peer->pid);
        peer->len += (size_t)n;
    }
    size_t len = (size_t)(end - peer->line);
    memcpy(heard, peer->line, len);
    heard[len] = '\0';
    peer->len -= len + 1;
    memmove(peer->line, end + 1, peer->len);
    return heard;
}

void peer_expect(struct peer *peer, const char *line)
{
    assert_string_equal(peer_hear(peer), line);
}

uint64_t peer_expect_grant(struct peer *peer)
{
    unsigned long long token;
    const char *line = peer_hear(peer);
    if (sscanf(line, "acquired %llu", &token) != 1)
        fail_msg("process %d was not granted it: %s", (int)peer->pid, line);
    return token;
}

uint64_t peer_acquire(struct peer *peer)
{
    peer_tell(peer, "acquire %d", PATIENCE_MS);
    return peer_expect_grant(peer);
}

void peer_release(struct peer *peer)
{
    peer_tell(peer, "release");
    peer_expect(peer, "released");
}

pid_t peer_expect_pid(struct scene *scene, struct peer *peer, const char *word)
{
    const char *line = peer_hear(peer);
    size_t len = strlen(word);
    int pid = strncmp(line, word, len) == 0 ? atoi(line + len) : 0;
    assert_true(pid > 0);
    size_t i = 0;
    while (i + 1 < COUNT(scene->strays) && scene->strays[i])
        i++;
    scene->strays[i] = pid;
    return pid;
}

size_t peer_first(struct peer *const *peers, size_t n)
{
    struct pollfd fds[PEERS_MAX];
    for (size_t i = 0; i < n; i++) {
        if (peers[i]->len)
            return i;
        fds[i] = (struct pollfd){.fd = peers[i]->from, .events = POLLIN};
    }
    assert_true(poll(fds, n, PATIENCE_MS) > 0);
    size_t first = 0;
    while (!fds[first].revents)
        first++;
    return first;
}

/* ---- ending ---- */

void peer_kill(struct peer *peer)
{
    assert_int_equal(kill(peer->pid, SIGKILL), 0);
    assert_int_equal(waitpid(peer->pid, NULL, 0), peer->pid);
    peer->pid = 0;
}

void peer_forget(struct scene *scene, struct peer *peer)
{
    size_t i = 0;
    while (scene->peers[i] != peer)
        i++;
    scene->peers[i] = NULL;
    close(peer->to);
    close(peer->from);
    free(peer);
}

void peer_stop(struct peer *peer)
{
    int status = 0;
    assert_int_equal(kill(peer->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(peer->pid, &status, WUNTRACED), peer->pid);
    assert_true(WIFSTOPPED(status));
}

void peer_continue(struct peer *peer)
{
    assert_int_equal(kill(peer->pid, SIGCONT), 0);
}

void peer_end(struct scene *scene, struct peer *peer)
{
    int status = -1;
    peer_tell(peer, "exit");
    if (!readable(peer->from, PATIENCE_MS))
        fail_msg("process %d does not end", (int)peer->pid);
    assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
    peer->pid = 0;
    assert_int_equal(status, 0);
    peer_forget(scene, peer);
}
