/* Admission: how many requests of one client an engine has to answer at once.
 *
 * Fifty thousand claims at once would be fifty thousand requests in flight. The last answers would
 * arrive after their timeouts, every timeout would ask again, and the line would only grow. So core
 * lets class->in_flight claims and releases through, in order of arrival, releases first because
 * others may wait for the name. The rest wait here. A claim that waits in the server's own queue
 * (queued()) is not in flight. */
#ifndef STILE_ADMISSION_H
#define STILE_ADMISSION_H

#include "io/loop.h"

struct stile_client;
struct stile_lock;

/* The two lines. */
enum admission_line { RELEASE_LINE, CLAIM_LINE, ADMISSION_LINES };

/* Where a lock's request is. */
enum admission_place { NOT_ASKING, IN_LINE, IN_FLIGHT };

struct admission {
    size_t in_flight;
    struct stile_lock *first[ADMISSION_LINES], *last[ADMISSION_LINES];
    uint64_t progress_ns; /* when the line last moved, or began */
    struct task admit;    /* lock_send_admitted(), once a place is free */
};

/* Nothing is admitted after this: the engine is about to be closed. */
void admission_close(struct stile_client *client);

/* True: ask the engine now. False: admission_next() returns it when it is this request's turn. */
bool admission_enter(struct stile_lock *lock, enum admission_line line);
/* Its request is answered, or no longer wanted. Harmless if there is none. */
void admission_leave(struct stile_lock *lock);
/* The next request that may be sent, from now on in flight; NULL: none may. */
struct stile_lock *admission_next(struct stile_client *client);

/* When the patience of a request in line ends: it runs only while the line stands still. */
uint64_t admission_patience_ends(const struct stile_client *client, uint64_t patience_ns);

#endif
