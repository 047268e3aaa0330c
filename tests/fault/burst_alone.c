/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One client that claims very many names at once, and gives them all back: burst URL NAMES WAIT_MS.
 * Says how many were granted and given back; anything else is an error, of which it says the first.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "stile.h"

static struct {
    size_t pending, done;
    struct stile_error first;
} burst;

static void on_answer(struct stile_lock *lock, enum stile_status status,
                      const struct stile_error *err, void *data)
{
    (void)lock, (void)data;
    burst.pending--;
    burst.done += status == STILE_OK;
    if (status && !burst.first.status)
        burst.first = *err;
}

static void dispatch_all(struct stile_client *client)
{
    struct pollfd fd = {.fd = stile_client_fd(client), .events = POLLIN};
    while (burst.pending > 0) {
        poll(&fd, 1, -1);
        stile_client_dispatch(client);
    }
}

static int fail(const struct stile_error *err)
{
    printf("%s\n", err->message);
    return 1;
}

int main(int argc, char **argv)
{
    struct stile_client *client;
    struct stile_error err;
    if (argc != 4)
        return 64;
    size_t n = strtoul(argv[2], NULL, 10), granted;
    struct stile_lock **locks = calloc(n, sizeof *locks);
    if (!locks ||
        stile_client_open(&client, argv[1], STILE_CLIENT_OPTIONS(.threadless = true), &err))
        return fail(&err);
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "burst-%zu", i);
        if (stile_lock_new(&locks[i], client, name, STILE_OPTIONS(.ttl_ms = 300000), &err))
            return fail(&err);
    }
    for (size_t i = 0; i < n; i++, burst.pending++)
        stile_lock_acquire_async(locks[i], strtol(argv[3], NULL, 10), on_answer, NULL);
    dispatch_all(client);
    granted = burst.done;
    burst.done = 0;
    for (size_t i = 0; i < n; i++, burst.pending++)
        stile_lock_release_async(locks[i], on_answer, NULL);
    dispatch_all(client);
    printf("granted %zu released %zu\n", granted, burst.done);
    if (burst.first.status)
        printf("%s\n", burst.first.message);
    for (size_t i = 0; i < n; i++)
        stile_lock_free(locks[i]);
    free(locks);
    stile_client_close(client);
    return burst.first.status != STILE_OK;
}
