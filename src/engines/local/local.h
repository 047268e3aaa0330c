/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One open local engine, and what its files offer each other. The protocol stands in local.c. */
#ifndef STILE_LOCAL_H
#define STILE_LOCAL_H

#include "base/container.h"
#include "engines/engine.h"
#include "engines/local/env.h"
#include "engines/local/table.h"

struct local;
struct peer;

/* Ties a watcher to a session whose end concerns it. */
struct link {
    struct link *next_of_watcher;
    struct link *next_of_peer, **at_peer;
    struct watcher *watcher;
    struct peer *peer;
};

/* A claim, or a query that watches a name. It rechecks the table when it is woken, when a session
 * it watches ends (dead: its id, else 0), or when its timer fires. */
struct watcher {
    struct watcher *next_due;
    bool is_due;
    uint32_t quick; /* the name whose word it has taken; 0: none */
    struct link *links;
    void (*recheck)(struct watcher *watcher, uint64_t dead);
};

/* What this process knows of a claim; the claim's cell has a state of its own. The table of
 * transitions is in local.c. */
enum claim_state {
    IDLE, /* it has no cell in the table */
    QUEUED,
    HELD,
    LOST,        /* reported to core */
    WITHDRAWING, /* released before its grant was reported; repeated while the table is stuck */
    RELEASING,
    RELEASE_PAUSED, /* the table was stuck; the timer repeats the release */
};

/* Behind struct claim. */
struct local_claim {
    struct watcher watcher;
    struct timer timer;
    uint32_t slot; /* 1 + place in local->slots: the claim's id in the table; 0: none */
    uint32_t cell;
    uint32_t name; /* where the name was found last */
    uint32_t born;
    uint32_t skip; /* how many of the holders ahead have been probed, if more_ahead */
    bool more_ahead;
    enum claim_state state;
    bool used;             /* it has been released before, so a word is worth while */
    bool is_own;           /* its latest token is in a block of its name's own (quick.h) */
    uint64_t token;        /* of its latest grant */
    uint64_t turn_ns;      /* when it was granted after another claim */
    uint64_t turn_ends_ns; /* fair=: until then it may take the lock again ahead of the waiters */
};

struct slot {
    struct watcher *watcher; /* NULL: free */
    uint32_t next_free;      /* 1 + index */
};

#define PEER_HEADS 64

/* A socket connected to that of a session that is often woken. */
struct connection {
    uint64_t session;
    int fd; /* 1 + fd; 0: none */
};

#define CONNECTIONS_MAX 16

struct local {
    struct engine engine;
    struct env *env;
    uint64_t id;
    bool has_tag;     /* its claims may take names by their words (quick.h) */
    uint64_t fair_ns; /* how long a claim may take its lock again while others wait */
    int life_fd;
    int listener_fd;
    int witness_fd;
    uint64_t listener_made_ns;
    struct watch wakeup_watch;
    struct connection connections[CONNECTIONS_MAX];
    unsigned connections_missed;
    struct timer files_timer;
    bool is_gone; /* the directory's files are no longer the ones we have open */
    struct task due_task;
    struct watcher *due, **due_tail;
    struct slot *slots;
    uint32_t n_slots, cap_slots, free_slot;
    struct peer *peers[PEER_HEADS];
    struct peer *idle_peers; /* latest first */
    uint32_t n_idle_peers;
    struct cell_push *cell_push; /* cell_push.c; NULL: no cell was watched yet */
};

static inline struct local *local_of(struct engine *engine)
{
    return (struct local *)engine;
}

static inline struct local_claim *local_claim_of(struct claim *claim)
{
    return (struct local_claim *)claim->state;
}

static inline struct claim *claim_of(struct local_claim *lc)
{
    return container_of(lc, struct claim, state);
}

/* The table's time: the kernel's CLOCK_BOOTTIME, without the offset of our time namespace. */
static inline uint64_t local_now(const struct local *local)
{
    return loop_now(local->engine.loop) - local->env->time_offset_ns;
}

/* A time of the table, on the loop's clock. */
static inline uint64_t local_loop_time(const struct local *local, uint64_t ns)
{
    return ns + local->env->time_offset_ns;
}

/* ---- session.c ---- */

enum stile_status local_session_open(struct local *local, struct stile_error *err);
void local_session_close(struct local *local);
void local_session_forked(struct local *local);

/* CORRUPT once the directory or its files have been removed or replaced. */
enum stile_status local_session_check(const struct local *local, struct stile_error *err);

/* ---- wakeup.c: sockets, and which watchers have to recheck the table ---- */

struct sockaddr_un;

/* The address of a session's socket: kind 'w' receives wake-ups, 'l' is the listener. */
void local_wakeup_address(const struct local *local, struct sockaddr_un *address, uint64_t id,
                          char kind);
/* A bound socket of this session, or -1 and errno. */
int local_wakeup_socket(const struct local *local, int type, char kind);
void local_wakeup_unlink(const struct local *local, uint64_t id, char kind);

void local_wakeup_begin(struct local *local);
void local_wakeup_end(struct local *local);
void local_wakeup_forked(struct local *local);

/* An id by which wake-ups can name the watcher, 1 + index; 0: out of memory. */
uint32_t local_wakeup_add_slot(struct local *local, struct watcher *watcher);
void local_wakeup_drop_slot(struct local *local, uint32_t slot);

/* All watchers that are due recheck the table now. */
void local_wakeup_run_due(struct local *local);

/* The watcher will recheck the table soon. */
void local_wakeup_make_due(struct local *local, struct watcher *watcher);
void local_wakeup_make_all_due(struct local *local);
void local_wakeup_forget_due(struct local *local, struct watcher *watcher);

/* Sends all wake-ups. Removes claims and observers of sessions found dead, and wakes those that
 * waited for them. */
void local_wakeup_deliver(struct local *local, struct wakeups *wakeups);
void local_wakeup_ask_listener(struct local *local, uint64_t id);

/* ---- peers.c: the death of other sessions ---- */

/* Watches the sessions ahead and no others. Returns the id of a dead one, or 0. */
uint64_t local_peers_watch_all(struct local *local, struct watcher *watcher, struct ahead *ahead);
void local_peers_unwatch(struct local *local, struct watcher *watcher);
void local_peers_close(struct local *local);
void local_peers_forked(struct local *local);

/* ---- inspect.c ---- */

void local_inspect_list(struct engine *engine, struct query *query);
void local_inspect_show(struct engine *engine, struct query *query);
void local_inspect_watch(struct engine *engine, struct query *query);
void local_inspect_unwatch(struct engine *engine, struct query *query);
void local_inspect_break(struct engine *engine, struct query *query);

/* ---- history.c ---- */

extern const struct engine_history local_history;
/* Reports the name's record, if there is one. */
void local_history_show(struct engine *engine, struct query *query);

/* ---- cell_requests.c, cell_push.c; in a build without LMDB, cells_absent.c ---- */

extern const struct engine_cells local_cells;
void local_cells_watch(struct engine *engine, struct query *query);
void local_cells_unwatch(struct engine *engine, struct query *query);
/* The directory has gone: watched cells are read again, which ends their watches. */
void local_cells_report_gone(struct local *local);
void local_cells_end_watches(struct local *local);
void local_cells_forked(struct local *local);

/* ---- doctor.c ---- */

void local_examine(struct engine *engine, struct query *query);

#endif
