/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile break: take a lock from its holder, and notify it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* The holder that was shown to the user: only this one is broken, never its successor. */
struct target {
    bool free;
    uint64_t token; /* 0: several holders, or an engine without tokens */
    char *holders;  /* as text */
    char *json;
    size_t json_size;
};

static int look(const struct stile_info *info, void *data)
{
    struct target *target = data;
    size_t size;
    target->free = info->holders == 0;
    target->token = info->holders == 1 ? info->claims[0].token : 0;

    FILE *out = must_alloc(open_memstream(&target->holders, &size));
    for (size_t i = 0; i < info->holders; i++) {
        char *holder = info_holder(&info->claims[i]), *safe = text_escape(holder);
        fprintf(out, "%s%s (token %" PRIu64 ")", i > 0 ? ", " : "", safe, info->claims[i].token);
        free(holder);
        free(safe);
    }
    fclose(out);

    struct json json = {.out = must_alloc(open_memstream(&target->json, &target->json_size))};
    info_json(&json, NULL, info);
    fclose(json.out);
    return 1;
}

/* Only a terminal is asked for confirmation; a script has decided already. */
static bool confirmed(const struct options *options, const struct target *target)
{
    if ((options->given & OPT_YES) || !isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return true;
    char *name = text_escape(options->args[0]), answer[8] = "";
    fprintf(stderr, "%s is held by %s. Take it away? [y/N] ", name, target->holders);
    free(name);
    return fgets(answer, sizeof answer, stdin) != NULL && (answer[0] == 'y' || answer[0] == 'Y');
}

static int break_it(struct stile_client *client, const struct options *options,
                    const struct target *target)
{
    struct stile_error err = {0};
    const char *name = options->args[0];
    bool json = options->given & OPT_JSON;
    if (!target->free) {
        if (!confirmed(options, target)) {
            say("break: %s was left as it is", name);
            return EXIT_NOT_ACQUIRED;
        }
        uint64_t token = options->given & OPT_TOKEN ? options->token : target->token;
        enum stile_status status = stile_break(client, name, token, &err);
        if (status != STILE_OK)
            return say_failure("break", status, &err);
    }
    char *safe = text_escape(name);
    if (json)
        printf("{\"broken\":%s,\"was\":%s}\n", target->free ? "false" : "true", target->json);
    else if (target->free)
        printf("%s is free; there was nothing to take\n", safe);
    else
        printf("%s was taken from %s\n", safe, target->holders);
    free(safe);
    return finish_output(0);
}

static int break_verb(struct options *options)
{
    struct stile_client *client;
    struct stile_error err = {0};
    struct target target = {0};
    int code = engine_open(&client, options, 0, "stile break");
    if (code != 0)
        return code;
    enum stile_status status = stile_show(client, options->args[0], look, &target, &err);
    code = status != STILE_OK ? say_failure("break", status, &err)
                              : break_it(client, options, &target);
    free(target.holders);
    free(target.json);
    stile_client_close(client);
    return code;
}

const struct verb verb_break = {
    .name = "break",
    .accepts = OPT_JSON | OPT_TOKEN | OPT_YES,
    .min_args = 1,
    .max_args = 1,
    .operands = "NAME",
    .wording =
        (const struct wording[]){
            {OPT_TOKEN, "break only the grant that has this fencing token (default: any)"},
            {0},
        },
    .about =
        "Takes NAME from its holder and notifies it. Later tokens are larger, so a guard refuses "
        "whatever the old holder still writes. On a terminal it asks for confirmation first.",
    .run = break_verb,
};
