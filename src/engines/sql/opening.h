/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a client: the shared session connects, and is then asked for what the URL's mode needs,
 * one step after the other. */
#ifndef STILE_SQL_OPENING_H
#define STILE_SQL_OPENING_H

#include "base/self.h"
#include "engines/engine.h"

struct opening_step {
    bool (*needed)(struct engine *engine); /* NULL: always */
    /* Its answer ends in sql_opening_answered(); an error means that nothing was asked. */
    enum stile_status (*ask)(struct engine *engine, struct stile_error *err);
};

/* After the last step: what the client has learned decides what it promises. */
typedef enum stile_status opening_fn(struct engine *engine, struct stile_error *err);

struct opening {
    struct engine *engine;
    const struct opening_step *step; /* its answer is awaited; NULL: open() is over */
    opening_fn *finish;
    struct task fail;
    struct stile_error error;
};

/* Ends in opened(). The last element of steps has no `ask`. */
void sql_opening_start(struct opening *opening, struct engine *engine,
                       const struct opening_step *steps, opening_fn *finish);
/* The client is closed: opened() does not come any longer. */
void sql_opening_cancel(struct opening *opening);

/* The first step: answered when the shared session is up, or over. */
enum stile_status sql_opening_connect(struct engine *engine, struct stile_error *err);
/* why: the step has failed; NULL: it has not. Ignored while no step is under way. */
void sql_opening_answered(struct opening *opening, const struct stile_error *why);

static inline bool sql_opening_is_under_way(const struct opening *opening)
{
    return opening->step;
}

struct sql_modes {
    const struct engine_class *session, *table, *shedlock, *row;
};

/* What the URL's mode promises, without asking the server. */
const struct stile_caps *sql_opening_promises(const struct url *url, const struct sql_modes *modes);

/* The class of the URL's mode, instead of the scheme's default. */
void sql_opening_set_class(struct engine *engine, const struct engine_class *class);
/* The database lacks what `stile setup` creates. */
void sql_opening_set_bare(struct engine *engine, const char *token_is, const char *instead);

/* ---- identity ---- */

#define IDENTITY_OWNER_LEN   16
#define IDENTITY_COMMAND_MAX 255

/* All in ASCII: a database may know no other characters. */
struct identity {
    char owner[IDENTITY_OWNER_LEN + 1]; /* drawn anew for each client, in hex */
    char host[SELF_HOST_MAX + 1], pid[12], command[IDENTITY_COMMAND_MAX + 1];
};

/* "HOST PID", for those that lose a lock to it. */
void sql_identity_blame(char out[SELF_HOST_MAX + 32], const struct identity *identity);
enum stile_status sql_identity_init(struct identity *identity, const struct engine *engine,
                                    struct stile_error *err);

#endif
