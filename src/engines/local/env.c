/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/local/env.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/container.h"
#include "engines/local/liveness.h"

#define OPEN_PATIENCE_MS 10000
#define OPEN_NAP_MAX_MS  50

static pthread_mutex_t envs_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t envs_once = PTHREAD_ONCE_INIT;
static struct env *envs;

/* ---- fork ---- */

/* The child opens its own: byte locks on the parent's file descriptions would prove that the parent
 * is alive, not the child. The mutex is free: core allows no fork during open or close. */
static void after_fork_in_child(void)
{
    envs = NULL;
}

static void prepare_for_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

int local_env_random_id(uint64_t *id, struct loop *loop)
{
    do {
        int rc = loop_random(loop, id, sizeof *id);
        if (rc)
            return rc;
        *id &= LIVE_ID_MASK;
    } while (*id == 0);
    return 0;
}

/* ---- time ---- */

/* Lines like "boottime  -86400  5": the clock's name (or its number), seconds, nanoseconds. */
uint64_t local_env_time_offset(const char *text)
{
    const char *line = strstr(text, "boottime");
    long long seconds = 0, ns = 0;
    if (!line || sscanf(line, "boottime %lld %lld", &seconds, &ns) != 2)
        return 0;
    return (uint64_t)seconds * NS_PER_SEC + (uint64_t)ns;
}

/* The table stores when holds and delays end, so all processes that share the directory need one
 * clock. */
static uint64_t read_time_offset(void)
{
    char text[256] = "";
    int fd = open("/proc/self/timens_offsets", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0; /* a kernel without time namespaces */
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    return n > 0 ? local_env_time_offset(text) : 0;
}

/* ---- opening ---- */

static void nap_ms(unsigned ms)
{
    struct timespec nap = {.tv_nsec = (long)ms * 1000000};
    while (nanosleep(&nap, &nap) != 0 && errno == EINTR)
        ;
}

static enum stile_status lock_opening(int live_fd, struct stile_error *err)
{
    unsigned waited = 0, ms = 1;
    int rc;
    while ((rc = local_liveness_lock(live_fd, LIVE_OPENING, true)) == EAGAIN &&
           waited < OPEN_PATIENCE_MS) {
        nap_ms(ms);
        waited += ms;
        ms = 2 * ms < OPEN_NAP_MAX_MS ? 2 * ms : OPEN_NAP_MAX_MS;
    }
    if (rc == EAGAIN)
        return error_set(err, STILE_UNREACHABLE, 0,
                         "another process has been opening the state directory for 10 s (is it "
                         "stopped, or does its disk hang?)");
    return rc ? error_errno(err, STILE_REFUSED, rc, "locking `live`") : STILE_OK;
}

static enum stile_status lock_id(struct env *env, struct loop *loop, struct stile_error *err)
{
    int rc = local_env_random_id(&env->store.id, loop);
    if (!rc)
        rc = local_liveness_lock(env->store.live_fd, LIVE_IDS + env->store.id, true);
    return rc ? error_errno(err, STILE_REFUSED, rc, "locking `live`") : STILE_OK;
}

static enum stile_status set_up(struct env *env, struct loop *loop, struct stile_error *err)
{
    enum stile_status status =
        local_dir_open_file(&env->store.live_fd, &env->dir, "live", O_CREAT, err);
    if (!status)
        status = lock_id(env, loop, err);
    if (!status)
        status = lock_opening(env->store.live_fd, err);
    if (status)
        return status;
    bool alone = local_liveness_lock(env->store.live_fd, LIVE_IN_USE, true) == 0;
    status = local_dir_open_sockets(&env->dir, err);
    if (!status)
        status = local_load_state(env, alone, loop_now(loop) - env->time_offset_ns, err);
    /* From exclusive to shared in one step, so no other process can take itself to be alone in
     * between. */
    int rc = status ? 0 : local_liveness_lock(env->store.live_fd, LIVE_IN_USE, false);
    if (rc)
        status = error_errno(err, STILE_REFUSED, rc, "locking `live`");
    local_liveness_unlock(env->store.live_fd, LIVE_OPENING);
    return status;
}

static void dispose(struct env *env)
{
    local_cells_close(env);
    pthread_mutex_destroy(&env->cells_mutex);
    local_load_drop(env);
    if (env->store.live_fd >= 0)
        close(env->store.live_fd);
    local_dir_close(&env->dir);
    free(env);
}

static struct env *find_open(const struct dir *dir)
{
    for (struct env *env = envs; env; env = env->next)
        if (env->dir.dev == dir->dev && env->dir.ino == dir->ino)
            return env;
    return NULL;
}

static enum stile_status next_epoch(struct store *store, uint32_t epoch)
{
    struct env *env = container_of(store, struct env, store);
    return local_epoch_write(&env->dir, epoch, NULL);
}

static enum stile_status open_new(struct env **out, struct dir *dir, struct loop *loop,
                                  struct stile_error *err)
{
    struct env *env = calloc(1, sizeof *env);
    if (!env) {
        local_dir_close(dir);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    env->dir = *dir;
    env->store.path = dir->path;
    env->store.fd = env->store.live_fd = -1;
    env->store.pid = (uint32_t)getpid();
    env->store.next_epoch = next_epoch;
    env->time_offset_ns = read_time_offset();
    pthread_mutex_init(&env->cells_mutex, NULL);
    enum stile_status status = set_up(env, loop, err);
    if (status) {
        error_wrap(err, status, "%s", env->dir.path);
        dispose(env);
        return status;
    }
    env->next = envs;
    envs = env;
    *out = env;
    return STILE_OK;
}

enum stile_status local_env_open(struct env **out, const char *path, bool allow_fuse,
                                 struct loop *loop, struct stile_error *err)
{
    struct dir dir;
    pthread_once(&envs_once, prepare_for_fork);
    enum stile_status status = local_dir_open(&dir, path, allow_fuse, err);
    if (status)
        return status;
    pthread_mutex_lock(&envs_mutex);
    *out = find_open(&dir);
    if (*out)
        local_dir_close(&dir);
    else
        status = open_new(out, &dir, loop, err);
    if (!status)
        (*out)->refs++;
    pthread_mutex_unlock(&envs_mutex);
    return status;
}

void local_env_close(struct env *env)
{
    pthread_mutex_lock(&envs_mutex);
    if (--env->refs == 0) {
        struct env **at = &envs;
        while (*at != env)
            at = &(*at)->next;
        *at = env->next;
        dispose(env);
    }
    pthread_mutex_unlock(&envs_mutex);
}

void local_env_forked(struct env *env)
{
    if (--env->refs > 0)
        return;
    local_cells_close(env);
    close(env->store.fd);
    close(env->store.live_fd);
    local_dir_close(&env->dir);
    free(env);
}
