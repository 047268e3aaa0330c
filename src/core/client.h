/* A client: one open engine, its loop, its mutex and the locks made on it. */
#ifndef STILE_CLIENT_H
#define STILE_CLIENT_H

#include <pthread.h>

#include "core/admission.h"
#include "core/drive.h"
#include "core/keeper.h"
#include "core/turn.h"
#include "engines/engine.h"

#define CLIENT_MAGIC UINT64_C(0x7374696c65636c69)

/* How many freed handles are kept to recognise a second free. */
#define GRAVES 64

struct stile_client {
    uint64_t magic;
    uint64_t epoch; /* of the process that may use it, see fork.h */
    pthread_mutex_t mutex;
    struct loop *loop;
    struct engine *engine;
    bool threadless;
    struct seat seat;
    struct turns turns;
    struct admission admission;
    struct keeper keeper;
    struct note *notes, **notes_tail; /* callbacks to be made without the mutex */
    struct stile_lock *locks;         /* all of them, zombies included */
    struct errand *errands;           /* those that are not answered */
    struct stile_lock *graves[GRAVES];
    unsigned next_grave;
    struct stile_client *registry_next;
    bool closing; /* with the registry's mutex */
};

/* A callback that is due. Embedded; run once, by whoever drives, without the mutex. */
struct note {
    struct note *next;
    bool queued;
    void (*fn)(struct note *note);
};

extern const struct engine_events core_events; /* events.c */

/* Opens an engine of this class on this loop, which the client then owns (also on failure). */
enum stile_status client_new(struct stile_client **client, const struct engine_class *class,
                             struct loop *loop, const struct url *url,
                             const struct stile_client_options *options, struct stile_error *err);

/* Check the handle and take the mutex; every public call starts with it. */
enum stile_status client_enter(struct stile_client *client, struct stile_error *err);
/* Not if it was opened for the doctor. */
enum stile_status client_enter_for_locks(struct stile_client *client, struct stile_error *err);
/* Let go of the mutex, and see to it that somebody does what this call has put off. */
void client_leave(struct stile_client *client);

/* So long from now; NEVER if the clock ends before. */
uint64_t client_after_ms(struct stile_client *client, int64_t ms);

void client_note(struct stile_client *client, struct note *note);
void client_forget_note(struct stile_client *client, struct note *note);

#endif
