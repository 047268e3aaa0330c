/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/question.h"

#include <string.h>

#include "core/client.h"

static void wake_follower(struct question *q)
{
    drive_done(&q->follower);
}

void question_init(struct question *q, struct stile_client *client, const char *name)
{
    *q = (struct question){
        .query = {.engine = client->engine, .core = q, .name = name, .name_len = strlen(name)},
        .answered = wake_follower};
}

void question_ask(struct question *q, question_slot *slot)
{
    q->asked = true;
    q->error = (struct stile_error){0};
    slot(q->query.engine, &q->query);
}

void question_cancel(struct question *q)
{
    struct engine *engine = q->query.engine;
    if (!q->asked)
        return;
    q->asked = false;
    engine->class->cancel(engine, &q->query);
}

void question_done(struct query *query, const struct stile_error *err)
{
    struct question *q = query->core;
    error_copy(&q->error, err);
    q->asked = false;
    q->answered(q);
}

void question_changed(struct query *query)
{
    struct question *q = query->core;
    q->changed(q);
}

enum stile_status question_outcome(const struct question *q, struct stile_error *err)
{
    if (!q->error.status && q->out_of_memory)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    if (q->error.status && err)
        *err = q->error;
    return q->error.status;
}
