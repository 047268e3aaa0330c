/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One query to the engine, and its answer. */
#ifndef STILE_QUESTION_H
#define STILE_QUESTION_H

#include "core/drive.h"
#include "engines/engine.h"

/* What every query to the engine has. query.core points to it. */
struct question {
    struct query query;
    struct stile_error error; /* the engine's answer */
    bool asked;               /* the engine has not answered */
    bool out_of_memory;
    void (*answered)(struct question *question);
    void (*changed)(
        struct question *question); /* subscriptions: what is watched may have changed */
    struct follower follower;       /* of a blocking call */
};

typedef void question_slot(struct engine *engine, struct query *query);

/* answered: wakes the follower. */
void question_init(struct question *question, struct stile_client *client, const char *name);
void question_ask(struct question *question, question_slot *slot);
enum stile_status question_outcome(const struct question *question, struct stile_error *err);
/* Ends one that is under way. */
void question_cancel(struct question *question);

/* As engine_events has it. */
void question_done(struct query *query, const struct stile_error *err);
void question_changed(struct query *query);

#endif
