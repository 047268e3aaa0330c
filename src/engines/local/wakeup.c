/* Pokes: who has to look at the table, and how they are told. A poke names a claim or a query by
 * its slot; it carries no truth, so a lost or a forged one does no harm. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/self.h"
#include "engines/local/liveness.h"
#include "engines/local/local.h"

#define BACKLOG 4096

/* ---- sockets ---- */

/* Through /proc, because a socket's path has room for 108 bytes only, and because no directory on
 * the way can be exchanged under us. */
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

/* A bound socket, or -1 and errno. */
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

/* The backlog is full of connections whose owners are gone. Closing the old listener hangs up on
 * the others too; they see that we live, and come back. */
void local_wakeup_renew_listener(struct local *local)
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

#define POKE_MAGIC    UINT32_C(0x73746c31)
#define POKES_AT_ONCE 16
#define LINE_EACH     8
/* The kernel keeps about ten datagrams for us. When so many were waiting, some may have been
 * dropped, and every claim is looked at. */
#define POKES_MANY 8

struct datagram {
    uint32_t magic;
    uint32_t kind;
    uint32_t id;
    uint32_t unused;
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

uint32_t local_wakeup_add_slot(struct local *local, struct looker *looker)
{
    uint32_t slot = local->free_slot;
    if (slot) {
        local->free_slot = local->slots[slot - 1].next_free;
    } else {
        if (local->n_slots == local->cap_slots && !grow_slots(local))
            return 0;
        slot = ++local->n_slots;
    }
    local->slots[slot - 1] = (struct slot){.looker = looker};
    return slot;
}

void local_wakeup_drop_slot(struct local *local, uint32_t slot)
{
    if (!slot)
        return;
    local->slots[slot - 1] = (struct slot){.next_free = local->free_slot};
    local->free_slot = slot;
}

/* ---- who has to look ---- */

void local_wakeup_make_due(struct local *local, struct looker *looker)
{
    if (looker->is_due)
        return;
    looker->is_due = true;
    looker->next_due = NULL;
    *local->due_tail = looker;
    local->due_tail = &looker->next_due;
    loop_soon(local->engine.loop, &local->due_task);
}

void local_wakeup_forget_due(struct local *local, struct looker *looker)
{
    if (!looker->is_due)
        return;
    struct looker **at = &local->due;
    while (*at != looker)
        at = &(*at)->next_due;
    *at = looker->next_due;
    if (!*at)
        local->due_tail = at;
    looker->is_due = false;
}

/* A look may end in a callback that frees the looker or makes others due. */
static void run_due(struct task *task)
{
    struct local *local = (struct local *)((char *)task - offsetof(struct local, due_task));
    while (local->due) {
        struct looker *looker = local->due;
        local_wakeup_forget_due(local, looker);
        looker->look(looker, 0);
    }
}

void local_wakeup_run_due(struct local *local)
{
    run_due(&local->due_task);
}

static void poke_self(struct local *local, uint32_t kind, uint32_t slot)
{
    if (kind == POKE_LISTENER)
        local_wakeup_renew_listener(local);
    else if (slot > 0 && slot <= local->n_slots && local->slots[slot - 1].looker)
        local_wakeup_make_due(local, local->slots[slot - 1].looker);
}

void local_wakeup_make_all_due(struct local *local)
{
    for (uint32_t i = 1; i <= local->n_slots; i++)
        poke_self(local, POKE_CLAIM, i);
}

/* All that are there in one system call. */
static int receive(int fd, struct datagram *pokes, struct mmsghdr *messages)
{
    struct iovec parts[POKES_AT_ONCE];
    for (int i = 0; i < POKES_AT_ONCE; i++) {
        parts[i] = (struct iovec){.iov_base = &pokes[i], .iov_len = sizeof *pokes};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1}};
    }
    return recvmmsg(fd, messages, POKES_AT_ONCE, MSG_DONTWAIT, NULL);
}

static void read_pokes(struct watch *watch, uint32_t events)
{
    struct local *local = (struct local *)((char *)watch - offsetof(struct local, pokes));
    struct datagram pokes[POKES_AT_ONCE];
    struct mmsghdr messages[POKES_AT_ONCE];
    int n = receive(watch->fd, pokes, messages);
    (void)events;
    for (int i = 0; i < n; i++)
        if (messages[i].msg_len == sizeof *pokes && pokes[i].magic == POKE_MAGIC)
            poke_self(local, pokes[i].kind, pokes[i].id);
    if (n >= POKES_MANY)
        local_wakeup_make_all_due(local);
    run_due(&local->due_task);
}

/* ---- telling others ---- */

static void close_line(struct line *line)
{
    if (line->fd)
        close(line->fd - 1);
    *line = (struct line){0};
}

static struct line *find_line(struct local *local, uint64_t session)
{
    for (int i = 0; i < POKE_LINES; i++)
        if (local->lines[i].fd && local->lines[i].session == session)
            return &local->lines[i];
    return NULL;
}

/* To find a socket by its path is the largest part of a hand-over. Only some of those who are not
 * found get a line: where there are too many for all, most would be made for nothing. */
static void make_line(struct local *local, uint64_t session, const struct sockaddr_un *address)
{
    unsigned missed = local->lines_missed++;
    struct line *line = &local->lines[missed / LINE_EACH % POKE_LINES];
    if (missed % LINE_EACH)
        return;
    close_line(line);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    *line = (struct line){.session = session, .fd = fd + 1};
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0)
        close_line(line);
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

/* False: there is nobody at the other end. */
static bool send_poke(struct local *local, const struct wakeup *poke)
{
    struct sockaddr_un address;
    struct datagram datagram = {.magic = POKE_MAGIC, .kind = poke->kind, .id = poke->id};
    struct line *line = find_line(local, poke->session);
    if (line && (send_to(line->fd - 1, &datagram, NULL) >= 0 || errno == EAGAIN))
        return true;
    if (line)
        close_line(line);
    local_wakeup_address(local, &address, poke->session, 'w');
    ssize_t n = send_to(local->pokes.fd, &datagram, &address);
    if (n >= 0)
        make_line(local, poke->session, &address);
    return n >= 0 || (errno != ECONNREFUSED && errno != ENOENT);
}

static void clear_away(struct local *local, const struct wakeup *poke, struct wakeups *pokes)
{
    struct tx tx;
    uint32_t tail = pokes->tail;
    if (!local_tx_begin(&tx, &local->env->store))
        return;
    if (poke->kind == POKE_QUERY)
        local_observers_drop(&tx, poke->cell, poke->session, poke->id);
    else if (local_queue_claim_of(&tx, poke->cell, poke->session, poke->id))
        local_queue_leave(&tx, poke->cell, LEAVE_DEAD, local_now(local), pokes);
    if (!local_tx_commit(&tx))
        pokes->tail = tail;
}

void local_wakeup_deliver(struct local *local, struct wakeups *pokes)
{
    while (pokes->head != pokes->tail) {
        struct wakeup poke = pokes->ring[pokes->head++ % POKES_MAX];
        if (poke.session == local->id)
            poke_self(local, poke.kind, poke.id);
        else if (!send_poke(local, &poke) &&
                 !local_liveness_is_alive(local->env->store.live_fd, poke.session))
            clear_away(local, &poke, pokes);
    }
}

void local_wakeup_ask_listener(struct local *local, uint64_t id)
{
    struct wakeup poke = {.session = id, .kind = POKE_LISTENER};
    (void)send_poke(local, &poke);
}

/* ---- beginning and end ---- */

void local_wakeup_begin(struct local *local)
{
    local->pokes.fn = read_pokes;
    local->due_tail = &local->due;
    local->due_task.fn = run_due;
}

void local_wakeup_forked(struct local *local)
{
    for (int i = 0; i < POKE_LINES; i++)
        close_line(&local->lines[i]);
}

void local_wakeup_end(struct local *local)
{
    local_wakeup_forked(local);
    loop_forget(local->engine.loop, &local->due_task);
    free(local->slots);
    local->slots = NULL;
    local->n_slots = local->cap_slots = local->free_slot = 0;
}
