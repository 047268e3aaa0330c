/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* late URL NAME TTL_MS: a holder that writes whether or not it still holds the lock, as a program
 * does that was paused behind its last look at it.
 *
 * It acquires the lock and prints its token and issuer. Then it runs each line of stdin as a
 * command, with both in its environment, and prints the exit status. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <stile.h>

static void must(enum stile_status status, const struct stile_error *err)
{
    if (status) {
        printf("%s: %s\n", stile_status_name(status), err->message);
        exit(1);
    }
}

static void show_token(struct stile_lock *lock)
{
    char issuer[STILE_ISSUER_MAX + 1], number[24];
    uint64_t token;
    must(stile_lock_token(lock, &token), &(struct stile_error){.message = "no token"});
    must(stile_lock_issuer(lock, issuer, sizeof issuer), &(struct stile_error){.message = "?"});
    snprintf(number, sizeof number, "%" PRIu64, token);
    setenv("STILE_TOKEN", number, 1);
    setenv("STILE_ISSUER", issuer, 1);
    printf("%s %s\n", number, issuer);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct stile_client *client;
    struct stile_lock *lock;
    struct stile_error err = {0};
    char line[8192];
    if (argc != 4)
        return 64;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    must(stile_client_open(&client, argv[1], NULL, &err), &err);
    must(stile_lock_new(&lock, client, argv[2], STILE_LOCK_OPTIONS(.ttl_ms = atoll(argv[3])), &err),
         &err);
    must(stile_lock_acquire(lock, -1, &err), &err);
    show_token(lock);
    while (fgets(line, sizeof line, stdin)) {
        int status = system(line);
        printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 255);
        fflush(stdout);
    }
    stile_client_close(client);
    return 0;
}
