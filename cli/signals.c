/* Signals: which of them are ours to pass on, what reaches the warden, and dying of a signal as the
 * command did.
 *
 * A signal to the whole process group (the terminal's Ctrl-C, a service manager, `kill -- -PGID`)
 * reaches front and warden each for itself, and the command too if it is in that group; passing it
 * on would let the command see it twice. The sender shows which it is: what one process sent to the
 * front and to the warden, it sent to the group. So before the warden passes on what it was sent,
 * it asks the front, whose answer comes behind all signals that the front has had by then. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

/* ---- which signals, and dying of one ---- */

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

/* ---- what reaches the warden ---- */

/* How far apart a sender that signals one process after the other may be with front and warden. */
#define PAIR_MS 50
/* A front that is stopped does not answer. */
#define ANSWER_MS 1000

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool inbox_open(struct inbox *inbox, const struct signals *signals, const struct link *link)
{
    *inbox = (struct inbox){.link = *link};
    sigset_t watched = signals->taken, quiet;
    if (link->lifeline < 0)
        sigdelset(&watched,
                  SIGTSTP); /* without a front, the process that waits is stopped itself */
    quiet = watched;
    /* Stopping is for the front, which the shell watches: the lease goes on meanwhile. */
    if (link->lifeline >= 0) {
        sigaddset(&quiet, SIGTTIN);
        sigaddset(&quiet, SIGTTOU);
    } else {
        sigset_t stop;
        sigemptyset(&stop);
        sigaddset(&stop, SIGTSTP);
        sigprocmask(SIG_UNBLOCK, &stop, NULL);
    }
    sigprocmask(SIG_BLOCK, &quiet, NULL);
    inbox->signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    return inbox->signal_fd >= 0;
}

void report(const struct link *link, const struct msghdr *message)
{
    while (sendmsg(link->reports, message, MSG_NOSIGNAL) < 0 && errno == EINTR)
        continue;
}

void report_nudge(const struct link *link)
{
    /* Its number is not another's as long as it is our parent. */
    if (getppid() == link->front)
        kill(link->front, SIGCHLD);
}

void report_word(const struct link *link, enum report_kind kind, int sig)
{
    struct report word = {.kind = kind, .sig = sig};
    struct iovec part = {&word, sizeof word};
    report(link, &(struct msghdr){.msg_iov = &part, .msg_iovlen = 1});
    report_nudge(link);
}

/* ---- halves of signals to the group ---- */

static bool is_queued(int sig)
{
    return sig >= SIGRTMIN;
}

static void drop_half(struct inbox *inbox, size_t at)
{
    inbox->n_halves--;
    memmove(&inbox->halves[at], &inbox->halves[at + 1],
            (inbox->n_halves - at) * sizeof inbox->halves[0]);
}

/* Those that have been acted upon already wait for their other half for a while only. */
static void drop_old_halves(struct inbox *inbox)
{
    for (size_t i = inbox->n_halves; i-- > 0;) {
        const struct half *half = &inbox->halves[i];
        int64_t patience = half->by_front ? PAIR_MS : ANSWER_MS;
        if (half->acted_upon && half->sent_ms + patience < now_ms())
            drop_half(inbox, i);
    }
}

/* The other half of a signal to the group is there: forget it and return true. */
static bool pair_up(struct inbox *inbox, const struct passed_signal *word, bool by_front)
{
    drop_old_halves(inbox);
    for (size_t i = 0; i < inbox->n_halves; i++) {
        const struct half *half = &inbox->halves[i];
        if (half->by_front == by_front || half->word.sig != word->sig ||
            half->word.sender != word->sender)
            continue;
        drop_half(inbox, i);
        inbox->paired[word->sig].sender = word->sender;
        inbox->paired[word->sig].ms = now_ms();
        return true;
    }
    return false;
}

/* NULL: one like it waits already, as for any process that is sent a signal twice. */
static struct half *remember(struct inbox *inbox, const struct passed_signal *word, bool by_front)
{
    for (size_t i = 0; i < inbox->n_halves && !is_queued(word->sig); i++) {
        const struct half *half = &inbox->halves[i];
        if (half->by_front == by_front && !half->acted_upon && half->word.sig == word->sig &&
            half->word.sender == word->sender)
            return NULL;
    }
    if (inbox->n_halves == HALVES_MAX)
        drop_half(inbox, 0);
    struct half *half = &inbox->halves[inbox->n_halves++];
    *half = (struct half){.word = *word, .by_front = by_front, .sent_ms = now_ms()};
    return half;
}

/* A stop and a continuation take each other away, as long as they are pending: so does the kernel,
 * and so must we, or the command would be continued behind the stop that came later. */
static void drop_continuations(struct inbox *inbox)
{
    for (size_t i = inbox->n_halves; i-- > 0;) {
        if (inbox->halves[i].word.sig == SIGCONT && !inbox->halves[i].acted_upon)
            drop_half(inbox, i);
    }
}

/* The terminal has sent us a stop that the front has not passed on yet: this came to it before. */
static bool is_overtaken(const struct inbox *inbox, const struct passed_signal *word)
{
    for (size_t i = 0; i < inbox->n_halves && word->sig == SIGCONT; i++) {
        const struct half *half = &inbox->halves[i];
        if (half->word.sig == SIGTSTP && half->word.sender == BY_KERNEL && !half->by_front)
            return true;
    }
    return false;
}

/* Sent to the front and to its group, as timeout(1) does: the second is one with the first. */
static bool is_repeated(const struct inbox *inbox, const struct passed_signal *word)
{
    const struct pairing *pairing = &inbox->paired[word->sig];
    return !is_queued(word->sig) && pairing->ms != 0 && pairing->sender == word->sender &&
           now_ms() <= pairing->ms + PAIR_MS;
}

static struct event event_of(enum event_kind kind, const struct passed_signal *word)
{
    return (struct event){.kind = kind,
                          .sig = word->sig,
                          .by_kernel = word->sender == BY_KERNEL,
                          .queued = word->queued,
                          .value = word->value};
}

/* ---- what the warden itself is sent ---- */

static struct event own_signal(struct inbox *inbox, const struct passed_signal *word)
{
    if (word->sig == SIGCHLD)
        return (struct event){.kind = EVENT_CHILD};
    if (inbox->link.lifeline < 0)
        return event_of(EVENT_SIGNAL, word);
    /* The front's knock is for the time before we listen; its word is in the lifeline. */
    if (word->sender == inbox->link.front || word->sig >= SIGNALS_MAX)
        return (struct event){.kind = EVENT_NONE};
    if (word->sig == SIGTSTP)
        drop_continuations(inbox);
    if (pair_up(inbox, word, false))
        return (struct event){.kind = EVENT_NONE};
    struct half *half = remember(inbox, word, false);
    if (half == NULL)
        return (struct event){.kind = EVENT_NONE};
    if (word->sender == BY_KERNEL) {
        half->acted_upon = true; /* the kernel signals a terminal's group and not one of us */
        return event_of(EVENT_GROUP, word);
    }
    half->question = ++inbox->questions;
    report_word(&inbox->link, REPORT_QUESTION, 0);
    return (struct event){.kind = EVENT_NONE};
}

struct passed_signal passed_signal_of(int sig, int code, pid_t sender, void *value)
{
    bool sent = code == SI_USER || code == SI_QUEUE || code == SI_TKILL;
    return (struct passed_signal){.sig = sig,
                                  .sender = sent ? sender : BY_KERNEL,
                                  .queued = code == SI_QUEUE,
                                  .value = value};
}

static struct event own_signals(struct inbox *inbox)
{
    struct signalfd_siginfo info;
    for (;;) {
        ssize_t got = read(inbox->signal_fd, &info, sizeof info);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)sizeof info)
            return (struct event){.kind = EVENT_NONE};
        const struct passed_signal word =
            passed_signal_of((int)info.ssi_signo, info.ssi_code, (pid_t)info.ssi_pid,
                             (void *)(uintptr_t)info.ssi_ptr);
        struct event event = own_signal(inbox, &word);
        if (event.kind != EVENT_NONE)
            return event;
    }
}

/* ---- what the front passes on ---- */

/* False: no word is there. */
static bool read_word(struct inbox *inbox)
{
    ssize_t got;
    if (inbox->link.lifeline < 0 || inbox->orphaned)
        return false;
    do {
        got = read(inbox->link.lifeline, &inbox->word, sizeof inbox->word);
    } while (got < 0 && errno == EINTR);
    inbox->orphaned = got == 0;
    inbox->has_word = got == (ssize_t)sizeof inbox->word;
    return inbox->orphaned || inbox->has_word;
}

static struct event take_word(struct inbox *inbox)
{
    const struct passed_signal word = inbox->word;
    if (inbox->orphaned)
        return (struct event){.kind = EVENT_ORPHANED};
    inbox->has_word = false;
    if (word.sig == 0)
        inbox->answers++;
    if (word.sig <= 0 || word.sig >= SIGNALS_MAX)
        return (struct event){.kind = EVENT_NONE};
    bool acted_upon = word.sender == BY_KERNEL;
    if (pair_up(inbox, &word, true))
        return acted_upon ? (struct event){.kind = EVENT_NONE} : event_of(EVENT_GROUP, &word);
    if (is_repeated(inbox, &word) || is_overtaken(inbox, &word))
        return (struct event){.kind = EVENT_NONE};
    struct half *half = remember(inbox, &word, true);
    if (half != NULL)
        half->acted_upon = true;
    /* Only a terminal's whole group is stopped by the kernel. If we were not, a continuation has
     * taken our half away; it has continued the command already. */
    bool to_group = word.sig == SIGTSTP && word.sender == BY_KERNEL;
    return event_of(to_group ? EVENT_GROUP : EVENT_SIGNAL, &word);
}

/* ---- what came to the warden alone ---- */

static int64_t due_ms(const struct inbox *inbox, const struct half *half)
{
    return half->sent_ms + (inbox->answers >= half->question ? PAIR_MS : ANSWER_MS);
}

/* Halves stand in the order in which they came. */
static size_t oldest(const struct inbox *inbox)
{
    size_t i = 0;
    while (i < inbox->n_halves && inbox->halves[i].acted_upon)
        i++;
    return i;
}

static struct event due_signal(struct inbox *inbox)
{
    size_t at = oldest(inbox);
    if (at == inbox->n_halves || due_ms(inbox, &inbox->halves[at]) > now_ms())
        return (struct event){.kind = EVENT_NONE};
    const struct passed_signal word = inbox->halves[at].word;
    drop_half(inbox, at);
    return event_of(EVENT_SIGNAL, &word);
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
    size_t at = oldest(inbox);
    return at < inbox->n_halves ? due_ms(inbox, &inbox->halves[at]) : INT64_MAX;
}
