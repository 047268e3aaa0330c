/* list, show, watch and break: query, collect copies, and report them without the mutex. */
#ifndef STILE_INSPECT_H
#define STILE_INSPECT_H

#include "core/drive.h"
#include "engines/engine.h"

/* Common to all queries; query.core points to it. */
struct question {
    struct query query;
    struct follower follower;
    struct stile_error error;
    bool ended, out_of_memory;
};

void question_init(struct question *question, struct stile_client *client, const char *name);
enum stile_status question_outcome(const struct question *question, struct stile_error *err);

/* As engine_events has them. */
void inspect_info(struct query *query, const struct stile_info *info);
void inspect_done(struct query *query, const struct stile_error *err);

#endif
