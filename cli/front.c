/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The front: the process that the user started and waits for. See process.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"

struct warden_process {
    pid_t pid; /* 0: it has ended */
    int lifeline, reports;
    int kept[KEPT_MAX]; /* descriptors that its locks live by */
    size_t n_kept;
};

struct front {
    const char *verb, *what;
    struct signals signals;
    struct warden_process *wardens;
    size_t n, alive;
    bool woken;     /* by SIGCHLD: a warden has ended, or reports something */
    int code;       /* the first that was not 0 */
    int sig;        /* not 0: the signal that ended the command, or the wait for the lock */
    int lost_code;  /* the exit code after a warden was killed */
    bool signalled; /* a warden was ended by a signal before it held anything */
};

/* ---- passing signals on ---- */

/* Never blocks; a full pipe means a warden that is stopped and has thousands to read. */
static void pass_signal(const struct warden_process *warden, const struct passed_signal *passed)
{
    while (write(warden->lifeline, passed, sizeof *passed) < 0 && errno == EINTR)
        continue;
}

static void pass_to_all(const struct front *front, const struct passed_signal *passed)
{
    for (size_t i = 0; i < front->n; i++) {
        if (front->wardens[i].pid == 0)
            continue;
        pass_signal(&front->wardens[i], passed);
        /* A warden that is still opening its engine does not read yet, and may be ended. */
        kill(front->wardens[i].pid, passed->sig);
    }
}

/* As the kernel would have stopped us: not in an orphaned process group, and not if we have been
 * continued meanwhile. A SIGCONT that comes after the kill() cancels the stop by itself. */
static void stop(void)
{
    sigset_t one, pending;
    const struct timespec none = {0};
    sigemptyset(&one);
    sigaddset(&one, SIGTSTP);
    kill(getpid(), SIGTSTP);
    sigpending(&pending);
    if (sigismember(&pending, SIGCONT))
        sigtimedwait(&one, NULL, &none);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    sigprocmask(SIG_BLOCK, &one, NULL);
}

static void take_signal(struct front *front, const siginfo_t *info)
{
    const struct passed_signal passed =
        passed_signal_of(info->si_signo, info->si_code, info->si_pid, info->si_value.sival_ptr);
    if (passed.sig == SIGCHLD)
        front->woken = true;
    else
        pass_to_all(front, &passed);
    if (passed.sig == SIGTSTP)
        stop();
}

/* All signals that are pending. */
static void take_signals(struct front *front)
{
    const struct timespec none = {0};
    siginfo_t info;
    while (sigtimedwait(&front->signals.taken, &info, &none) > 0)
        take_signal(front, &info);
}

/* ---- what a warden reports ---- */

static void keep(struct warden_process *warden, const struct msghdr *message)
{
    for (const struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL;
         at = CMSG_NXTHDR((struct msghdr *)message, (struct cmsghdr *)at)) {
        size_t n = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < n && warden->n_kept < KEPT_MAX; i++)
            memcpy(&warden->kept[warden->n_kept++], CMSG_DATA(at) + i * sizeof(int), sizeof(int));
    }
}

static void drop_kept(struct warden_process *warden)
{
    for (size_t i = 0; i < warden->n_kept; i++)
        close(warden->kept[i]);
    warden->n_kept = 0;
}

/* False: there is none. */
static bool read_report(struct front *front, struct warden_process *warden)
{
    struct report got;
    char rights[CMSG_SPACE(KEPT_MAX * sizeof(int))];
    struct iovec part = {&got, sizeof got};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = rights, .msg_controllen = sizeof rights};
    if (recvmsg(warden->reports, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof got)
        return false;
    keep(warden, &message);
    if (got.kind == REPORT_DIED_OF)
        front->sig = got.sig;
    if (got.kind == REPORT_DROP)
        drop_kept(warden);
    if (got.kind == REPORT_QUESTION) {
        const struct passed_signal answer = {0};
        take_signals(front);
        pass_signal(warden, &answer);
    }
    return true;
}

/* ---- the end of a warden ---- */

static struct warden_process *warden_of(const struct front *front, pid_t pid)
{
    for (size_t i = 0; i < front->n; i++) {
        if (front->wardens[i].pid == pid)
            return &front->wardens[i];
    }
    return NULL;
}

/* False: it was killed, so the front has to end what is left of its tree. */
static bool warden_ended(struct front *front, struct warden_process *warden, int status)
{
    static const struct passed_signal end = {.sig = SIGTERM, .sender = BY_KERNEL};
    pid_t pid = warden->pid;
    while (read_report(front, warden))
        continue;
    warden->pid = 0;
    close(warden->lifeline);
    close(warden->reports);
    front->alive--;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (front->code == 0)
        front->code = code;
    if (code != 0)
        pass_to_all(front, &end); /* if one warden fails, all end */
    if (WIFEXITED(status))
        return true;
    front->signalled = true;
    if (signals_ends_wait(WTERMSIG(status))) {
        front->sig = WTERMSIG(status);
        return true;
    }
    say("%s: the warden of %s (pid %d) was killed by signal %d; killing the command", front->verb,
        front->what, (int)pid, WTERMSIG(status));
    return false;
}

/* Reads what wardens report, and reaps those that have ended. False: everything has to end. */
static bool serve_wardens(struct front *front)
{
    int status;
    for (size_t i = 0; i < front->n; i++) {
        while (front->wardens[i].pid != 0 && read_report(front, &front->wardens[i]))
            continue;
    }
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        struct warden_process *warden = warden_of(front, pid);
        if (warden != NULL && !warden_ended(front, warden, status))
            return false;
    }
    return true;
}

static int await_all(struct front *front)
{
    bool going = true;
    while (front->alive > 0 && going) {
        siginfo_t info;
        if (sigwaitinfo(&front->signals.taken, &info) > 0)
            take_signal(front, &info);
        if (!front->woken)
            continue;
        front->woken = false;
        going = serve_wardens(front);
    }
    if (!going || front->signalled)
        tree_end(); /* the tree of a killed warden is now below the front */
    /* Not earlier: these descriptors keep its locks until its tree is gone. */
    for (size_t i = 0; i < front->n; i++)
        drop_kept(&front->wardens[i]);
    return going ? front->code : front->lost_code;
}

/* ---- the beginning ---- */

/* In the child: returns its exit code. Else -1. */
static int fork_warden(struct front *front, warden_fn *fn, struct options *options)
{
    int ends[2], pair[2];
    pid_t self = getpid();
    struct warden_process *warden = &front->wardens[front->n];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0 ||
        (warden->pid = fork()) < 0) {
        say("%s: cannot start a process: %s", front->verb, strerror(errno));
        tree_end();
        return EXIT_CANNOT_EXEC;
    }
    if (warden->pid == 0) {
        close(ends[1]); /* or this process would keep its own lifeline open, or that of another */
        close(pair[0]);
        for (size_t i = 0; i < front->n; i++) {
            close(front->wardens[i].lifeline);
            close(front->wardens[i].reports);
        }
        const struct link link = {.front = self, .lifeline = ends[0], .reports = pair[1]};
        return fn(options, &front->signals, &link);
    }
    close(ends[0]);
    close(pair[1]);
    warden->lifeline = ends[1];
    warden->reports = pair[0];
    front->n++;
    front->alive++;
    return -1;
}

static int run_wardens(struct front *front, size_t n, warden_fn *fn, struct options *options)
{
    int code = -1;
    while (front->n < n && code < 0)
        code = fork_warden(front, fn, options);
    if (code >= 0)
        return code;
    code = await_all(front);
    return front->sig != 0 && code == 128 + front->sig ? signals_die_of(front->sig) : code;
}

int front_run(const char *verb, const char *what, size_t n, warden_fn *fn, struct options *options)
{
    struct front front = {.verb = verb,
                          .what = what,
                          .wardens = must_alloc(calloc(n, sizeof *front.wardens)),
                          .lost_code = options_exit_code(options, EXIT_LOST)};
    say_never_waits();
    if (!tree_reserve()) {
        say("%s: no descriptors are left to find and stop the command's processes with: raise the "
            "limit (ulimit -n)",
            verb);
        free(front.wardens);
        return EXIT_ENGINE;
    }
    signals_take(&front.signals);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int code = run_wardens(&front, n, fn, options);
    free(front.wardens);
    return code;
}
