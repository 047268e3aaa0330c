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

void opening_promise(struct engine *engine, const struct engine_class *class)
{
    engine->class = class;
    engine->caps = class->caps;
}

void opening_promise_less(struct engine *engine, const char *token_is, const char *instead)
{
    struct stile_caps *caps = &engine->caps;
    caps->token = false;
    caps->token_is = token_is;
    if (caps->lease != STILE_LEASE_SESSION)
        return; /* what keeps a name back is in the claim's own row */
    caps->hold_at_least = caps->lock_delay = false;
    caps->survives = "a holder's crash: free at once; a server's crash: nothing is held afterwards";
    caps->instead = instead;
}
