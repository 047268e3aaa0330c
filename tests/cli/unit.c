/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the command that need no engine: durations, texts, JSON, the walk through a made-up
 * /proc, with and without the kernel's lists of children, and what a warden makes of signals. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../cli/process.h"

/* What --help prints as a default is what a verb finds. */
static void defaults_are_those_of_the_table(void **state)
{
    static const struct verb verb = {
        .name = "x",
        .accepts = OPT_PARALLEL | OPT_TRIES | OPT_BACKOFF | OPT_LEASE | OPT_FINISH | OPT_GRACE,
        .max_args = 1,
    };
    char *none[] = {"x", NULL}, *given[] = {"x", "--tries=2", "--finish", "0s", NULL};
    struct options options;
    (void)state;
    assert_int_equal(options_parse(&options, &verb, 1, none), 0);
    assert_int_equal(options.given, 0);
    assert_int_equal(options.parallel, 1);
    assert_int_equal(options.tries, 5);
    assert_int_equal(options.backoff_ms, 1000);
    assert_int_equal(options.lease_ms, 30000);
    assert_int_equal(options.finish_ms, 30000);
    assert_int_equal(options.grace_ms, 5000);
    assert_int_equal(options_parse(&options, &verb, 4, given), 0);
    assert_int_equal(options.given, OPT_TRIES | OPT_FINISH);
    assert_int_equal(options.tries, 2);
    assert_int_equal(options.finish_ms, 0);
    assert_int_equal(options.parallel, 1);
}

static void durations_are_exact(void **state)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"0ms", 0},
                {"250ms", 250},
                {"10s", 10000},
                {"007s", 7000},
                {"5m", 300000},
                {"2h", 7200000},
                {"1d", 86400000},
                {"36500d", INT64_C(3153600000000)},
                {"3153600000000ms", INT64_C(3153600000000)}};
    static const char *const bad[] = {"",
                                      "s",
                                      "10",
                                      "-1s",
                                      "+1s",
                                      "1.5s",
                                      " 1s",
                                      "1s ",
                                      "1S",
                                      "1 s",
                                      "1week",
                                      "36501d",
                                      "3153600000001ms",
                                      "1m1s",
                                      "0x1s",
                                      "9223372036854775808ms",
                                      "18446744073709551616s",
                                      "\xff"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t ms = -1;
        assert_null(duration_parse(&ms, good[i].text));
        assert_int_equal(ms, good[i].ms);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t ms = -1;
        assert_non_null(duration_parse(&ms, bad[i]));
        assert_int_equal(ms, -1);
    }
}

static void durations_are_readable(void **state)
{
    char text[DURATION_TEXT_MAX];
    (void)state;
    assert_string_equal(duration_format(text, -5), "0ms");
    assert_string_equal(duration_format(text, 999), "999ms");
    assert_string_equal(duration_format(text, 59999), "59s");
    assert_string_equal(duration_format(text, 184000), "3m04s");
    assert_string_equal(duration_format(text, 7800000), "2h10m");
    assert_string_equal(duration_format(text, 444 * 86400000LL + 3600000), "444d01h");
    assert_string_equal(duration_format(text, INT64_MAX), "106751991167d07h");
}

static void only_utf8_is_decoded(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        uint32_t code;
    } cases[] = {{"a", 1, 'a'},
                 {"\xc3\xa9", 2, 0xe9},
                 {"\xe4\xb8\xad", 3, 0x4e2d},
                 {"\xf0\x9f\x98\xb4", 4, 0x1f634},
                 {"", 0, 0},
                 {"\x80", 0, 0},
                 {"\xc3", 0, 0},
                 {"\xc3(", 0, 0},
                 {"\xc0\x80", 0, 0},         /* an overlong NUL */
                 {"\xe0\x80\xaf", 0, 0},     /* an overlong slash */
                 {"\xed\xa0\x80", 0, 0},     /* half a surrogate pair */
                 {"\xf4\x90\x80\x80", 0, 0}, /* beyond Unicode */
                 {"\xf0\x9f\x98", 0, 0},
                 {"\xff", 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t code = 0;
        size_t len = text_decode(&code, cases[i].bytes);
        assert_int_equal(len, cases[i].len);
        if (len > 0)
            assert_int_equal(code, cases[i].code);
    }
}

static void expect_escaped(const char *text, const char *wanted, size_t columns)
{
    char *escaped = text_escape(text);
    assert_string_equal(escaped, wanted);
    assert_int_equal(text_columns(escaped), columns);
    free(escaped);
}

static void nothing_moves_the_cursor(void **state)
{
    (void)state;
    expect_escaped("plain \\ text", "plain \\ text", 12);
    expect_escaped("\x1b[31m\r\n\x7f", "\\x1b[31m\\x0d\\x0a\\x7f", 20);
    expect_escaped("\xc2\x85", "\\xc2\\x85", 8);           /* next line, of the C1 controls */
    expect_escaped("\xe2\x80\xae", "\\xe2\\x80\\xae", 12); /* right-to-left override */
    expect_escaped("a\xff\xc3", "a\\xff\\xc3", 9);
    expect_escaped("e\xcc\x81", "e\xcc\x81", 1); /* a combining accent */
    expect_escaped("\xe4\xb8\xad\xf0\x9f\x98\xb4", "\xe4\xb8\xad\xf0\x9f\x98\xb4", 4);
}

static void json_is_json(void **state)
{
    char *text = NULL;
    size_t size;
    (void)state;
    struct json json = {.out = open_memstream(&text, &size)};
    json_open(&json, NULL, '{');
    json_text(&json, "a", "q\"b\\c\n\x7f\xc3\xa9");
    json_text(&json, "b", "x\xff");
    json_open(&json, "c", '[');
    json_uint(&json, NULL, UINT64_MAX);
    json_int(&json, NULL, INT64_MIN);
    json_close(&json, ']');
    json_bool(&json, "d", false);
    json_null(&json, "e");
    json_close(&json, '}');
    fclose(json.out);
    assert_string_equal(text, "{\"a\":\"q\\\"b\\\\c\\u000a\\u007f\xc3\xa9\",\"b\":\"x\\ufffd\","
                              "\"b_hex\":\"78ff\",\"c\":[18446744073709551615,"
                              "-9223372036854775808],\"d\":false,\"e\":null}");
    free(text);
}

/* ---- a made-up /proc ---- */

struct proc {
    char dir[64];
    pid_t seen[32];
    size_t n_seen;
};

static void write_at(const struct proc *proc, const char *path, const char *text)
{
    char full[256];
    snprintf(full, sizeof full, "%s/%s", proc->dir, path);
    for (char *slash = full + strlen(proc->dir) + 1; (slash = strchr(slash, '/')) != NULL;
         slash++) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make_proc(void **state)
{
    static struct proc proc;
    proc = (struct proc){.dir = "/tmp/stile-proc-XXXXXX"};
    *state = &proc;
    return mkdtemp(proc.dir) == NULL;
}

static int remove_proc(void **state)
{
    struct proc *proc = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", proc->dir);
    return system(command);
}

static void see(pid_t pid, void *data)
{
    struct proc *proc = data;
    assert_true(proc->n_seen < 32);
    proc->seen[proc->n_seen++] = pid;
}

static void expect_seen(const struct proc *proc, const pid_t *wanted, size_t n)
{
    assert_int_equal(proc->n_seen, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(proc->seen[i], wanted[i]);
}

static void walk_by_lists_of_children(void **state)
{
    static const pid_t wanted[] = {11, 30, 12, 4194303, 13};
    struct proc *proc = *state;
    write_at(proc, "10/task/10/children", "11 12 ");
    write_at(proc, "11/task/11/children", "");
    write_at(proc, "11/task/77/children", "30 "); /* forked by another thread of 11 */
    write_at(proc, "12/task/12/children", "4194303 13 ");
    write_at(proc, "13/task/13/children", "10 11 "); /* a circle must not catch us */
    write_at(proc, "99/task/99/children", "98 ");
    assert_true(tree_walk(proc->dir, 10, see, proc));
    expect_seen(proc, wanted, 5);
}

static void walk_by_parents(void **state)
{
    static const pid_t wanted[] = {5, 11, 12};
    struct proc *proc = *state;
    write_at(proc, "10/stat", "10 (stile) S 1 10 10 0 -1 4194560");
    write_at(proc, "11/stat", "11 (a) R 1 (b) S 10 10 10"); /* its name is "a) R 1 (b" */
    write_at(proc, "12/stat", "12 (x) T 5 10 10");
    write_at(proc, "5/stat", "5 (younger, but a smaller pid) S 11 5 5");
    write_at(proc, "13/stat", "13 (gone) Z 10 10 10");
    write_at(proc, "14/stat", "14 (stranger) S 1 14 14");
    write_at(proc, "15/stat", "");
    write_at(proc, "version", "Linux");
    assert_true(tree_walk(proc->dir, 10, see, proc));
    for (size_t i = 0; i < proc->n_seen; i++) { /* the order is the directory's */
        for (size_t k = i; k > 0 && proc->seen[k] < proc->seen[k - 1]; k--) {
            pid_t swap = proc->seen[k];
            proc->seen[k] = proc->seen[k - 1];
            proc->seen[k - 1] = swap;
        }
    }
    expect_seen(proc, wanted, 3);
}

static void walk_without_proc(void **state)
{
    struct proc *proc = *state;
    assert_false(tree_walk("/nonexistent", 10, see, proc));
    expect_seen(proc, NULL, 0);
}

/* ---- what reaches the warden ---- */

#define FRONT 99999999 /* nobody has that number */
#define SHELL 4242

struct post {
    struct inbox inbox;
    int lifeline, reports;
    sigset_t before;
};

static int make_inbox(void **state)
{
    static struct post post;
    struct signals signals = {.child_was_ignored = false};
    int ends[2], pair[2];
    sigemptyset(&signals.taken);
    sigaddset(&signals.taken, SIGTSTP);
    sigaddset(&signals.taken, SIGCONT);
    sigprocmask(SIG_BLOCK, &signals.taken, &post.before);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) != 0)
        return 1;
    const struct link link = {.front = FRONT, .lifeline = ends[0], .reports = pair[1]};
    post.lifeline = ends[1];
    post.reports = pair[0];
    *state = &post;
    return inbox_open(&post.inbox, &signals, &link) ? 0 : 1;
}

static int remove_inbox(void **state)
{
    struct post *post = *state;
    close(post->inbox.signal_fd);
    close(post->inbox.link.lifeline);
    close(post->inbox.link.reports);
    close(post->lifeline);
    close(post->reports);
    sigprocmask(SIG_SETMASK, &post->before, NULL);
    return 0;
}

static void send_warden(int sig, pid_t sender)
{
    siginfo_t info = {.si_signo = sig, .si_code = sender == BY_KERNEL ? SI_KERNEL : SI_USER};
    if (sender != BY_KERNEL)
        info.si_pid = sender;
    assert_int_equal(syscall(SYS_rt_sigqueueinfo, getpid(), sig, &info), 0);
}

static void front_passes(struct post *post, int sig, pid_t sender)
{
    const struct passed_signal word = {.sig = sig, .sender = sender};
    assert_int_equal(write(post->lifeline, &word, sizeof word), sizeof word);
}

static void expect_event(struct post *post, enum event_kind kind, int sig)
{
    struct event event = inbox_next(&post->inbox);
    assert_int_equal(event.kind, kind);
    assert_int_equal(event.sig, sig);
}

static void stop_and_continuation_of_the_group(void **state)
{
    struct post *post = *state;
    send_warden(SIGTSTP, BY_KERNEL);
    front_passes(post, SIGTSTP, BY_KERNEL);
    expect_event(post, EVENT_GROUP, SIGTSTP);
    expect_event(post, EVENT_NONE, 0);
    send_warden(SIGCONT, SHELL);
    expect_event(post, EVENT_NONE, 0);
    front_passes(post, SIGCONT, SHELL);
    expect_event(post, EVENT_GROUP, SIGCONT);
    expect_event(post, EVENT_NONE, 0);
}

/* The continuation took the stop away before the warden had looked. */
static void stop_that_is_heard_of_late(void **state)
{
    struct post *post = *state;
    send_warden(SIGTSTP, BY_KERNEL);
    send_warden(SIGCONT, SHELL);
    front_passes(post, SIGTSTP, BY_KERNEL);
    expect_event(post, EVENT_GROUP, SIGTSTP);
    front_passes(post, SIGCONT, SHELL);
    expect_event(post, EVENT_GROUP, SIGCONT);
}

/* Stopped again before the front has passed the continuation on. */
static void continuation_that_is_heard_of_late(void **state)
{
    struct post *post = *state;
    send_warden(SIGCONT, SHELL);
    expect_event(post, EVENT_NONE, 0);
    send_warden(SIGTSTP, BY_KERNEL);
    expect_event(post, EVENT_GROUP, SIGTSTP);
    assert_true(inbox_due_ms(&post->inbox) == INT64_MAX);
    front_passes(post, SIGCONT, SHELL);
    front_passes(post, SIGTSTP, BY_KERNEL);
    expect_event(post, EVENT_NONE, 0);
    front_passes(post, SIGCONT, SHELL); /* the front alone is continued */
    expect_event(post, EVENT_SIGNAL, SIGCONT);
}

/* ---- messages ---- */

static void waits_are_reported_at_a_pace(void **state)
{
    (void)state;
    assert_int_equal(grant_report_after_ms(AUDIENCE_NONE, 0), -1);
    assert_int_equal(grant_report_after_ms(AUDIENCE_TERMINAL, 0), 1000);
    assert_int_equal(grant_report_after_ms(AUDIENCE_TERMINAL, 1), -1);
    assert_int_equal(grant_report_after_ms(AUDIENCE_LOG, 0), 10000);
    for (unsigned n = 1; n < 5; n++)
        assert_int_equal(grant_report_after_ms(AUDIENCE_LOG, n), 60000);
}

static void is_hinted(const char *url, const char *name, const char *command)
{
    char engine[64];
    struct options options = {.engine = engine};
    snprintf(engine, sizeof engine, "%s", url != NULL ? url : "");
    options.given = url != NULL ? OPT_ENGINE : 0;
    char *hint = hint_command(&options, "show", name);
    assert_string_equal(hint, command);
    free(hint);
}

static void hints_are_quoted(void **state)
{
    (void)state;
    setenv("STILE_ENGINE", "local:", 1);
    is_hinted(NULL, "nightly:report/1", "stile show nightly:report/1");
    is_hinted(NULL, NULL, "stile show");
    is_hinted(NULL, "a b", "stile show 'a b'");
    is_hinted(NULL, "$(x)`y`", "stile show '$(x)`y`'");
    is_hinted(NULL, "it's", "stile show 'it'\\''s'");
    is_hinted(NULL, "~", "stile show '~'");
    is_hinted(NULL, "-x", "stile show -- -x"); /* a name, not an option */
    is_hinted("redis://u:s3cret@h:1/0?prefix=a&password=s3cret", "x",
              "stile show -e 'redis://u@h:1/0?prefix=a' x"); /* it takes the user to log in */
    is_hinted("redis://h", "x", "stile show -e redis://h x");
}

/* What is written to stderr between the two. */
static int real_stderr, written;

static void stderr_begin(void)
{
    written = memfd_create("stderr", MFD_CLOEXEC);
    real_stderr = dup(STDERR_FILENO);
    assert_true(written >= 0 && real_stderr >= 0);
    assert_int_equal(dup2(written, STDERR_FILENO), STDERR_FILENO);
}

static void stderr_is(const char *wanted)
{
    char text[2048] = "";
    assert_int_equal(dup2(real_stderr, STDERR_FILENO), STDERR_FILENO);
    assert_true(pread(written, text, sizeof text - 1, 0) >= 0);
    assert_string_equal(text, wanted);
    close(written);
    close(real_stderr);
}

/* An error may quote a server, and a loss the label that another user has chosen. */
static void messages_move_no_cursor(void **state)
{
    (void)state;
    stderr_begin();
    say("%s", "a\x1b[1m \xc2\x9b"
              "1m \xe2\x80\xae \x9b"
              "1m \xe2\x98\x83\n");
    stderr_is("stile: a?[1m ?1m ? ?1m \xe2\x98\x83?\n");
}

static void an_age_that_is_not_known(void **state)
{
    struct options options = {0};
    struct look look = {.name = "x", .answered = true, .holders = 2, .ahead = 1, .age_ms = -1};
    (void)state;
    strcpy(look.host, "stranger");
    stderr_begin();
    look_say_refused(&look, &options, "x", STILE_HELD);
    look_say_waiting(&look, "x");
    stderr_is("stile: x: held by stranger and 1 more; see: stile show x\n"
              "stile: waiting for 'x' (held by stranger and 1 more, 1 ahead)\n");
}

/* A command to type that has another name in it is worse than none. */
static void no_hint_that_cannot_be_typed(void **state)
{
    struct options options = {0};
    struct look look = {.name = "a\xe2\x80\xae"
                                "b"};
    (void)state;
    stderr_begin();
    look_say_refused(&look, &options, look.name, STILE_HELD);
    stderr_is("stile: a\\xe2\\x80\\xaeb: held by another\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_table),
        cmocka_unit_test(messages_move_no_cursor),
        cmocka_unit_test(an_age_that_is_not_known),
        cmocka_unit_test(no_hint_that_cannot_be_typed),
        cmocka_unit_test(durations_are_exact),
        cmocka_unit_test(waits_are_reported_at_a_pace),
        cmocka_unit_test(hints_are_quoted),
        cmocka_unit_test(durations_are_readable),
        cmocka_unit_test(only_utf8_is_decoded),
        cmocka_unit_test(nothing_moves_the_cursor),
        cmocka_unit_test(json_is_json),
        cmocka_unit_test_setup_teardown(walk_by_lists_of_children, make_proc, remove_proc),
        cmocka_unit_test_setup_teardown(walk_by_parents, make_proc, remove_proc),
        cmocka_unit_test_setup_teardown(walk_without_proc, make_proc, remove_proc),
        cmocka_unit_test_setup_teardown(stop_and_continuation_of_the_group, make_inbox,
                                        remove_inbox),
        cmocka_unit_test_setup_teardown(stop_that_is_heard_of_late, make_inbox, remove_inbox),
        cmocka_unit_test_setup_teardown(continuation_that_is_heard_of_late, make_inbox,
                                        remove_inbox),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
