/* stile renew and stile release: going on with a claim that stile acquire made. */
#include <stdlib.h>

#include "cli.h"

static const char *owner_of(const struct options *options)
{
    const char *owner = options->given & OPT_OWNER ? options->owner : secure_getenv("STILE_OWNER");
    return owner != NULL && owner[0] != '\0' ? owner : NULL;
}

static int print_renewed(struct stile_lock *lock, bool as_json)
{
    if (as_json) {
        struct json json = {.out = stdout};
        json_open(&json, NULL, '{');
        json_text(&json, "name", stile_lock_name(lock));
        json_int(&json, "expires_ms", stile_lock_remaining_ms(lock));
        json_close(&json, '}');
        putchar('\n');
    }
    return finish_output(0);
}

/* Makes the claim ours again, which renews it, and then lets go of it in one of two ways. */
static int go_on(const char *verb, struct options *options, bool release)
{
    struct stile_client *client;
    struct stile_lock *lock;
    struct stile_error err = {0};
    const char *owner = owner_of(options);
    if (owner == NULL) {
        say("%s: no owner; give what stile acquire printed in $STILE_OWNER or with --owner", verb);
        return EXIT_USAGE;
    }
    int code = engine_open_detached(&client, options, verb);
    if (code != 0)
        return code;
    struct stile_lock_options lock_options = options_for_lock(options);
    lock_options.owner = owner;
    enum stile_status status = stile_lock_new(&lock, client, options->args[0], &lock_options, &err);
    if (status == STILE_OK)
        status = stile_lock_resume(lock, &err);
    if (status == STILE_OK && !release)
        code = print_renewed(lock, options->given & OPT_JSON);
    if (status == STILE_OK)
        status = release ? stile_lock_release(lock, &err) : stile_lock_detach(lock, &err);
    if (status != STILE_OK)
        code = say_failure(verb, status, &err);
    stile_client_close(client);
    return code;
}

static int renew(struct options *options)
{
    return go_on("renew", options, false);
}

static int release(struct options *options)
{
    return go_on("release", options, true);
}

#define OPT_SAME_CLAIM (OPT_TTL | OPT_SHARED | OPT_SLOTS | OPT_OWNER)

const struct verb verb_renew = {
    .name = "renew",
    .accepts = OPT_SAME_CLAIM | OPT_JSON,
    .min_args = 1,
    .max_args = 1,
    .usage = "[-e URL] [--owner V] [--ttl T] [--shared | --slots N] [--json] NAME",
    .about = "Lets a lock of stile acquire last for its TTL again: that of acquire, unless --ttl\n"
             "gives another one. The owner value comes from $STILE_OWNER or --owner. Exits 76\n"
             "if the lock is no longer ours.",
    .run = renew,
};

const struct verb verb_release = {
    .name = "release",
    .accepts = OPT_SAME_CLAIM,
    .min_args = 1,
    .max_args = 1,
    .usage = "[-e URL] [--owner V] [--shared | --slots N] NAME",
    .about = "Gives a lock of stile acquire back. The owner value comes from $STILE_OWNER or\n"
             "--owner. Exits 76 if the lock was not ours any more.",
    .run = release,
};
