/* The front: what the user started and whose exit code counts. See process.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"

struct post {
    pid_t pid; /* 0: it has ended */
    int lifeline;
};

struct front {
    const char *verb, *what;
    struct signals signals;
    struct post *posts;
    size_t n, alive;
    int code;       /* the first that was not 0 */
    bool signalled; /* one was ended by a signal, before it took anything */
};

/* Never blocks; a full pipe means a warden that is stopped and has thousands to read. */
static void tell(const struct post *post, int sig, pid_t sender)
{
    const struct passed_signal word = {.sig = sig, .sender = sender};
    while (write(post->lifeline, &word, sizeof word) < 0 && errno == EINTR)
        continue;
}

static void send_all(const struct front *front, int sig, pid_t sender)
{
    for (size_t i = 0; i < front->n; i++) {
        if (front->posts[i].pid == 0)
            continue;
        tell(&front->posts[i], sig, sender);
        /* A warden that is still opening its engine does not read yet, and may be ended. */
        kill(front->posts[i].pid, sig);
    }
}

static struct post *post_of(const struct front *front, pid_t pid)
{
    for (size_t i = 0; i < front->n; i++) {
        if (front->posts[i].pid == pid)
            return &front->posts[i];
    }
    return NULL;
}

/* The terminal signals the whole group by itself; only what was sent to us alone is passed on. */
static void pass_on(const struct front *front, const siginfo_t *info)
{
    if (info->si_signo == SIGNAL_QUESTION) {
        const struct post *post = post_of(front, info->si_pid);
        if (post != NULL)
            tell(post, 0, 0);
        return;
    }
    if (info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_TKILL)
        send_all(front, info->si_signo, info->si_pid);
}

/* False: it ended as it should not, and nothing may be left below it. */
static bool post_ended(struct front *front, struct post *post, int status)
{
    pid_t pid = post->pid;
    post->pid = 0;
    close(post->lifeline);
    front->alive--;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (front->code == 0)
        front->code = code;
    if (code != 0)
        send_all(front, SIGTERM, getpid()); /* if one can't work, the others don't go on without */
    if (WIFEXITED(status))
        return true;
    front->signalled = true;
    if (signals_ends_wait(WTERMSIG(status)))
        return true;
    say("%s: the warden (pid %d) was ended by signal %d, and %s with it; the command was killed",
        front->verb, (int)pid, WTERMSIG(status), front->what);
    return false;
}

static int await_all(struct front *front)
{
    while (front->alive > 0) {
        siginfo_t info;
        int sig = sigwaitinfo(&front->signals.taken, &info);
        if (sig < 0)
            continue;
        if (sig != SIGCHLD) {
            pass_on(front, &info);
            continue;
        }
        int status;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
            struct post *post = post_of(front, pid);
            if (post != NULL && !post_ended(front, post, status)) {
                tree_end(); /* whatever it left below it is below us now */
                return EXIT_LOST;
            }
        }
    }
    if (front->signalled)
        tree_end();
    return front->code;
}

/* In the child: returns its exit code. Else -1. */
static int fork_post(struct front *front, post_fn *fn, void *data)
{
    int ends[2];
    pid_t self = getpid();
    struct post *post = &front->posts[front->n];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0 || (post->pid = fork()) < 0) {
        say("%s: cannot start a process: %s", front->verb, strerror(errno));
        tree_end();
        return EXIT_CANNOT_EXEC;
    }
    if (post->pid == 0) {
        close(ends[1]); /* else we would keep our own lifeline alive, or another's */
        for (size_t i = 0; i < front->n; i++)
            close(front->posts[i].lifeline);
        return fn(&front->signals, ends[0], self, data);
    }
    close(ends[0]);
    post->lifeline = ends[1];
    front->n++;
    front->alive++;
    return -1;
}

int front_run(const char *verb, const char *what, size_t n, post_fn *fn, void *data)
{
    struct front front = {
        .verb = verb, .what = what, .posts = must_alloc(calloc(n, sizeof *front.posts))};
    int code = -1;
    signals_take(&front.signals);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    while (front.n < n && code < 0)
        code = fork_post(&front, fn, data);
    if (code < 0)
        code = await_all(&front);
    free(front.posts);
    return code;
}
