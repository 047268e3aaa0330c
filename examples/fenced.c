/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Why a lock needs a fence: a holder that was paused writes after its lease, and is refused.
 *
 * No lock can stop a write that is already on its way. The resource can: it stores the highest
 * token it has seen and refuses a smaller one. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <stile.h>

static void must(enum stile_status status, const struct stile_error *err)
{
    if (status) {
        fprintf(stderr, "fenced: %s\n", err->message);
        exit(1);
    }
}

/* The resource: a file that starts with the highest token it was written with. flock() makes check
 * and write atomic, as a transaction would in a database. */
static bool guarded_write(const char *path, uint64_t token, const char *text)
{
    uint64_t highest = 0;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *file = fd < 0 || flock(fd, LOCK_EX) ? NULL : fdopen(fd, "r+");
    if (!file || (fscanf(file, "%" SCNu64, &highest) != 1 && !feof(file))) {
        perror(path);
        exit(1);
    }
    bool accepted = token >= highest; /* the same holder may write often */
    if (accepted) {
        rewind(file);
        fprintf(file, "%" PRIu64 " %s\n", token, text);
        accepted = fflush(file) == 0 && ftruncate(fd, ftell(file)) == 0;
    }
    fclose(file);
    printf("token %" PRIu64 " writes \"%s\": %s\n", token, text, accepted ? "done" : "REFUSED");
    return accepted;
}

static uint64_t acquire(struct stile_lock **lock, struct stile_client *client)
{
    struct stile_error err;
    uint64_t token;
    must(stile_lock_new(lock, client, "ledger", NULL, &err), &err);
    must(stile_lock_acquire(*lock, 5000, &err), &err);
    must(stile_lock_token(*lock, &token), &(struct stile_error){.message = "no token"});
    return token;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "ledger.txt";
    struct stile_client *here, *there;
    struct stile_lock *early, *late;
    struct stile_error err;
    must(stile_client_open(&here, NULL, NULL, &err), &err);
    must(stile_client_open(&there, NULL, NULL, &err), &err);

    uint64_t first = acquire(&early, here);
    bool fine = guarded_write(path, first, "opening balance");

    /* The first holder is paused with its next write prepared. Its lock goes to another holder:
     * here by hand, in practice because the lease ran out. */
    must(stile_break(there, "ledger", first, &err), &err);
    fine = guarded_write(path, acquire(&late, there), "100 paid in") && fine;

    fine = !guarded_write(path, first, "overwritten") && fine; /* it runs again, too late */
    printf("its release says: %s\n", stile_status_name(stile_lock_release(early, NULL)));
    stile_client_close(there);
    stile_client_close(here);
    return fine ? 0 : 1;
}
