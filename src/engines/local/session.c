/* A session: one client's life in `live`, a datagram socket for pokes, and a listening socket whose
 * only purpose is to hang up on who is connected when we end. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engines/local/life.h"
#include "engines/local/local.h"

#define BACKLOG       4096
#define POKE_MAGIC    UINT32_C(0x73746c31)
#define POKES_AT_ONCE 16
/* The kernel keeps about ten datagrams for us. When so many were waiting, some may have been
 * dropped, and every claim is looked at. */
#define POKES_MANY 8

struct datagram {
    uint32_t magic;
    uint32_t kind;
    uint32_t id;
    uint32_t unused;
};

/* ---- sockets ---- */

/* Through /proc, because a socket's path has room for 108 bytes only, and because no directory on
 * the way can be exchanged under us. */
void session_socket_path(const struct local *local, char *path, size_t size, uint64_t id, char kind)
{
    snprintf(path, size, "/proc/self/fd/%d/%016" PRIx64 ".%c", local->env->dir.sockets_fd, id,
             kind);
}

static void socket_address(const struct local *local, struct sockaddr_un *address, uint64_t id,
                           char kind)
{
    address->sun_family = AF_UNIX;
    session_socket_path(local, address->sun_path, sizeof address->sun_path, id, kind);
}

static void socket_name(char name[32], uint64_t id, char kind)
{
    snprintf(name, 32, "%016" PRIx64 ".%c", id, kind);
}

/* A bound socket, or -1 and errno. */
static int make_socket(const struct local *local, int type, char kind)
{
    struct sockaddr_un address;
    char name[32];
    int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), rc = 0;
    if (fd < 0)
        return -1;
    socket_address(local, &address, local->id, kind);
    socket_name(name, local->id, kind);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0)
        rc = errno;
    if (!rc)
        rc = dir_hand_over(&local->env->dir, local->env->dir.sockets_fd, name);
    if (!rc && type == SOCK_STREAM && listen(fd, BACKLOG) != 0)
        rc = errno;
    if (rc) {
        close(fd);
        errno = rc;
        return -1;
    }
    return fd;
}

static void unlink_socket(const struct local *local, uint64_t id, char kind)
{
    char name[32];
    socket_name(name, id, kind);
    (void)unlinkat(local->env->dir.sockets_fd, name, 0);
}

/* The backlog is full of connections whose owners are gone. Closing the old listener hangs up on
 * the others too; they see that we live, and come back. */
static void renew_listener(struct local *local)
{
    char fresh[32], name[32];
    uint64_t now_ns = loop_now(local->engine.loop);
    if (now_ns - local->listener_made_ns < NS_PER_SEC)
        return;
    local->listener_made_ns = now_ns;
    int fd = make_socket(local, SOCK_STREAM, 'n');
    if (fd < 0)
        return;
    socket_name(fresh, local->id, 'n');
    socket_name(name, local->id, 'l');
    if (renameat(local->env->dir.sockets_fd, fresh, local->env->dir.sockets_fd, name) != 0) {
        unlink_socket(local, local->id, 'n');
        close(fd);
        return;
    }
    close(local->listener_fd);
    local->listener_fd = fd;
}

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

uint32_t session_add_slot(struct local *local, struct looker *looker)
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

void session_drop_slot(struct local *local, uint32_t slot)
{
    if (!slot)
        return;
    local->slots[slot - 1] = (struct slot){.next_free = local->free_slot};
    local->free_slot = slot;
}

/* ---- who has to look ---- */

void session_make_due(struct local *local, struct looker *looker)
{
    if (looker->is_due)
        return;
    looker->is_due = true;
    looker->next_due = NULL;
    *local->due_tail = looker;
    local->due_tail = &looker->next_due;
    loop_soon(local->engine.loop, &local->due_task);
}

void session_forget_due(struct local *local, struct looker *looker)
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
        session_forget_due(local, looker);
        looker->look(looker, 0);
    }
}

static void poke_self(struct local *local, uint32_t kind, uint32_t slot)
{
    if (kind == POKE_LISTENER)
        renew_listener(local);
    else if (slot > 0 && slot <= local->n_slots && local->slots[slot - 1].looker)
        session_make_due(local, local->slots[slot - 1].looker);
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
    for (uint32_t i = 1; n >= POKES_MANY && i <= local->n_slots; i++)
        poke_self(local, POKE_CLAIM, i);
    run_due(&local->due_task);
}

/* ---- telling others ---- */

/* False: there is nobody at the other end. */
static bool send_poke(struct local *local, const struct poke *poke)
{
    struct sockaddr_un address;
    struct datagram datagram = {.magic = POKE_MAGIC, .kind = poke->kind, .id = poke->id};
    ssize_t n;
    socket_address(local, &address, poke->session, 'w');
    do
        n = sendto(local->pokes.fd, &datagram, sizeof datagram, MSG_DONTWAIT,
                   (struct sockaddr *)&address, sizeof address);
    while (n < 0 && errno == EINTR);
    return n >= 0 || (errno != ECONNREFUSED && errno != ENOENT);
}

static void clear_away(struct local *local, const struct poke *poke, struct pokes *pokes)
{
    struct tx tx;
    uint32_t tail = pokes->tail;
    if (!tx_begin(&tx, &local->env->store))
        return;
    if (poke->kind == POKE_QUERY)
        observers_drop(&tx, poke->cell, poke->session, poke->id);
    else if (queue_own(&tx, poke->cell, poke->session, poke->id))
        queue_leave(&tx, poke->cell, LEAVE_DEAD, loop_now(local->engine.loop), pokes);
    if (!tx_commit(&tx))
        pokes->tail = tail;
}

void session_deliver(struct local *local, struct pokes *pokes)
{
    while (pokes->head != pokes->tail) {
        struct poke poke = pokes->ring[pokes->head++ % POKES_MAX];
        if (poke.session == local->id)
            poke_self(local, poke.kind, poke.id);
        else if (!send_poke(local, &poke) &&
                 !life_is_alive(local->env->store.live_fd, poke.session))
            clear_away(local, &poke, pokes);
    }
}

void session_ask_new_listener(struct local *local, uint64_t id)
{
    struct poke poke = {.session = id, .kind = POKE_LISTENER};
    (void)send_poke(local, &poke);
}

/* ---- what show tells of us ---- */

static void clean_text(char *text, size_t n)
{
    while (n > 0 && text[n - 1] == '\0')
        n--;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            text[i] = text[i] == '\0' ? ' ' : '?';
    text[n] = '\0';
}

static void own_command(char command[SESSION_COMMAND_MAX + 1], const char *label)
{
    ssize_t n = 0;
    if (label) {
        n = (ssize_t)strnlen(label, SESSION_COMMAND_MAX);
        memcpy(command, label, (size_t)n);
    } else {
        int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            n = read(fd, command, SESSION_COMMAND_MAX);
            close(fd);
        }
    }
    clean_text(command, n > 0 ? (size_t)n : 0);
}

static void own_host(char host[SESSION_HOST_MAX + 1])
{
    if (gethostname(host, SESSION_HOST_MAX) != 0)
        host[0] = '\0';
    host[SESSION_HOST_MAX] = '\0';
    clean_text(host, strlen(host));
}

static enum stile_status sign_in(struct local *local, struct stile_error *err)
{
    char host[SESSION_HOST_MAX + 1], command[SESSION_COMMAND_MAX + 1];
    struct tx tx;
    own_host(host);
    own_command(command, local->engine.label);
    if (!tx_begin(&tx, &local->env->store))
        return tx_error(&tx, err);
    sessions_add(&tx, local->id, loop_now(local->engine.loop), host, command);
    return tx_commit(&tx) ? STILE_OK : tx_error(&tx, err);
}

/* ---- beginning and end ---- */

static void close_all(struct local *local)
{
    if (local->pokes.fd >= 0)
        close(local->pokes.fd);
    if (local->listener_fd >= 0)
        close(local->listener_fd);
    if (local->life_fd >= 0)
        close(local->life_fd);
    local->pokes.fd = local->listener_fd = local->life_fd = -1;
}

/* `live` is opened after the sockets: as a process ends, Linux closes the latest file first, so who
 * hears a socket hang up finds the proof of life gone already. */
static enum stile_status begin_life(struct local *local, struct stile_error *err)
{
    enum stile_status status = dir_open_file(&local->life_fd, &local->env->dir, "live", 0, err);
    if (status)
        return status;
    int rc = life_lock(local->life_fd, LIFE_IDS + local->id, true);
    return rc ? error_errno(err, STILE_REFUSED, rc, "locking `live`") : STILE_OK;
}

static enum stile_status make_sockets(struct local *local, struct stile_error *err)
{
    local->listener_fd = make_socket(local, SOCK_STREAM, 'l');
    local->pokes.fd = local->listener_fd < 0 ? -1 : make_socket(local, SOCK_DGRAM, 'w');
    if (local->pokes.fd < 0)
        return error_errno(err, STILE_REFUSED, errno,
                           "making the session's sockets in `s` of the state directory");
    int rc = loop_watch(local->engine.loop, &local->pokes, EPOLLIN);
    return rc ? error_errno(err, STILE_REFUSED, rc, "watching the session's socket") : STILE_OK;
}

static void remove_sockets(struct local *local)
{
    loop_unwatch(local->engine.loop, &local->pokes);
    unlink_socket(local, local->id, 'w');
    unlink_socket(local, local->id, 'l');
    close_all(local);
}

enum stile_status session_open(struct local *local, struct stile_error *err)
{
    local->life_fd = local->listener_fd = local->pokes.fd = -1;
    local->pokes.fn = read_pokes;
    local->due_tail = &local->due;
    local->due_task.fn = run_due;
    int rc = env_random_id(&local->id, local->engine.loop);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "no random numbers");
    enum stile_status status = make_sockets(local, err);
    if (!status)
        status = begin_life(local, err);
    if (!status)
        status = sign_in(local, err);
    if (status)
        remove_sockets(local);
    return status;
}

void session_close(struct local *local)
{
    struct tx tx;
    if (tx_begin(&tx, &local->env->store)) {
        sessions_drop(&tx, local->id);
        (void)tx_commit(&tx);
    }
    loop_forget(local->engine.loop, &local->due_task);
    remove_sockets(local);
    free(local->slots);
    local->slots = NULL;
}

void session_forked(struct local *local)
{
    close_all(local);
    free(local->slots);
}
