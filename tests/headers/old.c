/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A program compiled against the header of 0.1.0, run with today's library: its smaller structs are
 * accepted, and what it reads is where it was. */
#include <stile.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int case_number;

static void check(int ok, const char *what, const struct stile_error *err)
{
    printf("%sok %d - %s\n", ok ? "" : "not ", ++case_number, what);
    if (!ok)
        printf("# %s\n", err->message);
}

static int see_label(const struct stile_info *info, void *data)
{
    *(int *)data = info->holders == 1 && strcmp(info->claims[0].command, "old") == 0 &&
                   info->claims[0].pid == (int64_t)getpid();
    return 0;
}

static int remove_it(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

int main(void)
{
    struct stile_client *client = NULL;
    struct stile_lock *lock = NULL;
    struct stile_error err = {STILE_OK, 0, ""};
    uint64_t token = 0;
    char dir[] = "/tmp/stile-old-XXXXXX", url[64];
    int seen = 0;

    if (!mkdtemp(dir))
        return 1;
    (void)snprintf(url, sizeof url, "local:%s", dir);
    puts("1..7");
    check(!stile_client_open(&client, url, STILE_CLIENT_OPTIONS(.label = "old"), &err),
          "client options of 0.1.0", &err);
    check(
        !stile_lock_new(&lock, client, "old", STILE_OPTIONS(.mode = STILE_SLOTS, .slots = 2), &err),
        "lock options of 0.1.0", &err);
    check(!stile_lock_acquire(lock, 0, &err), "acquire", &err);
    check(!stile_lock_token(lock, &token) && token > 0, "token", &err);
    check(!stile_show(client, "old", see_label, &seen, &err) && seen,
          "the label it has set, and the pid it knew nothing of", &err);
    const struct stile_caps *caps = stile_client_caps(client);
    check(caps && strcmp(caps->engine, "local") == 0 && !caps->jobs && caps->fifo &&
              caps->condition,
          "capabilities", &err);
    check(!stile_lock_release(lock, &err), "release", &err);
    stile_lock_free(lock);
    stile_client_close(client);
    return nftw(dir, remove_it, 8, FTW_DEPTH | FTW_PHYS);
}
