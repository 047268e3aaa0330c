/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Many clients in one process, each with a session of its own, that all want the same lock: crowd
 * URL NAME CLIENTS ROUNDS TTL_MS PACE_MS. ROUNDS 0: time and again, until its input ends. They come
 * one after the other, PACE_MS apart. Says "ready" once all of them have reached the engine and
 * begin to ask; then for each time that one had the lock
 *
 *     TOKEN SINCE LAST LOST
 *
 * the token, when it was surely held already, and when it surely was for the last time. What lies
 * between was its own: if another one's times overlap with it, there were two holders. LOST is 1 if
 * its release was answered with LOST, else 0. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "witness.h"

#define LOOKS   3
#define LOOK_NS (500 * 1000)
#define EVENTS  64
#define TRIES   10

struct member {
    struct stile_client *client;
    struct stile_lock *lock;
    struct member *next; /* that also holds one just now */
    long rounds;
    uint64_t token, since, last, due;
    int looks;
};

static struct crowd {
    const char *name;
    int64_t ttl_ms;
    struct member *members, *holders;
    long n, came, left;
    int pace_ms;
    uint64_t due; /* the next one comes */
    int epoll;
    bool endless, ending;
    int failed;
} crowd;

static bool ask(struct member *member);

/* ---- giving it back ---- */

static void on_released(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    struct member *member = data;
    if (member->last)
        printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %d\n", member->token, member->since,
               member->last, status == STILE_LOST);
    if (status && status != STILE_LOST && status != STILE_UNREACHABLE) {
        complain("release", err);
        crowd.failed = 1;
    }
    stile_lock_free(lock);
    member->lock = NULL;
    member->rounds--;
    if (crowd.ending || (!crowd.endless && member->rounds <= 0) || !ask(member))
        crowd.left--;
}

static void leave(struct member *member)
{
    if (stile_lock_release_async(member->lock, on_released, member))
        abort();
}

/* The clock is read before the question: what is held after that was held then. */
static bool look(struct member *member)
{
    uint64_t now = now_ns();
    bool held = stile_lock_held(member->lock);
    if (held)
        member->last = now;
    member->due = now + LOOK_NS;
    return held && ++member->looks < LOOKS;
}

static void look_at_holders(void)
{
    for (struct member **at = &crowd.holders; *at;) {
        struct member *member = *at;
        if (member->due > now_ns() || look(member)) {
            at = &member->next;
            continue;
        }
        *at = member->next;
        leave(member);
    }
}

/* ---- asking for it ---- */

static void on_acquired(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    struct member *member = data;
    if (status) {
        crowd.left--;
        if (status == STILE_CANCELLED && crowd.ending)
            return;
        complain("acquire", err);
        crowd.failed = 1;
        return;
    }
    member->since = now_ns();
    member->last = 0;
    member->looks = 0;
    stile_lock_token(lock, &member->token);
    if (!look(member)) {
        leave(member);
        return;
    }
    member->next = crowd.holders;
    crowd.holders = member;
}

/* With a handle of its own each time: what became of the last one may not be known for a while. */
static bool ask(struct member *member)
{
    struct stile_error err;
    if (stile_lock_new(&member->lock, member->client, crowd.name,
                       STILE_OPTIONS(.ttl_ms = crowd.ttl_ms), &err)) {
        complain("lock", &err);
        crowd.failed = 1;
        return false;
    }
    if (stile_lock_acquire_async(member->lock, -1, on_acquired, member))
        abort();
    return true;
}

static void let_come(void)
{
    while (crowd.came < crowd.n && crowd.due <= now_ns()) {
        crowd.left -= !ask(&crowd.members[crowd.came++]);
        crowd.due += (uint64_t)crowd.pace_ms * 1000000u;
    }
}

/* No new claims; waiters withdraw. */
static void end(void)
{
    crowd.ending = true;
    crowd.left -= crowd.n - crowd.came;
    crowd.came = crowd.n;
    (void)epoll_ctl(crowd.epoll, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
    for (long i = 0; i < crowd.n; i++) {
        if (crowd.members[i].lock)
            stile_lock_cancel(crowd.members[i].lock);
    }
}

/* ---- all of them at once ---- */

static void serve(int timeout_ms)
{
    struct epoll_event events[EVENTS];
    char byte;
    int n = epoll_wait(crowd.epoll, events, EVENTS, timeout_ms);
    for (int i = 0; i < n; i++) {
        struct member *member = events[i].data.ptr;
        if (member)
            stile_client_dispatch(member->client);
        else if (read(STDIN_FILENO, &byte, 1) <= 0)
            end();
    }
    look_at_holders();
}

/* Servers that thousands come to at once may keep some waiting for too long. */
static bool join(struct member *member, const char *url)
{
    struct stile_error err;
    enum stile_status status;
    int tries = 0;
    do {
        status =
            stile_client_open(&member->client, url, STILE_CLIENT_OPTIONS(.threadless = true), &err);
    } while (status == STILE_UNREACHABLE && ++tries < TRIES);
    if (status) {
        complain("open", &err);
        return false;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = member};
    return epoll_ctl(crowd.epoll, EPOLL_CTL_ADD, stile_client_fd(member->client), &event) == 0;
}

/* The present members live while the others come. */
static bool gather(const char *url, long rounds)
{
    for (long i = 0; i < crowd.n; i++) {
        crowd.members[i].rounds = rounds;
        if (!join(&crowd.members[i], url))
            return false;
        serve(0);
    }
    return true;
}

static void allow_many_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 2;
    allow_many_files();
    setlinebuf(stdout); /* lines of several crowds in one pipe stay whole */
    crowd.n = crowd.left = atol(argv[3]);
    crowd.endless = atol(argv[4]) == 0;
    crowd.name = argv[2];
    crowd.ttl_ms = atol(argv[5]);
    crowd.pace_ms = atoi(argv[6]);
    crowd.members = calloc((size_t)crowd.n, sizeof *crowd.members);
    crowd.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!crowd.members || crowd.epoll < 0 || !gather(argv[1], atol(argv[4])))
        return 1;
    struct epoll_event event = {.events = EPOLLIN};
    (void)epoll_ctl(crowd.epoll, EPOLL_CTL_ADD, STDIN_FILENO, &event);
    (void)puts("ready");
    crowd.due = now_ns();
    while (crowd.left > 0) {
        let_come();
        serve(crowd.holders ? 1 : crowd.came < crowd.n ? crowd.pace_ms : -1);
    }
    for (long i = 0; i < crowd.n; i++)
        stile_client_close(crowd.members[i].client);
    free(crowd.members);
    return crowd.failed;
}
