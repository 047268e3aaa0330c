/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of the state file: names, the queue of claims of each, sessions and observers. All
 * functions work inside a transaction and use no sockets; the caller passes the time.
 *
 * The rule: the claims of a name stand in order of arrival, and the granted ones are always the
 * first of them. The next one is granted if the name has no holder; or if it is shared and so are
 * the holders; or if it is one of N slots, so are the holders, and they are fewer than N. */
#ifndef STILE_LOCAL_TABLE_H
#define STILE_LOCAL_TABLE_H

#include <stddef.h>

#include "engines/local/chains.h"
#include "engines/local/quick.h"
#include "io/loop.h"

#define CLAIMS_PER_NAME_MAX UINT16_MAX
#define FORGET_AFTER_S      60

/* An unused name is kept for a while, because its next use is then quicker; but only at the start
 * of the file, so that its end can be given back. Beyond these cells a name goes as soon as it is
 * idle, unless it is open: then a sweep closes it first. */
#define KEPT_CELLS (AT_FIRST + 65536)

/* ---- wake-ups, sent once the transaction is committed ---- */

enum wakeup_kind {
    WAKE_CLAIM = 1, /* the claim `id` has to recheck the table */
    WAKE_QUERY,     /* the name that query `id` watches has changed */
    WAKE_LISTENER,  /* the backlog is full of dead connections: a new listener is needed */
};

struct wakeup {
    uint64_t session;
    uint32_t id;
    uint32_t cell; /* the claim or observer, to be cleared away if its session is dead */
    uint32_t name; /* if the id is 0: the claim that has taken this name by its word */
    enum wakeup_kind kind;
};

#define WAKEUPS_MAX 128 /* a power of two */

struct wakeups {
    uint32_t head, tail;
    struct wakeup ring[WAKEUPS_MAX];
};

static inline void wakeups_init(struct wakeups *wakeups)
{
    wakeups->head = wakeups->tail = 0;
}

/* ---- names (table.c, names.c) ---- */

uint32_t local_names_find(struct tx *tx, uint64_t hash, const char *name, size_t len);
/* Inserts the name if it is missing, and forgets a few others that have been idle for long. */
uint32_t local_names_open(struct tx *tx, uint64_t hash, const char *name, size_t len,
                          uint64_t now_ns);
/* Whether the name found there earlier is still there. A damaged cell may pass; the next read
 * detects it. */
bool local_names_is_still(struct tx *tx, uint32_t name, uint32_t born, uint64_t hash);

/* Searches the next n bucket cells, or fewer if there is much in them or that many edits have been
 * made, for names to forget and, if swept is not NULL, for claims of dead sessions and the sessions
 * themselves. It lists these sessions so that the caller can remove their sockets. */
#define SWEPT_MAX        16
#define EDITS_FOR_SWEEPS 100

struct swept {
    uint64_t sessions[SWEPT_MAX];
    uint32_t n;
    uint64_t alive, dead; /* the sessions checked last: one session may have many claims */
};

void local_names_sweep(struct tx *tx, unsigned n_cells, uint32_t edits, uint64_t now_ns,
                       struct swept *swept);

/* Forgets the name at once if it is unused and beyond KEPT_CELLS. */
void local_names_drop_if_idle(struct tx *tx, uint32_t name);
/* For names.c: forgets an unused name; whether a name is due to be forgotten. */
void local_names_forget(struct tx *tx, uint32_t name);
bool local_names_is_far_up(uint32_t index, const struct name_cell *name);
bool local_names_is_to_go(uint32_t name, const struct chained_cell *cell, uint32_t now_s);

/* Whole cells, and a NUL. */
#define NAME_TEXT_MAX ((STILE_NAME_MAX / TEXT_BYTES + 1) * TEXT_BYTES)

/* text has room for NAME_TEXT_MAX + 1. */
void local_names_text(struct tx *tx, char *text, const struct name_cell *name);

/* ---- sessions and observers (table.c) ---- */

#define SESSION_HOST_MAX    64
#define SESSION_COMMAND_MAX 200

/* False: it may not take words, because an older session has the same tag. */
bool local_sessions_add(struct tx *tx, uint64_t id, int64_t pid, uint64_t now_ns, const char *host,
                        const char *command);
uint32_t local_sessions_find(struct tx *tx, uint64_t id);
/* The id of the session whose words have this tag, or 0: it is gone. */
uint64_t local_sessions_by_tag(struct tx *tx, uint64_t tag);
void local_sessions_drop(struct tx *tx, uint64_t id);

uint32_t local_observers_add(struct tx *tx, uint64_t session, uint32_t id, uint32_t name);
void local_observers_drop(struct tx *tx, uint32_t observer, uint64_t session, uint32_t id);
void local_observers_remove(struct tx *tx, uint32_t observer);
void local_observers_wake(struct tx *tx, uint32_t name, struct wakeups *wakeups);

/* One step each; true: there may be more. local_table_trim() takes free cells off the end of the
 * table, local_table_give_back() gives what the file occupies beyond it back to the disk. */
bool local_table_trim(struct store *store);
bool local_table_give_back(struct store *store);

/* Empties the table in one step, however much is in it. No hold or delay may keep a claim in it.
 * New tokens are above all that were granted. */
enum stile_status local_table_reset(struct store *store, struct stile_error *err);

/* For a process that is alone in the file. Ends all claims except those that hold_at_least or a
 * lock-delay keeps, and removes all sessions and observers. */
enum stile_status local_table_end_all(struct store *store, uint64_t now_ns,
                                      struct stile_error *err);
/* Removes all observers, at most 1024. */
enum stile_status local_table_remove_observers(struct store *store, struct stile_error *err);

/* ---- texts (table.c) ---- */

uint32_t local_text_store(struct tx *tx, const char *bytes, size_t len);
void local_text_load(struct tx *tx, uint32_t text, char *bytes, size_t len);
void local_text_free(struct tx *tx, uint32_t text);

/* ---- claims (queue.c) ---- */

struct claim_request {
    uint64_t session;
    uint32_t id;
    enum stile_mode mode;
    uint32_t slots;
    uint32_t hold_ms, delay_ms;
    uint64_t retakes; /* the token of its last grant, to go ahead of the waiters; 0: never */
};

enum leave_how {
    LEAVE_RELEASED, /* by its owner, or withdrawn */
    LEAVE_DEAD,     /* its session is dead */
    LEAVE_BROKEN,   /* taken away: no hold, no delay */
};

/* Enters the queue, and is granted if the rule allows. */
uint32_t local_queue_enter(struct tx *tx, uint32_t name, const struct claim_request *request,
                           uint64_t now_ns, struct wakeups *wakeups);
void local_queue_leave(struct tx *tx, uint32_t claim, enum leave_how how, uint64_t now_ns,
                       struct wakeups *wakeups);
/* The usual release: without waiters, observers or a hold, so no wake-up is sent and the clock is
 * not read. False: it is not that simple; nothing has been done. open: the next claim may take the
 * name by its word. */
bool local_queue_leave_quietly(struct tx *tx, uint32_t claim, bool open);

/* Closes an open name: from here on its list of claims names the holder. To be called before
 * anything is read or changed of a name's claims; without effect on a closed one. The holder's
 * claim has the id 0 until its session adopts it. */
void local_queue_close(struct tx *tx, uint32_t name);
/* The session that holds an open name by its word; 0: none. */
uint64_t local_queue_quick_holder(struct tx *tx, uint32_t name);
/* The claim that this session was granted by the word with this token, and its id from now on. 0:
 * it is no longer held. */
uint32_t local_queue_adopt(struct tx *tx, uint32_t name, const struct claim_request *request,
                           uint64_t token);

/* When the claim behind this one came; 0: there is none. */
uint64_t local_queue_waited_for_since(struct tx *tx, uint32_t claim);
/* A release that leaves the lock free for a moment instead of handing it over (fair=). The first
 * waiter is woken and takes it, unless the claim that has just left enters again before that: then
 * it goes ahead of the waiters. Any other claim that enters has the first waiter granted. False: a
 * hold, or no waiter; nothing has been done. */
bool local_queue_leave_open(struct tx *tx, uint32_t claim, uint64_t now_ns,
                            struct wakeups *wakeups);
/* This waiter has looked and was not granted: it is to be woken again when the lock is free. */
void local_queue_note_look(struct tx *tx, uint32_t claim);

/* All claims of the name end, and none is granted. To be called again as long as it makes edits. */
void local_queue_end_all(struct tx *tx, uint32_t name, uint64_t now_ns);

/* Drops some of the ghosts whose time is over, of a name without waiters. */
void local_queue_expire(struct tx *tx, uint32_t name, uint64_t now_ns);

/* Drops ghosts whose time is over and grants what the rule allows. */
void local_queue_settle(struct tx *tx, uint32_t name, uint64_t now_ns, struct wakeups *wakeups);

/* The cell if it still is this claim of this session, else NULL. */
const struct claim_cell *local_queue_claim_of(struct tx *tx, uint32_t claim, uint64_t session,
                                              uint32_t id);

static inline bool claim_is_held(const struct claim_cell *claim)
{
    return claim->state > CLAIM_WAITING;
}

/* Removes a dead session's claims that block this waiter: just before it, and among the holders if
 * it is the first waiter. Some may be left; the next recheck finds them. */
void local_queue_reap(struct tx *tx, uint32_t claim, uint64_t dead, uint64_t now_ns,
                      struct wakeups *wakeups);

/* Removes some claims of dead sessions from a name without living waiters. */
void local_queue_tidy(struct tx *tx, uint32_t name, struct swept *swept, uint64_t now_ns);

/* The sessions that a waiter has to watch. */
#define AHEAD_MAX 64

struct ahead {
    uint64_t sessions[AHEAD_MAX];
    uint32_t n;
    bool more;             /* there are further ones */
    uint64_t ghost_end_ns; /* the earliest, or UINT64_MAX */
};

void local_queue_ahead(struct tx *tx, uint32_t claim, struct ahead *ahead);

/* For a claim that does not wait: whether claims of dead sessions block it. Some at a time. */
struct probe {
    const struct claim_request *request;
    uint32_t skip;    /* claims probed so far */
    uint32_t n_alive; /* slots: how many of those are alive */
    bool blocked;     /* a living claim is in the way */
    bool end;         /* all have been probed */
    bool reaped;      /* some were dead; try again */
    uint64_t ghost_end_ns;
};

void local_queue_probe(struct tx *tx, uint32_t name, struct probe *probe, uint64_t now_ns,
                       struct wakeups *wakeups);

#endif
