/* Which signals are ours to pass on, giving the command what we were started with, and dying of a
 * signal as the command did. */
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "process.h"

/* All but those that cannot be caught (KILL, STOP), that report a fault of our own (SEGV, ...), and
 * that stop who reads a terminal it may not read (TTIN, TTOU). The real-time ones come on top. */
static const int standard[] = {SIGHUP,  SIGINT,    SIGQUIT, SIGABRT,   SIGALRM, SIGTERM, SIGUSR1,
                               SIGUSR2, SIGSTKFLT, SIGCONT, SIGTSTP,   SIGURG,  SIGXCPU, SIGXFSZ,
                               SIGPROF, SIGWINCH,  SIGIO,   SIGVTALRM, SIGPWR};

#define N_STANDARD (sizeof standard / sizeof standard[0])

static bool is_ignored(int sig)
{
    struct sigaction action;
    return sigaction(sig, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void signals_take(struct signals *signals)
{
    sigemptyset(&signals->taken);
    for (size_t i = 0; i < N_STANDARD; i++) {
        if (!is_ignored(standard[i]))
            sigaddset(&signals->taken, standard[i]);
    }
    /* Asking about each of these takes longer than all else here. Passed on to a command that
     * ignores them, they do nothing. */
    for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
        sigaddset(&signals->taken, sig);
    sigaddset(&signals->taken, SIGCHLD);
    sigset_t blocked = signals->taken;
    sigaddset(&blocked, SIGPIPE); /* a reader of ours that is gone must not end us */
    sigprocmask(SIG_BLOCK, &blocked, &signals->inherited);

    signals->child_was_ignored = is_ignored(SIGCHLD);
    if (signals->child_was_ignored)
        signal(SIGCHLD, SIG_DFL);
}

void signals_restore(const struct signals *signals)
{
    if (signals->child_was_ignored)
        signal(SIGCHLD, SIG_IGN);
    sigprocmask(SIG_SETMASK, &signals->inherited, NULL);
}

bool signals_ends_wait(int sig)
{
    if (sig >= SIGRTMIN && sig <= SIGRTMAX)
        return !is_ignored(sig);
    /* ABRT is what a damaged heap ends with: nothing harmless. */
    if (sig == SIGCONT || sig == SIGTSTP || sig == SIGURG || sig == SIGWINCH || sig == SIGABRT)
        return false;
    for (size_t i = 0; i < N_STANDARD; i++) {
        if (standard[i] == sig)
            return true;
    }
    return false;
}

bool signals_asks_to_end(int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGHUP || sig == SIGQUIT;
}

/* Whether it has not reached the command by itself. A signal to one process group is in doubt where
 * the same sender may have signalled two of us one by one; a command that would have been ended by
 * it, and is not, shows that it was not reached. */
static bool is_needed(pid_t command, const struct event *event)
{
    if (event->kind != EVENT_GROUP || getpgid(command) != getpgrp())
        return true;
    return !event->by_kernel && tree_has_default_action(command, event->sig);
}

void signals_pass(pid_t command, const struct event *event)
{
    if (!is_needed(command, event))
        return;
    if (event->queued)
        sigqueue(command, event->sig, (union sigval){.sival_ptr = event->value});
    else
        kill(command, event->sig);
}

int signals_die_of(int sig)
{
    struct rlimit none = {0, 0};
    sigset_t one;
    /* The core is the command's to dump, not ours. */
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0);
    signal(sig, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, sig);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    kill(getpid(), sig);
    return 128 + sig; /* the first process of a pid namespace does not die of its own signals */
}
