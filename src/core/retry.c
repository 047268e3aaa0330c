/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/retry.h"

#define RETRY_CAP_NS    (5 * NS_PER_SEC)
#define TTL_MIN_MS      10
#define DURATION_MAX_MS (INT64_C(366) * 24 * 3600 * 1000)

static const struct policy profiles[] = {
    [STILE_PROFILE_DEFAULT] = {10000 * NS_PER_MS, 3000 * NS_PER_MS, 100 * NS_PER_MS, 0},
    [STILE_PROFILE_FINANCIAL] = {5000 * NS_PER_MS, 1500 * NS_PER_MS, 200 * NS_PER_MS, 5},
    [STILE_PROFILE_CACHE] = {2000 * NS_PER_MS, 800 * NS_PER_MS, 50 * NS_PER_MS, 2},
    [STILE_PROFILE_BATCH] = {30000 * NS_PER_MS, 5000 * NS_PER_MS, 500 * NS_PER_MS, 10},
};

static enum stile_status check_duration(const char *what, int64_t ms, struct stile_error *err)
{
    if (ms < 0 || ms > DURATION_MAX_MS)
        return error_set(err, STILE_MISUSE, 0, "%s must be between 0 and 366 days", what);
    return STILE_OK;
}

static enum stile_status check_durations(const struct stile_lock_options *o,
                                         struct stile_error *err)
{
    const struct {
        const char *what;
        int64_t ms;
    } durations[] = {
        {"ttl", o->ttl_ms},
        {"renew", o->renew_ms},
        {"retry", o->retry_ms},
        {"hold_at_least", o->hold_at_least_ms},
        {"lock_delay", o->lock_delay_ms},
    };
    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++) {
        if (check_duration(durations[i].what, durations[i].ms, err))
            return STILE_MISUSE;
    }
    return STILE_OK;
}

enum stile_status policy_from(struct policy *policy, const struct stile_lock_options *o,
                              struct stile_error *err)
{
    if ((unsigned)o->profile >= sizeof profiles / sizeof *profiles)
        return error_set(err, STILE_MISUSE, 0, "there is no profile %d", (int)o->profile);
    if (check_durations(o, err))
        return STILE_MISUSE;
    *policy = profiles[o->profile];
    if (o->ttl_ms) {
        if (o->ttl_ms < TTL_MIN_MS)
            return error_set(err, STILE_MISUSE, 0, "a ttl below %d ms can't be kept", TTL_MIN_MS);
        policy->ttl_ns = (uint64_t)o->ttl_ms * NS_PER_MS;
        policy->renew_ns = policy->ttl_ns / 3;
    }
    if (o->renew_ms)
        policy->renew_ns = (uint64_t)o->renew_ms * NS_PER_MS;
    if (o->retry_ms)
        policy->retry_ns = (uint64_t)o->retry_ms * NS_PER_MS;
    if (o->tries)
        policy->tries = o->tries;
    if (policy->renew_ns >= policy->ttl_ns)
        return error_set(err, STILE_MISUSE, 0,
                         "renewal every %llu ms comes too late for a ttl of %llu ms",
                         (unsigned long long)(policy->renew_ns / NS_PER_MS),
                         (unsigned long long)(policy->ttl_ns / NS_PER_MS));
    return STILE_OK;
}

void policy_resume(struct policy *policy, uint64_t ttl_ns)
{
    if (!ttl_ns || ttl_ns == policy->ttl_ns)
        return;
    policy->ttl_ns = ttl_ns;
    policy->renew_ns = ttl_ns / 3;
}

uint64_t retry_pause(struct loop *loop, uint64_t first_ns, unsigned tried)
{
    return loop_backoff(loop, first_ns, RETRY_CAP_NS, tried);
}
