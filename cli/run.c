/* stile run: CMD while holding a lock. */
#include <stdlib.h>
#include <string.h>

#include "process.h"

static int check_names(const struct options *options)
{
    for (size_t i = 0; i < options->n_args; i++) {
        for (size_t k = 0; k < i; k++) {
            if (strcmp(options->args[i], options->args[k]) == 0) {
                say("run: %s is named twice; it would wait for itself", options->args[i]);
                return EXIT_USAGE;
            }
        }
    }
    return 0;
}

static bool is_named(const struct options *options, const char *name, size_t len)
{
    for (size_t i = 0; i < options->n_args; i++) {
        if (strlen(options->args[i]) == len && memcmp(options->args[i], name, len) == 0)
            return true;
    }
    return false;
}

/* One of these, a line each, is among the names; NULL: none. */
static const char *name_in(const struct options *options, const char *lines, int *len)
{
    for (; lines != NULL && *lines != '\0'; lines += *len + (lines[*len] == '\n')) {
        *len = (int)strcspn(lines, "\n");
        if (is_named(options, lines, (size_t)*len))
            return lines;
    }
    return NULL;
}

/* The run around this one waits for its command, which would wait for the lock that it holds. */
static int check_nesting(const struct options *options)
{
    const char *engine = secure_getenv("STILE_ENGINE"), *names = secure_getenv("STILE_NAMES");
    char url[STILE_URL_MAX + 1];
    int len = 0;
    stile_url_redact(url, sizeof url, engine_url(options));
    if (engine == NULL || strcmp(engine, url) != 0)
        return 0;
    const char *found = name_in(options, names != NULL ? names : secure_getenv("STILE_NAME"), &len);
    if (found == NULL)
        return 0;
    say("run: %.*s is held by the run that this one is part of, and would never be granted; unset "
        "STILE_NAME and STILE_NAMES if this is not so",
        len, found);
    return EXIT_USAGE;
}

static int run(struct options *options)
{
    int code = check_names(options);
    if (code == 0)
        code = check_nesting(options);
    return code != 0 ? code : front_run("run", "the lock", 1, warden_main, options);
}

const struct verb verb_run = {
    .name = "run",
    .accepts = OPT_CLAIM | OPT_PROCLAIM | OPT_GRACE | OPT_QUIET | OPT_LEAVE | OPT_LABEL | OPT_CODE |
               OPT_COMMAND,
    .min_args = 1,
    .max_args = 64,
    .usage =
        "[-e URL] [--try | --wait T] [--ttl T] [--shared | --slots N] [--hold-at-least T]\n"
        "                 [--lock-delay T] [--profile P] [--grace T] [--leave] [--proclaim V]\n"
        "                 [--label TEXT] [-E CODE] [-q] NAME... -- CMD [ARG...]",
    .about =
        "Runs CMD while holding the lock NAME, or all of several. The lock is kept until every\n"
        "process that CMD started is gone. Those that it leaves running are named after a second;\n"
        "with --leave the lock is released when CMD itself ends.\n\n"
        "Signals are passed on to CMD. One that ends CMD goes to all it started; what is left\n"
        "after --grace (5s) is killed. If the lock is lost, all of it is stopped, before the "
        "lease\n"
        "ends where there is one. Killing stile run kills it first and gives the lock back "
        "second.\n"
        "\n"
        "CMD finds STILE_NAME, STILE_TOKEN and STILE_ENGINE (without secrets) in its environment;\n"
        "with several names these are the first one's, and STILE_NAMES and STILE_TOKENS have one "
        "a\n"
        "line. stile show prints the program's name, or --label, never CMD's arguments.\n\n"
        "Exits with CMD's code, or dies of the signal that ended it (128+N in a shell); 75 not\n"
        "acquired, 76 lost, 69 engine (with -E: CODE for these three), 64 usage, 126 CMD can't be\n"
        "executed, 127 CMD not found.",
    .run = run,
};
