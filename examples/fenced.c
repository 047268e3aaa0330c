/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Why a lock needs a fence: a holder that was paused writes after its lease, and is refused.
 *
 * No lock can stop a write that is already on its way. A guarded file can: beside it is the highest
 * token it was written with, and a smaller one is refused. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <stile.h>

static void must(enum stile_status status, const struct stile_error *err)
{
    if (status) {
        fprintf(stderr, "fenced: %s\n", err->message);
        exit(1);
    }
}

/* Adds a line to the file. Check and write are one step, and durable when it returns. */
static bool add_line(const char *path, const char *before, const char *line, uint64_t token)
{
    char text[4096];
    struct stile_error err;
    int n = snprintf(text, sizeof text, "%s%s\n", before, line);
    enum stile_status status = stile_file_replace(path, text, (size_t)n, token, NULL, &err);
    if (status != STILE_STALE)
        must(status, &err);
    printf("token %" PRIu64 " adds \"%s\": %s\n", token, line, status ? "REFUSED" : "done");
    return status == STILE_OK;
}

/* A new holder raises the guard before it reads: what it reads is then the last word of all earlier
 * holders. */
static uint64_t take(struct stile_lock **lock, struct stile_client *client, const char *path,
                     char text[2048])
{
    struct stile_error err;
    uint64_t token;
    must(stile_lock_new(lock, client, "ledger", NULL, &err), &err);
    must(stile_lock_acquire(*lock, 5000, &err), &err);
    must(stile_lock_token(*lock, &token), &(struct stile_error){.message = "no token"});
    must(stile_file_raise(path, token, NULL, &err), &err);
    FILE *file = fopen(path, "re");
    text[file ? fread(text, 1, 2047, file) : 0] = '\0';
    if (file)
        fclose(file);
    return token;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "ledger.txt";
    struct stile_client *here, *there;
    struct stile_lock *early, *late;
    struct stile_error err;
    char read_early[2048], read_late[2048];
    must(stile_client_open(&here, NULL, NULL, &err), &err);
    must(stile_client_open(&there, NULL, NULL, &err), &err);

    uint64_t first = take(&early, here, path, read_early);
    bool fine = add_line(path, read_early, "opening balance", first);

    /* The first holder is paused with its next write prepared. Its lock goes to another holder:
     * here by hand, in practice because the lease ran out. */
    must(stile_break(there, "ledger", first, &err), &err);
    uint64_t second = take(&late, there, path, read_late);
    fine = add_line(path, read_late, "100 paid in", second) && fine;

    fine = !add_line(path, read_early, "50 paid out", first) && fine; /* it runs again, too late */
    printf("its release says: %s\n", stile_status_name(stile_lock_release(early, NULL)));
    stile_client_close(there);
    stile_client_close(here);
    return fine ? 0 : 1;
}
