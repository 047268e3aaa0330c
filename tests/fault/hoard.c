/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One client that asks for many locks at once: hoard URL COUNT LENGTH TTL_MS. Names have LENGTH
 * bytes. When all are answered it says how many it holds, and why it does not hold the others.
 * Then, for each line on its input: "count" says so again; "release" gives all back and says how
 * many that were. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stile.h"

#define WAIT_MS (300 * 1000)

static atomic_size_t n_open, n_good;
static struct stile_error first_failure;

static void on_done(struct stile_lock *lock, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    (void)lock, (void)data;
    if (status == STILE_OK)
        n_good++;
    else if (!first_failure.status && err)
        first_failure = *err;
    n_open--;
}

static void await_all(const char *what)
{
    while (n_open > 0)
        usleep(1000);
    printf("%s %zu %s\n", what, (size_t)n_good, first_failure.status ? first_failure.message : "");
    (void)fflush(stdout);
}

static void fail(const char *what, const struct stile_error *err)
{
    (void)fprintf(stderr, "hoard: %s: %s\n", what, err->message);
    exit(1);
}

static void claim(struct stile_lock **lock, struct stile_client *client, size_t i, size_t length,
                  long ttl_ms)
{
    char name[STILE_NAME_MAX + 1];
    struct stile_error err;
    size_t n = (size_t)snprintf(name, sizeof name, "%zu-", i);
    while (n < length && n < STILE_NAME_MAX)
        name[n++] = 'x';
    name[n] = '\0';
    if (stile_lock_new(lock, client, name, STILE_OPTIONS(.ttl_ms = ttl_ms), &err))
        fail("making a lock", &err);
    n_open++;
    if (stile_lock_acquire_async(*lock, WAIT_MS, on_done, NULL))
        n_open--;
}

static void release_all(struct stile_lock **locks, size_t n)
{
    n_good = 0;
    for (size_t i = 0; i < n; i++) {
        n_open++;
        if (stile_lock_release_async(locks[i], on_done, NULL))
            n_open--;
    }
    await_all("released");
}

static void count(struct stile_lock **locks, size_t n)
{
    size_t held = 0;
    for (size_t i = 0; i < n; i++)
        held += stile_lock_held(locks[i]);
    printf("held %zu\n", held);
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    struct stile_client *client;
    struct stile_error err;
    char line[64];
    if (argc != 5)
        return 2;
    size_t n = strtoul(argv[2], NULL, 10);
    struct stile_lock **locks = calloc(n, sizeof *locks);
    if (!locks || stile_client_open(&client, argv[1], NULL, &err))
        fail("opening", &err);
    for (size_t i = 0; i < n; i++)
        claim(&locks[i], client, i, strtoul(argv[3], NULL, 10), strtol(argv[4], NULL, 10));
    await_all("held");
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "release\n") == 0)
            release_all(locks, n);
        else
            count(locks, n);
    }
    stile_client_close(client);
    free(locks);
    return 0;
}
