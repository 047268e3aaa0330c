/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The one loop of `stile torture`: descriptors of workers, errands and the proxy. */
#ifndef STILE_CLI_TORTURE_POLLER_H
#define STILE_CLI_TORTURE_POLLER_H

#include <stdbool.h>
#include <stdint.h>

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

/* CLOCK_BOOTTIME: all processes of a host read the same one, and leases are counted on it. */
uint64_t poller_now_ns(void);

/* Part of what owns the descriptor. events: EPOLLIN, EPOLLOUT, ... */
struct source {
    int fd;
    uint32_t watched; /* 0: not in the loop */
    void (*ready)(struct source *source, uint32_t events);
};

/* False with errno. */
bool poller_begin(void);
void poller_end(void);
/* In a forked child: the loop is the parent's. */
void poller_forget(void);
/* events 0: take it out. False with errno. */
bool poller_watch(struct source *source, uint32_t events);
/* Waits until one source is ready, up to timeout_ms, and serves those that are. */
void poller_turn(int timeout_ms);

/* Reproducible with the same state, which must not be 0. */
uint64_t poller_random(uint64_t *state, uint64_t below);

#endif
