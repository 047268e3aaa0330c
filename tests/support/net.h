/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Tests over real sockets, in one thread: the test turns the loop, and in between plays the server
 * by hand, with blocking calls on its own end. */
#ifndef STILE_TEST_NET_H
#define STILE_TEST_NET_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "io/loop.h"
#include "stile.h"

/* Compared by name, so that a failure reads "TIMEOUT" != "HELD". */
#define assert_status(actual, expected)                                                            \
    assert_string_equal(stile_status_name(actual), stile_status_name(STILE_##expected))

/* Turns the loop until it is so; a test that would wait for ever fails after some seconds. */
#define run_until(loop, condition)                                                                 \
    do {                                                                                           \
        uint64_t end_ns_ = loop_now(loop) + NET_PATIENCE_NS;                                       \
        while (!(condition))                                                                       \
            net_turn(loop, end_ns_, #condition);                                                   \
    } while (0)

#define NET_PATIENCE_NS (20 * NS_PER_SEC)

struct loop *net_loop(void);
void net_turn(struct loop *loop, uint64_t end_ns, const char *what);
void net_settle(struct loop *loop); /* what is ready now, without sleeping */

/* A server that does what the test says. */
struct fake {
    int listen_fd, fd; /* fd: the connection accepted last */
    uint16_t port;
    char path[64]; /* "": TCP on 127.0.0.1 */
};

void fake_listen(struct fake *fake);
void fake_listen_unix(struct fake *fake, const char *directory);
void fake_accept(struct fake *fake);
void fake_say(struct fake *fake, const char *text);
void fake_say_bytes(struct fake *fake, const void *bytes, size_t n);
void fake_hear(struct fake *fake, const char *text); /* exactly this, and nothing else so far */
size_t fake_read(struct fake *fake, char *bytes, size_t n); /* at least one, unless closed */
void fake_hang_up(struct fake *fake);                       /* closes the connection */
void fake_reset(struct fake *fake);                         /* the rude way */
void fake_free(struct fake *fake);

#endif
