/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One claimed job: runs the command with the payload on stdin, extends the lease meanwhile, and
 * reports the result to the engine. The job is over when its whole tree has ended. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

#define LOST_GRACE_MS 100  /* between SIGTERM and SIGKILL when another worker has the job */
#define LEFT_GRACE_MS 1000 /* the same for what the command left running */
#define QUIT_GRACE_MS 5000 /* the same when we are asked to end */
#define REPEAT_MS     200
#define REASON_MAX    128
#define JOB_NAME_MAX  (STILE_NAME_MAX + 32)

struct watch {
    struct job_run *run;
    struct ending ending;
    char name[JOB_NAME_MAX]; /* for messages */
    struct relay *relay;     /* of its stderr; NULL: it writes to ours */
    pid_t command;
    bool running; /* the command has not ended */
    int status;   /* as waitpid() reported it */
    bool extending;
    bool lost;    /* or nearly: nothing more is reported to the engine */
    bool stopped; /* by this process, which was asked to end */
    int64_t grace_ms, extend_ms;
    int64_t finish_ms; /* until when it may continue; INT64_MAX: no signal has come */
};

static pid_t command_of(const struct watch *w)
{
    return w->running ? w->command : 0;
}

/* ---- the lease ---- */

static void on_extended(struct stile_job *jobs, size_t n, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    struct watch *w = data;
    (void)jobs, (void)n, (void)err;
    w->extending = false;
    w->extend_ms = now_ms() + w->run->lease_ms / 3;
    if (status == STILE_STALE) {
        w->lost = true;
        if (w->ending.stopping == 0) {
            say("%s: another worker has it by now; stopping the command", w->name);
            ending_begin(&w->ending, command_of(w), LOST_GRACE_MS);
        }
        ending_hasten(&w->ending, LOST_GRACE_MS);
    } else if (status != STILE_OK) {
        w->extend_ms = now_ms() + w->run->lease_ms / 12;
    }
}

static void extend(struct watch *w)
{
    struct job_run *run = w->run;
    if (w->extending || w->lost || now_ms() < w->extend_ms)
        return;
    w->extending = stile_jobs_extend_async(run->client, run->job, 1, run->lease_ms, on_extended,
                                           w) == STILE_OK;
    if (!w->extending)
        w->extend_ms = now_ms() + run->lease_ms / 12;
    stile_client_dispatch(run->client);
}

static void check_lease(struct watch *w)
{
    int64_t left = stile_jobs_remaining_ms(w->run->job);
    if (left > w->grace_ms || w->lost)
        return;
    w->lost = true;
    say("%s: not extended, the lease ends in %" PRId64 " ms; stopping the command before it does",
        w->name, left);
    if (w->ending.stopping == 0)
        ending_begin(&w->ending, command_of(w), left / 2);
    ending_hasten(&w->ending, left / 2);
}

/* ---- the command's life ---- */

static void handle_events(struct watch *w)
{
    struct job_run *run = w->run;
    struct event event;
    while ((event = inbox_next(run->inbox)).kind != EVENT_NONE) {
        if (event.kind == EVENT_ORPHANED) {
            run->orphan = run->quit = true;
            ending_kill(&w->ending);
        } else if (event.kind != EVENT_CHILD && signals_asks_to_end(event.sig)) {
            w->finish_ms = run->quit ? now_ms() : now_ms() + run->options->finish_ms;
            run->quit = true;
        } else if (event.kind != EVENT_CHILD && w->running) {
            signals_pass(w->command, &event);
        }
    }
}

/* A signal asked this process to end, and --finish is over. */
static void check_finish(struct watch *w)
{
    if (w->ending.stopping != 0 || now_ms() < w->finish_ms)
        return;
    w->stopped = true;
    ending_begin(&w->ending, command_of(w), QUIT_GRACE_MS);
}

static bool reap(struct watch *w)
{
    bool ended = false;
    bool anybody = ending_reap(w->command, &ended, &w->status);
    if (ended) {
        w->running = false;
        if (w->ending.stopping == 0 && anybody)
            ending_begin(&w->ending, 0, LEFT_GRACE_MS); /* what it left running */
    }
    return anybody;
}

static int64_t next_ms(const struct watch *w)
{
    int64_t next = ending_next_ms(&w->ending);
    int64_t lease = now_ms() + stile_jobs_remaining_ms(w->run->job) - w->grace_ms;
    if (!w->lost && lease < next)
        next = lease;
    if (!w->lost && !w->extending && w->extend_ms < next)
        next = w->extend_ms;
    if (w->ending.stopping == 0 && w->finish_ms < next)
        next = w->finish_ms;
    return next;
}

static void watch_over(struct watch *w)
{
    for (;;) {
        wait_ready(w->run->client, w->run->inbox, next_ms(w));
        handle_events(w);
        bool anybody = reap(w);
        if (!anybody)
            return;
        check_lease(w);
        check_finish(w);
        extend(w);
        ending_push(&w->ending, command_of(w));
    }
}

/* The payload as an anonymous file: a command that reads slowly, or not at all, delays nothing. */
static int payload_file(const struct stile_job *job)
{
    int fd = memfd_create("payload", MFD_CLOEXEC);
    const char *at = job->payload;
    size_t left = job->payload_size;
    while (fd >= 0 && left > 0) {
        ssize_t n = write(fd, at, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            close(fd);
            return -1;
        }
        at += n;
        left -= (size_t)n;
    }
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

static bool start(struct watch *w)
{
    struct job_run *run = w->run;
    int input = payload_file(run->job), errors = -1;
    char **environment = child_environment_of_job(run->options, run->job);
    if (input >= 0) {
        w->relay = relay_start(&errors, STDERR_FILENO, RELAY_KEPT);
        w->command = child_start(run->options->command, environment, run->signals,
                                 (int[]){input, -1, errors}, -1);
    }
    int failure = errno;
    child_environment_free(environment);
    if (input >= 0)
        close(input);
    if (errors >= 0)
        close(errors);
    w->running = input >= 0 && w->command > 0;
    if (!w->running)
        say("%s: cannot start a process: %s", run->options->command[0], strerror(failure));
    return w->running;
}

/* What it wrote to stderr is passed on before its result is reported, however long our stderr takes
 * nothing; but a worker that has to end does not wait for that. */
static void finish_relay(struct watch *w)
{
    struct job_run *run = w->run;
    if (w->relay == NULL)
        return;
    relay_stop(w->relay);
    while (!relay_is_over(w->relay) && !run->orphan && now_ms() < w->finish_ms) {
        int64_t next = w->lost || w->extending ? INT64_MAX : w->extend_ms;
        wait_ready(run->client, run->inbox, next < w->finish_ms ? next : w->finish_ms);
        handle_events(w);
        extend(w);
    }
}

/* ---- the result ---- */

enum job_result { DONE, FAILED, GIVEN_BACK };

static enum stile_status report_once(struct watch *w, enum job_result result, const char *why,
                                     struct stile_error *err)
{
    struct job_run *run = w->run;
    const struct options *o = run->options;
    if (result == DONE)
        return stile_jobs_ack(run->client, run->job, 1, err);
    if (result == GIVEN_BACK)
        return stile_jobs_give_back(run->client, run->job, 1, err);
    return stile_jobs_fail(run->client, run->job, 1, why,
                           STILE_JOBS_OPTIONS(.tries = (unsigned)o->tries,
                                              .backoff_ms = run->orphan ? 1 : o->backoff_ms),
                           err);
}

/* Repeated until it is answered, or the lease is over. True: the engine has taken it. */
static bool report_result(struct watch *w, enum job_result result, const char *why)
{
    const struct timespec pause = {.tv_nsec = REPEAT_MS * 1000000L};
    struct stile_error err = {0};
    bool in_doubt = false;
    for (;;) {
        enum stile_status status = report_once(w, result, why, &err);
        if (status == STILE_OK || (status == STILE_STALE && in_doubt))
            return true;
        in_doubt |= status == STILE_UNCERTAIN;
        if ((status != STILE_UNCERTAIN && status != STILE_UNREACHABLE) ||
            stile_jobs_remaining_ms(w->run->job) == 0) {
            say("%s: %s", w->name, err.message);
            /* A job that another worker has by now is lost, as a lock would be. */
            int code = status == STILE_STALE ? EXIT_LOST : exit_code_of(status);
            w->run->code = w->run->code ? w->run->code : code;
            return false;
        }
        nanosleep(&pause, NULL);
    }
}

static bool ended_by_quitting(const struct watch *w)
{
    int sig = WIFSIGNALED(w->status) ? WTERMSIG(w->status) : WEXITSTATUS(w->status) - 128;
    return w->run->quit && (w->stopped || signals_asks_to_end(sig));
}

static void write_reason(const struct watch *w, char out[REASON_MAX])
{
    if (w->run->orphan)
        snprintf(out, REASON_MAX, "its worker was killed");
    else if (WIFSIGNALED(w->status))
        snprintf(out, REASON_MAX, "signal %d (%s)", WTERMSIG(w->status),
                 strsignal(WTERMSIG(w->status)));
    else
        snprintf(out, REASON_MAX, "exit code %d", w->run->code);
}

static void say_dead(const struct watch *w, const char *reason)
{
    const struct stile_job *job = w->run->job;
    char *show = hint_command(w->run->options, "jobs show", job->queue);
    char *retry = hint_command(w->run->options, "jobs retry", job->queue);
    say("%s: dead after %u %s (%s); %s %" PRIu64 " shows it, %s %" PRIu64 " tries it again",
        w->name, job->tries, job->tries == 1 ? "try" : "tries", reason, show, job->id, retry,
        job->id);
    free(show);
    free(retry);
}

/* Its error is the reason and, below it, the end of its stderr. */
static void fail_job(struct watch *w)
{
    const struct job_run *run = w->run;
    char reason[REASON_MAX], text[RELAY_KEPT + 1] = "", why[REASON_MAX + sizeof text + 1];
    bool quiet = run->options->given & OPT_QUIET;
    uint64_t tries = run->options->tries;
    write_reason(w, reason);
    if (w->relay != NULL && relay_is_over(w->relay))
        relay_text(w->relay, text);
    snprintf(why, sizeof why, "%s%s%s", reason, text[0] != '\0' ? "\n" : "", text);
    if (!quiet && run->code != 0 && run->job->tries < tries)
        say("%s: %s, try %u", w->name, reason, run->job->tries);
    if (report_result(w, FAILED, why) && !quiet && run->job->tries >= tries)
        say_dead(w, reason);
}

static void conclude(struct watch *w)
{
    struct job_run *run = w->run;
    run->code = WIFSIGNALED(w->status) ? 128 + WTERMSIG(w->status) : WEXITSTATUS(w->status);
    run->no_exec = child_was_not_executed();
    if (w->lost)
        run->code = EXIT_LOST;
    else if (run->no_exec || (!run->orphan && run->code != 0 && ended_by_quitting(w)))
        report_result(w, GIVEN_BACK, "");
    else if (run->code == 0 && !run->orphan)
        report_result(w, DONE, "");
    else
        fail_job(w);
}

void job_run(struct job_run *run)
{
    struct watch w = {.run = run,
                      .grace_ms = ending_grace_ms(run->options, run->lease_ms),
                      .extend_ms = now_ms() + run->lease_ms / 3,
                      .finish_ms = INT64_MAX};
    snprintf(w.name, sizeof w.name, "%s: job %" PRIu64, run->job->queue, run->job->id);
    w.ending = (struct ending){.name = w.name, .what = "job"};
    if (start(&w)) {
        watch_over(&w);
        finish_relay(&w);
        conclude(&w);
    } else {
        report_result(&w, GIVEN_BACK, "");
        run->code = EXIT_CANNOT_EXEC;
        run->no_exec = true;
    }
    while (w.extending)
        wait_ready(run->client, run->inbox, now_ms() + 1000);
    relay_free(w.relay);
}
