/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile jobs work: claims jobs of a queue and runs a command for each. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "process.h"

#define CLAIM_MS     10000 /* a claim waits this long and is then repeated */
#define PARALLEL_MAX 256

struct worker {
    const struct options *options;
    const char *queue;
    struct stile_client *client;
    struct inbox inbox;
    int64_t lease_ms;

    bool pending; /* a claim is under way */
    enum stile_status status;
    struct stile_error err;
    struct stile_job *jobs;
    size_t n;
    bool quit, orphan;
    bool reported_down; /* that the engine cannot be reached */
};

static void on_claimed(struct stile_job *jobs, size_t n, enum stile_status status,
                       const struct stile_error *err, void *data)
{
    struct worker *w = data;
    w->pending = false;
    w->status = status;
    w->jobs = jobs;
    w->n = n;
    if (err != NULL)
        w->err = *err;
}

static void handle_events(struct worker *w)
{
    struct event event;
    while ((event = inbox_next(&w->inbox)).kind != EVENT_NONE) {
        w->orphan |= event.kind == EVENT_ORPHANED;
        w->quit |= w->orphan || (event.kind != EVENT_CHILD && signals_asks_to_end(event.sig));
    }
    if (w->quit && w->pending)
        stile_jobs_cancel(w->client);
}

static bool claims_once(const struct worker *w)
{
    return w->options->given & (OPT_ONCE | OPT_DRAIN);
}

static void claim(struct worker *w)
{
    const struct options *o = w->options;
    w->jobs = NULL;
    w->n = 0;
    w->pending = true;
    w->status = stile_jobs_claim_async(w->client, w->queue,
                                       STILE_JOBS_OPTIONS(.wait_ms = claims_once(w) ? 0 : CLAIM_MS,
                                                          .lease_ms = w->lease_ms,
                                                          .tries = (unsigned)o->tries),
                                       on_claimed, w);
    if (w->status != STILE_OK) {
        w->pending = false;
        return;
    }
    stile_client_dispatch(w->client);
    handle_events(w);
    while (w->pending) {
        wait_ready(w->client, &w->inbox, INT64_MAX);
        handle_events(w);
    }
}

/* True: a job was claimed. Else *code is the exit code, or -1: claim again. */
static bool has_job(struct worker *w, int *code)
{
    *code = -1;
    if (w->n > 0) {
        w->reported_down = false;
        return true;
    }
    bool down = w->status == STILE_UNREACHABLE || w->status == STILE_UNCERTAIN;
    if (w->quit)
        *code = 0;
    else if (claims_once(w) && w->status == STILE_TIMEOUT)
        *code = w->options->given & OPT_ONCE ? EXIT_NOT_ACQUIRED : 0;
    else if (w->status != STILE_TIMEOUT && (claims_once(w) || !down))
        *code = say_failure("jobs work", w->status, &w->err);
    else if (down && !w->reported_down)
        say("jobs work: %s; trying again", w->err.message);
    w->reported_down = down;
    return false;
}

static int run_job(struct worker *w, const struct signals *signals)
{
    struct job_run run = {.options = w->options,
                          .signals = signals,
                          .inbox = &w->inbox,
                          .client = w->client,
                          .job = w->jobs,
                          .lease_ms = w->lease_ms,
                          .quit = w->quit,
                          .orphan = w->orphan};
    if (w->quit) /* claimed after a signal had come */
        stile_jobs_give_back(w->client, w->jobs, w->n, NULL);
    else
        job_run(&run);
    stile_jobs_free(w->jobs, w->n);
    w->quit |= run.quit;
    w->orphan |= run.orphan;
    if (run.no_exec)
        return run.code;
    if (w->options->given & OPT_ONCE)
        return run.code;
    return w->quit ? 0 : -1;
}

static int work_on(struct worker *w, const struct signals *signals)
{
    int code;
    do {
        claim(w);
        if (has_job(w, &code))
            code = run_job(w, signals);
    } while (code < 0);
    return code;
}

/* As long as no job is claimed, a signal may simply end this process. */
static int open_engine(struct worker *w, const struct signals *signals, pid_t front)
{
    char label[STILE_NAME_MAX + 32];
    snprintf(label, sizeof label, "stile jobs work %s", w->queue);
    sigprocmask(SIG_UNBLOCK, &signals->taken, NULL);
    int code = engine_open(&w->client, w->options, front, label);
    sigprocmask(SIG_BLOCK, &signals->taken, NULL);
    return code;
}

static int worker_main(struct options *options, const struct signals *signals,
                       const struct link *link)
{
    title_set("job-warden", link->front, options);
    struct worker w = {
        .options = options, .queue = options->args[0], .lease_ms = options->lease_ms};
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int code = open_engine(&w, signals, link->front);
    if (code != 0)
        return code;
    if (!inbox_open(&w.inbox, signals, link)) {
        say("jobs work: cannot watch signals: %s", strerror(errno));
        code = EXIT_ENGINE;
    } else {
        code = work_on(&w, signals);
    }
    stile_client_close(w.client);
    return code;
}

/* ---- the end of --drain ---- */

static int say_left(const struct stile_queue *queue, void *data)
{
    char text[256] = "";
    const struct {
        uint64_t n;
        const char *what;
    } left[] = {{queue->ready, "came in meanwhile"},
                {queue->delayed, "delayed"},
                {queue->claimed, "claimed by other workers"},
                {queue->dead, "dead"}};
    size_t len = 0;
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        if (left[i].n > 0)
            len += (size_t)snprintf(text + len, sizeof text - len, "%s%" PRIu64 " %s",
                                    len > 0 ? ", " : "", left[i].n, left[i].what);
    }
    if (len > 0) {
        char *hint = hint_command(data, "jobs ls", queue->name);
        say("%s: no job is due now; left: %s (%s)", queue->name, text, hint);
        free(hint);
    }
    return 0;
}

/* Counted when all wardens are done: the jobs that others have are then not this worker's. */
static void say_what_is_left(const struct options *options)
{
    struct stile_client *client;
    struct stile_error err = {0};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL); /* from here on a signal may simply end this process */
    if (engine_open(&client, options, 0, "stile jobs work") != 0)
        return;
    if (stile_jobs_count(client, options->args[0], say_left, (void *)options, &err) != STILE_OK)
        say("jobs work: could not count the remaining jobs: %s", err.message);
    stile_client_close(client);
}

static int work(struct options *options)
{
    size_t n = options->parallel;
    if (n > PARALLEL_MAX || options->tries > STILE_JOB_TRIES_MAX) {
        say("jobs work: %s", n > PARALLEL_MAX ? "--parallel: at most 256; start another worker"
                                              : "--tries: at most 1000");
        return EXIT_USAGE;
    }
    if ((options->given & OPT_ONCE) && ((options->given & OPT_DRAIN) || n > 1)) {
        say("jobs work: --once cannot go with %s", n > 1 ? "--parallel" : "--drain");
        return EXIT_USAGE;
    }
    pid_t front = getpid();
    int code = front_run("jobs work", "a job", n, worker_main, options);
    if (getpid() == front && code == 0 && (options->given & OPT_DRAIN) &&
        !(options->given & OPT_QUIET))
        say_what_is_left(options);
    return code;
}

const struct verb verb_jobs_work = {
    .name = "jobs work",
    .argument = "QUEUE",
    .accepts = OPT_PARALLEL | OPT_TRIES | OPT_BACKOFF | OPT_LEASE | OPT_GRACE | OPT_FINISH |
               OPT_ONCE | OPT_DRAIN | OPT_QUIET | OPT_COMMAND,
    .min_args = 1,
    .max_args = 1,
    .operands = "QUEUE -- CMD [ARG...]",
    .about =
        "Claims jobs of QUEUE as they arrive and runs CMD for each, with the payload on stdin and "
        "STILE_QUEUE, STILE_JOB_ID, STILE_JOB_KEY, STILE_JOB_TRIES and STILE_TOKEN in its "
        "environment. Exit code 0: the job is done. Otherwise it is tried again after a random "
        "pause that grows with each try, and is dead after the last one (see stile jobs retry). A "
        "job is over when all processes that CMD started are gone; those it leaves running are "
        "stopped. If the lease cannot be kept, they are stopped before it ends. The end of a "
        "failed CMD's stderr is stored with the job (see stile jobs show).\n\n"
        "On SIGTERM no more jobs are claimed. Running jobs may continue for --finish; then they "
        "are stopped and returned to the queue. If the worker is killed, its commands are killed "
        "first and their "
        "jobs can be claimed by others at once.\n\n"
        "Exits with 0 after SIGTERM, or with --drain when no job is left; with --once, with CMD's "
        "code, or 75 if there was no job; 76 lost, 69 engine failed, 64 usage, 126 or 127 CMD "
        "cannot be executed.",
    .wording = jobs_wording,
    .run = work,
};
