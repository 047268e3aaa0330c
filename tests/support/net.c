/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/net.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FAKE_PATIENCE_MS 20000

/* ---- the loop ---- */

struct loop *net_loop(void)
{
    struct loop *loop;

    assert_int_equal(loop_epoll_new(&loop), 0);
    assert_int_equal(loop_reserve(loop, 1), 0);
    return loop;
}

static void wake(struct timer *timer)
{
    (void)timer;
}

void net_turn(struct loop *loop, uint64_t end_ns, const char *what)
{
    struct timer end = {.fn = wake};

    if (loop_now(loop) >= end_ns)
        fail_msg("waited in vain for: %s", what);
    loop_arm(loop, &end, end_ns);
    loop_prepare(loop);
    loop_wait(loop, true);
    loop_run(loop);
    loop_disarm(loop, &end);
}

void net_settle(struct loop *loop)
{
    for (int i = 0; i < 3; i++) {
        loop_prepare(loop);
        loop_wait(loop, false);
        loop_run(loop);
    }
}

/* ---- the fake ---- */

static void listen_at(struct fake *f, int family, const void *address, socklen_t len)
{
    f->fd = -1;
    f->listen_fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(f->listen_fd >= 0);
    assert_int_equal(bind(f->listen_fd, address, len), 0);
    assert_int_equal(listen(f->listen_fd, 8), 0);
}

void fake_listen(struct fake *f)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;

    *f = (struct fake){0};
    listen_at(f, AF_INET, &address, len);
    assert_int_equal(getsockname(f->listen_fd, (struct sockaddr *)&address, &len), 0);
    f->port = ntohs(address.sin_port);
}

void fake_listen_unix(struct fake *f, const char *directory)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    *f = (struct fake){0};
    snprintf(f->path, sizeof f->path, "%s/fake", directory);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", f->path);
    listen_at(f, AF_UNIX, &address, sizeof address);
}

static void await(int fd, short events)
{
    struct pollfd ready = {.fd = fd, .events = events};

    if (poll(&ready, 1, FAKE_PATIENCE_MS) != 1)
        fail_msg("the fake server waited in vain");
}

void fake_accept(struct fake *f)
{
    if (f->fd >= 0)
        close(f->fd);
    await(f->listen_fd, POLLIN);
    f->fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(f->fd >= 0);
}

void fake_say_bytes(struct fake *f, const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n > 0) {
        await(f->fd, POLLOUT);
        ssize_t put = send(f->fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        assert_true(put > 0);
        at += put;
        n -= (size_t)put;
    }
}

void fake_say(struct fake *f, const char *text)
{
    fake_say_bytes(f, text, strlen(text));
}

size_t fake_read(struct fake *f, char *bytes, size_t n)
{
    await(f->fd, POLLIN);
    ssize_t got = recv(f->fd, bytes, n, 0);
    return got > 0 ? (size_t)got : 0;
}

void fake_hear(struct fake *f, const char *text)
{
    char got[65536];
    size_t used = 0, len = strlen(text);

    assert_true(len < sizeof got);
    while (used < len) {
        size_t n = fake_read(f, got + used, sizeof got - 1 - used);
        if (n == 0)
            break;
        used += n;
    }
    got[used] = '\0';
    assert_string_equal(got, text);
}

void fake_hang_up(struct fake *f)
{
    close(f->fd);
    f->fd = -1;
}

void fake_reset(struct fake *f)
{
    struct linger now = {.l_onoff = 1};

    assert_int_equal(setsockopt(f->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    fake_hang_up(f);
}

void fake_free(struct fake *f)
{
    if (f->fd >= 0)
        close(f->fd);
    if (f->listen_fd >= 0)
        close(f->listen_fd);
    if (f->path[0])
        unlink(f->path);
    f->fd = f->listen_fd = -1;
}
