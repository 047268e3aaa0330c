/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Wake-ups: datagrams after which a claim or a query, named by its slot, rechecks the table. They
 * carry no truth, so a lost or a forged one does no harm. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/container.h"
#include "base/self.h"
#include "engines/local/liveness.h"
#include "engines/local/local.h"

#define BACKLOG 4096

/* ---- sockets ---- */

/* Through /proc, because a socket's path has room for only 108 bytes, and because no directory on
 * the way can be replaced meanwhile. */
void local_wakeup_address(const struct local *local, struct sockaddr_un *address, uint64_t id,
                          char kind)
{
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%016" PRIx64 ".%c",
             local->env->dir.sockets_fd, id, kind);
}

static void socket_name(char name[32], uint64_t id, char kind)
{
    snprintf(name, 32, "%016" PRIx64 ".%c", id, kind);
}

int local_wakeup_socket(const struct local *local, int type, char kind)
{
    struct sockaddr_un address;
    char name[32];
    int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), rc = 0;
    if (fd < 0)
        return -1;
    local_wakeup_address(local, &address, local->id, kind);
    socket_name(name, local->id, kind);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0)
        rc = errno;
    if (!rc)
        rc = local_dir_hand_over(&local->env->dir, local->env->dir.sockets_fd, name);
    if (!rc && type == SOCK_STREAM && listen(fd, BACKLOG) != 0)
        rc = errno;
    if (rc) {
        close(fd);
        errno = rc;
        return -1;
    }
    return fd;
}

void local_wakeup_unlink(const struct local *local, uint64_t id, char kind)
{
    char name[32];
    socket_name(name, id, kind);
    (void)unlinkat(local->env->dir.sockets_fd, name, 0);
}

/* The backlog is full of connections whose owners are gone. Closing the old listener closes the
 * connections of the living too; they find this session alive and connect again. */
static void renew_listener(struct local *local)
{
    char fresh[32], name[32];
    uint64_t now_ns = loop_now(local->engine.loop);
    if (now_ns - local->listener_made_ns < NS_PER_SEC)
        return;
    local->listener_made_ns = now_ns;
    int fd = local_wakeup_socket(local, SOCK_STREAM, 'n');
    if (fd < 0)
        return;
    socket_name(fresh, local->id, 'n');
    socket_name(name, local->id, 'l');
    if (renameat(local->env->dir.sockets_fd, fresh, local->env->dir.sockets_fd, name) != 0) {
        local_wakeup_unlink(local, local->id, 'n');
        close(fd);
        return;
    }
    close(local->listener_fd);
    local->listener_fd = fd;
}

#define WAKEUP_MAGIC    UINT32_C(0x73746c31)
#define WAKEUPS_AT_ONCE 16
#define CONNECT_EACH    8
/* The kernel queues about ten datagrams. When this many were waiting, some may have been dropped,
 * and every claim rechecks the table. */
#define WAKEUPS_MANY 8

struct datagram {
    uint32_t magic;
    uint32_t kind;
    uint32_t id;
    uint32_t name; /* if the id is 0 */
};

/* ---- slots ---- */

static bool grow_slots(struct local *local)
{
    uint32_t cap = local->cap_slots ? 2 * local->cap_slots : 8;
    struct slot *slots = realloc(local->slots, cap * sizeof *slots);
    if (!slots)
        return false;
    local->slots = slots;
    local->cap_slots = cap;
    return true;
}

uint32_t local_wakeup_add_slot(struct local *local, struct watcher *watcher)
{
    uint32_t slot = local->free_slot;
    if (slot) {
        local->free_slot = local->slots[slot - 1].next_free;
    } else {
        if (local->n_slots == local->cap_slots && !grow_slots(local))
            return 0;
        slot = ++local->n_slots;
    }
    local->slots[slot - 1] = (struct slot){.watcher = watcher};
    return slot;
}

void local_wakeup_drop_slot(struct local *local, uint32_t slot)
{
    if (!slot)
        return;
    local->slots[slot - 1] = (struct slot){.next_free = local->free_slot};
    local->free_slot = slot;
}

/* ---- watchers that have to recheck ---- */

void local_wakeup_make_due(struct local *local, struct watcher *watcher)
{
    if (watcher->is_due)
        return;
    watcher->is_due = true;
    watcher->next_due = NULL;
    *local->due_tail = watcher;
    local->due_tail = &watcher->next_due;
    loop_soon(local->engine.loop, &local->due_task);
}

void local_wakeup_forget_due(struct local *local, struct watcher *watcher)
{
    if (!watcher->is_due)
        return;
    struct watcher **at = &local->due;
    while (*at != watcher)
        at = &(*at)->next_due;
    *at = watcher->next_due;
    if (!*at)
        local->due_tail = at;
    watcher->is_due = false;
}

/* A recheck may end in a callback that frees the watcher or makes others due. */
static void run_due(struct task *task)
{
    struct local *local = container_of(task, struct local, due_task);
    while (local->due) {
        struct watcher *watcher = local->due;
        local_wakeup_forget_due(local, watcher);
        watcher->recheck(watcher, 0);
    }
}

void local_wakeup_run_due(struct local *local)
{
    run_due(&local->due_task);
}

/* The claim that has taken this name by its word has no id in the table yet. */
static void wake_quick(struct local *local, uint32_t name)
{
    for (uint32_t i = 0; i < local->n_slots; i++)
        if (local->slots[i].watcher && local->slots[i].watcher->quick == name)
            local_wakeup_make_due(local, local->slots[i].watcher);
}

static void wake_self(struct local *local, const struct wakeup *wakeup)
{
    if (wakeup->kind == WAKE_LISTENER)
        renew_listener(local);
    else if (wakeup->id == 0 && wakeup->name)
        wake_quick(local, wakeup->name);
    else if (wakeup->id > 0 && wakeup->id <= local->n_slots && local->slots[wakeup->id - 1].watcher)
        local_wakeup_make_due(local, local->slots[wakeup->id - 1].watcher);
}

void local_wakeup_make_all_due(struct local *local)
{
    for (uint32_t i = 1; i <= local->n_slots; i++)
        wake_self(local, &(struct wakeup){.id = i, .kind = WAKE_CLAIM});
}

/* Reads all queued datagrams in one system call. */
static int receive(int fd, struct datagram *datagrams, struct mmsghdr *messages)
{
    struct iovec parts[WAKEUPS_AT_ONCE];
    for (int i = 0; i < WAKEUPS_AT_ONCE; i++) {
        parts[i] = (struct iovec){.iov_base = &datagrams[i], .iov_len = sizeof *datagrams};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1}};
    }
    return recvmmsg(fd, messages, WAKEUPS_AT_ONCE, MSG_DONTWAIT, NULL);
}

static void read_wakeups(struct watch *watch, uint32_t events)
{
    struct local *local = container_of(watch, struct local, wakeup_watch);
    struct datagram datagrams[WAKEUPS_AT_ONCE];
    struct mmsghdr messages[WAKEUPS_AT_ONCE];
    int n = receive(watch->fd, datagrams, messages);
    (void)events;
    for (int i = 0; i < n; i++)
        if (messages[i].msg_len == sizeof *datagrams && datagrams[i].magic == WAKEUP_MAGIC)
            wake_self(local, &(struct wakeup){.kind = (enum wakeup_kind)datagrams[i].kind,
                                              .id = datagrams[i].id,
                                              .name = datagrams[i].name});
    if (n >= WAKEUPS_MANY)
        local_wakeup_make_all_due(local);
    run_due(&local->due_task);
}

/* ---- sending ---- */

static void close_connection(struct connection *connection)
{
    if (connection->fd)
        close(connection->fd - 1);
    *connection = (struct connection){0};
}

static struct connection *find_connection(struct local *local, uint64_t session)
{
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        if (local->connections[i].fd && local->connections[i].session == session)
            return &local->connections[i];
    return NULL;
}

/* Finding a socket by its path is the largest part of a hand-over. Only every CONNECT_EACH-th
 * session without a connection gets one: if there are more sessions than connections, most would
 * never be used. */
static void make_connection(struct local *local, uint64_t session,
                            const struct sockaddr_un *address)
{
    unsigned missed = local->connections_missed++;
    struct connection *connection = &local->connections[missed / CONNECT_EACH % CONNECTIONS_MAX];
    if (missed % CONNECT_EACH)
        return;
    close_connection(connection);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    *connection = (struct connection){.session = session, .fd = fd + 1};
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0)
        close_connection(connection);
}

static ssize_t send_to(int fd, const struct datagram *datagram, const struct sockaddr_un *address)
{
    ssize_t n;
    do
        n = sendto(fd, datagram, sizeof *datagram, MSG_DONTWAIT, (const struct sockaddr *)address,
                   address ? sizeof *address : 0);
    while (n < 0 && errno == EINTR);
    return n;
}

/* False: no process has that socket open. */
static bool send_wakeup(struct local *local, const struct wakeup *wakeup)
{
    struct sockaddr_un address;
    struct datagram datagram = {
        .magic = WAKEUP_MAGIC, .kind = wakeup->kind, .id = wakeup->id, .name = wakeup->name};
    struct connection *connection = find_connection(local, wakeup->session);
    if (connection && (send_to(connection->fd - 1, &datagram, NULL) >= 0 || errno == EAGAIN))
        return true;
    if (connection)
        close_connection(connection);
    local_wakeup_address(local, &address, wakeup->session, 'w');
    ssize_t n = send_to(local->wakeup_watch.fd, &datagram, &address);
    if (n >= 0)
        make_connection(local, wakeup->session, &address);
    return n >= 0 || (errno != ECONNREFUSED && errno != ENOENT);
}

static void clear_away(struct local *local, const struct wakeup *wakeup, struct wakeups *wakeups)
{
    struct tx tx;
    uint32_t tail = wakeups->tail;
    if (!local_tx_begin(&tx, &local->env->store))
        return;
    if (wakeup->kind == WAKE_QUERY)
        local_observers_drop(&tx, wakeup->cell, wakeup->session, wakeup->id);
    else if (local_queue_claim_of(&tx, wakeup->cell, wakeup->session, wakeup->id))
        local_queue_leave(&tx, wakeup->cell, LEAVE_DEAD, local_now(local), wakeups);
    if (!local_tx_commit(&tx))
        wakeups->tail = tail;
}

void local_wakeup_deliver(struct local *local, struct wakeups *wakeups)
{
    while (wakeups->head != wakeups->tail) {
        struct wakeup wakeup = wakeups->ring[wakeups->head++ % WAKEUPS_MAX];
        if (wakeup.session == local->id)
            wake_self(local, &wakeup);
        else if (!send_wakeup(local, &wakeup) &&
                 !local_liveness_is_alive(local->env->store.live_fd, wakeup.session))
            clear_away(local, &wakeup, wakeups);
    }
}

void local_wakeup_ask_listener(struct local *local, uint64_t id)
{
    struct wakeup wakeup = {.session = id, .kind = WAKE_LISTENER};
    (void)send_wakeup(local, &wakeup);
}

/* ---- beginning and end ---- */

void local_wakeup_begin(struct local *local)
{
    local->wakeup_watch.fn = read_wakeups;
    local->due_tail = &local->due;
    local->due_task.fn = run_due;
}

void local_wakeup_forked(struct local *local)
{
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        close_connection(&local->connections[i]);
}

void local_wakeup_end(struct local *local)
{
    local_wakeup_forked(local);
    loop_forget(local->engine.loop, &local->due_task);
    free(local->slots);
    local->slots = NULL;
    local->n_slots = local->cap_slots = local->free_slot = 0;
}
