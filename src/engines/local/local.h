/* The parts of one open local engine. local.c tells the story. */
#ifndef STILE_LOCAL_H
#define STILE_LOCAL_H

#include "engines/engine.h"
#include "engines/local/env.h"
#include "engines/local/table.h"

struct local;
struct peer;

/* Ties somebody who looks to a session whose end they must hear of. */
struct link {
    struct link *next_of_looker;
    struct link *next_of_peer, **at_peer;
    struct looker *looker;
    struct peer *peer;
};

/* Somebody who looks at the table when poked, when a session in sight ends (dead: its id, else 0),
 * or when a timer says so: a claim, or a query that watches. */
struct looker {
    struct looker *next_due;
    bool is_due;
    struct link *links;
    void (*look)(struct looker *looker, uint64_t dead);
};

enum standing {
    STANDING_NOWHERE, /* nothing of it is in the table */
    STANDING_IN_LINE,
    STANDING_HELD,
    STANDING_LOST,    /* core has been told */
    STANDING_LEAVING, /* the table can't be entered; tried again */
};

/* Behind struct claim. */
struct local_claim {
    struct looker looker;
    struct timer timer;
    uint32_t slot; /* 1 + place in local->slots: the claim's id in the table; 0: none */
    uint32_t cell;
    uint32_t name; /* where it was found last */
    uint32_t born;
    uint32_t skip; /* how far a crowd of slot holders has been looked through */
    bool crowd;
    bool has_timer;
    bool heard; /* its owner has heard of the grant */
    enum standing standing;
};

struct slot {
    struct looker *looker; /* NULL: free */
    uint32_t next_free;    /* 1 + index */
};

#define PEER_HEADS 64

/* A socket connected to that of a session that is poked often. */
struct line {
    uint64_t session;
    int fd; /* 1 + fd; 0: none */
};

#define POKE_LINES 16

struct local {
    struct engine engine;
    struct env *env;
    uint64_t id;
    int life_fd;
    int listener_fd;
    int witness_fd;
    uint64_t listener_made_ns;
    struct watch pokes;
    struct line lines[POKE_LINES];
    unsigned lines_missed;
    struct timer guard;
    bool is_gone; /* the directory's files are not the ones we have open */
    struct task due_task;
    struct looker *due, **due_tail;
    struct slot *slots;
    uint32_t n_slots, cap_slots, free_slot;
    struct peer *peers[PEER_HEADS];
    struct peer *idle_peers; /* latest first */
    uint32_t n_idle_peers;
};

static inline struct local *local_of(struct engine *engine)
{
    return (struct local *)engine;
}

static inline struct local_claim *claim_part(struct claim *claim)
{
    return (struct local_claim *)claim->state;
}

static inline struct claim *claim_of(struct local_claim *part)
{
    return (struct claim *)((char *)part - offsetof(struct claim, state));
}

/* The table's time: CLOCK_BOOTTIME as the kernel has it, in whatever time namespace we are. */
static inline uint64_t local_now(const struct local *local)
{
    return loop_now(local->engine.loop) - local->env->time_offset_ns;
}

/* ... as the loop has it. */
static inline uint64_t local_loop_time(const struct local *local, uint64_t ns)
{
    return ns + local->env->time_offset_ns;
}

/* ---- session.c: our life and our sockets ---- */

enum stile_status session_open(struct local *local, struct stile_error *err);
void session_close(struct local *local);
void session_forked(struct local *local);

/* CORRUPT once the directory has been removed under us. */
enum stile_status session_check(const struct local *local, struct stile_error *err);

struct sockaddr_un;

/* Of the session's socket: 'w' for pokes, 'l' the listener. */
void session_address(const struct local *local, struct sockaddr_un *address, uint64_t id,
                     char kind);
void session_renew_listener(struct local *local);

/* ---- pokes.c: who has to look ---- */

void pokes_begin(struct local *local);
void pokes_end(struct local *local);
void pokes_forked(struct local *local);

/* An id for a looker that pokes can name, 1 + index; 0: out of memory. */
uint32_t pokes_add_slot(struct local *local, struct looker *looker);
void pokes_drop_slot(struct local *local, uint32_t slot);

/* Everything that is due looks now. */
void pokes_run_due(struct local *local);

/* It will look soon. */
void pokes_make_due(struct local *local, struct looker *looker);
void pokes_make_all_due(struct local *local);
void pokes_forget_due(struct local *local, struct looker *looker);

/* Tells everybody; clears away who turns out to be dead, and tells those whom that concerns. */
void pokes_deliver(struct local *local, struct pokes *pokes);
void pokes_ask_listener(struct local *local, uint64_t id);

/* ---- peers.c: the life of others ---- */

/* Watches those in sight and nobody else. A dead one's id, or 0. */
uint64_t peers_watch_all(struct local *local, struct looker *looker, struct sight *sight);
void peers_unwatch(struct local *local, struct looker *looker);
void peers_close(struct local *local);
void peers_forked(struct local *local);

/* ---- wait.c: claims in line ---- */

struct wish claim_wish(const struct local *local, struct claim *claim);

/* The claim is in the table and not granted. False: out of memory, nothing has been done. */
bool wait_begin(struct local *local, struct claim *claim);
void wait_end(struct local *local, struct local_claim *part);
void wait_look(struct looker *looker, uint64_t dead);

/* Puts the claim in line (again). In local.c. */
void local_enter(struct local *local, struct claim *claim);

/* ---- snapshot.c: what is in the table, copied out of it ---- */

struct snapshot_name {
    char *name;
    uint64_t token;
    uint32_t n_claims;
    struct claim_cell *claims; /* in order; the cell's own index stands in `check` */
};

struct snapshot_session {
    uint64_t id;
    bool is_alive;
    uint32_t pid;
    char host[SESSION_HOST_MAX + 1];
    char command[SESSION_COMMAND_MAX + 1];
};

struct snapshot {
    struct snapshot_name *names; /* in byte order */
    size_t n_names, cap_names;
    struct snapshot_session *sessions; /* by id */
    size_t n_sessions;
    uint64_t now_ns;
};

/* Names that begin with prefix and are held or waited for. Never the whole table in one
 * transaction, so that those who lock don't wait for who looks. */
enum stile_status snapshot_list(struct snapshot *snapshot, struct local *local, const char *prefix,
                                size_t len, struct stile_error *err);
/* This one name, also if there is nothing to tell of it. */
enum stile_status snapshot_show(struct snapshot *snapshot, struct local *local, const char *name,
                                size_t len, struct stile_error *err);
const struct snapshot_session *snapshot_session(const struct snapshot *snapshot, uint64_t id);
void snapshot_free(struct snapshot *snapshot);

/* ---- view.c, break.c: for people ---- */

void view_list(struct engine *engine, struct query *query);
void view_show(struct engine *engine, struct query *query);
void view_watch(struct engine *engine, struct query *query);
void view_unwatch(struct engine *engine, struct query *query);
void view_break(struct engine *engine, struct query *query);

/* ---- doctor.c ---- */

void local_examine(struct engine *engine, struct query *query);

#endif
