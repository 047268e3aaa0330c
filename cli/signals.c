/* Which signals are ours to pass on, and giving the command what we were started with. */
#include <string.h>

#include "process.h"

static const int passed[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT};

#define N_PASSED (sizeof passed / sizeof passed[0])

void signals_take(struct signals *signals)
{
    struct sigaction action;
    sigemptyset(&signals->taken);
    for (size_t i = 0; i < N_PASSED; i++) {
        if (sigaction(passed[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&signals->taken, passed[i]);
    }
    sigaddset(&signals->taken, SIGCHLD);
    sigaddset(&signals->taken, SIGNAL_QUESTION);
    sigset_t blocked = signals->taken;
    sigaddset(&blocked, SIGPIPE); /* a reader of ours that is gone must not end us */
    sigprocmask(SIG_BLOCK, &blocked, &signals->inherited);

    sigaction(SIGCHLD, NULL, &action);
    signals->child_was_ignored = action.sa_handler == SIG_IGN;
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
    for (size_t i = 0; i < N_PASSED; i++) {
        if (passed[i] == sig)
            return sig != SIGCONT;
    }
    return false;
}
