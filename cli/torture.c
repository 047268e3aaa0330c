/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile torture: does the engine keep its promises while its clients and servers are hurt? */
#include "torture_crew.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define FOR_MIN_MS  6000
#define FOR_MAX_MS  3600000         /* all events are kept: half a gigabyte in an hour */
#define CALM_NS     NS_PER_S        /* at the end, without injections */
#define PATIENCE_NS (20 * NS_PER_S) /* for workers to end */
#define TICK_MS     5
#define OPEN_OUTPUT (O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW)
#define LOG_NS      (10 * NS_PER_S) /* between lines of progress that are not on a terminal */

struct torture {
    struct options *options;
    struct plan plan;
    struct recording recording;
    struct crew crew;
    struct chaos chaos;
    uint64_t shown_ns; /* when progress was last shown */
};

/* ---- before ---- */

static int check_options(struct torture *torture)
{
    const struct options *options = torture->options;
    const char *wrong =
        options->for_ms < FOR_MIN_MS   ? "--for: must be at least 6s, to outlast a lease"
        : options->for_ms > FOR_MAX_MS ? "--for: must be at most 1h: every event is kept"
        : options->clients < 2 || options->clients > CLIENTS_MAX ? "--clients: must be 2 to 64"
        : options->names > NAMES_MAX                             ? "--names: must be 1 to 32"
                                                                 : NULL;
    if (wrong == NULL && options->inject != NULL &&
        !chaos_allow(&torture->chaos.allowed, options->inject))
        wrong = "--inject: takes a list of stop, kill, cut, reset, slow, break and all";
    if (wrong != NULL)
        say("torture: %s; see stile torture --help", wrong);
    return wrong != NULL ? EXIT_USAGE : 0;
}

/* Found out now, not when the run is over. */
static bool can_be_written(const char *option, const char *path)
{
    int fd = path != NULL ? open(path, OPEN_OUTPUT, 0600) : -1;
    if (fd >= 0)
        close(fd);
    if (path == NULL || fd >= 0)
        return true;
    say("torture: %s: %s: %s", option, path, strerror(errno));
    return false;
}

static int check_outputs(const struct options *options)
{
    return can_be_written("--history", options->history) &&
                   can_be_written("--timeline", options->timeline)
               ? 0
               : EXIT_OUTPUT;
}

/* Names that nobody else has. */
static bool make_prefix(struct plan *plan)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return false;
    snprintf(plan->prefix, sizeof plan->prefix, "stile-torture-%016" PRIx64, number);
    return true;
}

static int say_system(const char *what)
{
    say("torture: %s: %s", what, strerror(errno));
    return EXIT_ENGINE;
}

/* For the counters, where there are no cells. */
static bool make_directory(struct plan *plan)
{
    const char *where = secure_getenv("TMPDIR");
    snprintf(plan->dir, sizeof plan->dir, "%s/stile-torture-XXXXXX",
             where != NULL && where[0] != '\0' ? where : "/tmp");
    return mkdtemp(plan->dir) != NULL;
}

static bool is_by_connection(const struct message *opened)
{
    return opened->lease == STILE_LEASE_SESSION &&
           (strcmp(opened->text, "postgres") == 0 || strcmp(opened->text, "mysql") == 0);
}

/* What the engine can do, and with it the plan. 0, or an exit code after a message. */
static int learn(struct torture *torture)
{
    struct errand errand;
    if (!errand_run(&errand, &torture->crew, ERRAND_OPEN, torture->plan.url))
        return say_system("cannot start a process");
    if (errand.opened.kind != MESSAGE_OPENED || errand.done.status != STILE_OK) {
        struct stile_error err = {.status = errand.done.status};
        snprintf(err.message, sizeof err.message, "%.240s", errand.done.text);
        return engine_say_failure(torture->options, errand.done.status, &err);
    }
    if (!errand.opened.has_tokens)
        say("torture: this engine grants no tokens as it is set up, so nothing can be guarded; see "
            "stile caps and stile setup");
    torture->plan.guarded = errand.opened.has_tokens;
    torture->plan.keeps = errand.opened.keeps;
    torture->chaos.lease = errand.opened.lease;
    torture->recording.by_connection = is_by_connection(&errand.opened);
    if (!errand.opened.has_cells && !make_directory(&torture->plan))
        return say_system("a directory for the counters");
    return 0;
}

static int prepare(struct torture *torture)
{
    struct errand errand;
    if (!errand_run(&errand, &torture->crew, ERRAND_BEGIN, torture->plan.url))
        return say_system("cannot start a process");
    if (errand.done.status == STILE_OK)
        return 0;
    say("torture: the counters cannot be made: %s", errand.done.text);
    return exit_code_of(errand.done.status);
}

/* Whether workers can reach the servers through the proxy. */
static bool can_be_proxied(struct torture *torture)
{
    char url[STILE_URL_MAX + 1];
    struct errand errand = {0};
    const char *why = proxy_aim(&torture->crew.target, torture->plan.url);
    struct proxy *proxy = why == NULL ? proxy_open(&torture->crew.target) : NULL;
    if (why == NULL)
        why = "no connection through it could be opened";
    bool local = torture->chaos.lease == STILE_LEASE_PROCESS;
    bool able = proxy != NULL && proxy_rewrite(url, sizeof url, proxy, torture->plan.url) &&
                errand_run(&errand, &torture->crew, ERRAND_OPEN, url) &&
                errand.done.status == STILE_OK;
    proxy_close(proxy);
    if (!able && (!local || torture->options->inject != NULL) &&
        (torture->chaos.allowed & INJECT_PROXIED))
        say("torture: cut, reset and slow are left out: %s", local ? "there is no server" : why);
    return able;
}

/* ---- meanwhile ---- */

static void show_progress(struct torture *torture, uint64_t now, uint64_t end_ns)
{
    bool terminal = isatty(STDERR_FILENO);
    if (now < torture->shown_ns + (terminal ? NS_PER_S : LOG_NS))
        return;
    torture->shown_ns = now;
    fprintf(stderr,
            "%sstile: torture: %" PRIu64 " s left, %zu acquisitions, %zu injections, %zu losses%s",
            terminal ? "\r" : "", end_ns > now ? (end_ns - now) / NS_PER_S : 0,
            torture->recording.grants, torture->recording.n_injections, torture->recording.losses,
            terminal ? " " : "\n");
    fflush(stderr);
}

static void end_progress(void)
{
    if (isatty(STDERR_FILENO))
        fputc('\n', stderr);
}

static bool take_signals(struct torture *torture)
{
    sigset_t taken;
    sigemptyset(&taken);
    sigaddset(&taken, SIGINT);
    sigaddset(&taken, SIGTERM);
    sigaddset(&taken, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &taken, NULL);
    torture->crew.signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    return torture->crew.signals >= 0;
}

static void hurt(struct torture *torture)
{
    uint64_t end = torture->recording.began_ns + (uint64_t)torture->options->for_ms * NS_PER_MS;
    torture->shown_ns = torture->recording.began_ns;
    chaos_begin(&torture->chaos, end - CALM_NS);
    for (uint64_t now; (now = poller_now_ns()) < end && crew_interrupts(&torture->crew) == 0;) {
        poller_turn(TICK_MS);
        chaos_tick(&torture->chaos);
        show_progress(torture, now, end);
    }
    chaos_end(&torture->chaos);
    end_progress();
}

/* ---- after ---- */

/* With what a worker left that was killed while it replaced a file. */
static void remove_directory(const struct plan *plan)
{
    DIR *dir = plan->dir[0] != '\0' ? opendir(plan->dir) : NULL;
    const struct dirent *entry;
    if (plan->dir[0] == '\0')
        return;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (rmdir(plan->dir) < 0)
        say("torture: %s: %s", plan->dir, strerror(errno));
    if (dir != NULL)
        closedir(dir);
}

/* The counters as they are at the end. 0, or an exit code after a message. */
static int collect(struct torture *torture)
{
    struct errand errand;
    bool started = errand_run(&errand, &torture->crew, ERRAND_END, torture->plan.url);
    if (!started)
        snprintf(errand.done.text, sizeof errand.done.text, "%s", strerror(errno));
    remove_directory(&torture->plan);
    if (started && errand.done.status == STILE_OK)
        return 0;
    say("torture: the counters cannot be read or removed: %s; those left are listed by stile cell "
        "ls %s",
        errand.done.text, torture->plan.prefix);
    return started ? exit_code_of(errand.done.status) : EXIT_ENGINE;
}

static bool write_history(const char *path, const struct history *history)
{
    int fd = open(path, OPEN_OUTPUT | O_TRUNC, 0600);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (out != NULL)
        history_print(history, out);
    bool failed = out == NULL || fflush(out) != 0 || ferror(out);
    int error = errno;
    if (out != NULL)
        fclose(out);
    errno = error;
    if (!failed)
        return true;
    say("torture: --history: %s: %s", path, strerror(errno));
    return false;
}

static int report(struct torture *torture)
{
    static const int codes[] = {[HOLDS] = 0, [TOOTHLESS] = EXIT_NO, [VIOLATED] = EXIT_VIOLATED};
    const struct options *options = torture->options;
    struct findings *findings = must_alloc(malloc(sizeof *findings));
    if (!judge(findings, &torture->recording, &torture->plan)) {
        say("torture: out of memory");
        return EXIT_ENGINE;
    }
    int code = codes[report_conclusion(findings)];
    if (options->given & OPT_JSON)
        report_json(findings, &torture->recording, &torture->plan);
    else
        report_print(findings, &torture->recording, &torture->plan);
    bool written = options->history == NULL || write_history(options->history, &findings->history);
    if (options->timeline != NULL)
        written &= timeline_write(options->timeline, findings, &torture->recording, &torture->plan);
    findings_free(findings);
    free(findings);
    return finish_output(written || code != 0 ? code : EXIT_OUTPUT);
}

static void say_troubles(const struct torture *torture)
{
    const struct recording *recording = &torture->recording;
    if (recording->grants == 0 && torture->crew.reason[0] != '\0')
        say("torture: no worker was granted a lock: %s", torture->crew.reason);
    if (recording->killed_by_others > 0)
        say("torture: %zu workers were killed by somebody else", recording->killed_by_others);
}

/* ---- the verb ---- */

static int run_all(struct torture *torture)
{
    int code = learn(torture);
    if (code == 0)
        code = prepare(torture);
    if (code != 0) {
        remove_directory(&torture->plan);
        return code;
    }
    bool proxied = can_be_proxied(torture);
    if (!proxied)
        torture->chaos.allowed &= ~INJECT_PROXIED;
    torture->recording.began_ns = poller_now_ns();
    if (crew_start(&torture->crew, proxied))
        hurt(torture);
    else
        code = say_system("cannot start the workers");
    crew_end(&torture->crew, PATIENCE_NS);
    torture->recording.ended_ns = poller_now_ns();
    say_troubles(torture);
    int collected = collect(torture);
    return code != 0 ? code : collected != 0 ? collected : report(torture);
}

static int run(struct options *options)
{
    struct torture *torture = must_alloc(calloc(1, sizeof *torture));
    engine_from_argument(options);
    torture->options = options;
    torture->plan.n_clients = (uint32_t)options->clients;
    torture->plan.n_names = (uint32_t)options->names;
    torture->recording.n_names = torture->plan.n_names;
    torture->plan.url = engine_url(options);
    torture->crew.plan = &torture->plan;
    torture->crew.recording = &torture->recording;
    torture->chaos.crew = &torture->crew;
    torture->chaos.recording = &torture->recording;
    torture->chaos.script = options->fault;
    torture->chaos.allowed = (1u << INJECT_FAULT) - 1;
    torture->chaos.named = options->inject != NULL;
    int code = check_options(torture);
    if (code == 0)
        code = check_outputs(options);
    if (code == 0 && (!make_prefix(&torture->plan) || !take_signals(torture) || !poller_begin()))
        code = say_system("cannot start");
    if (code == 0)
        code = run_all(torture);
    poller_end();
    recording_free(&torture->recording);
    free(torture);
    return code;
}

const struct verb verb_torture = {
    .name = "torture",
    .accepts = OPT_TORTURE | OPT_JSON,
    .max_args = 1,
    .operands = "[URL]",
    .about =
        "Tests an engine on your own servers. Workers take locks and update counters, with and "
        "without a guard, while some of them are stopped past their TTL, killed with -9 and cut "
        "off from the servers. Then their history is checked: no two hold a lock at once, tokens "
        "grow, losses are reported, and with the guard no update is lost.\n\n"
        "Without the guard updates must be lost, otherwise the run proves nothing, and says so. "
        "--fault CMD also breaks your servers: it is run as CMD break, and a moment later as CMD "
        "heal. All names begin with stile-torture- and a random number; cells and guards of "
        "that name are removed at the end.\n\n"
        "Exit codes: 0 all promises were kept; 80 one was broken, or an update was lost in spite "
        "of the guard; 1 nothing was lost without the guard either; 69 engine failed; 64 usage.",
    .run = run,
};
