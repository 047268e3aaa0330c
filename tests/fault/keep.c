/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One client that holds locks while it asks for others: keep URL. For each name on its input it
 * tries once, or waits for as many milliseconds as follow behind a tab, keeps what it gets until
 * its input ends, and prints the status. Behind a further tab: the TTL and the renewal interval in
 * milliseconds, and the mode: "shared", a number of slots, or "hold=" and the milliseconds for
 * which it keeps the name at least. "&NAME" with all that waits in the background. "-NAME" gives
 * the lock back and prints the status, with its message if it was lost;
 * "?NAME" prints whether it is held, and "!NAME" why it was lost, or "held"; "+NAME" records its
 * start and "=NAME" its end with exit code 7. These mean the handle that last asked for that name.
 * "*NAME" prints the record of the name's last holder. What could not be recorded is logged to
 * stderr. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stile.h"

#define LOCKS_MAX 256

static struct stile_lock *locks[LOCKS_MAX];
static size_t n_locks;

static struct stile_lock *find(const char *name)
{
    for (size_t i = n_locks; i-- > 0;) {
        if (strcmp(stile_lock_name(locks[i]), name) == 0)
            return locks[i];
    }
    return NULL;
}

static void ignore(struct stile_lock *lock, enum stile_status status, const struct stile_error *err,
                   void *data)
{
    (void)lock, (void)status, (void)err, (void)data; /* "?NAME" prints what became of it */
}

static enum stile_status ask(struct stile_client *client, char *line)
{
    struct stile_lock *lock;
    bool background = *line == '&';
    line += background;
    struct stile_lock_options options = *STILE_OPTIONS(.ttl_ms = 0);
    char *rest = line, *name = strsep(&rest, "\t"), *wait = strsep(&rest, "\t"),
         *ttl = strsep(&rest, "\t"), *renew = strsep(&rest, "\t"), *mode = strsep(&rest, "\t");
    options.ttl_ms = ttl ? atol(ttl) : 0;
    options.renew_ms = renew ? atol(renew) : 0;
    bool keeps = mode && strncmp(mode, "hold=", 5) == 0;
    options.hold_at_least_ms = keeps ? atol(mode + 5) : 0;
    options.slots = mode && !keeps ? (uint32_t)atol(mode) : 0;
    if (mode && !keeps)
        options.mode = options.slots ? STILE_SLOTS : STILE_SHARED;
    enum stile_status status = stile_lock_new(&lock, client, name, &options, NULL);
    if (!status && n_locks < LOCKS_MAX)
        locks[n_locks++] = lock;
    if (!status && background)
        return stile_lock_acquire_async(lock, wait ? atol(wait) : 0, ignore, NULL);
    return status ? status : stile_lock_acquire(lock, wait ? atol(wait) : 0, NULL);
}

static int print_last(const struct stile_info *info, void *data)
{
    const struct stile_last_holder *last = info->last;
    if (last)
        (void)snprintf(data, 512, "token %llu%s exit %d by %s", (unsigned long long)last->token,
                       last->until_ms ? " ended" : "", last->exit_code, last->command);
    return 0;
}

static const char *last_of(struct stile_client *client, const char *name)
{
    static char text[512];
    struct stile_error err;
    strcpy(text, "none");
    return stile_show(client, name, print_last, text, &err) ? "failed" : text;
}

static const char *complain(enum stile_status status, const struct stile_error *err)
{
    if (status)
        (void)fprintf(stderr, "%s\n", err->message);
    return stile_status_name(status);
}

static const char *obey(struct stile_client *client, char *line)
{
    static struct stile_error err;
    struct stile_lock *lock = strchr("-?!+=", *line) ? find(line + 1) : NULL;
    enum stile_status status;
    if (*line == '*')
        return last_of(client, line + 1);
    if (!lock)
        return stile_status_name(ask(client, line));
    switch (*line) {
    case '-':
        status = stile_lock_release(lock, &err);
        return status == STILE_LOST ? err.message : stile_status_name(status);
    case '!':
        return stile_lock_lost_reason(lock, &err) == STILE_LOST ? err.message : "held";
    case '+':
        return complain(stile_lock_record_start(lock, &err), &err);
    case '=':
        return complain(stile_lock_record_end(lock, 7, &err), &err);
    default:
        return stile_lock_held(lock) ? "held" : "not held";
    }
}

static void say(enum stile_log_level level, const char *message, void *data)
{
    (void)level, (void)data;
    if (strstr(message, "recorded"))
        (void)fprintf(stderr, "%s\n", message);
}

int main(int argc, char **argv)
{
    struct stile_client *client;
    struct stile_error err;
    char line[STILE_NAME_MAX + 64];
    if (argc != 2)
        return 2;
    struct stile_client_options options =
        *STILE_CLIENT_OPTIONS(.log = say, .log_level = STILE_LOG_INFO);
    if (stile_client_open(&client, argv[1], &options, &err)) {
        (void)fprintf(stderr, "keep: %s\n", err.message);
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        puts(obey(client, line));
        (void)fflush(stdout);
    }
    stile_client_close(client);
    return 0;
}
