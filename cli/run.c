/* stile run: the front, which the user started and whose exit code counts. See process.h. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"

struct front {
    struct signals signals;
    pid_t warden;
    int lifeline;
};

/* Never blocks; a full pipe means a warden that is stopped and has thousands to read. */
static void tell_warden(const struct front *front, int sig, pid_t sender)
{
    const struct passed_signal word = {.sig = sig, .sender = sender};
    while (write(front->lifeline, &word, sizeof word) < 0 && errno == EINTR)
        continue;
}

/* The terminal signals the whole group by itself; only what was sent to us alone is passed on. */
static void pass_on(const struct front *front, const siginfo_t *info)
{
    if (info->si_signo == SIGNAL_QUESTION) {
        if (info->si_pid == front->warden)
            tell_warden(front, 0, 0);
        return;
    }
    if (info->si_code != SI_USER && info->si_code != SI_QUEUE && info->si_code != SI_TKILL)
        return;
    tell_warden(front, info->si_signo, info->si_pid);
    /* A warden that is still opening its engine does not read yet, and may be ended. */
    kill(front->warden, info->si_signo);
}

static int warden_ended(const struct front *front, int status)
{
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    /* Whatever the warden left below it is below us now. */
    tree_end();
    int sig = WTERMSIG(status);
    if (signals_ends_wait(sig))
        return 128 + sig;
    say("run: the warden (pid %d) was ended by signal %d, and the lock with it; the command was "
        "killed",
        (int)front->warden, sig);
    return EXIT_LOST;
}

static int await_warden(const struct front *front)
{
    for (;;) {
        siginfo_t info;
        int sig = sigwaitinfo(&front->signals.taken, &info);
        if (sig < 0)
            continue;
        if (sig != SIGCHLD) {
            pass_on(front, &info);
            continue;
        }
        int status;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
            if (pid == front->warden)
                return warden_ended(front, status);
        }
    }
}

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

static int run(struct options *options)
{
    struct front front;
    int ends[2], code = check_names(options);
    if (code != 0)
        return code;
    signals_take(&front.signals);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t self = getpid();
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0 || (front.warden = fork()) < 0) {
        say("run: cannot start a process: %s", strerror(errno));
        return EXIT_CANNOT_EXEC;
    }
    if (front.warden == 0) {
        close(ends[1]); /* else we would keep our own lifeline alive */
        return warden_main(options, &front.signals, ends[0], self);
    }
    close(ends[0]);
    front.lifeline = ends[1];
    return await_warden(&front);
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
