/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Ending a tree of processes: SIGTERM first, then SIGKILL, until none is left. */
#include <errno.h>
#include <sys/wait.h>

#include "process.h"

#define GRACE_MIN_MS   20
#define PASS_MAX_MS    50
#define STUCK_AFTER_MS 2000
#define TERM_AFTER_MS  1000

/* Longer than half the lease would leave no time for renewals. */
int64_t ending_grace_ms(const struct options *options, int64_t lease_ms)
{
    int64_t grace = options->grace_ms;
    if (!(options->given & OPT_GRACE) && lease_ms / 4 < grace)
        grace = lease_ms / 4;
    if (grace < GRACE_MIN_MS)
        grace = GRACE_MIN_MS;
    return grace < lease_ms / 2 ? grace : lease_ms / 2;
}

int64_t ending_patience_ms(const struct options *options)
{
    return options->grace_ms;
}

void ending_kill(struct ending *ending)
{
    ending->stopping = SIGKILL;
    ending->killed_ms = ending->pass_ms = now_ms();
    ending->pause_ms = 1;
}

void ending_begin(struct ending *ending, pid_t command, int64_t patience_ms)
{
    ending->stopping = SIGTERM;
    ending->kill_ms = now_ms() + patience_ms;
    tree_signal(command, SIGTERM, false);
}

/* Shells start background jobs with SIGINT and SIGQUIT ignored, nohup(1) ignores SIGHUP: SIGTERM
 * follows these. */
void ending_begin_with(struct ending *ending, int sig, bool spare_group, int64_t patience_ms)
{
    if (sig == SIGKILL) {
        ending_kill(ending);
        return;
    }
    if (!signals_asks_to_end(sig))
        sig = SIGTERM; /* the rest of the tree need not dump a core each */
    if (ending->stopping == 0) {
        ending->stopping = SIGTERM;
        ending->kill_ms = now_ms() + patience_ms;
        if (sig != SIGTERM)
            ending->term_ms =
                now_ms() + (patience_ms / 2 < TERM_AFTER_MS ? patience_ms / 2 : TERM_AFTER_MS);
    }
    tree_signal(0, sig, spare_group);
}

void ending_hasten(struct ending *ending, int64_t patience_ms)
{
    if (ending->stopping == SIGTERM && ending->kill_ms > now_ms() + patience_ms)
        ending->kill_ms = now_ms() + patience_ms;
}

static void tell_stuck(struct ending *ending, pid_t refused)
{
    if (ending->reported_stuck || now_ms() < ending->killed_ms + STUCK_AFTER_MS)
        return;
    ending->reported_stuck = true;
    if (!tree_is_visible())
        say("%s: cannot find the processes of the command, since /proc belongs to another pid "
            "namespace; the %s is kept until they end",
            ending->name, ending->what);
    else if (refused != 0)
        say("%s: no permission to kill pid %d; the %s is kept until it ends", ending->name,
            (int)refused, ending->what);
    else
        say("%s: a killed process of the command has not ended yet; the %s is kept until "
            "it has",
            ending->name, ending->what);
}

/* Processes that were forked meanwhile are met by the next pass, until waitpid() reports no child.
 */
void ending_push(struct ending *ending, pid_t command)
{
    if (ending->stopping == SIGTERM && ending->term_ms != 0 && now_ms() >= ending->term_ms) {
        ending->term_ms = 0;
        tree_signal(command, SIGTERM, false);
    }
    if (ending->stopping == SIGTERM && now_ms() >= ending->kill_ms)
        ending_kill(ending);
    if (ending->stopping != SIGKILL || now_ms() < ending->pass_ms)
        return;
    tell_stuck(ending, tree_signal(command, SIGKILL, false));
    ending->pass_ms = now_ms() + ending->pause_ms;
    if (ending->pause_ms < PASS_MAX_MS)
        ending->pause_ms *= 2;
}

int64_t ending_next_ms(const struct ending *ending)
{
    if (ending->stopping != SIGTERM)
        return ending->stopping == 0 ? INT64_MAX : ending->pass_ms;
    bool milder = ending->term_ms != 0 && ending->term_ms < ending->kill_ms;
    return milder ? ending->term_ms : ending->kill_ms;
}

bool ending_reap(pid_t command, bool *ended, int *status)
{
    int found;
    pid_t pid;
    while ((pid = waitpid(-1, &found, WNOHANG)) > 0) {
        if (pid != command)
            continue;
        *ended = true;
        *status = found;
    }
    return pid == 0 || errno != ECHILD;
}
