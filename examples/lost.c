/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Long work under a lock, and what to do if the lock is lost meanwhile.
 *
 * Run it, and in another terminal: stile break report
 *
 * The lost fd becomes readable once the lock is gone: a lease that ran out, an engine that is cut
 * off, an operator's break. Poll it with whatever else you wait for; between two steps of pure
 * computation, poll it with a timeout of 0. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <stile.h>

#define STEP_MS 100

/* One step of work that waits for something, here for the clock. False: stop at once. */
static bool do_step(int lost_fd, int step)
{
    struct pollfd fds[] = {{.fd = lost_fd, .events = POLLIN}};
    if (poll(fds, 1, STEP_MS) != 0)
        return false;
    printf("step %d done\n", step);
    fflush(stdout);
    return true;
}

static int make_report(struct stile_lock *lock, int steps)
{
    uint64_t token = 0;
    int lost_fd = stile_lock_lost_fd(lock);
    if (stile_lock_token(lock, &token))
        printf("holding it\n");
    else
        printf("holding it, token %" PRIu64 "\n", token);
    fflush(stdout);
    for (int step = 1; step <= steps; step++) {
        if (!do_step(lost_fd, step)) {
            /* Another holder may be at work already: undo nothing, write nothing more. */
            printf("stopped in step %d\n", step);
            return 76;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct stile_client *client;
    struct stile_lock *lock;
    struct stile_error err;
    int steps = argc > 1 ? atoi(argv[1]) : 600;

    if (stile_client_open(&client, NULL, NULL, &err) ||
        stile_lock_new(&lock, client, "report", NULL, &err)) {
        fprintf(stderr, "lost: %s\n", err.message);
        return 69;
    }
    int rc = 75;
    if (stile_lock_acquire(lock, -1, &err) == STILE_OK) {
        rc = make_report(lock, steps);
        /* The release reports a loss after the last step. */
        if (stile_lock_release(lock, &err))
            rc = 76;
    }
    if (rc)
        fprintf(stderr, "lost: %s\n", err.message);
    stile_client_close(client);
    return rc;
}
