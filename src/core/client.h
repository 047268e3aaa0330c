/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A client: one open engine, its loop, its mutex and the locks made on it.
 *
 * After a fork the child's copy is invalid. Every call compares the epoch its client was
 * opened in with the current one, without a syscall, and the child closes the inherited file
 * descriptors at once, so that a lock never outlives its process in an unsuspecting child. */
#ifndef STILE_CLIENT_H
#define STILE_CLIENT_H

#include <pthread.h>

#include "core/admission.h"
#include "core/drive.h"
#include "core/lease.h"
#include "core/name_queue.h"
#include "engines/engine.h"

#define CLIENT_MAGIC UINT64_C(0x7374696c65636c69)

/* How many freed handles are kept to recognise a second free. */
#define FREED_KEPT 64

enum client_phase {
    CLIENT_OPENING,
    CLIENT_OPEN,
    CLIENT_FAILED, /* to open: the engine has nothing left */
};

struct stile_client {
    uint64_t magic;
    uint64_t epoch; /* of the process that may use it */
    pthread_mutex_t mutex;
    struct loop *loop;
    struct engine *engine;
    bool threadless;
    enum client_phase phase;
    struct opening *opening; /* the call that waits for the outcome of open() */
    char command[256];       /* as `stile show` prints it */
    stile_log_fn *log;
    void *log_data;
    enum stile_log_level log_level;
    struct drive drive;
    struct name_queues name_queues;
    struct admission admission;
    struct leases leases;
    struct callbacks callbacks;
    struct stile_lock *locks;         /* all of them, freed ones included while they are needed */
    struct job_call *job_calls;       /* those that are not answered */
    struct cell_call *cell_calls;     /* those that are not answered */
    struct cell_watch *cell_watches;  /* async: those whose callback has not come */
    struct cancellable *cancellables; /* async: those whose callback has not come */
    uint64_t pace_trip_ns, pace_answer_ns;      /* how long the last reservation of a start took: to
                                                 * read the engine's clock, and in all; 0: none */
    struct inspection *inspections;             /* async: those whose callback has not come */
    struct record_write *records, *last_record; /* not answered; the first is under way */
    uint64_t last_watch;                        /* the number of the latest */
    struct stile_lock *freed_locks[FREED_KEPT];
    unsigned next_freed;
    struct stile_client *registry_next;
    bool closing; /* with the register's mutex */

    unsigned inside;                               /* calls that have entered and not left */
    struct outside *outside;                       /* those that are in a callback of theirs */
    pthread_cond_t left;                           /* closing: no call is inside */
    void (*last_out)(struct stile_client *client); /* closed from a callback: what closes it */
};

/* A call that waits for opened(). A blocking one has it on its stack, with nothing but the error.
 */
struct opening {
    struct stile_client *client;
    struct url *url;
    char *label;
    stile_open_fn *fn;
    void *data;
    struct callback callback;
    struct stile_error error;
};

/* A call that makes callbacks without the mutex, and not as the leader; on its stack. */
struct outside {
    struct stile_client *client;
    pthread_t thread;
    struct outside *next;
};

/* Opens an engine of this class on this loop, which the client then owns (also on failure). In
 * open.c. */
enum stile_status client_new(struct stile_client **client, const struct engine_class *class,
                             struct loop *loop, const struct url *url,
                             const struct stile_client_options *options, struct stile_error *err);

/* The engine's answer to open(), as engine_events has it. */
void client_opened(struct engine *engine, const struct stile_error *err);

/* Check the handle and take the mutex; every public call starts with it. */
enum stile_status client_enter(struct stile_client *client, struct stile_error *err);
/* Also while it is being opened, and after that has failed. */
enum stile_status client_enter_early(struct stile_client *client, struct stile_error *err);
/* Not if it was opened for the doctor. */
enum stile_status client_enter_for_locks(struct stile_client *client, struct stile_error *err);
/* Flush, and let go of the mutex. */
void client_leave(struct stile_client *client);
/* Sends what this call has written, and makes some thread run what it has put off. */
void client_flush(struct stile_client *client);

/* Around callbacks that a call makes itself: without the mutex. */
void client_step_out(struct stile_client *client, struct outside *outside);
void client_step_in(struct stile_client *client, struct outside *outside);
/* For calls that make several others: the client stays until client_let_go(), also between them. */
enum stile_status client_hold(struct stile_client *client, struct outside *outside,
                              struct stile_error *err);
void client_let_go(struct outside *outside);
/* The calling thread is in a callback of this client. */
bool client_in_callback(const struct stile_client *client);

/* One line for the user's log, if its level asks for it. */
#define CLIENT_LOG(client, level, ...)                                                             \
    do {                                                                                           \
        if ((client)->log && (level) <= (client)->log_level)                                       \
            client_log(client, level, __VA_ARGS__);                                                \
    } while (0)
void client_log(struct stile_client *client, enum stile_log_level level, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* That long from now; NEVER on overflow. */
uint64_t client_after_ms(struct stile_client *client, int64_t ms);

/* Clients known to the fork handler, and to stile_client_close() as really open. */
int client_register(struct stile_client *client); /* 0 or errno */
void client_unregister(struct stile_client *client);
bool client_begin_close(struct stile_client *client); /* false: not open, or being closed already */

/* Differs between a process and each of its forked children; 0: could not be set up. */
uint64_t fork_epoch(void);

/* A fork waits while an engine is being opened or closed: what it has then is in no register, and a
 * child would keep it. Never around a callback, which may fork. */
void fork_block(void);
void fork_unblock(void);

#endif
