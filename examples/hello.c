/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The whole library on one page: take a lock, do what only one process may do, release it.
 *
 *     cc hello.c -o hello $(pkg-config --cflags --libs stile) && ./hello
 *
 * Start two at once: the second waits for the first, up to five seconds. */
#include <inttypes.h>
#include <stdio.h>
#include <stile.h>

static int work_alone(struct stile_client *client, struct stile_error *err)
{
    struct stile_lock *lock;
    uint64_t token;

    if (stile_lock_new(&lock, client, "hello", NULL, err) || stile_lock_acquire(lock, 5000, err))
        return 75; /* not acquired; err says why: held by another, engine unreachable, ... */

    if (stile_lock_token(lock, &token))
        printf("alone; this engine issues no token\n"); /* `stile caps` says why */
    else
        printf("alone, with token %" PRIu64 "\n", token);

    /* Do check this: LOST means that the lock ended before the work did. */
    return stile_lock_release(lock, err) ? 76 : 0;
}

int main(void)
{
    struct stile_client *client;
    struct stile_error err;

    /* NULL: the engine's URL is $STILE_ENGINE, else "local:", the locks of this machine. */
    if (stile_client_open(&client, NULL, NULL, &err)) {
        fprintf(stderr, "hello: %s\n", err.message);
        return 69;
    }
    int rc = work_alone(client, &err);
    if (rc)
        fprintf(stderr, "hello: %s\n", err.message);
    stile_client_close(client); /* releases and frees its locks as well */
    return rc;
}
