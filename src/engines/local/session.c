/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A session: one client's byte lock in `live`, a datagram socket for wake-ups, and a listening
 * socket, whose connections the kernel closes when the process ends. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/container.h"
#include "base/self.h"
#include "engines/local/liveness.h"
#include "engines/local/local.h"

#define CHECK_FILES_NS NS_PER_SEC

/* The most that one check of the files does to give room back: some ten milliseconds. */
#define TIDIES_PER_CHECK 512
#define TRIMS_PER_CHECK  2048
#define STEPS_PER_CHECK  4

/* ---- the entry in the table ---- */

static enum stile_status register_session(struct local *local, struct stile_error *err)
{
    char host[SESSION_HOST_MAX + 1], command[SESSION_COMMAND_MAX + 1];
    struct tx tx;
    self_host(host);
    self_command(command, sizeof command, local->engine.label);
    if (!local_tx_begin(&tx, &local->env->store))
        return local_tx_error(&tx, err);
    local->has_tag =
        local_sessions_add(&tx, local->id, local->engine.pid, local_now(local), host, command);
    return local_tx_commit(&tx) ? STILE_OK : local_tx_error(&tx, err);
}

/* ---- the directory ---- */

static void close_witness(struct local *local)
{
    if (local->witness_fd >= 0)
        close(local->witness_fd);
    local->witness_fd = -1;
}

/* Removes names of dead holders that no claim has come to since, and gives back the room they took.
 */
static void tidy_up(struct local *local)
{
    struct env *env = local->env;
    struct stile_error ignored;
    bool found = true;
    for (int i = 0; i < TIDIES_PER_CHECK && found; i++)
        if (local_store_guess(&env->store.cells[AT_LEDGER].ledger.n_used) <= KEPT_CELLS ||
            local_load_tidy(env, &found, EDITS_FOR_SWEEPS, local_now(local), &ignored) != STILE_OK)
            break;
    for (int i = 0; i < TRIMS_PER_CHECK && local_table_trim(&env->store); i++)
        ;
    for (int i = 0; i < STEPS_PER_CHECK && local_table_give_back(&env->store); i++)
        ;
}

/* If the files have been removed or replaced, newcomers start afresh and our locks exclude nothing.
 * (inotify would report it at once, but closing it takes the kernel some 10 ms.) Newcomers wait
 * until our witness is closed, so it is closed after all holders have learned of the loss. */
static void check_files(struct timer *timer)
{
    struct local *local = container_of(timer, struct local, files_timer);
    struct env *env = local->env;
    store_set_size_fresh(&env->store, false);
    local->is_gone = !local_dir_is_intact(&env->dir, env->store.fd, env->store.live_fd) ||
                     !local_store_is_whole(&env->store);
    if (!local->is_gone) {
        tidy_up(local);
        loop_arm(local->engine.loop, timer, loop_now(local->engine.loop) + CHECK_FILES_NS);
        return;
    }
    local_wakeup_make_all_due(local);
    local_wakeup_run_due(local);
    local_cells_report_gone(local);
    close_witness(local);
}

enum stile_status local_session_check(const struct local *local, struct stile_error *err)
{
    if (!local->is_gone)
        return STILE_OK;
    return error_set(
        err, STILE_CORRUPT, 0,
        "%s or its files were removed, replaced or truncated while in use: open it again",
        local->env->dir.path);
}

/* ---- beginning and end ---- */

static void close_all(struct local *local)
{
    if (local->wakeup_watch.fd >= 0)
        close(local->wakeup_watch.fd);
    if (local->listener_fd >= 0)
        close(local->listener_fd);
    if (local->life_fd >= 0)
        close(local->life_fd);
    local->wakeup_watch.fd = local->listener_fd = local->life_fd = -1;
    close_witness(local);
}

/* `live` is opened after the sockets: as a process ends, Linux closes the latest file first, so a
 * peer whose connection is closed already finds the byte unlocked. Copies of the descriptor may
 * outlive us in processes that a killed `stile run` has left. They must keep the directory in use:
 * otherwise the next process to open it would take itself to be alone and forget what the session
 * holds. */
static enum stile_status lock_session_byte(struct local *local, struct stile_error *err)
{
    enum stile_status status =
        local_dir_open_file(&local->life_fd, &local->env->dir, "live", 0, err);
    if (status)
        return status;
    int rc = local_liveness_lock(local->life_fd, LIVE_IN_USE, false);
    if (!rc)
        rc = local_liveness_lock(local->life_fd, LIVE_IDS + local->id, true);
    return rc ? error_errno(err, STILE_REFUSED, rc, "locking `live`") : STILE_OK;
}

static enum stile_status make_sockets(struct local *local, struct stile_error *err)
{
    local->listener_fd = local_wakeup_socket(local, SOCK_STREAM, 'l');
    local->wakeup_watch.fd =
        local->listener_fd < 0 ? -1 : local_wakeup_socket(local, SOCK_DGRAM, 'w');
    if (local->wakeup_watch.fd < 0)
        return error_errno(err, STILE_REFUSED, errno,
                           "making the session's sockets in `s` of the state directory");
    int rc = loop_watch(local->engine.loop, &local->wakeup_watch, EPOLLIN);
    return rc ? error_errno(err, STILE_REFUSED, rc, "watching the session's socket") : STILE_OK;
}

static void remove_sockets(struct local *local)
{
    loop_unwatch(local->engine.loop, &local->wakeup_watch);
    local_wakeup_unlink(local, local->id, 'w');
    local_wakeup_unlink(local, local->id, 'l');
    close_all(local);
}

enum stile_status local_session_open(struct local *local, struct stile_error *err)
{
    local->life_fd = local->listener_fd = local->wakeup_watch.fd = local->witness_fd = -1;
    local_wakeup_begin(local);
    int rc = local_env_random_id(&local->id, local->engine.loop);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "no random numbers");
    if (loop_reserve(local->engine.loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    enum stile_status status = make_sockets(local, err);
    if (!status)
        status = lock_session_byte(local, err);
    if (!status)
        status = register_session(local, err);
    if (status) {
        loop_unreserve(local->engine.loop, 1);
        remove_sockets(local);
        return status;
    }
    local->witness_fd = local_witness_make(
        &local->env->dir, local->env->store.cells[AT_LEDGER].ledger.epoch, local->id);
    local->files_timer.fn = check_files;
    loop_arm(local->engine.loop, &local->files_timer,
             loop_now(local->engine.loop) + CHECK_FILES_NS);
    return STILE_OK;
}

void local_session_close(struct local *local)
{
    struct tx tx;
    if (local_tx_begin(&tx, &local->env->store)) {
        local_sessions_drop(&tx, local->id);
        (void)local_tx_commit(&tx);
    }
    local_wakeup_end(local);
    loop_disarm(local->engine.loop, &local->files_timer);
    loop_unreserve(local->engine.loop, 1);
    remove_sockets(local);
}

void local_session_forked(struct local *local)
{
    close_all(local);
}
