/* What reaches the warden: its own signals, those the front passes on, and the front's death.
 *
 * A signal to the whole process group (a service manager, `kill -- -PGID`, a closing terminal)
 * reaches front, warden and command each for itself; passing it on would let the command see it
 * twice. The sender tells: what one process sent to the front and to us, it sent to all. So before
 * we pass on what we were sent, we ask the front: its answer comes behind all it was sent before.
 */
#include <errno.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "mutant.h"
#include "process.h"

/* How far apart a sender who signals one process after the other may be with the two of us. */
#define PAIR_MS 50
/* A front that is stopped does not answer. */
#define ANSWER_MS 1000

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
    bool other = half->sent_ms != 0 && half->by_front != by_front && half->sender == sender;
    if (half->by_front && half->sent_ms + PAIR_MS < now_ms())
        other = false;
#ifdef MUTANT_CLI_SIGNAL_TWICE
    other = false;
#endif
    *half = (struct half){.sender = sender, .by_front = by_front, .sent_ms = other ? 0 : now_ms()};
    return other;
}

static void ask_front(struct inbox *inbox, int sig)
{
    inbox->halves[sig].question = ++inbox->questions;
    /* Its number is not another's as long as it is our parent. */
    if (getppid() == inbox->front)
        kill(inbox->front, SIGNAL_QUESTION);
}

static struct event own_signal(struct inbox *inbox, const struct signalfd_siginfo *info)
{
    int sig = (int)info->ssi_signo;
    pid_t sender = (pid_t)info->ssi_pid;
    if (sig == SIGCHLD)
        return (struct event){EVENT_CHILD, 0};
    if (inbox->lifeline < 0)
        return (struct event){EVENT_SIGNAL, sig};
    if (!was_sent(info->ssi_code))
        return (struct event){EVENT_TERMINAL, sig};
    /* The front's knock is for the time before we listen; its word is in the lifeline. */
    if (sender != inbox->front && sig < SIGNALS_MAX && !pair_up(inbox, sig, sender, false))
        ask_front(inbox, sig);
    return (struct event){EVENT_NONE, 0};
}

static struct event own_signals(struct inbox *inbox)
{
    struct signalfd_siginfo info;
    for (;;) {
        ssize_t got = read(inbox->signal_fd, &info, sizeof info);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)sizeof info)
            return (struct event){EVENT_NONE, 0};
        struct event event = own_signal(inbox, &info);
        if (event.kind != EVENT_NONE)
            return event;
    }
}

/* False: no word is there. */
static bool read_word(struct inbox *inbox)
{
    ssize_t got;
    if (inbox->lifeline < 0 || inbox->orphaned)
        return false;
    do {
        got = read(inbox->lifeline, &inbox->word, sizeof inbox->word);
    } while (got < 0 && errno == EINTR);
    inbox->orphaned = got == 0;
    inbox->has_word = got == (ssize_t)sizeof inbox->word;
    return inbox->orphaned || inbox->has_word;
}

static struct event take_word(struct inbox *inbox)
{
    const struct passed_signal word = inbox->word;
    if (inbox->orphaned)
        return (struct event){EVENT_ORPHANED, 0};
    inbox->has_word = false;
    if (word.sig == 0)
        inbox->answers++;
    if (word.sig <= 0 || word.sig >= SIGNALS_MAX)
        return (struct event){EVENT_NONE, 0};
    bool to_all = pair_up(inbox, word.sig, word.sender, true);
    return (struct event){to_all ? EVENT_TERMINAL : EVENT_SIGNAL, word.sig};
}

static int64_t due_ms(const struct inbox *inbox, const struct half *half)
{
    return half->sent_ms + (inbox->answers >= half->question ? PAIR_MS : ANSWER_MS);
}

/* What came to us alone, the oldest first; NULL: nothing. */
static const struct half *oldest(const struct inbox *inbox)
{
    const struct half *found = NULL;
    for (int sig = 1; sig < SIGNALS_MAX; sig++) {
        const struct half *half = &inbox->halves[sig];
        if (half->sent_ms != 0 && !half->by_front &&
            (found == NULL || half->question < found->question))
            found = half;
    }
    return found;
}

static struct event due_signal(struct inbox *inbox)
{
    const struct half *half = oldest(inbox);
    if (half == NULL || due_ms(inbox, half) > now_ms())
        return (struct event){EVENT_NONE, 0};
    int sig = (int)(half - inbox->halves);
    inbox->halves[sig].sent_ms = 0;
    return (struct event){EVENT_SIGNAL, sig};
}

struct event inbox_next(struct inbox *inbox)
{
    for (;;) {
        struct event event = own_signals(inbox);
        if (event.kind != EVENT_NONE)
            return event;
        /* Own signals are looked at once more behind a word: its other half was sent before it. */
        if (inbox->has_word)
            event = take_word(inbox);
        else if (!read_word(inbox))
            return due_signal(inbox);
        else if (inbox->orphaned)
            event = take_word(inbox);
        if (event.kind != EVENT_NONE)
            return event;
    }
}

int64_t inbox_due_ms(const struct inbox *inbox)
{
    const struct half *half = oldest(inbox);
    return half != NULL ? due_ms(inbox, half) : INT64_MAX;
}
