#include "engines/sql/opening.h"

/* Why a session has ended is told after what was wrong with it. */
void opening_hear(struct opening *opening, const struct stile_error *why)
{
    if (!opening)
        return;
    if (why && !opening->error.status)
        opening->error = *why;
    opening->over = true;
}

enum stile_status opening_wait(struct opening *opening, struct loop *loop, struct stile_error *err)
{
    while (!opening->over) {
        loop_prepare(loop);
        loop_wait(loop, true);
        loop_run(loop);
    }
    opening->over = false;
    if (opening->error.status)
        error_copy(err, &opening->error);
    return opening->error.status;
}
