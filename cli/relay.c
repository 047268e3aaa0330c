/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The stdout or stderr of a command: passed on to ours, and the end of it kept.
 *
 * A thread copies it. While ours takes nothing (Ctrl-S, a pager that is not scrolled), the command
 * waits, as it would if it wrote there itself, and the lease is extended all the same. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "process.h"

#define READ_MAX 65536 /* as much as a pipe holds: whole lines stay together */

struct relay {
    int from, to, stop;
    atomic_bool over;
    atomic_int users; /* the thread and the warden: the last one to leave frees it */
    int error;        /* errno of a write that failed; 0: none did */
    size_t n;         /* bytes so far */
    char chunk[READ_MAX];
    size_t room;
    char last[]; /* the last of them, in a circle */
};

static void leave(struct relay *relay)
{
    if (atomic_fetch_sub(&relay->users, 1) > 1)
        return;
    close(relay->from);
    close(relay->stop);
    free(relay);
}

/* ---- the thread ---- */

static void keep(struct relay *relay, const char *bytes, size_t n)
{
    size_t skip = n > relay->room ? n - relay->room : 0;
    size_t at = (relay->n + skip) % relay->room, left = n - skip;
    size_t first = left < relay->room - at ? left : relay->room - at;
    memcpy(relay->last + at, bytes + skip, first);
    memcpy(relay->last, bytes + skip + first, left - first);
    relay->n += n;
}

/* If ours is gone the rest is dropped: the command's work does not depend on it. */
static void pass_on(struct relay *relay, const char *bytes, size_t n)
{
    struct pollfd room = {.fd = relay->to, .events = POLLOUT};
    while (n > 0 && relay->error == 0) {
        ssize_t written = write(relay->to, bytes, n);
        if (written < 0 && errno == EAGAIN)
            poll(&room, 1, -1);
        else if (written < 0 && errno != EINTR)
            relay->error = errno;
        bytes += written > 0 ? written : 0;
        n -= written > 0 ? (size_t)written : 0;
    }
}

/* False: its end, or nothing more after relay_stop(). */
static bool copy_some(struct relay *relay)
{
    struct pollfd polled[] = {{.fd = relay->from, .events = POLLIN},
                              {.fd = relay->stop, .events = POLLIN}};
    if (poll(polled, 2, -1) < 0)
        return errno == EINTR;
    if (polled[0].revents == 0)
        return false;
    ssize_t n = read(relay->from, relay->chunk, sizeof relay->chunk);
    if (n <= 0)
        return n < 0 && errno == EINTR;
    keep(relay, relay->chunk, (size_t)n);
    pass_on(relay, relay->chunk, (size_t)n);
    return true;
}

static void *copy_all(void *data)
{
    struct relay *relay = data;
    while (copy_some(relay))
        continue;
    atomic_store(&relay->over, true);
    kill(getpid(), SIGCHLD); /* wakes the warden, which waits for signals */
    leave(relay);
    return NULL;
}

/* ---- the warden's side ---- */

/* No signal may reach the thread: the warden takes all of them. Nothing waits for its end: it may
 * be stuck in a write when the worker has to go. */
static bool start_thread(struct relay *relay)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, copy_all, relay);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        pthread_detach(thread);
    return error == 0;
}

struct relay *relay_start(int *to, int ours, size_t kept)
{
    int ends[2];
    struct relay *relay = calloc(1, sizeof *relay + kept);
    *to = -1;
    if (relay == NULL || pipe2(ends, O_CLOEXEC) < 0) {
        free(relay);
        return NULL;
    }
    relay->from = ends[0];
    relay->to = ours;
    relay->room = kept;
    atomic_init(&relay->users, 2);
    relay->stop = eventfd(0, EFD_CLOEXEC);
    if (relay->stop >= 0 && start_thread(relay)) {
        *to = ends[1];
        return relay;
    }
    if (relay->stop >= 0)
        close(relay->stop);
    close(ends[0]);
    close(ends[1]);
    free(relay);
    return NULL;
}

void relay_stop(struct relay *relay)
{
    eventfd_write(relay->stop, 1);
}

bool relay_is_over(const struct relay *relay)
{
    return atomic_load(&relay->over);
}

void relay_free(struct relay *relay)
{
    if (relay != NULL)
        leave(relay);
}

const char *relay_whole(const struct relay *relay, size_t *n)
{
    *n = relay->n;
    return relay->n <= relay->room ? relay->last : NULL;
}

int relay_error(const struct relay *relay)
{
    return relay->error;
}

/* ---- the end of it, as text ---- */

/* The length of a sequence that colours or moves on a terminal: ESC [ ... letter, or ESC x. */
static size_t escape_length(const char *at, const char *end)
{
    const char *from = at;
    if (*at++ != '\x1b' || at == end)
        return 0;
    if (*at != '[')
        return 2;
    for (at++; at < end && (*at < '@' || *at > '~'); at++)
        continue;
    return (size_t)(at - from) + (at < end);
}

/* From the beginning of a line, if one begins in the first half: what comes before was cut. */
static const char *first_whole_line(const char *at, const char *end)
{
    const char *half = at + (end - at) / 2;
    const char *line = memchr(at, '\n', (size_t)(half - at));
    if (line != NULL)
        return line + 1;
    while (at < end && (*at & 0xc0) == 0x80)
        at++;
    return at;
}

void relay_text(const struct relay *relay, char out[RELAY_KEPT + 1])
{
    char bytes[RELAY_KEPT];
    size_t kept = relay->n < RELAY_KEPT ? relay->n : RELAY_KEPT, n = 0;
    for (size_t i = 0; i < kept; i++)
        bytes[i] = relay->last[(relay->n - kept + i) % RELAY_KEPT];
    const char *end = bytes + kept;
    const char *at = kept < relay->n ? first_whole_line(bytes, end) : bytes;
    for (size_t skip; at < end; at++) {
        while (at < end && (skip = escape_length(at, end)) > 0)
            at += skip;
        if (at >= end)
            break;
        bool line_follows = at + 1 < end && at[1] == '\n';
        if (*at == '\r' && line_follows)
            continue;
        out[n++] = *at == '\r' ? '\n' : *at != '\0' ? *at : '?';
    }
    while (n > 0 && (out[n - 1] == '\n' || out[n - 1] == ' ' || out[n - 1] == '\t'))
        n--;
    out[n] = '\0';
}
