/* The front: what the user started and whose end counts. See process.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"

struct post {
    pid_t pid; /* 0: it has ended */
    int lifeline, reports;
    int kept[KEPT_MAX]; /* descriptors that its locks live by */
    size_t n_kept;
};

struct front {
    const char *verb, *what;
    struct signals signals;
    struct post *posts;
    size_t n, alive;
    bool nudged;    /* by SIGCHLD: a warden has ended, or reports something */
    int code;       /* the first that was not 0 */
    int sig;        /* not 0: the signal that the command, or the wait for the lock, was ended by */
    int lost_code;  /* what a killed warden makes us end with */
    bool signalled; /* one was ended by a signal, before it took anything */
};

/* ---- passing signals on ---- */

/* Never blocks; a full pipe means a warden that is stopped and has thousands to read. */
static void pass_word(const struct post *post, const struct passed_signal *word)
{
    while (write(post->lifeline, word, sizeof *word) < 0 && errno == EINTR)
        continue;
}

static void pass_to_all(const struct front *front, const struct passed_signal *word)
{
    for (size_t i = 0; i < front->n; i++) {
        if (front->posts[i].pid == 0)
            continue;
        pass_word(&front->posts[i], word);
        /* A warden that is still opening its engine does not read yet, and may be ended. */
        kill(front->posts[i].pid, word->sig);
    }
}

/* As the kernel would have stopped us: not in an orphaned process group, and not if we have been
 * continued meanwhile. A SIGCONT that comes after the kill() takes the stop away by itself. */
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
    const struct passed_signal word =
        passed_signal_of(info->si_signo, info->si_code, info->si_pid, info->si_value.sival_ptr);
    if (word.sig == SIGCHLD)
        front->nudged = true;
    else
        pass_to_all(front, &word);
    if (word.sig == SIGTSTP)
        stop();
}

/* All that have come so far. */
static void take_signals(struct front *front)
{
    const struct timespec none = {0};
    siginfo_t info;
    while (sigtimedwait(&front->signals.taken, &info, &none) > 0)
        take_signal(front, &info);
}

/* ---- what a warden reports ---- */

static void keep(struct post *post, const struct msghdr *message)
{
    for (const struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL;
         at = CMSG_NXTHDR((struct msghdr *)message, (struct cmsghdr *)at)) {
        size_t n = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < n && post->n_kept < KEPT_MAX; i++)
            memcpy(&post->kept[post->n_kept++], CMSG_DATA(at) + i * sizeof(int), sizeof(int));
    }
}

static void drop_kept(struct post *post)
{
    for (size_t i = 0; i < post->n_kept; i++)
        close(post->kept[i]);
    post->n_kept = 0;
}

/* False: there is none. */
static bool read_report(struct front *front, struct post *post)
{
    struct report word;
    char rights[CMSG_SPACE(KEPT_MAX * sizeof(int))];
    struct iovec part = {&word, sizeof word};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = rights, .msg_controllen = sizeof rights};
    if (recvmsg(post->reports, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof word)
        return false;
    keep(post, &message);
    if (word.kind == REPORT_DIED_OF)
        front->sig = word.sig;
    if (word.kind == REPORT_QUESTION) {
        const struct passed_signal answer = {0};
        take_signals(front);
        pass_word(post, &answer);
    }
    return true;
}

/* ---- the end of a warden ---- */

static struct post *post_of(const struct front *front, pid_t pid)
{
    for (size_t i = 0; i < front->n; i++) {
        if (front->posts[i].pid == pid)
            return &front->posts[i];
    }
    return NULL;
}

/* False: it ended as it should not, and nothing may be left below it. */
static bool post_ended(struct front *front, struct post *post, int status)
{
    static const struct passed_signal end = {.sig = SIGTERM, .sender = BY_KERNEL};
    pid_t pid = post->pid;
    while (read_report(front, post))
        continue;
    post->pid = 0;
    close(post->lifeline);
    close(post->reports);
    front->alive--;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (front->code == 0)
        front->code = code;
    if (code != 0)
        pass_to_all(front, &end); /* if one can't work, the others don't go on without it */
    if (WIFEXITED(status))
        return true;
    front->signalled = true;
    if (signals_ends_wait(WTERMSIG(status))) {
        front->sig = WTERMSIG(status);
        return true;
    }
    say("%s: the warden (pid %d) died of signal %d and took %s with it; killing the command",
        front->verb, (int)pid, WTERMSIG(status), front->what);
    return false;
}

/* Reads what wardens report, and waits for those that have ended. False: nothing may go on. */
static bool look_after_posts(struct front *front)
{
    int status;
    for (size_t i = 0; i < front->n; i++) {
        while (front->posts[i].pid != 0 && read_report(front, &front->posts[i]))
            continue;
    }
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        struct post *post = post_of(front, pid);
        if (post != NULL && !post_ended(front, post, status))
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
        if (!front->nudged)
            continue;
        front->nudged = false;
        going = look_after_posts(front);
    }
    if (!going || front->signalled)
        tree_end(); /* what a killed warden left below it is below us now */
    /* Not before: these keep its locks, and the next holder out. */
    for (size_t i = 0; i < front->n; i++)
        drop_kept(&front->posts[i]);
    return going ? front->code : front->lost_code;
}

/* ---- the beginning ---- */

/* In the child: returns its exit code. Else -1. */
static int fork_post(struct front *front, post_fn *fn, struct options *options)
{
    int ends[2], pair[2];
    pid_t self = getpid();
    struct post *post = &front->posts[front->n];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0 ||
        (post->pid = fork()) < 0) {
        say("%s: cannot start a process: %s", front->verb, strerror(errno));
        tree_end();
        return EXIT_CANNOT_EXEC;
    }
    if (post->pid == 0) {
        close(ends[1]); /* else we would keep our own lifeline alive, or another's */
        close(pair[0]);
        for (size_t i = 0; i < front->n; i++) {
            close(front->posts[i].lifeline);
            close(front->posts[i].reports);
        }
        const struct link link = {.front = self, .lifeline = ends[0], .reports = pair[1]};
        return fn(options, &front->signals, &link);
    }
    close(ends[0]);
    close(pair[1]);
    post->lifeline = ends[1];
    post->reports = pair[0];
    front->n++;
    front->alive++;
    return -1;
}

static int run_posts(struct front *front, size_t n, post_fn *fn, struct options *options)
{
    int code = -1;
    while (front->n < n && code < 0)
        code = fork_post(front, fn, options);
    if (code >= 0)
        return code;
    code = await_all(front);
    return front->sig != 0 && code == 128 + front->sig ? signals_die_of(front->sig) : code;
}

int front_run(const char *verb, const char *what, size_t n, post_fn *fn, struct options *options)
{
    struct front front = {.verb = verb,
                          .what = what,
                          .posts = must_alloc(calloc(n, sizeof *front.posts)),
                          .lost_code = options_exit_code(options, EXIT_LOST)};
    say_never_waits();
    if (!tree_reserve()) {
        say("%s: no descriptors are left to find and stop the command's processes with: raise the "
            "limit (ulimit -n)",
            verb);
        free(front.posts);
        return EXIT_ENGINE;
    }
    signals_take(&front.signals);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int code = run_posts(&front, n, fn, options);
    free(front.posts);
    return code;
}
