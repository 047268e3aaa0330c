/* What reaches the warden: its own signals, those the front passes on, and the front's death.
 *
 * A signal to the whole process group (a service manager, `kill -- -PGID`, a closing terminal)
 * reaches front, warden and command each for itself; passing it on would let the command see it
 * twice. The sender tells: what one process sent to the front and to us, it sent to all. So what
 * came to us alone is passed on only after a short wait for the front's word. */
#include <errno.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "mutant.h"
#include "process.h"

/* How far apart the two halves may come. The front needs a few microseconds. */
#define PAIR_MS 50

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool inbox_open(struct inbox *inbox, const struct signals *signals, int lifeline, pid_t front)
{
    *inbox = (struct inbox){.lifeline = lifeline, .front = front};
    sigset_t watched = signals->taken, quiet;
    sigaddset(&watched, SIGTSTP);
    /* Stopping is for the front, which the shell watches: the lease goes on meanwhile. */
    quiet = watched;
    sigaddset(&quiet, SIGTTIN);
    sigaddset(&quiet, SIGTTOU);
    sigprocmask(SIG_BLOCK, &quiet, NULL);
    inbox->signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    return inbox->signal_fd >= 0;
}

static bool was_sent(int code)
{
    return code == SI_USER || code == SI_QUEUE || code == SI_TKILL;
}

/* The other half of a signal to all is there: forget it and return true. Else remember ours. */
static bool pair_up(struct inbox *inbox, int sig, pid_t sender, bool by_front)
{
    struct half *half = &inbox->halves[sig];
    bool other = half->until_ms > now_ms() && half->by_front != by_front;
#ifdef MUTANT_CLI_SIGNAL_TWICE
    other = false;
#endif
    if (other && half->sender == sender) {
        half->until_ms = 0;
        return true;
    }
    *half = (struct half){.sender = sender, .by_front = by_front, .until_ms = now_ms() + PAIR_MS};
    return false;
}

static struct event own_signal(struct inbox *inbox, const struct signalfd_siginfo *info)
{
    static const struct event nothing = {EVENT_NONE, 0};
    int sig = (int)info->ssi_signo;
    pid_t sender = (pid_t)info->ssi_pid;
    if (sig == SIGCHLD)
        return (struct event){EVENT_CHILD, 0};
    if (inbox->lifeline < 0)
        return (struct event){EVENT_SIGNAL, sig};
    if (!was_sent(info->ssi_code))
        return (struct event){EVENT_TERMINAL, sig};
    /* The front's knock is for the time before we listen; its word is in the lifeline. */
    if (sender != inbox->front)
        pair_up(inbox, sig, sender, false);
    return nothing;
}

static struct event front_word(struct inbox *inbox)
{
    struct passed_signal word;
    ssize_t got;
    do {
        got = read(inbox->lifeline, &word, sizeof word);
    } while (got < 0 && errno == EINTR);
    if (got == 0) {
        inbox->orphaned = true;
        return (struct event){EVENT_ORPHANED, 0};
    }
    if (got != (ssize_t)sizeof word || word.sig <= 0 || word.sig >= SIGNALS_MAX)
        return (struct event){EVENT_NONE, 0};
    bool to_all = pair_up(inbox, word.sig, word.sender, true);
    return (struct event){to_all ? EVENT_TERMINAL : EVENT_SIGNAL, word.sig};
}

/* What came to us alone, the oldest first; NULL: nothing. */
static const struct half *oldest(const struct inbox *inbox)
{
    const struct half *found = NULL;
    for (int sig = 1; sig < SIGNALS_MAX; sig++) {
        const struct half *half = &inbox->halves[sig];
        if (half->until_ms != 0 && !half->by_front &&
            (found == NULL || half->until_ms < found->until_ms))
            found = half;
    }
    return found;
}

static struct event due_signal(struct inbox *inbox)
{
    const struct half *half = oldest(inbox);
    if (half == NULL || half->until_ms > now_ms())
        return (struct event){EVENT_NONE, 0};
    int sig = (int)(half - inbox->halves);
    inbox->halves[sig].until_ms = 0;
    return (struct event){EVENT_SIGNAL, sig};
}

struct event inbox_next(struct inbox *inbox)
{
    struct signalfd_siginfo info;
    for (;;) {
        ssize_t got = read(inbox->signal_fd, &info, sizeof info);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)sizeof info)
            break;
        struct event event = own_signal(inbox, &info);
        if (event.kind != EVENT_NONE)
            return event;
    }
    if (inbox->lifeline >= 0 && !inbox->orphaned) {
        struct event event = front_word(inbox);
        if (event.kind != EVENT_NONE)
            return event;
    }
    return due_signal(inbox);
}

int64_t inbox_due_ms(const struct inbox *inbox)
{
    const struct half *half = oldest(inbox);
    return half != NULL ? half->until_ms : INT64_MAX;
}
