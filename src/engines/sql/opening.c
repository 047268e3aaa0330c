#include "engines/sql/opening.h"

#include <stdio.h>

/* The first error counts: the session's end is reported after the reason for it. */
void sql_opening_done(struct opening *opening, const struct stile_error *why)
{
    if (!opening)
        return;
    if (why && !opening->error.status)
        opening->error = *why;
    opening->over = true;
}

enum stile_status sql_opening_wait(struct opening *opening, struct loop *loop,
                                   struct stile_error *err)
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

void sql_opening_set_class(struct engine *engine, const struct engine_class *class)
{
    engine->class = class;
    engine->caps = class->caps;
}

void sql_opening_set_bare(struct engine *engine, const char *token_is, const char *instead)
{
    struct stile_caps *caps = &engine->caps;
    caps->token = false;
    caps->token_is = token_is;
    if (caps->lease != STILE_LEASE_SESSION)
        return; /* a hold is kept in the claim's own row */
    caps->hold_at_least = caps->lock_delay = false;
    caps->survives = "a holder's crash: free at once; a server's crash: nothing is held afterwards";
    caps->instead = instead;
}

/* ---- identity ---- */

static void make_plain(char *text)
{
    for (; *text; text++)
        *text = (unsigned char)*text < 127 ? *text : '?';
}

enum stile_status sql_identity_init(struct identity *identity, const struct engine *engine,
                                    struct stile_error *err)
{
    unsigned char random[IDENTITY_OWNER_LEN / 2];
    int rc = loop_random(engine->loop, random, sizeof random);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "drawing a session id");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(identity->owner + 2 * i, 3, "%02x", random[i]);
    snprintf(identity->pid, sizeof identity->pid, "%lld", (long long)engine->pid);
    self_host(identity->host);
    self_command(identity->command, sizeof identity->command, engine->label);
    make_plain(identity->host);
    make_plain(identity->command);
    return STILE_OK;
}
