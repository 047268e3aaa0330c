/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile once: CMD for the first caller of a key, its result for all others.
 *
 * The warden of `stile run` does the work. A caller that finds a result, before the wait for the
 * lock or after it, prints it when the lock has been given back. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "process.h"

#define DAY_MS     (INT64_C(24) * 60 * 60 * 1000)
#define SLOTS_KEPT 10
#define STAMP_SIZE 32

struct once {
    struct warden_job job; /* first */
    const struct options *options;
    const char *key;
    struct stile_once_run *run;       /* ours to finish */
    struct stile_once_result *result; /* of another run */
};

/* ---- steps of the warden ---- */

/* Read at each step: the warden replaces the texts of its command line. */
static struct stile_once_options options_for_once(const struct options *options)
{
    return (struct stile_once_options){.size = sizeof(struct stile_once_options),
                                       .keep_ms = options->keep_ms,
                                       .fingerprint = options->fingerprint,
                                       .keep_failures = options->given & OPT_KEEP_FAILURES};
}

static int look(struct warden_job *job, struct stile_client *client)
{
    struct once *once = (struct once *)job;
    const struct stile_once_options how = options_for_once(once->options);
    struct stile_error err = {0};
    enum stile_status status = stile_once_find(&once->result, client, once->key, &how, &err);
    if (status != STILE_OK)
        return say_failure("once", status, &err);
    return once->result != NULL ? 0 : WARDEN_GO_ON;
}

static int begin(struct warden_job *job, struct stile_lock *lock)
{
    struct once *once = (struct once *)job;
    const struct stile_once_options how = options_for_once(once->options);
    struct stile_error err = {0};
    enum stile_status status = stile_once_begin(&once->run, &once->result, lock, &how, &err);
    if (status != STILE_OK)
        return say_failure("once", status, &err);
    return once->result != NULL ? 0 : WARDEN_GO_ON;
}

/* A run that this host could not do, or that its user has ended, says nothing about the work. */
static enum stile_status store(struct once *once, const struct warden_end *end,
                               struct stile_error *err)
{
    struct stile_once_run *run = once->run;
    once->run = NULL;
    if (end->asked || child_was_not_executed())
        return stile_once_abandon(run, err);
    return stile_once_finish(run, end->code, end->output, end->output_size, err);
}

/* What the error means for a command that has ended: it must not be taken for one that never ran.
 */
static int fail_to_store(int code, enum stile_status status, const struct stile_error *err)
{
    int exit_code = say_failure("once", status, err);
    if (status == STILE_UNCERTAIN || status == STILE_UNREACHABLE)
        say("once: the command has ended with %d, and its result may be stored or not: see stile "
            "once --show",
            code);
    else if (exit_code == EXIT_ENGINE)
        say("once: the command has ended with %d, and its result is not stored: the next caller "
            "runs it again",
            code);
    return exit_code;
}

static int finish(struct warden_job *job, const struct warden_end *end)
{
    struct once *once = (struct once *)job;
    struct stile_error err = {0};
    enum stile_status status = store(once, end, &err);
    if (status != STILE_OK)
        return fail_to_store(end->code, status, &err);
    if (end->output == NULL && (end->code == 0 || (once->options->given & OPT_KEEP_FAILURES)) &&
        !(once->options->given & OPT_QUIET))
        say("once: the output is %s and is not stored; later callers get the exit code only",
            end->output_size > STILE_ONCE_OUTPUT_MAX ? "larger than 60 KiB" : "not complete");
    return end->code;
}

/* ---- the result of another run ---- */

static int print_result(const struct once *once)
{
    const struct stile_once_result *result = once->result;
    signal(SIGPIPE, SIG_IGN); /* finish_output() reports it */
    if (result->bytes != NULL)
        fwrite(result->bytes, 1, result->size, stdout);
    else if (!(once->options->given & OPT_QUIET))
        say("once: it has been run, but its output (%zu bytes) was %s", result->size,
            result->size > STILE_ONCE_OUTPUT_MAX ? "too large to be stored" : "not stored");
    /* A program may store any number; none may be taken for success. */
    int code = result->code < 0 || result->code > 255 ? EXIT_NO : result->code;
    return finish_output(code);
}

static int warden(struct options *options, const struct signals *signals, const struct link *link)
{
    struct once once = {
        .job = {.verb = "once",
                .needs_token = true,
                .keep_output = STILE_ONCE_OUTPUT_MAX,
                .opened = look,
                .refused = look,
                .granted = begin,
                .ended = finish},
        .options = options,
        .key = options->args[0] + strlen(STILE_ONCE_PREFIX),
    };
    int code = warden_run(&once.job, options, signals, link);
    stile_once_leave(once.run);
    if (once.result == NULL)
        return code;
    /* Nothing is held: a signal may simply end this process. */
    sigprocmask(SIG_UNBLOCK, &signals->taken, NULL);
    code = print_result(&once);
    stile_once_free(once.result);
    return code;
}

/* ---- the key ---- */

/* cron starts a job at or after its minute by the clock of its host. So hosts derive the same slot
 * from their own clocks, however far those are apart. */
static void write_slot(char stamp[STAMP_SIZE], int64_t slot_ms)
{
    int64_t slot = slot_ms / 1000;
    time_t start = time(NULL) / slot * slot;
    struct tm utc;
    gmtime_r(&start, &utc);
    strftime(stamp, STAMP_SIZE, slot % 60 == 0 ? "@%Y-%m-%dT%H:%MZ" : "@%Y-%m-%dT%H:%M:%SZ", &utc);
}

/* 0, or EXIT_USAGE after a message. *name: of the lock and the cell, yours to free. */
static int make_name(char **name, const struct options *options)
{
    char stamp[STAMP_SIZE] = "";
    const char *key = options->args[0];
    if (options->given & OPT_SLOT)
        write_slot(stamp, options->slot_ms);
    if (strlen(key) + strlen(stamp) > STILE_ONCE_KEY_MAX) {
        say("once: the key has %zu bytes, %d is the limit", strlen(key) + strlen(stamp),
            STILE_ONCE_KEY_MAX);
        return EXIT_USAGE;
    }
    must_alloc(asprintf(name, STILE_ONCE_PREFIX "%s%s", key, stamp) < 0 ? NULL : *name);
    return 0;
}

static int check(const struct options *options)
{
    uint64_t given = options->given;
    const char *wrong = NULL;
    if ((given & OPT_SHOW) && (given & OPT_FORGET))
        wrong = "--show cannot go with --forget";
    else if ((given & (OPT_SHOW | OPT_FORGET)) && options->command[0] != NULL)
        wrong = "--show and --forget take no command";
    else if ((given & OPT_JSON) && !(given & OPT_SHOW))
        wrong = "--json goes with --show";
    else if ((given & OPT_SLOT) && (options->slot_ms < 1000 || options->slot_ms % 1000 != 0))
        wrong = "--slot must be whole seconds, as in 1m";
    else if (options->slot_ms > STILE_CELL_KEEP_MAX / SLOTS_KEPT)
        wrong = "--slot must be a year at most";
    else if (options->keep_ms > STILE_CELL_KEEP_MAX)
        wrong = "--keep must be ten years at most, which is what forever means";
    if (wrong == NULL)
        return 0;
    say("once: %s; see stile once --help", wrong);
    return EXIT_USAGE;
}

/* A host whose clock is slow comes up to a slot later than the others. */
static void set_keep(struct options *options)
{
    int64_t slots = options->slot_ms * SLOTS_KEPT;
    if (options->given & OPT_KEEP)
        return;
    options->keep_ms = slots > DAY_MS ? slots : DAY_MS;
}

/* Written into the crontabs of several hosts, it would run on each of them. */
static void tell_reach(const struct options *options)
{
    if ((options->given & OPT_SLOT) && !(options->given & OPT_QUIET) && engine_is_unnamed(options))
        say("once: no engine is named, so --slot covers this user on this machine only; for "
            "several users or hosts, give one with -e URL, in $STILE_ENGINE or in a stile.conf: "
            "see stile caps");
}

/* ---- show and forget ---- */

static int take_holder(const struct stile_info *info, void *data)
{
    if (info->holders > 0)
        *(char **)data = info_holder(&info->claims[0]);
    return 0;
}

/* A record "running" outlives a runner that died. */
static const char *state_of(const struct stile_once_result *result, const char *holder)
{
    if (result->state == STILE_ONCE_NONE)
        return holder != NULL ? "running" : "none";
    if (result->state == STILE_ONCE_DONE)
        return "done";
    return holder != NULL ? "running" : "interrupted";
}

static void print_json(const char *key, const char *state, const struct stile_once_result *result)
{
    struct json json = {.out = stdout};
    bool done = result->state == STILE_ONCE_DONE;
    json_open(&json, NULL, '{');
    json_text(&json, "key", key);
    json_text(&json, "state", state);
    json_uint(&json, "token", result->token);
    json_int(&json, "age_ms", result->age_ms);
    json_text(&json, "fingerprint", result->fingerprint);
    if (done) {
        json_int(&json, "code", result->code);
        json_uint(&json, "size", result->size);
        json_bool(&json, "output_stored", result->bytes != NULL);
    }
    json_close(&json, '}');
    putchar('\n');
}

static void print_table(const char *state, const char *holder,
                        const struct stile_once_result *result)
{
    static const char *const heads[] = {"STATE", "CODE",        "TOKEN",  "AGE",
                                        "BYTES", "FINGERPRINT", "RUNNER", NULL};
    char age[DURATION_TEXT_MAX];
    struct table table;
    bool done = result->state == STILE_ONCE_DONE, any = result->state != STILE_ONCE_NONE;
    table_start(&table, heads);
    table_add(&table, state);
    done ? table_addf(&table, "%d", result->code) : table_add(&table, "-");
    any ? table_addf(&table, "%" PRIu64, result->token) : table_add(&table, "-");
    table_add(&table, any ? duration_format(age, result->age_ms) : "-");
    done ? table_addf(&table, "%zu%s", result->size, result->bytes == NULL ? " (not stored)" : "")
         : table_add(&table, "-");
    table_add(&table, result->fingerprint[0] != '\0' ? result->fingerprint : "-");
    table_add(&table, holder != NULL && !done ? holder : "-");
    table_finish(&table, stdout);
}

static int show(struct stile_client *client, const struct options *options, const char *name)
{
    const char *key = name + strlen(STILE_ONCE_PREFIX);
    struct stile_once_result *result;
    struct stile_error err = {0};
    char *holder = NULL; /* of the lock; NULL: there is none */
    enum stile_status status = stile_once_show(&result, client, key, &err);
    if (status == STILE_OK && result->state != STILE_ONCE_DONE)
        status = stile_show(client, name, take_holder, &holder, &err);
    if (status != STILE_OK) {
        stile_once_free(result);
        return say_failure("once", status, &err);
    }
    const char *state = state_of(result, holder);
    int code = strcmp(state, "none") == 0 ? EXIT_NO : 0;
    if (options->given & OPT_JSON)
        print_json(key, state, result);
    else if (code == 0)
        print_table(state, holder, result);
    else
        say("once: %s: nothing is stored", key);
    free(holder);
    stile_once_free(result);
    return finish_output(code);
}

static int forget(struct stile_client *client, const char *name)
{
    struct stile_error err = {0};
    enum stile_status status = stile_once_forget(client, name + strlen(STILE_ONCE_PREFIX), &err);
    return status == STILE_OK ? 0 : say_failure("once", status, &err);
}

static int show_or_forget(const struct options *options, const char *name)
{
    struct stile_client *client;
    int code = engine_open(&client, options, 0, "stile once");
    if (code != 0)
        return options_exit_code(options, code);
    code = options->given & OPT_SHOW ? show(client, options, name) : forget(client, name);
    stile_client_close(client);
    return options_exit_code(options, code);
}

/* ---- the verb ---- */

static int run_as(struct options *options, char *name)
{
    if (options->given & (OPT_SHOW | OPT_FORGET))
        return show_or_forget(options, name);
    options->args[0] = name;
    int code = run_check_nesting("once", options);
    if (code != 0)
        return code;
    tell_reach(options);
    return front_run("once", "the run", 1, warden, options);
}

static int once(struct options *options)
{
    char *name = NULL;
    int code = check(options);
    set_keep(options);
    if (code == 0)
        code = make_name(&name, options);
    if (code == 0)
        code = run_as(options, name);
    free(name);
    return code;
}

const struct verb verb_once = {
    .name = "once",
    .accepts = OPT_TRY | OPT_WAIT | OPT_TTL | OPT_GRACE | OPT_QUIET | OPT_LABEL | OPT_CODE |
               OPT_KEEP | OPT_FINGERPRINT | OPT_KEEP_FAILURES | OPT_SLOT | OPT_SHOW | OPT_FORGET |
               OPT_JSON | OPT_COMMAND,
    .alone = OPT_SHOW | OPT_FORGET,
    .min_args = 1,
    .max_args = 1,
    .argument = "KEY",
    .operands = "KEY -- CMD [ARG...]",
    .about =
        "Runs CMD if KEY is new, and stores its exit code and standard output. Callers that come "
        "while CMD runs wait for it, and later callers find the stored result: they print the same "
        "output and exit with the same code, 128 + N if CMD died of signal N. A run that fails "
        "stores nothing, and the next caller runs CMD again, unless --keep-failures is given. A "
        "run that was ended by a signal to stile, or whose CMD could not be executed, is never "
        "stored.\n\n"
        "A runner that dies is replaced by the next caller, so CMD may be begun more than once; "
        "only one run stores its result. CMD runs under the lock once:KEY as under stile run: its "
        "token is in STILE_TOKEN, and its whole process tree is stopped before the lock is "
        "lost.\n\n"
        "Output beyond 60 KiB is passed on but not stored. Standard error is passed on and never "
        "stored. CMD's standard output is a pipe, not a terminal.\n\n"
        "--slot 1m is for cron on several hosts: it adds the current minute of this host's clock "
        "to KEY, so that each minute's job runs on one of them. Use 1m or 1h for a daily job, too: "
        "slots are in UTC, and a slot of 1d may hold two runs when summer time begins.\n\n"
        "--show prints what is stored (exit 1: nothing), and --forget removes it, so that the next "
        "caller runs CMD.\n\n"
        "Exits with CMD's code. Other codes: 79 KEY was used with another fingerprint, 75 another "
        "process runs it (--try, --wait), 76 lost to another runner, 69 engine failed (with -E, "
        "CODE for these three), 74 stdout failed, 64 usage, 126 CMD cannot be executed, 127 CMD "
        "not found.",
    .wording =
        (const struct wording[]){
            {OPT_TRY, "do not wait: exit 75 if another process runs CMD"},
            {OPT_TTL, "how long the lock outlives a client that went silent (default: 10s)"},
            {OPT_KEEP, "how long the result is kept, or forever (default: 24h, or ten slots)"},
            {OPT_QUIET, "print no messages about waiting or about another process running CMD"},
            {0},
        },
    .run = once,
};
