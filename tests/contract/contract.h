/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What every engine promises, as one suite that takes a URL. It knows nothing of an engine but
 * include/stile.h and what the engine declares in its caps: what it declares must work, and what
 * it does not declare must be refused with UNSUPPORTED.
 *
 * Other processes are real ones: the program runs itself again (child.c) and talks to each copy
 * over two pipes, so that a kill -9 or a SIGSTOP hits a process with a client of its own. */
#ifndef STILE_CONTRACT_H
#define STILE_CONTRACT_H

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stile.h"

/* What must happen is waited for this long; only a failure comes near it. */
#define PATIENCE_MS 30000
#define PEERS_MAX   32
#define CLIENTS_MAX 4
#define QUEUE_MAX   64
#define STAMPS_MAX  256
#define COUNT(a)    (sizeof(a) / sizeof *(a))

struct suite {
    char url[STILE_URL_MAX + 1];
    char dir[256];       /* ours alone, removed at the end */
    struct arena *arena; /* shared with all children */
    unsigned rounds;     /* 0: as many as the engine is fast */
    unsigned soak;       /* how many times more of them, and of the time for them */
};
extern struct suite suite;

/* ---- asserting ---- */

extern struct stile_error why; /* for calls of the main thread; shown when one goes wrong */

#define check_status(want, call)                                                                   \
    (why = (struct stile_error){0}, check_status_at(want, call, #call, __FILE__, __LINE__))
#define check_ok(call) check_status(STILE_OK, call)

void check_status_at(enum stile_status want, enum stile_status got, const char *call,
                     const char *file, int line);

/* ---- a scene: one test's client, its fresh name, its other processes ---- */

struct peer {
    pid_t pid;
    int to, from;
    char line[4096]; /* what has come and not been read yet */
    size_t len;
};

struct scene {
    struct stile_client *client;
    const struct stile_caps *caps;
    char name[64];
    struct stile_client *clients[CLIENTS_MAX]; /* further ones */
    struct peer *peers[PEERS_MAX];
    pid_t strays[4]; /* processes whose parents have ended */
    void *memory[16];
};

#define SCENE_TEST(f)                                                                              \
    {                                                                                              \
#f, f, scene_open, scene_close, NULL                                                       \
    }

int scene_open(void **state);
int scene_close(void **state);
struct stile_client *scene_client(struct scene *scene, const struct stile_client_options *options);
/* Zeroed, and there until the clients are closed: what a callback writes to when a test has ended
 * in the middle. */
void *scene_memory(struct scene *scene, size_t size);
sem_t *scene_semaphore(struct scene *scene);
unsigned scene_rounds(const struct scene *scene, unsigned fast, unsigned slow);

/* On process leases nothing waits for a TTL to pass; elsewhere it must outlast a busy machine. */
int64_t short_ttl(const struct scene *scene);
bool ends_with_process(const struct scene *scene);

/* True if the engine has it; else it has been checked that it says so. */
bool has_mode(struct scene *scene, enum stile_mode mode);
bool has_hold(struct scene *scene);
bool has_delay(struct scene *scene);
bool has_proclaim(struct scene *scene);
bool has_history(struct scene *scene);
bool has_cells(struct scene *scene);

struct stile_lock *lock_on(struct stile_client *client, const char *name,
                           const struct stile_lock_options *options);
struct stile_lock *held_on(struct stile_client *client, const char *name,
                           const struct stile_lock_options *options); /* tried once: must be free */
uint64_t token_of(struct stile_lock *lock); /* 0 where the engine has none */

/* ---- seeing ---- */

struct seen {
    char name[STILE_NAME_MAX + 1];
    uint64_t token;
    size_t holders, waiters, ghosts;
    struct stile_claim_info claims[QUEUE_MAX]; /* their texts are not kept */
};

void look(struct stile_client *client, const char *name, struct seen *seen);
/* Waits, by watching, until it is so. Without a queue in the engine, waiters cannot be seen. */
void await_state(struct scene *scene, const char *name, size_t holders, size_t waiters);
/* The same, and what was seen then. A waiter on postgres is not shown while it goes from the
 * server's queue to stile's: a second look may miss it. */
void await_seen(struct scene *scene, const char *name, size_t holders, size_t waiters,
                struct seen *seen);
void await_ghost(struct scene *scene, const char *name);
/* The holder has that token. */
void await_token(struct scene *scene, const char *name, uint64_t token);
void check_free(struct scene *scene, const char *name);
size_t count_listed(struct stile_client *client, const char *prefix);

/* ---- cells ---- */

struct stile_cell *cell_of(struct scene *scene, const char *key); /* to be freed */
void check_cell(struct scene *scene, const char *key, const char *text, uint64_t version);
uint64_t put_text(struct stile_client *client, const char *key, const char *text);
uint64_t cell_version(struct scene *scene, const char *key);
size_t count_cells(struct stile_client *client, const char *prefix);
/* Adds one to the number in a cell, so often. */
enum stile_status count_up(struct stile_client *client, const char *key, unsigned rounds);
/* Writes tokens that grow, among others that do the same; the arena notes what goes back. */
enum stile_status climb(struct stile_client *client, const char *key, unsigned rounds);

/* ---- paces ---- */

/* Waits for a start and notes its time in the arena. */
enum stile_status pace_and_stamp(struct stile_client *client, const char *name,
                                 const struct stile_pace_options *options, uint64_t *stamp);

int64_t now_ms(void);
bool readable(int fd, int64_t wait_ms);
void await_post(sem_t *sem); /* by a callback or thread of ours */

/* ---- other processes ---- */

/* Starts one with a client of its own, and with a lock if a name is given. */
struct peer *peer_start(struct scene *scene, const char *name,
                        const struct stile_lock_options *options);
void peer_lock(struct peer *peer, const char *name, const struct stile_lock_options *options);

void peer_tell(struct peer *peer, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *peer_hear(struct peer *peer); /* the next line; valid until the next call */
void peer_expect(struct peer *peer, const char *line);
uint64_t peer_expect_grant(struct peer *peer); /* its token */
uint64_t peer_acquire(struct peer *peer);
void peer_release(struct peer *peer);
pid_t peer_expect_pid(struct scene *scene, struct peer *peer, const char *word);
size_t peer_first(struct peer *const *peers, size_t n); /* whose line comes first */

void peer_kill(struct peer *peer);                        /* -9, and reaped */
void peer_forget(struct scene *scene, struct peer *peer); /* a dead one; its place is free */
void peer_stop(struct peer *peer);                        /* SIGSTOP, and seen to have stopped */
void peer_continue(struct peer *peer);
void peer_end(struct scene *scene, struct peer *peer); /* asked to, and gone without complaint */

int child_main(void);

/* ---- the independent check ---- */

/* Shared memory that the engine knows nothing of. Numbers grow by a load and a store, so that two
 * that are inside at once lose an update. */
struct arena {
    _Atomic uint64_t inside, count, overlaps;
    _Atomic uint64_t last_token, backwards;
    _Atomic int within, most;
    _Atomic uint64_t n_stamps;
    uint64_t stamps[STAMPS_MAX]; /* of starts, in any order */
};

struct arena *arena_map(void);
void arena_reset(void);
void arena_work(uint64_t worker, uint64_t token);
void arena_crowd_in(void); /* for slots and readers: how many at once */
void arena_crowd_out(void);
void arena_stamp(uint64_t at_ns);

/* Acquires, works inside, releases. 0 rounds: until killed. */
enum stile_status hammer(struct stile_lock *const *locks, size_t n, unsigned rounds,
                         uint64_t worker);

/* ---- the tests, one list a file ---- */

#define SUITE_MAP(X)                                                                               \
    X(exclusion)                                                                                   \
    X(waiting)                                                                                     \
    X(order)                                                                                       \
    X(tokens)                                                                                      \
    X(crash)                                                                                       \
    X(shared)                                                                                      \
    X(slots)                                                                                       \
    X(holds)                                                                                       \
    X(inspect)                                                                                     \
    X(breaking)                                                                                    \
    X(history)                                                                                     \
    X(cells)                                                                                       \
    X(kept)                                                                                        \
    X(once)                                                                                        \
    X(guards)                                                                                      \
    X(elect)                                                                                       \
    X(pace)                                                                                        \
    X(names)                                                                                       \
    X(many)                                                                                        \
    X(events)                                                                                      \
    X(forks)                                                                                       \
    X(clients)

#define SUITE_DECLARE(part)                                                                        \
    extern const struct CMUnitTest part##_tests[];                                                 \
    extern const size_t part##_tests_n;
SUITE_MAP(SUITE_DECLARE)
#undef SUITE_DECLARE

#define SUITE_PART(part, ...)                                                                      \
    const struct CMUnitTest part##_tests[] = {__VA_ARGS__};                                        \
    const size_t part##_tests_n = COUNT(part##_tests);

#endif
