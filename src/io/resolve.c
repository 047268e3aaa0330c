/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "io/resolve.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/container.h"

/* What the thread and the loop share; the last of the two frees it. */
struct question {
    atomic_int users;
    int done_fd; /* an eventfd: readable once the answer is there */
    int result;  /* of getaddrinfo() */
    int number;  /* errno, with EAI_SYSTEM */
    struct addrinfo *found;
    char port[6];
    char host[];
};

struct resolve {
    struct loop *loop;
    struct watch watch;
    resolve_fn *fn;
    void *data;
    struct question *question;
};

static int look_up(struct addrinfo **found, const char *host, const char *port, int flags)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};

    *found = NULL;
    return getaddrinfo(host, port, &hints, found);
}

int resolve_numeric(struct addrinfo **found, const char *host, uint16_t port)
{
    char digits[6];

    snprintf(digits, sizeof digits, "%u", port);
    return look_up(found, host, digits, AI_NUMERICHOST);
}

/* ---- the lookup ---- */

static void leave(struct question *q)
{
    if (atomic_fetch_sub(&q->users, 1) > 1)
        return;
    if (q->found)
        freeaddrinfo(q->found);
    close(q->done_fd);
    free(q);
}

static struct question *make_question(const char *host, uint16_t port)
{
    struct question *q = calloc(1, sizeof *q + strlen(host) + 1);

    if (!q)
        return NULL;
    q->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (q->done_fd < 0) {
        free(q);
        return NULL;
    }
    atomic_init(&q->users, 2);
    snprintf(q->port, sizeof q->port, "%u", port);
    strcpy(q->host, host);
    return q;
}

static void *answer(void *arg)
{
    struct question *q = arg;
    uint64_t one = 1;

    q->result = look_up(&q->found, q->host, q->port, 0);
    q->number = errno;
    while (write(q->done_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    leave(q);
    return NULL;
}

/* This thread must not receive the program's signals. */
static int start_thread(struct question *q)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, &attr, answer, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

/* ---- the loop's side ---- */

static void explain(const struct question *q, struct stile_error *err)
{
    if (q->result == EAI_SYSTEM)
        error_errno(err, STILE_UNREACHABLE, q->number, "resolving '%s'", q->host);
    else
        error_set(err, q->result == EAI_MEMORY ? STILE_NOMEM : STILE_UNREACHABLE, q->result,
                  "resolving '%s': %s", q->host, gai_strerror(q->result));
}

/* The read pairs with the thread's write, so the result it stored is visible. */
static void on_done(struct watch *watch, uint32_t events)
{
    struct resolve *r = container_of(watch, struct resolve, watch);
    struct question *q = r->question;
    struct stile_error err;
    uint64_t count;

    (void)events;
    if (read(watch->fd, &count, sizeof count) < 0)
        return;
    struct addrinfo *found = q->found;
    q->found = NULL;
    if (!found)
        explain(q, &err);
    r->fn(r->data, found, found ? NULL : &err);
}

enum stile_status resolve_start(struct resolve **out, struct loop *loop, const char *host,
                                uint16_t port, resolve_fn *fn, void *data, struct stile_error *err)
{
    struct question *q = make_question(host, port);
    struct resolve *r = q ? calloc(1, sizeof *r) : NULL;
    int rc = r ? 0 : q ? ENOMEM : errno;

    if (rc)
        goto out;
    *r = (struct resolve){.loop = loop, .fn = fn, .data = data, .question = q};
    r->watch = (struct watch){.fd = q->done_fd, .fn = on_done};
    rc = loop_watch(loop, &r->watch, EPOLLIN);
    if (rc)
        goto out;
    rc = start_thread(q);
    if (!rc) {
        *out = r;
        return STILE_OK;
    }
    loop_unwatch(loop, &r->watch);
out:
    free(r);
    if (q) {
        atomic_store(&q->users, 1);
        leave(q);
    }
    return error_errno(err, STILE_UNREACHABLE, rc, "starting to resolve '%s'", host);
}

void resolve_free(struct resolve *r)
{
    if (!r)
        return;
    loop_unwatch(r->loop, &r->watch);
    leave(r->question);
    free(r);
}

void resolve_forked(struct resolve *r)
{
    if (r)
        close(r->question->done_fd);
}
