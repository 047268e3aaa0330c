/* stile acquire: a claim that outlives this process, where the engine has such. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "process.h"

static int print_claim(struct stile_lock *lock, bool as_json)
{
    uint64_t token = 0;
    bool fenced = stile_lock_token(lock, &token) == STILE_OK;
    const char *owner = stile_lock_owner(lock);
    if (as_json) {
        struct json json = {.out = stdout};
        json_open(&json, NULL, '{');
        json_text(&json, "name", stile_lock_name(lock));
        json_text(&json, "owner", owner != NULL ? owner : "");
        if (fenced)
            json_uint(&json, "token", token);
        json_int(&json, "expires_ms", stile_lock_remaining_ms(lock));
        json_close(&json, '}');
        putchar('\n');
    } else {
        printf("STILE_OWNER=%s\n", owner != NULL ? owner : "");
        if (fenced)
            printf("STILE_TOKEN=%" PRIu64 "\n", token);
    }
    return finish_output(0);
}

static int take(struct stile_client *client, struct stile_lock *lock, const struct options *options)
{
    struct signals signals;
    struct inbox inbox;
    const struct link alone = {.lifeline = -1, .reports = -1};
    struct stile_error err = {0};
    signals_take(&signals);
    if (!inbox_open(&inbox, &signals, &alone)) {
        say("acquire: cannot watch signals: %s", strerror(errno));
        return EXIT_ENGINE;
    }
    struct grant grant = {
        .client = client, .locks = &lock, .n = 1, .wait_ms = options->wait_ms, .inbox = &inbox};
    enum stile_status status = grant_wait(&grant);
    if (status != STILE_OK)
        return grant.sig != 0 ? signals_die_of(grant.sig)
                              : say_failure("acquire", status, &grant.err);
    int code = print_claim(lock, options->given & OPT_JSON);
    /* Nobody has read the owner value, so nobody could ever release it. */
    if (code != 0) {
        stile_lock_release(lock, NULL);
        return code;
    }
    status = stile_lock_detach(lock, &err);
    return status == STILE_OK ? 0 : say_failure("acquire", status, &err);
}

static int acquire(struct options *options)
{
    struct stile_client *client;
    struct stile_lock *lock;
    struct stile_error err = {0};
    int code = engine_open_detached(&client, options, "acquire");
    if (code != 0)
        return code;
    const struct stile_lock_options lock_options = options_for_lock(options);
    enum stile_status status = stile_lock_new(&lock, client, options->args[0], &lock_options, &err);
    code = status != STILE_OK ? say_failure("acquire", status, &err) : take(client, lock, options);
    stile_client_close(client);
    return code;
}

const struct verb verb_acquire = {
    .name = "acquire",
    .accepts = OPT_CLAIM | OPT_JSON,
    .min_args = 1,
    .max_args = 1,
    .usage = "[-e URL] [--try | --wait T] [--ttl T] [--shared | --slots N] [--json] NAME",
    .about =
        "Takes NAME and ends; the lock lasts for its TTL, until stile renew or stile release.\n"
        "Prints STILE_OWNER, which proves ownership to those two, and STILE_TOKEN, the fence.\n"
        "For scripts that can't be one command; else stile run is safer.",
    .run = acquire,
};
