/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at locks, and waiting until they look as they should. */
#include "contract.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool readable(int fd, int64_t wait_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int64_t until = now_ms() + wait_ms;
    int n;
    do {
        int64_t left = until - now_ms();
        n = poll(&p, 1, left > 0 ? (int)left : 0);
    } while (n < 0 && errno == EINTR);
    return n == 1;
}

void await_post(sem_t *sem)
{
    struct timespec until;
    int rc;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_MS / 1000;
    do {
        rc = sem_timedwait(sem, &until);
    } while (rc != 0 && errno == EINTR);
    assert_int_equal(rc, 0);
}

static int note_seen(const struct stile_info *info, void *data)
{
    struct seen *seen = data;
    size_t n = info->holders + info->waiters;
    memset(seen, 0, sizeof *seen);
    snprintf(seen->name, sizeof seen->name, "%s", info->name);
    seen->token = info->token;
    seen->holders = info->holders;
    seen->waiters = info->waiters;
    for (size_t i = 0; i < n && i < QUEUE_MAX; i++) {
        seen->claims[i] = info->claims[i];
        seen->ghosts += info->claims[i].ghost;
    }
    return 0;
}

void look(struct stile_client *client, const char *name, struct seen *seen)
{
    seen->name[0] = '\0';
    check_ok(stile_show(client, name, note_seen, seen, &why));
    assert_string_equal(seen->name, name);
}

struct wanted {
    struct seen seen;
    size_t holders, waiters;
    bool ghost, queue;
    uint64_t token;
};

static int is_as_wanted(const struct stile_info *info, void *data)
{
    struct wanted *w = data;
    note_seen(info, &w->seen);
    if (w->ghost)
        return w->seen.ghosts == 1;
    if (w->token)
        return info->holders == 1 && info->claims[0].token == w->token;
    return info->holders == w->holders && (!w->queue || info->waiters == w->waiters);
}

static void await(struct scene *scene, const char *name, struct wanted *wanted)
{
    enum stile_status status =
        stile_watch(scene->client, name, PATIENCE_MS, is_as_wanted, wanted, &why);
    if (status)
        print_error("seen last: %zu holders, %zu of them ghosts, %zu waiters\n",
                    wanted->seen.holders, wanted->seen.ghosts, wanted->seen.waiters);
    check_status_at(STILE_OK, status, "waiting until it looks so", __FILE__, __LINE__);
}

void await_seen(struct scene *scene, const char *name, size_t holders, size_t waiters,
                struct seen *seen)
{
    struct wanted wanted = {.holders = holders, .waiters = waiters, .queue = scene->caps->fifo};
    await(scene, name, &wanted);
    *seen = wanted.seen;
}

void await_state(struct scene *scene, const char *name, size_t holders, size_t waiters)
{
    struct seen seen;
    await_seen(scene, name, holders, waiters, &seen);
}

void await_ghost(struct scene *scene, const char *name)
{
    struct wanted wanted = {.ghost = true};
    await(scene, name, &wanted);
}

void await_token(struct scene *scene, const char *name, uint64_t token)
{
    struct wanted wanted = {.token = token};
    await(scene, name, &wanted);
}

void check_free(struct scene *scene, const char *name)
{
    struct seen seen;
    look(scene->client, name, &seen);
    assert_int_equal(seen.holders, 0);
    assert_int_equal(seen.waiters, 0);
}

static int count_one(const struct stile_info *info, void *data)
{
    (void)info;
    ++*(size_t *)data;
    return 0;
}

size_t count_listed(struct stile_client *client, const char *prefix)
{
    size_t n = 0;
    check_ok(stile_list(client, prefix, count_one, &n, &why));
    return n;
}
