/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The warden: holds the lock, owns the tree, and never lets the lock go while the tree may live.
 *
 * Locks that end with the process that holds them (a session of a database, a local lock) end when
 * the kernel closes its descriptors. The front has copies of those, so that they last until it has
 * seen the tree of a killed warden end. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pace.h"
#include "raise.h"

/* ---- copies for the front ---- */

/* An engine's descriptors get the lowest free numbers. */
#define FDS_MAX 128

static bool is_socket(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

/* One call for all: poll() reports POLLNVAL for a descriptor that is not open. Inherited ones may
 * be among them; the front has those as well. */
static size_t find_sockets(int fds[KEPT_MAX], int except)
{
    size_t n = 0;
    struct pollfd polled[FDS_MAX];
    for (int fd = 0; fd < FDS_MAX; fd++)
        polled[fd] = (struct pollfd){.fd = fd > STDERR_FILENO && fd != except ? fd : -1};
    if (poll(polled, FDS_MAX, 0) < 0)
        return n;
    for (int fd = 0; fd < FDS_MAX && n < KEPT_MAX; fd++) {
        if (polled[fd].fd >= 0 && !(polled[fd].revents & POLLNVAL) && is_socket(fd))
            fds[n++] = fd;
    }
    return n;
}

/* Sends the front copies of the descriptors that keep the locks. They count from now on, even if
 * the warden is killed before the front reads them. */
static void keep_with_front(struct stile_client *client, const struct link *link)
{
    int fds[KEPT_MAX];
    size_t n = 0;
    if (stile_client_caps(client)->lease == STILE_LEASE_CLAIM)
        return; /* the locks last as long as their leases, even if the warden dies */
    int life = stile_client_life_fd(client);
    if (life >= 0)
        fds[n++] = life; /* enough; and sockets in flight would cost a kernel garbage collection */
    else
        n = find_sockets(fds, link->reports);
    if (n == 0)
        return;
    struct report sent = {.kind = REPORT_KEEP};
    char rights[CMSG_SPACE(sizeof fds)] = {0};
    struct iovec part = {&sent, sizeof sent};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = rights,
                             .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(head), fds, n * sizeof(int));
    report(link, &message);
}

/* ---- the warden ---- */

#define LOST_GRACE_MS  100  /* between SIGTERM and SIGKILL when the lock is lost already */
#define REPORT_LEFT_MS 1000 /* from the end of the command to the list of processes left */
#define NAMED_LEFT_MAX 8
/* Late enough that a short command is over by then, and early enough that descriptors in flight,
 * whose number per user is limited, don't pile up. */
#define WAKE_FRONT_MS 100

struct warden {
    struct warden_job *job;
    const struct options *options;
    const struct signals *signals;
    struct link link;
    struct inbox inbox;
    struct stile_client *client;
    const char *first;               /* the first of the names as given */
    struct stile_lock **locks;       /* in canonical order */
    size_t n;                        /* of locks so far */
    struct stile_election *election; /* whose lock is the only one; NULL: there is none */
    bool led;                        /* this campaign has led to a command */
    pid_t command;
    bool running;           /* the command has not ended */
    int status;             /* how it ended, as waitpid() reports it */
    struct relay *relay;    /* of its stdout; NULL: it writes to ours */
    bool lost;              /* the lock or the front, or nearly: exit 76 */
    int64_t report_left_ms; /* when to list the processes left; INT64_MAX: never */
    int64_t wake_front_ms;  /* when to wake the front to read its copies */
    int asked;              /* the last signal that asked this process to end */
    bool group_had_it;      /* it was sent to the whole process group */
    int64_t grace_ms;       /* how long before the lease ends the tree is stopped; 0: no lease */
    struct ending ending;
    struct look look;
    struct raise raise;
    int64_t until_ms; /* the end of --wait; 0: there is none */
    struct pacing pacing;
};

/* ---- the lease ---- */

/* The shortest of all locks; 0: one is lost. *lock, which may be NULL: that one. */
static int64_t remaining_ms(const struct warden *w, struct stile_lock **lock)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < w->n; i++) {
        int64_t left = stile_lock_remaining_ms(w->locks[i]);
        if (left <= least && lock != NULL)
            *lock = w->locks[i];
        if (left < least)
            least = left;
    }
    return least;
}

/* ---- ending the tree ---- */

static pid_t command_of(const struct warden *w)
{
    return w->running ? w->command : 0;
}

static void begin_stop(struct warden *w, int64_t patience_ms)
{
    w->lost = true;
    if (w->ending.stopping == 0)
        ending_begin(&w->ending, command_of(w), patience_ms);
    ending_hasten(&w->ending, patience_ms);
}

static void tell_loss(struct stile_lock *lock)
{
    struct stile_error err = {0};
    stile_lock_lost_reason(lock, &err);
    say("%s: the lock is lost%s%s; stopping the command", stile_lock_name(lock),
        err.message[0] != '\0' ? ": " : "", err.message);
}

static void check_lease(struct warden *w)
{
    struct stile_lock *lock = w->locks[0];
    int64_t left = remaining_ms(w, &lock);
    if (w->lost && left == 0) {
        ending_hasten(&w->ending, LOST_GRACE_MS);
    } else if (!w->lost && left == 0) {
        tell_loss(lock);
        begin_stop(w, LOST_GRACE_MS);
    } else if (!w->lost && left != STILE_NO_DEADLINE && left <= w->grace_ms) {
        say("%s: not renewed, the lease ends in %" PRId64
            " ms; stopping the command before it does",
            stile_lock_name(lock), left);
        begin_stop(w, left / 2);
    }
}

/* ---- the command's life ---- */

/* The signal that ended the command, or 0. A program that cleans up first exits with 128+N. */
static int ended_by(const struct warden *w)
{
    if (WIFSIGNALED(w->status))
        return WTERMSIG(w->status);
    return w->asked != 0 && WEXITSTATUS(w->status) == 128 + w->asked ? w->asked : 0;
}

static bool leaves(const struct warden *w)
{
    return w->options->given & OPT_LEAVE;
}

/* The signal that ended the command goes to all it has started. If the command ended by itself, the
 * processes it left keep the lock until they end. */
static void command_ended(struct warden *w, bool anybody)
{
    w->running = false;
    w->report_left_ms = anybody ? now_ms() + REPORT_LEFT_MS : INT64_MAX;
    int sig = ended_by(w);
    if (sig != 0 && anybody && !leaves(w) && w->ending.stopping == 0)
        ending_begin_with(&w->ending, sig, w->group_had_it && sig == w->asked,
                          ending_patience_ms(w->options));
}

/* False: no child is left. */
static bool reap(struct warden *w)
{
    bool ended = false;
    bool anybody = ending_reap(w->command, &ended, &w->status);
    if (ended)
        command_ended(w, anybody);
    return anybody;
}

static void tell_left(struct warden *w)
{
    pid_t pids[NAMED_LEFT_MAX];
    char list[NAMED_LEFT_MAX * 12 + 32] = "";
    if (now_ms() < w->report_left_ms)
        return;
    w->report_left_ms = INT64_MAX;
    size_t n = tree_list(pids, NAMED_LEFT_MAX), len = 0;
    for (size_t i = 0; i < n && i < NAMED_LEFT_MAX; i++)
        len += (size_t)sprintf(list + len, "%s%d", i > 0 ? ", " : "", (int)pids[i]);
    if (n > NAMED_LEFT_MAX)
        sprintf(list + len, " and %zu more", n - NAMED_LEFT_MAX);
    say("%s: the command has ended; the lock is kept until the processes it left have ended: %s%s",
        w->ending.name, n > 0 ? list : "pids unknown",
        w->job->may_leave ? " (--leave releases it with the command)" : "");
}

static void take_signal(struct warden *w, const struct event *event)
{
    bool to_group = event->kind == EVENT_GROUP;
    if (signals_asks_to_end(event->sig)) {
        w->asked = event->sig;
        w->group_had_it = to_group;
    }
    bool stops = w->job->elects && event->sig == SIGTERM;
    if (w->running && !stops)
        signals_pass(w->command, event);
    else if (signals_asks_to_end(event->sig))
        ending_begin_with(&w->ending, event->sig, to_group, ending_patience_ms(w->options));
}

static void handle_events(struct warden *w)
{
    struct event event;
    while ((event = inbox_next(&w->inbox)).kind != EVENT_NONE) {
        if (event.kind == EVENT_SIGNAL || event.kind == EVENT_GROUP)
            take_signal(w, &event);
        if (event.kind == EVENT_ORPHANED) {
            w->lost = true;
            ending_kill(&w->ending);
        }
    }
}

static void nudge_front(struct warden *w)
{
    if (now_ms() < w->wake_front_ms)
        return;
    w->wake_front_ms = INT64_MAX;
    report_wake_front(&w->link);
}

static int64_t next_ms(const struct warden *w)
{
    int64_t next = ending_next_ms(&w->ending), left = remaining_ms(w, NULL);
    if (!w->lost && left != STILE_NO_DEADLINE && now_ms() + left - w->grace_ms < next)
        next = now_ms() + left - w->grace_ms;
    if (w->wake_front_ms < next)
        next = w->wake_front_ms;
    return w->report_left_ms < next ? w->report_left_ms : next;
}

static void watch_over(struct warden *w)
{
    for (;;) {
        wait_ready(w->client, &w->inbox, next_ms(w));
        handle_events(w);
        /* After the signals: a SIGCHLD that is read after the check would be missed. */
        bool anybody = reap(w);
        check_lease(w);
        if (!anybody || (leaves(w) && !w->running && w->ending.stopping == 0))
            return;
        tell_left(w);
        nudge_front(w);
        ending_push(&w->ending, command_of(w));
    }
}

/* An exit code of stile's, not the command's. */
static int ours(const struct warden *w, int code)
{
    return options_exit_code(w->options, code);
}

/* Reports how the command ended, so that the front ends the same way. */
static int code_of(const struct warden *w)
{
    if (w->lost)
        return ours(w, EXIT_LOST);
    if (WIFSIGNALED(w->status)) {
        report_send(&w->link, REPORT_DIED_OF, WTERMSIG(w->status));
        return 128 + WTERMSIG(w->status);
    }
    return WEXITSTATUS(w->status);
}

/* Sent without waiting for an answer, once the command runs. An engine that keeps no records, or
 * can't be reached, is no reason to stop it. */
static void record_start(const struct warden *w)
{
    for (size_t i = 0; i < w->n; i++)
        stile_lock_record_start(w->locks[i], NULL);
}

static int shell_code(const struct warden *w)
{
    return WIFSIGNALED(w->status) ? 128 + WTERMSIG(w->status) : WEXITSTATUS(w->status);
}

static void record_end(const struct warden *w)
{
    for (size_t i = 0; i < w->n; i++)
        stile_lock_record_end(w->locks[i], shell_code(w), NULL);
}

/* Until all output is passed on, however long our stdout takes nothing; but a warden that has to
 * end does not wait for that. */
static void finish_relay(struct warden *w)
{
    w->asked = 0;
    relay_stop(w->relay);
    while (!relay_is_over(w->relay) && !w->lost && w->asked == 0) {
        wait_ready(w->client, &w->inbox, next_ms(w));
        handle_events(w);
        check_lease(w);
    }
}

/* Exits with 74 for output that was lost, unless the command failed as well. */
static int check_output(const struct warden *w, int code)
{
    bool over = w->relay == NULL || relay_is_over(w->relay);
    int error = w->relay != NULL && over ? relay_error(w->relay) : 0;
    if (over && error == 0)
        return code;
    say("stdout: %s; the output above is not complete", over ? strerror(error) : "not read");
    return code == 0 ? EXIT_OUTPUT : code;
}

static int conclude(struct warden *w)
{
    struct warden_end end = {
        .lock = w->locks[0], .code = shell_code(w), .asked = w->asked && ended_by(w) == w->asked};
    if (w->relay != NULL)
        finish_relay(w);
    int code = code_of(w);
    if (w->lost || w->job->ended == NULL)
        return code;
    if (w->relay != NULL && relay_is_over(w->relay))
        end.output = relay_whole(w->relay, &end.output_size);
    int other = w->job->ended(w->job, &end);
    return check_output(w, other == end.code ? code : ours(w, other));
}

static bool start_command(struct warden *w)
{
    int standard[] = {-1, -1, -1}, failure = 0;
    char **environment = child_environment(w->options, w->locks, w->n, w->first);
    if (w->job->keep_output > 0)
        w->relay = relay_start(&standard[1], STDOUT_FILENO, w->job->keep_output);
    if (w->job->keep_output == 0 || w->relay != NULL)
        w->command = child_start(w->options->command, environment, w->signals, standard,
                                 leaves(w) ? -1 : stile_client_life_fd(w->client));
    failure = errno;
    child_environment_free(environment);
    if (standard[1] >= 0)
        close(standard[1]);
    w->running = w->command > 0;
    if (!w->running)
        say("%s: cannot start a process: %s", w->options->command[0], strerror(failure));
    return w->running;
}

static int start(struct warden *w)
{
    int64_t left = remaining_ms(w, NULL);
    w->grace_ms = left == STILE_NO_DEADLINE ? 0 : ending_grace_ms(w->options, left);
    w->ending = (struct ending){.name = stile_lock_name(w->locks[0]), .what = "lock"};
    w->report_left_ms = INT64_MAX;
    keep_with_front(w->client, &w->link);
    w->wake_front_ms = now_ms() + WAKE_FRONT_MS;
    if (!start_command(w))
        return EXIT_CANNOT_EXEC;
    w->led = true;
    record_start(w);
    watch_over(w);
    record_end(w);
    return conclude(w);
}

/* ---- taking and giving back ---- */

static enum stile_status release(struct warden *w, struct stile_lock *lock, struct stile_error *err)
{
    return w->election != NULL ? stile_election_resign(w->election, err)
                               : stile_lock_release(lock, err);
}

static int give_back(struct warden *w, int code)
{
    for (size_t i = w->n; i-- > 0;) {
        struct stile_error err = {0};
        enum stile_status status = release(w, w->locks[i], &err);
        if (status == STILE_OK || w->lost)
            continue;
        say_failure("release", status, &err);
        if (status == STILE_LOST)
            code = ours(w, EXIT_LOST);
    }
    return code;
}

static int busy(const struct warden *w, const struct grant *grant, enum stile_status status)
{
    int code = w->job->refused != NULL ? w->job->refused(w->job, w->client) : WARDEN_GO_ON;
    if (code != WARDEN_GO_ON)
        return ours(w, code);
    if (!(w->options->given & OPT_QUIET))
        grant_say_refused(grant, w->options, status);
    return ours(w, EXIT_NOT_ACQUIRED);
}

static int not_granted(const struct warden *w, const struct grant *grant, enum stile_status status)
{
    if (grant->sig != 0) {
        report_send(&w->link, REPORT_DIED_OF, grant->sig);
        return 128 + grant->sig;
    }
    if (status == STILE_CANCELLED)
        return ours(w, EXIT_LOST);
    if (status == STILE_HELD || status == STILE_TIMEOUT)
        return busy(w, grant, status);
    return ours(w, say_failure(w->job->verb, status, &grant->err));
}

/* Some engines count in whole seconds, or limit the TTL. */
static void tell_ttl(const struct warden *w)
{
    int64_t asked = w->options->ttl_ms, given = stile_lock_ttl_ms(w->locks[0]);
    if (!(w->options->given & OPT_TTL) || (w->options->given & OPT_QUIET) || given == asked ||
        given == 0 || given == STILE_NO_DEADLINE)
        return;
    say("%s: the engine uses a TTL of %.10g s instead of %.10g s", w->job->verb,
        (double)given / 1000, (double)asked / 1000);
}

/* Says what is missing, with a command that can be run as it is printed. */
static void tell_no_token(const struct warden *w, const char *token_is)
{
    static const char none[] = "none: ", general[] = "stile setup URL";
    const char *why =
        strncmp(token_is, none, strlen(none)) == 0 ? token_is + strlen(none) : token_is;
    const char *at = strstr(why, general);
    char *hint = hint_command(w->options, "setup", NULL);
    if (at != NULL)
        say("%s: no fencing token: %.*s%s%s", w->job->verb, (int)(at - why), why, hint,
            at + strlen(general));
    else
        say("%s: no fencing token: %s", w->job->verb, why);
    free(hint);
}

/* Before the wait: a lock without a token is not worth waiting for if one is required. */
static int check_token(const struct warden *w)
{
    const struct stile_caps *caps = stile_client_caps(w->client);
    bool required = w->job->needs_token || (w->options->given & (OPT_FENCED | OPT_GUARD));
    if (caps->token)
        return 0;
    if (required || !(w->options->given & OPT_QUIET))
        tell_no_token(w, caps->token_is);
    return required ? ours(w, EXIT_ENGINE) : 0;
}

static struct stile_lock *first_lock(const struct warden *w)
{
    size_t i = 0;
    while (i < w->n - 1 && strcmp(stile_lock_name(w->locks[i]), w->first) != 0)
        i++;
    return w->locks[i];
}

/* Nothing was done under the lock: hold_at_least does not apply. */
static void give_up(struct warden *w)
{
    if (w->election != NULL)
        stile_election_resign(w->election, NULL);
    for (size_t i = w->n; i-- > 0 && w->election == NULL;)
        stile_lock_abandon(w->locks[i], NULL);
}

static int granted(struct warden *w)
{
    int code = w->job->granted != NULL ? w->job->granted(w->job, w->locks[0]) : WARDEN_GO_ON;
    if (code == WARDEN_GO_ON)
        return give_back(w, start(w));
    give_up(w);
    return ours(w, code);
}

static int await_start(struct warden *w, int *sig)
{
    w->pacing = (struct pacing){.options = w->options,
                                .client = w->client,
                                .locks = w->locks,
                                .n = w->n,
                                .name = w->first,
                                .until_ms = w->until_ms,
                                .inbox = &w->inbox};
    int code = pace_await(&w->pacing);
    *sig = w->pacing.sig;
    return code;
}

static int raise_and_run(struct warden *w)
{
    int sig;
    int code = raise_guard(&w->raise, w->options, w->client, first_lock(w), &w->inbox, &sig);
    if (code == 0) {
        if (w->job->again == NULL)
            raise_close(&w->raise);
        code = await_start(w, &sig);
    }
    if (code == 0)
        return granted(w);
    give_up(w);
    if (sig == 0)
        return ours(w, code);
    report_send(&w->link, REPORT_DIED_OF, sig);
    return 128 + sig;
}

static int take_and_run(struct warden *w)
{
    struct grant grant = {
        .client = w->client,
        .locks = w->locks,
        .n = w->n,
        .election = w->election,
        .proclaim = w->options->proclaim,
        .wait_ms = w->options->wait_ms,
        .inbox = &w->inbox,
        .audience = w->options->given & OPT_QUIET ? AUDIENCE_NONE
                    : isatty(STDERR_FILENO)       ? AUDIENCE_TERMINAL
                                                  : AUDIENCE_LOG,
        .look = &w->look,
        .self = w->link.front,
    };
    w->until_ms = w->options->wait_ms > 0 ? now_ms() + w->options->wait_ms : 0;
    enum stile_status status = grant_wait(&grant);
    if (status != STILE_OK)
        return not_granted(w, &grant, status);
    tell_ttl(w);
    return raise_and_run(w);
}

/* ---- campaigning again ---- */

/* Waits; a signal that asks to end, and the death of the front, end the warden. */
static bool pause_for(struct warden *w, int64_t ms, int *code)
{
    int64_t until = now_ms() + ms;
    struct event event;
    while (now_ms() < until && !w->inbox.orphaned) {
        wait_ready(w->client, &w->inbox, until);
        while ((event = inbox_next(&w->inbox)).kind != EVENT_NONE) {
            if ((event.kind != EVENT_SIGNAL && event.kind != EVENT_GROUP) ||
                !signals_ends_wait(event.sig))
                continue;
            report_send(&w->link, REPORT_DIED_OF, event.sig);
            *code = 128 + event.sig;
            return false;
        }
    }
    return !w->inbox.orphaned;
}

/* Nothing of the last leadership may count for the next one. The front has copies of descriptors
 * that kept it. */
static void forget_leadership(struct warden *w)
{
    w->lost = w->led = w->group_had_it = false;
    w->status = w->asked = 0;
    report_send(&w->link, REPORT_DROP, 0);
}

/* Many commands take SIGHUP as a request to read their configuration again. */
static bool was_asked_to_end(const struct warden *w)
{
    return w->asked != 0 && (w->asked != SIGHUP || ended_by(w) == SIGHUP);
}

static bool campaigns_again(struct warden *w, int *code)
{
    if (w->job->again == NULL || !w->led || was_asked_to_end(w) || w->inbox.orphaned)
        return false;
    int64_t pause_ms = w->job->again(w->job, w->lost, *code);
    if (pause_ms < 0)
        return false;
    forget_leadership(w);
    return pause_for(w, pause_ms, code);
}

static int lead_again_and_again(struct warden *w)
{
    int code;
    do {
        code = take_and_run(w);
    } while (campaigns_again(w, &code));
    return code;
}

static int make_election(struct warden *w)
{
    struct stile_error err = {0};
    w->first = w->options->args[0];
    w->locks = must_alloc(calloc(1, sizeof(struct stile_lock *)));
    enum stile_status status = stile_election_new(
        &w->election, w->client, w->first,
        STILE_ELECTION_OPTIONS(.profile = w->options->profile, .ttl_ms = w->options->ttl_ms), &err);
    if (status != STILE_OK)
        return ours(w, say_failure(w->job->verb, status, &err));
    w->locks[0] = stile_election_lock(w->election);
    w->n = 1;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int make_locks(struct warden *w)
{
    const struct stile_lock_options lock_options = options_for_lock(w->options);
    char **names = w->options->args;
    w->first = names[0];
    qsort(names, w->options->n_args, sizeof *names, by_name);
    w->locks = must_alloc(calloc(w->options->n_args, sizeof(struct stile_lock *)));
    for (; w->n < w->options->n_args; w->n++) {
        struct stile_error err = {0};
        enum stile_status status =
            stile_lock_new(&w->locks[w->n], w->client, names[w->n], &lock_options, &err);
        if (status != STILE_OK)
            return ours(w, say_failure(w->job->verb, status, &err));
    }
    return 0;
}

/* `stile show` prints it to other users of the engine: no arguments, which may be passwords. */
static const char *label_of(const struct options *options)
{
    const char *slash = strrchr(options->command[0], '/');
    if (options->given & OPT_LABEL)
        return options->label;
    return slash != NULL && slash[1] != '\0' ? slash + 1 : options->command[0];
}

/* Opening an engine may take a while. As long as nothing is held, a signal may simply end the
 * warden; the front sees which one. */
static int open_engine(struct warden *w)
{
    sigprocmask(SIG_UNBLOCK, &w->signals->taken, NULL);
    int code = engine_open(&w->client, w->options, w->link.front, label_of(w->options));
    sigprocmask(SIG_BLOCK, &w->signals->taken, NULL);
    return code;
}

static int open_guard(struct warden *w)
{
    sigprocmask(SIG_UNBLOCK, &w->signals->taken, NULL);
    int code = raise_open(&w->raise, w->options, w->client);
    sigprocmask(SIG_BLOCK, &w->signals->taken, NULL);
    return code == EXIT_USAGE ? code : ours(w, code);
}

static int opened(struct warden *w)
{
    if (w->job->opened == NULL)
        return WARDEN_GO_ON;
    sigprocmask(SIG_UNBLOCK, &w->signals->taken, NULL);
    int code = w->job->opened(w->job, w->client);
    sigprocmask(SIG_BLOCK, &w->signals->taken, NULL);
    return code == WARDEN_GO_ON ? code : ours(w, code);
}

static int warden_life(struct warden *w)
{
    int code = open_engine(w);
    if (code != 0)
        return ours(w, code);
    if (!inbox_open(&w->inbox, w->signals, &w->link)) {
        say("%s: cannot watch signals: %s", w->job->verb, strerror(errno));
        code = ours(w, EXIT_ENGINE);
    }
    if (code == 0)
        code = check_token(w);
    if (code == 0)
        code = ours(w, pace_check(w->options, w->client));
    if (code == 0)
        code = w->job->elects ? make_election(w) : make_locks(w);
    if (code == 0)
        code = open_guard(w);
    if (code == 0)
        code = opened(w);
    if (code == WARDEN_GO_ON)
        code = lead_again_and_again(w);
    raise_close(&w->raise);
    stile_client_close(w->client);
    relay_free(w->relay);
    free(w->locks);
    return code;
}

int warden_run(struct warden_job *job, struct options *options, const struct signals *signals,
               const struct link *link)
{
    struct warden w = {.job = job, .options = options, .signals = signals, .link = *link};
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    title_set("lock-warden", link->front, options);
    if (!tree_is_visible() && !(options->given & OPT_QUIET))
        say("%s: /proc is missing or belongs to another pid namespace, so processes that the "
            "command starts cannot be found: signals reach only the command, and the lock is kept "
            "until all processes have ended by themselves",
            job->verb);
    return warden_life(&w);
}
