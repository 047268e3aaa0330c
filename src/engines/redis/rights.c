/* What an ACL lets us do, of all that a lock needs. */
#include <stdio.h>
#include <string.h>

#include "engines/redis/fault.h"
#include "engines/redis/vitals.h"

#define KEPT "NAME is the user of the URL; ACL SAVE keeps it, where there is an ACL file."

static const struct verdict no_info = {
    .severity = STILE_DANGER,
    .id = "info",
    .why = "Nothing is known of its persistence, memory and replicas, so stile refuses it.",
    .commands = {"ACL SETUSER NAME +info"},
    .cure = KEPT,
};

static const struct verdict no_scripts = {
    .severity = STILE_DANGER,
    .id = "scripts",
    .why = "Every step of a lock is a script: nothing can be locked.",
    .commands = {"ACL SETUSER NAME +eval +evalsha"},
    .cure = KEPT,
};

static const struct verdict no_messages = {
    .severity = STILE_DANGER,
    .id = "messages",
    .why = "Waiters are woken by messages; without them none would wake.",
    .commands = {"ACL SETUSER NAME +publish +subscribe"},
    .cure = KEPT,
};

static const struct verdict no_channels = {
    .severity = STILE_DANGER,
    .id = "messages",
    .why = "Waiters are woken by messages; without them none would wake.",
    .commands = {"ACL SETUSER NAME '&stile:*'"},
    .cure = KEPT,
};

static const struct verdict no_wait = {
    .severity = STILE_DANGER,
    .id = "wait",
    .why = "wait_replicas= asks for it after each grant: every claim would fail.",
    .commands = {"ACL SETUSER NAME +wait"},
    .cure = KEPT,
};

static const struct verdict no_config = {
    .severity = STILE_WARNING,
    .id = "config",
    .why =
        "Whether a grant is on disk before it is answered depends on appendfsync, which can't be "
        "looked at.",
    .commands = {"ACL SETUSER NAME '+config|get'"},
    .cure = "Or look yourself: CONFIG GET appendfsync must say always.",
};

/* "+del +set" of "del set". */
static void write_rights(char out[VERDICT_TEXT], const char *names)
{
    size_t n = (size_t)snprintf(out, VERDICT_TEXT, "ACL SETUSER NAME +");
    for (; *names && n + 3 < VERDICT_TEXT; names++) {
        out[n++] = *names;
        if (*names == ' ')
            out[n++] = '+';
    }
    out[n] = '\0';
}

static void judge_commands(struct query *query, const struct vitals *v)
{
    char allow[VERDICT_TEXT];
    if (!*v->denied)
        return;
    write_rights(allow, v->denied);
    verdict_tell(query, v,
                 &(struct verdict){.severity = STILE_DANGER,
                                   .id = "commands",
                                   .why = "Every step of a lock is a script, and a script may only "
                                          "call what its user may.",
                                   .commands = {allow},
                                   .cure = KEPT},
                 "its ACL does not let this user call %s", v->denied);
}

static void judge_keys(struct query *query, const struct vitals *v)
{
    char allow[VERDICT_TEXT];
    if (!v->scripts.known || !fault_is_denial(&v->own_keys.error))
        return;
    snprintf(allow, sizeof allow, "ACL SETUSER NAME '~%s*' '~{%s*'%s", v->prefix, v->prefix,
             v->shares_counter ? " '~stile:*'" : "");
    verdict_tell(query, v,
                 &(struct verdict){.severity = STILE_DANGER,
                                   .id = "keys",
                                   .why = "The token and the queue of a name are kept beside its "
                                          "key: without them nothing can be locked.",
                                   .commands = {strchr(v->prefix, '\'') ? NULL : allow},
                                   .cure = KEPT},
                 "does not let this user at all keys of a lock: %s", v->own_keys.error.message);
}

void rights_of(struct query *query, const struct vitals *v)
{
    if (fault_is_denial(&v->info_error))
        verdict_tell(query, v, &no_info, "does not tell this user about itself: %s",
                     v->info_error.message);
    if (fault_is_denial(&v->scripts.error))
        verdict_tell(query, v, &no_scripts, "does not let this user run scripts: %s",
                     v->scripts.error.message);
    judge_keys(query, v);
    judge_commands(query, v);
    const struct stile_error *deaf =
        fault_is_denial(&v->messages.error) ? &v->messages.error : &v->listening.error;
    if (fault_is_denial(deaf))
        verdict_tell(query, v, strstr(deaf->message, "channel") ? &no_channels : &no_messages,
                     "does not let this user publish and subscribe: %s", deaf->message);
    if (fault_is_denial(&v->waits.error))
        verdict_tell(query, v, &no_wait, "does not let this user wait for replicas: %s",
                     v->waits.error.message);
    if (fault_is_denial(&v->appendfsync.error))
        verdict_tell(query, v, &no_config, "does not tell this user its configuration: %s",
                     v->appendfsync.error.message);
}
