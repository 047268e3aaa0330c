/* Ending a tree of processes: asked first, then killed, until nobody is left. */
#include <errno.h>
#include <sys/wait.h>

#include "mutant.h"
#include "process.h"

#define GRACE_MAX_MS   5000
#define GRACE_MIN_MS   20
#define PASS_MAX_MS    50
#define STUCK_AFTER_MS 2000

/* Longer than half the lease would leave no time for renewals. */
int64_t ending_grace_ms(const struct options *options, int64_t lease_ms)
{
#ifdef MUTANT_CLI_STOPS_LATE
    return 0;
#endif
    int64_t grace = lease_ms / 4 < GRACE_MAX_MS ? lease_ms / 4 : GRACE_MAX_MS;
    if (options->given & OPT_GRACE)
        grace = options->grace_ms;
    if (grace < GRACE_MIN_MS)
        grace = GRACE_MIN_MS;
    return grace < lease_ms / 2 ? grace : lease_ms / 2;
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
    tree_signal(command, SIGTERM);
}

void ending_hasten(struct ending *ending, int64_t patience_ms)
{
    if (ending->stopping == SIGTERM && ending->kill_ms > now_ms() + patience_ms)
        ending->kill_ms = now_ms() + patience_ms;
}

static void tell_stuck(struct ending *ending, pid_t refused)
{
    if (ending->told_stuck || now_ms() < ending->killed_ms + STUCK_AFTER_MS)
        return;
    ending->told_stuck = true;
    if (refused != 0)
        say("%s: pid %d may not be killed by us; the %s is kept until it ends", ending->name,
            (int)refused, ending->what);
    else
        say("%s: a process of the command does not end though it was killed; the %s is kept until "
            "it does",
            ending->name, ending->what);
}

/* Whoever was forked behind our back is met by the next pass, until waitpid() knows nobody. */
void ending_push(struct ending *ending, pid_t command)
{
    if (ending->stopping == SIGTERM && now_ms() >= ending->kill_ms)
        ending_kill(ending);
    if (ending->stopping != SIGKILL || now_ms() < ending->pass_ms)
        return;
    tell_stuck(ending, tree_signal(command, SIGKILL));
    ending->pass_ms = now_ms() + ending->pause_ms;
    if (ending->pause_ms < PASS_MAX_MS)
        ending->pause_ms *= 2;
}

int64_t ending_next_ms(const struct ending *ending)
{
    return ending->stopping == 0         ? INT64_MAX
           : ending->stopping == SIGTERM ? ending->kill_ms
                                         : ending->pass_ms;
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
