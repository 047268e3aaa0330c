/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Signals: which of them are passed on, what reaches the warden, and dying of the signal that ended
 * the command.
 *
 * A signal to the whole process group (the terminal's Ctrl-C, a service manager, `kill -- -PGID`)
 * reaches front and warden separately, and the command too if it is in that group; if it were
 * passed on, the command would get it twice. A signal that front and warden both got from the same
 * sender was sent to the group. So before the warden passes a signal on, it asks the front, whose
 * answer comes after all signals that the front has received by then. */
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

/* All but those that cannot be caught (KILL, STOP), that report a bug in this process (SEGV, ...),
 * and that stop a background reader of the terminal (TTIN, TTOU). Real-time signals are added. */
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
    sigaddset(&blocked, SIGPIPE); /* a closed pipe must not end this process */
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
    /* A damaged heap raises ABRT: that is no request to end. */
    if (sig == SIGCONT || sig == SIGTSTP || sig == SIGURG || sig == SIGWINCH || sig == SIGABRT)
        return false;
    for (size_t i = 0; i < N_STANDARD; i++) {
        if (standard[i] == sig)
            return true;
    }
    return false;
}

/* Whether the command has not received it directly. Two signals from one sender may also have been
 * sent to front and warden one by one; if the command would have died of it and has not, it was not
 * reached. */
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
    /* The command has dumped its core; this process must not dump another. */
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

/* How far apart the signals to front and warden may be if one sender signals them one by one. */
#define PAIR_MS 50
/* A stopped front does not answer. */
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
    /* Only the front is stopped, because the shell watches it: the warden keeps the lease alive. */
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

void report_wake_front(const struct link *link)
{
    /* As long as the front is the parent, its pid cannot belong to another process. */
    if (getppid() == link->front)
        kill(link->front, SIGCHLD);
}

void report_send(const struct link *link, enum report_kind kind, int sig)
{
    struct report sent = {.kind = kind, .sig = sig};
    struct iovec part = {&sent, sizeof sent};
    report(link, &(struct msghdr){.msg_iov = &part, .msg_iovlen = 1});
    report_wake_front(link);
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

/* Those that have been acted upon wait for their other half only for a while. */
static void drop_old_halves(struct inbox *inbox)
{
    for (size_t i = inbox->n_halves; i-- > 0;) {
        const struct half *half = &inbox->halves[i];
        int64_t patience = half->by_front ? PAIR_MS : ANSWER_MS;
        if (half->acted_upon && half->sent_ms + patience < now_ms())
            drop_half(inbox, i);
    }
}

/* True: the other half of a signal to the group had arrived; it is forgotten. */
static bool pair_up(struct inbox *inbox, const struct passed_signal *passed, bool by_front)
{
    drop_old_halves(inbox);
    for (size_t i = 0; i < inbox->n_halves; i++) {
        const struct half *half = &inbox->halves[i];
        if (half->by_front == by_front || half->passed.sig != passed->sig ||
            half->passed.sender != passed->sender)
            continue;
        drop_half(inbox, i);
        inbox->paired[passed->sig].sender = passed->sender;
        inbox->paired[passed->sig].ms = now_ms();
        return true;
    }
    return false;
}

/* NULL: the same signal is pending already, as for any process that is sent a signal twice. */
static struct half *remember(struct inbox *inbox, const struct passed_signal *passed, bool by_front)
{
    for (size_t i = 0; i < inbox->n_halves && !is_queued(passed->sig); i++) {
        const struct half *half = &inbox->halves[i];
        if (half->by_front == by_front && !half->acted_upon && half->passed.sig == passed->sig &&
            half->passed.sender == passed->sender)
            return NULL;
    }
    if (inbox->n_halves == HALVES_MAX)
        drop_half(inbox, 0);
    struct half *half = &inbox->halves[inbox->n_halves++];
    *half = (struct half){.passed = *passed, .by_front = by_front, .sent_ms = now_ms()};
    return half;
}

/* A pending stop and a pending continuation cancel each other in the kernel, and must do so here:
 * otherwise the command would be continued after the later stop. */
static void drop_continuations(struct inbox *inbox)
{
    for (size_t i = inbox->n_halves; i-- > 0;) {
        if (inbox->halves[i].passed.sig == SIGCONT && !inbox->halves[i].acted_upon)
            drop_half(inbox, i);
    }
}

/* The terminal has sent a stop that the front has not passed on yet: this signal is older. */
static bool is_overtaken(const struct inbox *inbox, const struct passed_signal *passed)
{
    for (size_t i = 0; i < inbox->n_halves && passed->sig == SIGCONT; i++) {
        const struct half *half = &inbox->halves[i];
        if (half->passed.sig == SIGTSTP && half->passed.sender == BY_KERNEL && !half->by_front)
            return true;
    }
    return false;
}

/* Sent to the front and then to its group, as timeout(1) does: both count as one. */
static bool is_repeated(const struct inbox *inbox, const struct passed_signal *passed)
{
    const struct pairing *pairing = &inbox->paired[passed->sig];
    return !is_queued(passed->sig) && pairing->ms != 0 && pairing->sender == passed->sender &&
           now_ms() <= pairing->ms + PAIR_MS;
}

static struct event event_of(enum event_kind kind, const struct passed_signal *passed)
{
    return (struct event){.kind = kind,
                          .sig = passed->sig,
                          .by_kernel = passed->sender == BY_KERNEL,
                          .queued = passed->queued,
                          .value = passed->value};
}

/* ---- what the warden itself is sent ---- */

static struct event own_signal(struct inbox *inbox, const struct passed_signal *passed)
{
    if (passed->sig == SIGCHLD)
        return (struct event){.kind = EVENT_CHILD};
    if (inbox->link.lifeline < 0)
        return event_of(EVENT_SIGNAL, passed);
    /* The front's kill() only ends a warden that is still opening its engine; the signal itself
     * comes through the lifeline. */
    if (passed->sender == inbox->link.front || passed->sig >= SIGNALS_MAX)
        return (struct event){.kind = EVENT_NONE};
    if (passed->sig == SIGTSTP)
        drop_continuations(inbox);
    if (pair_up(inbox, passed, false))
        return (struct event){.kind = EVENT_NONE};
    struct half *half = remember(inbox, passed, false);
    if (half == NULL)
        return (struct event){.kind = EVENT_NONE};
    if (passed->sender == BY_KERNEL) {
        half->acted_upon = true; /* the kernel signals a terminal's group, never one process */
        return event_of(EVENT_GROUP, passed);
    }
    half->question = ++inbox->questions;
    report_send(&inbox->link, REPORT_QUESTION, 0);
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
        const struct passed_signal passed =
            passed_signal_of((int)info.ssi_signo, info.ssi_code, (pid_t)info.ssi_pid,
                             (void *)(uintptr_t)info.ssi_ptr);
        struct event event = own_signal(inbox, &passed);
        if (event.kind != EVENT_NONE)
            return event;
    }
}

/* ---- what the front passes on ---- */

/* False: nothing has been passed on. */
static bool read_passed(struct inbox *inbox)
{
    ssize_t got;
    if (inbox->link.lifeline < 0 || inbox->orphaned)
        return false;
    do {
        got = read(inbox->link.lifeline, &inbox->passed, sizeof inbox->passed);
    } while (got < 0 && errno == EINTR);
    inbox->orphaned = got == 0;
    inbox->has_passed = got == (ssize_t)sizeof inbox->passed;
    return inbox->orphaned || inbox->has_passed;
}

static struct event take_passed(struct inbox *inbox)
{
    const struct passed_signal passed = inbox->passed;
    if (inbox->orphaned)
        return (struct event){.kind = EVENT_ORPHANED};
    inbox->has_passed = false;
    if (passed.sig == 0)
        inbox->answers++;
    if (passed.sig <= 0 || passed.sig >= SIGNALS_MAX)
        return (struct event){.kind = EVENT_NONE};
    bool acted_upon = passed.sender == BY_KERNEL;
    if (pair_up(inbox, &passed, true))
        return acted_upon ? (struct event){.kind = EVENT_NONE} : event_of(EVENT_GROUP, &passed);
    if (is_repeated(inbox, &passed) || is_overtaken(inbox, &passed))
        return (struct event){.kind = EVENT_NONE};
    struct half *half = remember(inbox, &passed, true);
    if (half != NULL)
        half->acted_upon = true;
    /* The kernel stops a terminal's whole group. If the warden's half is missing, a continuation
     * has cancelled it, and has continued the command already. */
    bool to_group = passed.sig == SIGTSTP && passed.sender == BY_KERNEL;
    return event_of(to_group ? EVENT_GROUP : EVENT_SIGNAL, &passed);
}

/* ---- what came to the warden alone ---- */

static int64_t due_ms(const struct inbox *inbox, const struct half *half)
{
    return half->sent_ms + (inbox->answers >= half->question ? PAIR_MS : ANSWER_MS);
}

/* Halves are in order of arrival. */
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
    const struct passed_signal passed = inbox->halves[at].passed;
    drop_half(inbox, at);
    return event_of(EVENT_SIGNAL, &passed);
}

struct event inbox_next(struct inbox *inbox)
{
    for (;;) {
        struct event event = own_signals(inbox);
        if (event.kind != EVENT_NONE)
            return event;
        /* The warden's own signals are read again after each passed one: the other half of that
         * was sent earlier. */
        if (inbox->has_passed)
            event = take_passed(inbox);
        else if (!read_passed(inbox))
            return due_signal(inbox);
        else if (inbox->orphaned)
            event = take_passed(inbox);
        if (event.kind != EVENT_NONE)
            return event;
    }
}

int64_t inbox_due_ms(const struct inbox *inbox)
{
    size_t at = oldest(inbox);
    return at < inbox->n_halves ? due_ms(inbox, &inbox->halves[at]) : INT64_MAX;
}
