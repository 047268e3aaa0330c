/* The life of other sessions. A connection to a session's listener is never accepted and carries
 * nothing; the kernel hangs it up when the session ends, and epoll tells. One connection a peer,
 * whatever the number of claims that watch it; some are kept for later, because those who met at
 * one lock will meet again. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engines/local/liveness.h"
#include "engines/local/local.h"

#define PAUSE_MIN_NS   (NS_PER_MS / 4)
#define PAUSE_MAX_NS   NS_PER_SEC
#define IDLE_PEERS_MAX 32

struct peer {
    struct peer *next; /* with the same head */
    struct peer *next_idle;
    struct local *local;
    uint64_t id;
    struct watch watch;
    struct timer timer; /* while there is no connection: when to try again */
    uint64_t pause_ns;
    struct link *links; /* none: idle */
    bool is_dead;       /* its watchers are being told */
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

/* Nobody watches it any more. A connection is kept for the next time. */
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

static bool add_link(struct peer *peer, struct looker *looker)
{
    struct link *link = malloc(sizeof *link);
    if (!link)
        return false;
    if (!peer->links)
        unlist_idle(peer);
    *link = (struct link){.looker = looker, .peer = peer, .at_peer = &peer->links};
    link->next_of_peer = peer->links;
    if (peer->links)
        peer->links->at_peer = &link->next_of_peer;
    peer->links = link;
    link->next_of_looker = looker->links;
    looker->links = link;
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
        links = link->next_of_looker;
        detach(link);
        if (!link->peer->links)
            retire(link->peer);
        free(link);
    }
}

static void forget_link(struct link *link)
{
    struct link **at = &link->looker->links;
    while (*at && *at != link)
        at = &(*at)->next_of_looker;
    if (*at)
        *at = link->next_of_looker;
    detach(link);
    free(link);
}

/* ---- life ---- */

/* Everybody who watched it looks again. Each look may end in a callback that changes the rest. */
static void tell_of_death(struct peer *peer)
{
    uint64_t id = peer->id;
    peer->is_dead = true;
    hang_up(peer);
    unlist(peer);
    while (peer->links) {
        struct looker *looker = peer->links->looker;
        forget_link(peer->links);
        looker->look(looker, id);
    }
    free_peer(peer);
}

/* 0 or an errno value. */
static int call(struct peer *peer)
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

/* False: it is dead. If it can't be called although it lives, its life is looked at now and then.
 */
static bool keep_an_eye_on(struct peer *peer)
{
    struct local *local = peer->local;
    int rc = call(peer);
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
    struct peer *peer = (struct peer *)((char *)timer - offsetof(struct peer, timer));
    if (!keep_an_eye_on(peer))
        tell_of_death(peer);
}

/* It hung up: it is dead, or is dying and has one file left to close, or has a new listener. */
static void hung_up(struct watch *watch, uint32_t events)
{
    struct peer *peer = (struct peer *)((char *)watch - offsetof(struct peer, watch));
    (void)events;
    hang_up(peer);
    if (!peer->links)
        free_peer(peer);
    else if (!keep_an_eye_on(peer))
        tell_of_death(peer);
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

enum peer_answer {
    PEER_WATCHED,
    PEER_DEAD,
    PEER_UNKNOWN, /* out of memory: look again before long */
};

static enum peer_answer watch_one(struct local *local, struct looker *looker, uint64_t id)
{
    if (id == local->id)
        return PEER_WATCHED;
    struct peer *peer = find(local, id);
    bool known = peer;
    if (!known)
        peer = make_peer(local, id);
    if (!peer)
        return PEER_UNKNOWN;
    if (!known && !keep_an_eye_on(peer)) {
        free_peer(peer);
        return PEER_DEAD;
    }
    if (add_link(peer, looker))
        return PEER_WATCHED;
    if (!known)
        free_peer(peer);
    return PEER_UNKNOWN;
}

uint64_t local_peers_watch_all(struct local *local, struct looker *looker, struct ahead *sight)
{
    struct link *old = looker->links;
    uint64_t dead = 0;
    looker->links = NULL;
    for (uint32_t i = 0; i < sight->n && !dead; i++) {
        enum peer_answer answer = watch_one(local, looker, sight->sessions[i]);
        if (answer == PEER_DEAD)
            dead = sight->sessions[i];
        else if (answer == PEER_UNKNOWN)
            sight->more = true;
    }
    drop_links(old);
    return dead;
}

void local_peers_unwatch(struct local *local, struct looker *looker)
{
    struct link *links = looker->links;
    (void)local;
    looker->links = NULL;
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
