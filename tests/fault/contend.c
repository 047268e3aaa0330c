/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One of several that want the same lock, time and again: contend URL NAME ROUNDS [LOOKS]. Says
 * "ready" once it has reached the engine, then for each time that it had the lock
 *
 *     TOKEN SINCE LAST
 *
 * the token (0: the engine has none), when it was surely held already, and when it surely was for
 * the last time. What lies between was ours: if another one's times overlap with it, there were two
 * holders. */
#include <inttypes.h>
#include <stdlib.h>

#include "witness.h"

/* Longer than all troubles: while a server is cut off time and again, nobody is promised a turn. */
#define WAIT_MS 120000
#define LOOKS   5 /* while it is held; one: given back at once */

/* The clock is read before the question: what is held after that was held then. */
static void work(struct stile_lock *lock, int looks)
{
    uint64_t token = 0, since = now_ns(), last = 0;
    if (!stile_lock_held(lock))
        return;
    stile_lock_token(lock, &token);
    for (int i = 1; i <= looks; i++) {
        uint64_t now = now_ns();
        if (!stile_lock_held(lock))
            break;
        last = now;
        if (i < looks)
            nanosleep(&(struct timespec){.tv_nsec = 200 * 1000}, NULL);
    }
    if (last)
        printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", token, since, last);
}

static bool once(struct stile_lock *lock, int looks)
{
    struct stile_error err;
    if (stile_lock_acquire(lock, WAIT_MS, &err)) {
        complain("acquire", &err);
        return false;
    }
    work(lock, looks);
    if (stile_lock_release(lock, &err) && err.status != STILE_LOST &&
        err.status != STILE_UNREACHABLE) {
        complain("release", &err);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct stile_client *client;
    struct stile_lock *lock;
    struct stile_error err;
    if (argc != 4 && argc != 5)
        return 2;
    if (stile_client_open(&client, argv[1], NULL, &err)) {
        complain("open", &err);
        return 1;
    }
    if (stile_lock_new(&lock, client, argv[2], STILE_OPTIONS(.ttl_ms = 2000), &err)) {
        complain("lock", &err);
        return 1;
    }
    (void)puts("ready");
    (void)fflush(stdout);
    int failed = 0, looks = argc == 5 ? atoi(argv[4]) : LOOKS;
    for (int i = atoi(argv[3]); i > 0; i--)
        failed += !once(lock, looks);
    stile_client_close(client);
    return failed > 0;
}
