/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile run: CMD while holding a lock. */
#include <stdlib.h>
#include <string.h>

#include "process.h"

static int check_names(const struct options *options)
{
    for (size_t i = 0; i < options->n_args; i++) {
        for (size_t k = 0; k < i; k++) {
            if (strcmp(options->args[i], options->args[k]) == 0) {
                say("run: %s is given twice; the second would wait for the first",
                    options->args[i]);
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

/* The first of these lines that is among the names; NULL: none. */
static const char *name_in(const struct options *options, const char *lines, int *len)
{
    for (; lines != NULL && *lines != '\0'; lines += *len + (lines[*len] == '\n')) {
        *len = (int)strcspn(lines, "\n");
        if (is_named(options, lines, (size_t)*len))
            return lines;
    }
    return NULL;
}

/* The outer run waits for its command, which would wait for the lock that the outer run holds. */
int run_check_nesting(const char *verb, const struct options *options)
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
    say("%s: %.*s is held by the stile run around this one and would never be granted; unset "
        "STILE_NAME and STILE_NAMES if that is wrong",
        verb, len, found);
    return EXIT_USAGE;
}

/* Written into the crontabs of several hosts, it would run on each of them. */
static void tell_reach(const struct options *options)
{
    if ((options->given & OPT_HOLD) && !(options->given & OPT_QUIET) && engine_is_unnamed(options))
        say("run: no engine is named, so --hold-at-least covers this user on this machine only; "
            "for several users or hosts, give one with -e URL, in $STILE_ENGINE or in a "
            "stile.conf: see stile caps");
}

static int warden(struct options *options, const struct signals *signals, const struct link *link)
{
    struct warden_job job = {.verb = "run", .may_leave = true};
    return warden_run(&job, options, signals, link);
}

static int run(struct options *options)
{
    int code = check_names(options);
    if (code == 0)
        code = run_check_nesting("run", options);
    if (code == 0)
        tell_reach(options);
    return code != 0 ? code : front_run("run", "the lock", 1, warden, options);
}

const struct verb verb_run = {
    .name = "run",
    .accepts = OPT_CLAIM | OPT_PROCLAIM | OPT_GRACE | OPT_QUIET | OPT_LEAVE | OPT_LABEL | OPT_CODE |
               OPT_FENCED | OPT_GUARD | OPT_PACE | OPT_BURST | OPT_COMMAND,
    .min_args = 1,
    .max_args = 64,
    .operands = "NAME... -- CMD [ARG...]",
    .about =
        "Runs CMD while holding the lock NAME, or the locks of several names. The lock is kept "
        "until every process that CMD started is gone. If CMD leaves processes running, their pids "
        "are printed after a second; with --leave the lock is released when CMD ends.\n\n"
        "Signals are passed on to CMD. A signal that ends CMD goes to its whole process tree, and "
        "whatever is left after --grace is killed. If the lock is lost, the tree is stopped before "
        "the lease ends. If stile run is killed, its tree dies before the lock is free.\n\n"
        "CMD finds STILE_NAME, STILE_TOKEN and STILE_ENGINE (without secrets) in its environment. "
        "With several names these belong to the first one, and STILE_NAMES and STILE_TOKENS hold "
        "one per line. With --guard it finds STILE_RESOURCE as well: the guard has seen the token "
        "before CMD starts, so an earlier holder can no longer write. stile show prints the "
        "program's name or --label, never CMD's arguments.\n\n"
        "Exits with CMD's code, or dies of the signal that ended CMD (128 + its number in a "
        "shell). Other codes: 75 not acquired, 76 lost, 69 engine failed (with -E, CODE for these "
        "three), 77 the guard has seen a larger token, 64 usage, 126 CMD cannot be executed, 127 "
        "CMD not found.",
    .run = run,
};
