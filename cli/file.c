/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile file: put, rm and show. Files whose guard refuses the late write of an earlier holder. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "cell.h"

/* --token, else $STILE_TOKEN. 0, or an exit code after a message. */
static int read_token(uint64_t *token, const struct options *options, const char *verb)
{
    const char *text = secure_getenv("STILE_TOKEN");
    char *end;
    *token = options->token;
    if (options->given & OPT_TOKEN)
        return 0;
    if (text == NULL) {
        say("%s: no token: give --token, or use it under stile run, which sets $STILE_TOKEN", verb);
        return EXIT_USAGE;
    }
    *token = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && *end == '\0')
        return 0;
    say("%s: $STILE_TOKEN is %.40s, not a token", verb, text[0] != '\0' ? text : "empty");
    return EXIT_USAGE;
}

/* The token and the options of a write; 0, or an exit code after a message. */
static int read_write(uint64_t *token, struct stile_file_options *how,
                      const struct options *options, const char *verb)
{
    int code = read_token(token, options, verb);
    if (code != 0)
        return code;
    *how = (struct stile_file_options){
        .size = sizeof *how,
        .issuer = fence_issuer(options, *token),
        .strict = options->given & OPT_STRICT,
        .mode = (mode_t)options->mode,
    };
    return 0;
}

static int put(struct options *options)
{
    struct stile_file_options how;
    struct stile_error err = {0};
    uint64_t token;
    int code = read_write(&token, &how, options, "file put");
    if (code != 0)
        return code;
    enum stile_status status =
        stile_file_replace_from_fd(options->args[0], STDIN_FILENO, token, &how, &err);
    return status == STILE_OK ? 0 : say_failure("file put", status, &err);
}

static int rm(struct options *options)
{
    struct stile_file_options how;
    struct stile_error err = {0};
    uint64_t token;
    int code = read_write(&token, &how, options, "file rm");
    if (code != 0)
        return code;
    enum stile_status status = stile_file_remove(options->args[0], token, &how, &err);
    return status == STILE_OK ? 0 : say_failure("file rm", status, &err);
}

/* ---- show ---- */

static void print_json(const char *path, const struct stile_file_guard *guard)
{
    struct json json = {.out = stdout};
    json_open(&json, NULL, '{');
    json_text(&json, "path", path);
    json_uint(&json, "highest", guard->highest);
    if (guard->issuer[0] != '\0')
        json_text(&json, "issuer", guard->issuer);
    else
        json_null(&json, "issuer");
    json_close(&json, '}');
    putchar('\n');
}

static void print_line(const char *path, const struct stile_file_guard *guard)
{
    char *safe = text_escape(path), *issuer = text_escape(guard->issuer);
    if (guard->highest == 0)
        printf("%s: no token seen\n", safe);
    else
        printf("%s: token %" PRIu64 "%s%s\n", safe, guard->highest, issuer[0] != '\0' ? " of " : "",
               issuer);
    free(safe);
    free(issuer);
}

static int show(struct options *options)
{
    struct stile_file_guard guard;
    struct stile_error err = {0};
    enum stile_status status = stile_file_guard_show(&guard, options->args[0], &err);
    if (status != STILE_OK)
        return say_failure("file show", status, &err);
    if (options->given & OPT_JSON)
        print_json(options->args[0], &guard);
    else
        print_line(options->args[0], &guard);
    return finish_output(0);
}

static const struct wording wording[] = {
    {OPT_TOKEN, "fencing token of the write (default: $STILE_TOKEN)"},
    {0},
};

#define OPERAND                                                                                    \
    .without_engine = true, .min_args = 1, .max_args = 1, .argument = "PATH", .operands = "PATH"

const struct verb verb_file_put = {
    .name = "file put",
    .accepts = OPT_TOKEN | OPT_ISSUER | OPT_STRICT | OPT_MODE,
    .wording = wording,
    OPERAND,
    .about = "Replaces the file with standard input, if no larger token has been seen; exits 77 "
             "otherwise. It is on the disk when this returns, and readers see the old content or "
             "the new.\n"
             "The highest token is kept beside it, in .NAME.stile. A symbolic link is refused.",
    .run = put,
};

const struct verb verb_file_rm = {
    .name = "file rm",
    .accepts = OPT_TOKEN | OPT_ISSUER | OPT_STRICT,
    .wording = wording,
    OPERAND,
    .about = "Removes the file, if no larger token has been seen; exits 77 otherwise. Its highest "
             "token stays, so a late writer cannot bring it back.",
    .run = rm,
};

const struct verb verb_file_show = {
    .name = "file show",
    .accepts = OPT_JSON,
    OPERAND,
    .about = "Shows the highest token that was used for the file, and the lock it came from.",
    .run = show,
};
