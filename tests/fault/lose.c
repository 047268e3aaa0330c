/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One holder that waits for its loss: lose URL NAME [TTL_MS [HOLD_MS]]. Prints "held", and why the
 * lock was lost. Its start is recorded. The end of its input ends it, too. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "stile.h"

int main(int argc, char **argv)
{
    struct stile_client *client;
    struct stile_lock *lock;
    struct stile_error err;
    if (argc < 3)
        return 2;
    struct stile_lock_options options = *STILE_OPTIONS(.ttl_ms = argc > 3 ? atol(argv[3]) : 0);
    options.hold_at_least_ms = argc > 4 ? atol(argv[4]) : 0;
    if (stile_client_open(&client, argv[1], NULL, &err) ||
        stile_lock_new(&lock, client, argv[2], &options, &err) ||
        stile_lock_acquire(lock, 0, &err) || stile_lock_record_start(lock, &err)) {
        puts(err.message);
        return 1;
    }
    puts("held");
    (void)fflush(stdout);
    struct pollfd fds[] = {{.fd = stile_lock_lost_fd(lock), .events = POLLIN}, {.fd = 0}};
    (void)poll(fds, 2, -1);
    if (fds[0].revents && stile_lock_lost_reason(lock, &err) == STILE_LOST)
        puts(err.message);
    stile_client_close(client);
    return 0;
}
