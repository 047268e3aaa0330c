/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the processes of `stile torture`, reads what they report, and ends them. */
#include "torture_crew.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define ERRAND_NS   (30 * NS_PER_S) /* the most that one may take */
#define CRASHES_MAX 16              /* then crashed workers are no longer replaced */

_Static_assert(sizeof(struct message) <= PIPE_BUF, "a message is written as a whole");

/* ---- children ---- */

/* Keeps one or two descriptors: another worker's would keep it from seeing the end of its own. */
static void close_others(int one, int other)
{
    int low = one < other ? one : other, high = one < other ? other : one;
    if (low < 0)
        low = high;
    close_range(STDERR_FILENO + 1, (unsigned)low - 1, 0);
    if (low != high)
        close_range((unsigned)low + 1, (unsigned)high - 1, 0);
    close_range((unsigned)high + 1, ~0u, 0);
}

/* As fork(), for a child that ends with this process; *pid is 0 there. False with errno, and *pid
 * as it was: kill() would take -1 for everybody. */
static bool fork_child(pid_t *pid, int out, int control)
{
    pid_t parent = getpid(), child = fork();
    if (child >= 0)
        *pid = child;
    if (child != 0)
        return child > 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_ENGINE);
    poller_forget();
    close_others(out, control);
    return true;
}

unsigned crew_interrupts(struct crew *crew)
{
    struct signalfd_siginfo info;
    while (read(crew->signals, &info, sizeof info) == (ssize_t)sizeof info)
        crew->interrupts++;
    return crew->interrupts;
}

/* 0: the pipe is over; -1: nothing more for now. */
static int read_message(struct message *message, int fd)
{
    ssize_t n = read(fd, message, sizeof *message);
    if (n == (ssize_t)sizeof *message)
        return 1;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? -1 : 0;
}

static int reap(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return status;
}

/* ---- workers ---- */

static void worker_gone(struct slot *slot)
{
    struct crew *crew = slot->crew;
    poller_watch(&slot->out, 0);
    close(slot->out.fd);
    close(slot->control);
    int status = reap(slot->pid);
    slot->pid = 0;
    if (slot->seen.died_ns != 0 || (crew->ending && status == 0))
        return;
    recording_crashed(crew->recording, &slot->seen, status);
}

static void take_message(struct slot *slot, const struct message *message)
{
    if (message->kind == MESSAGE_FAILED)
        memcpy(slot->crew->reason, message->text, sizeof slot->crew->reason);
    recording_take(slot->crew->recording, &slot->seen, message);
}

static void on_worker(struct source *source, uint32_t events)
{
    struct slot *slot = (struct slot *)source;
    struct message message;
    (void)events;
    int got = read_message(&message, source->fd);
    if (got == 0)
        worker_gone(slot);
    if (got <= 0)
        return;
    take_message(slot, &message);
    if (message.kind == MESSAGE_READ && slot->seen.in_gap && !slot->crew->ending)
        slot->crew->in_gap(slot, slot->crew->data);
}

bool crew_seize(struct slot *slot)
{
    struct message message;
    siginfo_t info;
    kill(slot->pid, SIGSTOP);
    while (waitid(P_PID, (id_t)slot->pid, &info, WSTOPPED | WEXITED | WNOWAIT) < 0 &&
           errno == EINTR)
        continue;
    while (read_message(&message, slot->out.fd) > 0)
        take_message(slot, &message);
    if (slot->seen.in_gap)
        return true;
    kill(slot->pid, SIGCONT);
    return false;
}

static void close_pipe(const int ends[2])
{
    int error = errno;
    close(ends[0]);
    close(ends[1]);
    errno = error;
}

/* Its own ends of the two pipes belong to the slot then. */
static bool fork_worker(struct slot *slot, const int out[2], const int control[2])
{
    struct recording *recording = slot->crew->recording;
    errno = EAGAIN;
    if (!recording_enrol(recording, &slot->seen, slot->number))
        return false;
    if (!fork_child(&slot->pid, out[1], control[0])) {
        recording_dismiss(recording);
        return false;
    }
    if (slot->pid == 0)
        _exit(worker_run(slot->crew->plan, slot->url, slot->seen.client, out[1], control[0]));
    close(out[1]);
    close(control[0]);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    slot->control = control[1];
    slot->out = (struct source){.fd = out[0], .ready = on_worker};
    return poller_watch(&slot->out, EPOLLIN);
}

static bool start_worker(struct slot *slot)
{
    int out[2], control[2];
    if (pipe2(out, O_CLOEXEC) < 0)
        return false;
    if (pipe2(control, O_CLOEXEC) < 0) {
        close_pipe(out);
        return false;
    }
    bool started = fork_worker(slot, out, control);
    if (!started && slot->pid == 0) {
        close_pipe(out);
        close_pipe(control);
    }
    return started;
}

static bool prepare_slot(struct slot *slot, bool proxied)
{
    const char *url = slot->crew->plan->url;
    snprintf(slot->url, sizeof slot->url, "%s", url);
    if (!proxied)
        return true;
    slot->proxy = proxy_open(&slot->crew->target);
    errno = slot->proxy != NULL ? ENAMETOOLONG : errno;
    return slot->proxy != NULL && proxy_rewrite(slot->url, sizeof slot->url, slot->proxy, url);
}

bool crew_start(struct crew *crew, bool proxied)
{
    for (uint32_t i = 0; i < crew->plan->n_clients; i++) {
        struct slot *slot = &crew->slots[crew->n++];
        *slot = (struct slot){.crew = crew, .number = i};
        if (!prepare_slot(slot, proxied) || !start_worker(slot))
            return false;
    }
    return true;
}

bool crew_replace(struct slot *slot)
{
    slot->plight = WELL;
    const struct recording *recording = slot->crew->recording;
    return recording->crashes + recording->killed_by_others < CRASHES_MAX && start_worker(slot);
}

void crew_kill(struct slot *slot)
{
    if (slot->pid != 0)
        kill(slot->pid, SIGKILL);
}

static bool is_alive(const struct crew *crew)
{
    for (uint32_t i = 0; i < crew->n; i++) {
        if (crew->slots[i].pid != 0)
            return true;
    }
    return false;
}

static void kill_all(struct crew *crew)
{
    for (uint32_t i = 0; i < crew->n; i++) {
        if (crew->slots[i].pid != 0 && crew->slots[i].seen.died_ns == 0)
            recording_died(crew->recording, &crew->slots[i].seen);
        crew_kill(&crew->slots[i]);
    }
    for (struct errand *errand = crew->breaks; errand != NULL; errand = errand->next)
        kill(errand->pid, SIGKILL);
}

void crew_end(struct crew *crew, uint64_t patience_ns)
{
    uint64_t until = poller_now_ns() + patience_ns;
    unsigned interrupts = crew_interrupts(crew);
    crew->ending = true;
    for (uint32_t i = 0; i < crew->n; i++) {
        if (crew->slots[i].pid == 0)
            continue;
        close(crew->slots[i].control);
        crew->slots[i].control = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    while (is_alive(crew) || crew->breaks != NULL) {
        poller_turn(20);
        if (poller_now_ns() > until || crew_interrupts(crew) > interrupts)
            kill_all(crew);
    }
    for (uint32_t i = 0; i < crew->n; i++)
        proxy_close(crew->slots[i].proxy);
}

/* ---- errands ---- */

static void errand_gone(struct errand *errand)
{
    poller_watch(&errand->out, 0);
    close(errand->out.fd);
    reap(errand->pid);
    errand->over = true;
    for (struct errand **at = &errand->crew->breaks; *at != NULL; at = &(*at)->next) {
        if (*at != errand)
            continue;
        *at = errand->next;
        free(errand);
        return;
    }
}

static void on_errand(struct source *source, uint32_t events)
{
    struct errand *errand = (struct errand *)source;
    struct message message;
    (void)events;
    int got = read_message(&message, source->fd);
    if (got == 0)
        errand_gone(errand);
    if (got <= 0)
        return;
    if (message.kind == MESSAGE_OPENED)
        errand->opened = message;
    else if (message.kind == MESSAGE_DONE)
        errand->done = message;
    else
        recording_take(errand->crew->recording, &(struct worker_seen){0}, &message);
}

struct order {
    enum errand_kind kind;
    uint32_t name;
    uint64_t token;
};

static int carry_out(const struct order *order, const struct plan *plan, const char *url, int out)
{
    switch (order->kind) {
    case ERRAND_OPEN:
        return errand_open(plan, url, out);
    case ERRAND_BEGIN:
        return errand_begin(plan, url, out);
    case ERRAND_BREAK:
        return errand_break(plan, url, out, order->name, order->token);
    case ERRAND_END:
        return errand_end(plan, url, out);
    }
    return EXIT_ENGINE;
}

static bool start_errand(struct errand *errand, struct crew *crew, const struct order *order,
                         const char *url)
{
    int out[2];
    if (pipe2(out, O_CLOEXEC) < 0)
        return false;
    if (!fork_child(&errand->pid, out[1], -1)) {
        close_pipe(out);
        return false;
    }
    if (errand->pid == 0)
        _exit(carry_out(order, crew->plan, url, out[1]));
    close(out[1]);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    errand->crew = crew;
    errand->out = (struct source){.fd = out[0], .ready = on_errand};
    errand->done.status = STILE_UNREACHABLE;
    snprintf(errand->done.text, sizeof errand->done.text, "no answer in %d s",
             (int)(ERRAND_NS / NS_PER_S));
    return poller_watch(&errand->out, EPOLLIN);
}

bool errand_run(struct errand *errand, struct crew *crew, enum errand_kind kind, const char *url)
{
    uint64_t until = poller_now_ns() + ERRAND_NS;
    unsigned interrupts = crew_interrupts(crew);
    *errand = (struct errand){0};
    if (!start_errand(errand, crew, &(struct order){.kind = kind}, url))
        return false;
    while (!errand->over) {
        bool interrupted = crew_interrupts(crew) > interrupts;
        if (interrupted)
            snprintf(errand->done.text, sizeof errand->done.text, "interrupted");
        if (interrupted || poller_now_ns() > until)
            kill(errand->pid, SIGKILL);
        poller_turn(20);
    }
    return true;
}

void errand_start_break(struct crew *crew, const struct slot *slot)
{
    struct errand *errand = must_alloc(calloc(1, sizeof *errand));
    const struct order order = {ERRAND_BREAK, slot->seen.name, slot->seen.token};
    if (!start_errand(errand, crew, &order, crew->plan->url)) {
        free(errand);
        return;
    }
    errand->next = crew->breaks;
    crew->breaks = errand;
}
