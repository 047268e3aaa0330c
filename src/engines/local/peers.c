/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The death of other sessions. A connection to a session's listener is never accepted and carries
 * nothing; when the session ends, the kernel closes it and epoll reports that. There is one
 * connection per peer, however many claims watch it; some idle ones are kept, because sessions that
 * met at one lock will meet again. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/container.h"
#include "engines/local/liveness.h"
#include "engines/local/local.h"

#define PAUSE_MIN_NS   (NS_PER_MS / 4)
#define PAUSE_MAX_NS   NS_PER_SEC
#define IDLE_PEERS_MAX 32

struct peer {
    struct peer *next; /* in the same hash chain */
    struct peer *next_idle;
    struct local *local;
    uint64_t id;
    struct watch watch;
    struct timer timer; /* while there is no connection: when to try again */
    uint64_t pause_ns;
    struct link *links; /* none: idle */
    bool is_dead;       /* its watchers are being notified */
};

/* ---- making and freeing ---- */

static struct peer **head_of(struct local *local, uint64_t id)
{
    return &local->peers[id % PEER_HEADS];
}

static struct peer *find(struct local *local, uint64_t id)
{
    struct peer *peer = *head_of(local, id);
    while (peer && peer->id != id)
        peer = peer->next;
    return peer;
}

static void hang_up(struct peer *peer)
{
    if (peer->watch.fd < 0)
        return;
    loop_unwatch(peer->local->engine.loop, &peer->watch);
    close(peer->watch.fd);
    peer->watch.fd = -1;
}

static void unlist(struct peer *peer)
{
    struct peer **at = head_of(peer->local, peer->id);
    while (*at && *at != peer)
        at = &(*at)->next;
    if (*at)
        *at = peer->next;
}

static void unlist_idle(struct peer *peer)
{
    struct peer **at = &peer->local->idle_peers;
    while (*at && *at != peer)
        at = &(*at)->next_idle;
    if (!*at)
        return;
    *at = peer->next_idle;
    peer->local->n_idle_peers--;
}

static void free_peer(struct peer *peer)
{
    struct loop *loop = peer->local->engine.loop;
    hang_up(peer);
    loop_disarm(loop, &peer->timer);
    loop_unreserve(loop, 1);
    unlist(peer);
    unlist_idle(peer);
    free(peer);
}

static void free_oldest_idle(struct local *local)
{
    struct peer *peer = local->idle_peers;
    while (peer->next_idle)
        peer = peer->next_idle;
    free_peer(peer);
}

/* The peer has no watchers left. Its connection is kept for the next time. */
static void retire(struct peer *peer)
{
    struct local *local = peer->local;
    if (peer->is_dead)
        return;
    if (peer->watch.fd < 0) {
        free_peer(peer);
        return;
    }
    peer->next_idle = local->idle_peers;
    local->idle_peers = peer;
    if (++local->n_idle_peers > IDLE_PEERS_MAX)
        free_oldest_idle(local);
}

/* ---- links ---- */

static bool add_link(struct peer *peer, struct watcher *watcher)
{
    struct link *link = malloc(sizeof *link);
    if (!link)
        return false;
    if (!peer->links)
        unlist_idle(peer);
    *link = (struct link){.watcher = watcher, .peer = peer, .at_peer = &peer->links};
    link->next_of_peer = peer->links;
    if (peer->links)
        peer->links->at_peer = &link->next_of_peer;
    peer->links = link;
    link->next_of_watcher = watcher->links;
    watcher->links = link;
    return true;
}

static void detach(struct link *link)
{
    *link->at_peer = link->next_of_peer;
    if (link->next_of_peer)
        link->next_of_peer->at_peer = link->at_peer;
}

static void drop_links(struct link *links)
{
    while (links) {
        struct link *link = links;
        links = link->next_of_watcher;
        detach(link);
        if (!link->peer->links)
            retire(link->peer);
        free(link);
    }
}

static void forget_link(struct link *link)
{
    struct link **at = &link->watcher->links;
    while (*at && *at != link)
        at = &(*at)->next_of_watcher;
    if (*at)
        *at = link->next_of_watcher;
    detach(link);
    free(link);
}

/* ---- liveness ---- */

/* All its watchers recheck the table. Each recheck may end in a callback that changes the rest. */
static void report_death(struct peer *peer)
{
    uint64_t id = peer->id;
    peer->is_dead = true;
    hang_up(peer);
    unlist(peer);
    while (peer->links) {
        struct watcher *watcher = peer->links->watcher;
        forget_link(peer->links);
        watcher->recheck(watcher, id);
    }
    free_peer(peer);
}

/* 0 or an errno value. */
static int connect_peer(struct peer *peer)
{
    struct local *local = peer->local;
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), rc;
    if (fd < 0)
        return errno;
    local_wakeup_address(local, &address, peer->id, 'l');
    do
        rc = connect(fd, (struct sockaddr *)&address, sizeof address) ? errno : 0;
    while (rc == EINTR);
    peer->watch.fd = fd;
    if (!rc)
        rc = loop_watch(local->engine.loop, &peer->watch, EPOLLIN | EPOLLRDHUP);
    if (rc) {
        close(fd);
        peer->watch.fd = -1;
    }
    return rc;
}

/* False: the peer is dead. If it is alive but the connection fails, a timer checks it again. */
static bool watch_peer(struct peer *peer)
{
    struct local *local = peer->local;
    int rc = connect_peer(peer);
    if (rc == 0) {
        peer->pause_ns = 0;
        loop_disarm(local->engine.loop, &peer->timer);
        return true;
    }
    if (!local_liveness_is_alive(local->env->store.live_fd, peer->id))
        return false;
    if (rc == EAGAIN)
        local_wakeup_ask_listener(local, peer->id);
    peer->pause_ns = peer->pause_ns ? 2 * peer->pause_ns : PAUSE_MIN_NS;
    if (peer->pause_ns > PAUSE_MAX_NS)
        peer->pause_ns = PAUSE_MAX_NS;
    loop_arm(local->engine.loop, &peer->timer, loop_now(local->engine.loop) + peer->pause_ns);
    return true;
}

static void try_again(struct timer *timer)
{
    struct peer *peer = container_of(timer, struct peer, timer);
    if (!watch_peer(peer))
        report_death(peer);
}

/* The connection was closed: the peer is dead, or is dying and has one file left to close, or has a
 * new listener. */
static void hung_up(struct watch *watch, uint32_t events)
{
    struct peer *peer = container_of(watch, struct peer, watch);
    (void)events;
    hang_up(peer);
    if (!peer->links)
        free_peer(peer);
    else if (!watch_peer(peer))
        report_death(peer);
}

static struct peer *make_peer(struct local *local, uint64_t id)
{
    struct peer *peer = calloc(1, sizeof *peer);
    if (!peer || loop_reserve(local->engine.loop, 1)) {
        free(peer);
        return NULL;
    }
    peer->local = local;
    peer->id = id;
    peer->watch = (struct watch){.fd = -1, .fn = hung_up};
    peer->timer.fn = try_again;
    struct peer **head = head_of(local, id);
    peer->next = *head;
    *head = peer;
    return peer;
}

enum peer_state {
    PEER_WATCHED,
    PEER_DEAD,
    PEER_UNKNOWN, /* out of memory: the watcher has to recheck before long */
};

static enum peer_state watch_one(struct local *local, struct watcher *watcher, uint64_t id)
{
    if (id == local->id)
        return PEER_WATCHED;
    struct peer *peer = find(local, id);
    bool known = peer;
    if (!known)
        peer = make_peer(local, id);
    if (!peer)
        return PEER_UNKNOWN;
    if (!known && !watch_peer(peer)) {
        free_peer(peer);
        return PEER_DEAD;
    }
    if (add_link(peer, watcher))
        return PEER_WATCHED;
    if (!known)
        free_peer(peer);
    return PEER_UNKNOWN;
}

uint64_t local_peers_watch_all(struct local *local, struct watcher *watcher, struct ahead *ahead)
{
    struct link *old = watcher->links;
    uint64_t dead = 0;
    watcher->links = NULL;
    for (uint32_t i = 0; i < ahead->n && !dead; i++) {
        enum peer_state answer = watch_one(local, watcher, ahead->sessions[i]);
        if (answer == PEER_DEAD)
            dead = ahead->sessions[i];
        else if (answer == PEER_UNKNOWN)
            ahead->more = true;
    }
    drop_links(old);
    return dead;
}

void local_peers_unwatch(struct local *local, struct watcher *watcher)
{
    struct link *links = watcher->links;
    (void)local;
    watcher->links = NULL;
    drop_links(links);
}

void local_peers_close(struct local *local)
{
    for (int i = 0; i < PEER_HEADS; i++)
        while (local->peers[i]) {
            while (local->peers[i]->links)
                forget_link(local->peers[i]->links);
            free_peer(local->peers[i]);
        }
}

void local_peers_forked(struct local *local)
{
    for (int i = 0; i < PEER_HEADS; i++)
        for (struct peer *peer = local->peers[i]; peer; peer = peer->next)
            if (peer->watch.fd >= 0)
                close(peer->watch.fd);
}
