/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Policies (the profiles, with options applied), and how long to pause before an engine that has to
 * be polled is asked again. */
#ifndef STILE_RETRY_H
#define STILE_RETRY_H

#include "base/error.h"
#include "io/loop.h"

struct policy {
    uint64_t ttl_ns, renew_ns, retry_ns;
    unsigned tries; /* 0: no limit */
};

enum stile_status policy_from(struct policy *policy, const struct stile_lock_options *options,
                              struct stile_error *err);
/* A resumed lock keeps the TTL that it was acquired with. */
void policy_resume(struct policy *policy, uint64_t ttl_ns);

/* Exponential with full jitter: anything from 0 to first * 2^tried, RETRY_CAP_NS at most. */
uint64_t retry_pause(struct loop *loop, uint64_t first_ns, unsigned tried);

#endif
