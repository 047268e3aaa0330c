/* stile run: CMD while holding a lock. */
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

static int warden(const struct signals *signals, int lifeline, pid_t front, void *data)
{
    return warden_main(data, signals, lifeline, front);
}

static int run(struct options *options)
{
    int code = check_names(options);
    return code != 0 ? code : front_run("run", "the lock", 1, warden, options);
}

const struct verb verb_run = {
    .name = "run",
    .accepts = OPT_CLAIM | OPT_PROCLAIM | OPT_GRACE | OPT_QUIET | OPT_COMMAND,
    .min_args = 1,
    .max_args = 64,
    .usage =
        "[-e URL] [--try | --wait T] [--ttl T] [--shared | --slots N] [--hold-at-least T]\n"
        "                 [--lock-delay T] [--profile P] [--grace T] [--proclaim V] [-q] NAME...\n"
        "                 -- CMD [ARG...]",
    .about =
        "Runs CMD while holding the lock NAME, or all of several. CMD finds STILE_NAME, "
        "STILE_TOKEN\n"
        "and STILE_ENGINE (without secrets) in its environment; with several names STILE_NAMES "
        "and\n"
        "STILE_TOKENS have one a line. If the lock is lost, CMD and all it started are stopped,\n"
        "before the lease ends where there is one. Killing stile run kills them first and gives "
        "the\n"
        "lock back second.\n\n"
        "Exits with CMD's code, 128+N if signal N ended it; 75 not acquired, 76 lost, 69 engine,\n"
        "64 usage, 126 CMD can't be executed, 127 CMD not found.",
    .run = run,
};
