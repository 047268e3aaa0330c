/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile acquire, renew, release: a claim that outlives its process, where the engine allows it. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "process.h"

/* ---- acquire ---- */

/* The issuer contains the name, which may have any character. */
static void print_fence(struct stile_lock *lock, uint64_t token)
{
    char issuer[STILE_ISSUER_MAX + 1];
    stile_lock_issuer(lock, issuer, sizeof issuer);
    printf("STILE_TOKEN=%" PRIu64 "; export STILE_TOKEN;\nSTILE_ISSUER='", token);
    for (const char *at = issuer; *at != '\0'; at++)
        fputs(*at == '\'' ? "'\\''" : (char[]){*at, '\0'}, stdout);
    puts("'; export STILE_ISSUER;");
}

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
        /* For eval: `stile renew` and `stile release` find the owner in their environment. The
         * token of an earlier lock must not be taken for this one's. */
        printf("STILE_OWNER=%s; export STILE_OWNER;\n", owner != NULL ? owner : "");
        if (fenced)
            print_fence(lock, token);
        else
            puts("unset STILE_TOKEN STILE_ISSUER;");
    }
    return finish_output(0);
}

static int not_granted(const struct grant *grant, const struct options *options,
                       enum stile_status status)
{
    if (grant->sig != 0)
        return signals_die_of(grant->sig);
    if (status != STILE_HELD && status != STILE_TIMEOUT)
        return say_failure("acquire", status, &grant->err);
    grant_say_refused(grant, options, status);
    return EXIT_NOT_ACQUIRED;
}

static int take(struct stile_client *client, struct stile_lock *lock, struct look *look,
                const struct options *options)
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
    struct grant grant = {.client = client,
                          .locks = &lock,
                          .n = 1,
                          .wait_ms = options->wait_ms,
                          .inbox = &inbox,
                          .look = look,
                          .self = getpid()};
    enum stile_status status = grant_wait(&grant);
    if (status != STILE_OK)
        return not_granted(&grant, options, status);
    stile_lock_record_start(lock, NULL); /* for stile show; its answer comes while we print */
    int code = print_claim(lock, options->given & OPT_JSON);
    /* The owner value was not printed, so no script could ever release the lock. */
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
    struct look look = {.under_way = false};
    int code = engine_open_detached(&client, options, "acquire");
    if (code != 0)
        return code;
    const struct stile_lock_options lock_options = options_for_lock(options);
    enum stile_status status = stile_lock_new(&lock, client, options->args[0], &lock_options, &err);
    code = status != STILE_OK ? say_failure("acquire", status, &err)
                              : take(client, lock, &look, options);
    stile_client_close(client);
    return code;
}

const struct verb verb_acquire = {
    .name = "acquire",
    .accepts = OPT_CLAIM | OPT_JSON,
    .min_args = 1,
    .max_args = 1,
    .operands = "NAME",
    .about =
        "Takes NAME and exits. The lock lasts for its TTL; stile renew extends it, stile release "
        "ends it. Prints shell commands that set STILE_OWNER, which both of them need, and "
        "STILE_TOKEN and STILE_ISSUER, the fencing token and where it comes from:\n"
        "    claim=$(stile acquire NAME) || exit; eval \"$claim\"\n"
        "(eval \"$(stile acquire NAME)\" would hide a failure.) For scripts that cannot be one "
        "command; otherwise stile run is safer.",
    .run = acquire,
};

/* ---- renew, release ---- */

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

/* Resumes the claim, which renews it, and then detaches or releases it. */
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
    .wording =
        (const struct wording[]){
            {OPT_TTL, "how long the lock lasts from now on (default: as acquired)"},
            {0},
        },
    .min_args = 1,
    .max_args = 1,
    .operands = "NAME",
    .about = "Extends a lock that stile acquire took by its TTL, or by --ttl. The owner value "
             "comes from $STILE_OWNER or --owner. Exits with 76 if the lock is no longer held.",
    .run = renew,
};

const struct verb verb_release = {
    .name = "release",
    .accepts = OPT_SAME_CLAIM,
    .min_args = 1,
    .max_args = 1,
    .operands = "NAME",
    .about = "Releases a lock that stile acquire took. The owner value comes from $STILE_OWNER or "
             "--owner. Exits with 76 if the lock was no longer held.",
    .run = release,
};
