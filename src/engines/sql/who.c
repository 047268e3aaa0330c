#include "engines/sql/who.h"

#include <stdio.h>

static void make_plain(char *text)
{
    for (; *text; text++)
        *text = (unsigned char)*text < 127 ? *text : '?';
}

enum stile_status who_introduce(struct who *who, const struct engine *engine,
                                struct stile_error *err)
{
    unsigned char random[WHO_OWNER_LEN / 2];
    int rc = loop_random(engine->loop, random, sizeof random);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "drawing a session id");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(who->owner + 2 * i, 3, "%02x", random[i]);
    snprintf(who->pid, sizeof who->pid, "%lld", (long long)engine->pid);
    self_host(who->host);
    self_command(who->command, sizeof who->command, engine->label);
    make_plain(who->host);
    make_plain(who->command);
    return STILE_OK;
}
