/* The warden: holds the lock, owns the tree, and never lets the lock go while the tree may live. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mutant.h"
#include "process.h"

#define LOST_GRACE_MS 100 /* between SIGTERM and SIGKILL when the lock is gone already */
#define LABEL_MAX     1024

struct warden {
    const struct options *options;
    const struct signals *signals;
    struct inbox inbox;
    struct stile_client *client;
    struct stile_lock **locks; /* in canonical order */
    size_t n;                  /* how many of them there are so far */
    pid_t command;
    bool running; /* the command has not ended */
    int code;     /* what the front is to end with */
    int64_t grace_ms;
    struct ending ending;
};

/* ---- the lease ---- */

/* The least of all locks; 0: one is lost. *name, which may be NULL: whose it is. */
static int64_t remaining_ms(const struct warden *w, const char **name)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < w->n; i++) {
        int64_t left = stile_lock_remaining_ms(w->locks[i]);
        if (left <= least && name != NULL)
            *name = stile_lock_name(w->locks[i]);
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
    w->code = EXIT_LOST;
    ending_begin(&w->ending, command_of(w), patience_ms);
}

static void check_lease(struct warden *w)
{
    const char *name = "";
    int64_t left = remaining_ms(w, &name);
    if (w->ending.stopping == 0 && left == 0) {
        say("%s: the lock is lost; stopping the command", name);
        begin_stop(w, LOST_GRACE_MS);
    } else if (w->ending.stopping == 0 && left != STILE_NO_DEADLINE && left <= w->grace_ms) {
        say("%s: not renewed, the lease ends in %" PRId64
            " ms; stopping the command before it does",
            name, left);
        begin_stop(w, left / 2);
    } else if (left == 0) {
        ending_hasten(&w->ending, LOST_GRACE_MS);
    }
}

/* ---- the command's life ---- */

/* False: there is nobody left below us. */
static bool reap(struct warden *w)
{
    bool ended = false;
    int status = 0;
    bool anybody = ending_reap(w->command, &ended, &status);
    if (ended && w->ending.stopping == 0)
        w->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    w->running = w->running && !ended;
    return anybody;
}

static void handle_events(struct warden *w)
{
    struct event event;
    while ((event = inbox_next(&w->inbox)).kind != EVENT_NONE) {
        if (event.kind == EVENT_SIGNAL && w->running && event.sig != SIGTSTP)
            kill(w->command, event.sig);
        if (event.kind == EVENT_ORPHANED) {
            w->code = EXIT_LOST;
#ifdef MUTANT_CLI_LOCK_FIRST
            stile_lock_release(w->locks[0], NULL);
#endif
            ending_kill(&w->ending);
        }
    }
}

static int64_t next_ms(const struct warden *w)
{
    if (w->ending.stopping != 0)
        return ending_next_ms(&w->ending);
    int64_t left = remaining_ms(w, NULL);
    return left == STILE_NO_DEADLINE ? INT64_MAX : now_ms() + left - w->grace_ms;
}

/* What the command leaves running when it ends by itself is left alone (it may have started a
 * service); when the lock or the front is lost, nobody is. */
static void watch_over(struct warden *w)
{
    for (;;) {
        wait_ready(w->client, &w->inbox, next_ms(w));
        handle_events(w);
        /* Behind the signals: a SIGCHLD that is read after we looked would wake nobody. */
        bool anybody = reap(w);
        check_lease(w);
        if (w->ending.stopping == 0 ? !w->running : !anybody)
            return;
        ending_push(&w->ending, command_of(w));
    }
}

static int start(struct warden *w)
{
    char **environment = child_environment(w->options, w->locks, w->n);
    int64_t left = remaining_ms(w, NULL);
    w->grace_ms = left == STILE_NO_DEADLINE ? 0 : ending_grace_ms(w->options, left);
    w->ending = (struct ending){.name = stile_lock_name(w->locks[0]), .what = "lock"};
    w->command = child_start(w->options->command, environment, w->signals, -1);
    int failure = errno;
    child_environment_free(environment);
    if (w->command < 0) {
        say("%s: cannot start a process: %s", w->options->command[0], strerror(failure));
        return EXIT_CANNOT_EXEC;
    }
    w->running = true;
    watch_over(w);
    return w->code;
}

/* ---- taking and giving back ---- */

static int give_back(struct warden *w, int code)
{
    for (size_t i = w->n; i-- > 0;) {
        struct stile_error err = {0};
        enum stile_status status = stile_lock_release(w->locks[i], &err);
        if (status == STILE_OK || code == EXIT_LOST)
            continue;
        say_failure("release", status, &err);
        if (status == STILE_LOST)
            code = EXIT_LOST;
    }
    return code;
}

static int not_granted(const struct warden *w, const struct grant *grant, enum stile_status status)
{
    if (grant->sig != 0)
        return 128 + grant->sig;
    if (status == STILE_CANCELLED)
        return EXIT_LOST;
    bool busy = status == STILE_HELD || status == STILE_TIMEOUT;
    if (!busy)
        return say_failure("run", status, &grant->err);
    const char *name = stile_lock_name(w->locks[grant->taken]);
    if (!(w->options->given & OPT_QUIET))
        say("%s: %s; see who has it with: stile show %s", name, stile_status_text(status), name);
    return EXIT_NOT_ACQUIRED;
}

/* Some engines count in whole seconds, or have bounds of their own. */
static void tell_ttl(const struct warden *w)
{
    int64_t asked = w->options->ttl_ms, given = stile_lock_ttl_ms(w->locks[0]);
    if (!(w->options->given & OPT_TTL) || (w->options->given & OPT_QUIET) || given == asked ||
        given == 0 || given == STILE_NO_DEADLINE)
        return;
    say("run: the engine makes a TTL of %.10g s out of %.10g s", (double)given / 1000,
        (double)asked / 1000);
}

static int take_and_run(struct warden *w)
{
    struct grant grant = {
        .client = w->client,
        .locks = w->locks,
        .n = w->n,
        .wait_ms = w->options->wait_ms,
        .inbox = &w->inbox,
        .tell = !(w->options->given & OPT_QUIET) && isatty(STDERR_FILENO),
    };
    enum stile_status status = grant_wait(&grant);
    if (status != STILE_OK)
        return not_granted(w, &grant, status);
    tell_ttl(w);
    return give_back(w, start(w));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int make_locks(struct warden *w)
{
    const struct stile_lock_options lock_options = options_for_lock(w->options);
    char **names = w->options->args;
    qsort(names, w->options->n_args, sizeof *names, by_name);
    w->locks = must_alloc(calloc(w->options->n_args, sizeof(struct stile_lock *)));
    for (; w->n < w->options->n_args; w->n++) {
        struct stile_error err = {0};
        enum stile_status status =
            stile_lock_new(&w->locks[w->n], w->client, names[w->n], &lock_options, &err);
        if (status != STILE_OK)
            return say_failure("run", status, &err);
    }
    return 0;
}

/* What `stile show` prints: the command, and not our own line, which may name a secret URL. */
static void write_label(char label[LABEL_MAX], char *const *command)
{
    size_t len = 0;
    for (; *command != NULL && len < LABEL_MAX - 1; command++)
        len += (size_t)snprintf(label + len, LABEL_MAX - len, "%s%s", len > 0 ? " " : "", *command);
}

/* Reaching a server may take its time, and as long as we have nothing to give back, a signal may
 * simply end us: the front sees by which. */
static int open_engine(struct warden *w)
{
    char label[LABEL_MAX];
    write_label(label, w->options->command);
    sigprocmask(SIG_UNBLOCK, &w->signals->taken, NULL);
    int code = engine_open(&w->client, w->options, true, label);
    sigprocmask(SIG_BLOCK, &w->signals->taken, NULL);
    return code;
}

int warden_main(const struct options *options, const struct signals *signals, int lifeline,
                pid_t front)
{
    struct warden w = {.options = options, .signals = signals};
#ifndef MUTANT_CLI_ORPHANS_ESCAPE
    prctl(PR_SET_CHILD_SUBREAPER, 1);
#endif
    /* So that `pkill stile` and `killall stile` meet the front alone, and the tree is ended. */
    prctl(PR_SET_NAME, "lock-warden");
    int code = open_engine(&w);
    if (code != 0)
        return code;
    if (!inbox_open(&w.inbox, signals, lifeline, front)) {
        say("run: cannot watch signals: %s", strerror(errno));
        code = EXIT_ENGINE;
    }
    if (code == 0)
        code = make_locks(&w);
    if (code == 0)
        code = take_and_run(&w);
    stile_client_close(w.client);
    free(w.locks);
    return code;
}
