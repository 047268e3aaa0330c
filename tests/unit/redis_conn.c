/* A connection against a server that does what the test says: late, wrong, in pieces, or not at
 * all. Against a real one: redis_live.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engines/redis/conn_inner.h"
#include "support/conn_kit.h"

#define SETNAME "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$5\r\nstile\r\n"
#define GET_A   "*2\r\n$3\r\nGET\r\n$1\r\na\r\n"
#define GET_B   "*2\r\n$3\r\nGET\r\n$1\r\nb\r\n"
#define PING    "*1\r\n$4\r\nPING\r\n"

static struct fake server;

static int set_up(void **state)
{
    (void)state;
    kit_open();
    fake_listen(&server);
    kit.options.target.port = server.port;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kit_close();
    fake_free(&server);
    return 0;
}

static void flush(void)
{
    loop_prepare(kit.loop);
}

/* The next connection comes, and is welcome. */
static void welcome(void)
{
    unsigned up = kit.up;

    run_until(kit.loop, kit.conn->state == GREETING);
    flush();
    fake_accept(&server);
    fake_hear(&server, SETNAME);
    fake_say(&server, "+OK\r\n");
    run_until(kit.loop, kit.up > up);
}

static void connect_up(void)
{
    kit_connect();
    welcome();
}

/* Time flies for the next attempt, too. */
static void fail_attempts(unsigned n)
{
    while (kit.down < n) {
        unsigned down = kit.down;
        if (kit.conn->state == PAUSED)
            loop_arm(kit.loop, &kit.conn->retry, loop_now(kit.loop));
        run_until(kit.loop, kit.down > down);
    }
}

static bool has(const struct stile_error *err, const char *words)
{
    return strstr(err->message, words);
}

/* ---- coming up ---- */

static void greeting_comes_first_and_is_waited_for(void **state)
{
    struct heard a;

    (void)state;
    kit.options.user = "me";
    kit.options.password = "hunter2";
    kit.options.db = 7;
    kit_connect();
    kit_ask(&a, "GET a");
    run_until(kit.loop, kit.conn->state == GREETING);
    flush();
    fake_accept(&server);
    fake_hear(&server, "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$7\r\nhunter2\r\n"
                       "*2\r\n$6\r\nSELECT\r\n$1\r\n7\r\n" SETNAME);
    fake_say(&server, "+OK\r\n+OK\r\n");
    net_settle(kit.loop);
    assert_int_equal(kit.up, 0);
    fake_say(&server, "+OK\r\n");
    run_until(kit.loop, kit.up);
    flush();
    fake_hear(&server, GET_A);
    fake_say(&server, "$1\r\nx\r\n");
    run_until(kit.loop, a.times);
    assert_string_equal(a.text, "x");
}

static void a_password_alone_is_for_the_default_user(void **state)
{
    (void)state;
    kit.options.password = "hunter2";
    kit_connect();
    run_until(kit.loop, kit.conn->state == GREETING);
    flush();
    fake_accept(&server);
    fake_hear(&server, "*2\r\n$4\r\nAUTH\r\n$7\r\nhunter2\r\n" SETNAME);
}

static void a_user_without_password_is_misuse(void **state)
{
    struct conn *conn;
    struct stile_error err;

    (void)state;
    kit.options.user = "me";
    assert_status(conn_new(&conn, kit.loop, &kit.options, NULL, NULL, &err), MISUSE);
}

static void greeted_with(const char *reply)
{
    kit.options.password = "hunter2";
    kit.options.db = 7;
    kit_connect();
    run_until(kit.loop, kit.conn->state == GREETING);
    flush();
    fake_accept(&server);
    fake_say(&server, reply);
    run_until(kit.loop, kit.down || kit.up);
}

static void a_wrong_password_brings_it_down(void **state)
{
    (void)state;
    greeted_with("-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    assert_int_equal(kit.up, 0);
    assert_status(kit.why.status, REFUSED);
    assert_true(has(&kit.why, "logging in: user or password is wrong"));
    assert_true(has(&kit.why, "127.0.0.1:"));
}

static void no_error_repeats_the_password(void **state)
{
    (void)state;
    greeted_with("-ERR unknown command 'AUTH', with args beginning with: 'hunter2' \r\n");
    assert_int_equal(kit.up, 0);
    assert_false(has(&kit.why, "hunter2"));
}

static void nor_does_one_we_have_never_seen(void **state)
{
    (void)state;
    greeted_with("-ERR strange thing hunter2\r\n");
    assert_status(kit.why.status, REFUSED);
    assert_false(has(&kit.why, "hunter2"));
}

static void without_its_database_it_does_not_come_up(void **state)
{
    (void)state;
    greeted_with("+OK\r\n-ERR DB index is out of range\r\n");
    assert_int_equal(kit.up, 0);
    assert_status(kit.why.status, REFUSED);
    assert_true(has(&kit.why, "no database of this number"));
}

static void without_its_name_it_does(void **state)
{
    (void)state;
    greeted_with("+OK\r\n+OK\r\n-NOPERM this user has no permissions\r\n");
    assert_int_equal(kit.up, 1);
}

static void an_echo_is_no_redis(void **state)
{
    (void)state;
    greeted_with("*2\r\n$4\r\nAUTH\r\n$7\r\nhunter2\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n7\r\n" SETNAME);
    assert_int_equal(kit.up, 0);
    assert_true(has(&kit.why, "not Redis"));
}

static void a_server_that_is_full_says_so(void **state)
{
    (void)state;
    greeted_with("-ERR max number of clients reached\r\n");
    assert_status(kit.why.status, UNREACHABLE);
    assert_true(has(&kit.why, "maxclients"));
}

static void who_accepts_and_says_nothing_is_left(void **state)
{
    (void)state;
    kit_connect();
    run_until(kit.loop, kit.conn->state == GREETING);
    kit_grow_late();
    run_until(kit.loop, kit.down);
    assert_status(kit.why.status, UNREACHABLE);
    assert_true(has(&kit.why, "does not answer"));
}

/* ---- requests and answers ---- */

static void answers_come_in_order(void **state)
{
    struct heard a, b, ping;

    (void)state;
    connect_up();
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    kit_ask(&ping, "PING");
    flush();
    fake_hear(&server, GET_A GET_B PING);
    fake_say(&server, "$-1\r\n*2\r\n:1\r\n$2\r\nab\r\n+PONG\r\n");
    run_until(kit.loop, ping.times);
    assert_int_equal(a.type, REDIS_REPLY_NIL);
    assert_int_equal(b.elements, 2);
    assert_string_equal(ping.text, "PONG");
    assert_true(a.order == 1 && b.order == 2 && ping.order == 3);
}

static void a_reply_may_come_byte_by_byte(void **state)
{
    static const char reply[] = "*3\r\n$5\r\nhello\r\n:-42\r\n*1\r\n+OK\r\n-ERR no\r\n";
    struct heard a, b;

    (void)state;
    connect_up();
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    flush();
    for (size_t i = 0; i < sizeof reply - 1; i++) {
        fake_say_bytes(&server, reply + i, 1);
        net_settle(kit.loop);
    }
    run_until(kit.loop, b.times);
    assert_int_equal(a.elements, 3);
    assert_status(b.err.status, REFUSED);
    assert_true(has(&b.err, "the server says: ERR no"));
}

static void errors_come_with_their_meaning_and_words(void **state)
{
    struct heard a;

    (void)state;
    connect_up();
    kit_ask(&a, "GET a");
    flush();
    fake_say(&server, "-MOVED 3999 127.0.0.1:6381\r\n");
    run_until(kit.loop, a.times);
    assert_int_equal(a.type, REDIS_REPLY_ERROR);
    assert_int_equal(a.fault, FAULT_MOVED);
    assert_string_equal(a.text, "MOVED 3999 127.0.0.1:6381");
    assert_status(a.err.status, UNREACHABLE);
    assert_true(has(&a.err, "127.0.0.1:6381"));
}

static void each_error_has_a_status_and_a_sentence(void **state)
{
    static const struct {
        const char *words;
        enum stile_status status;
        const char *sentence;
    } errors[] = {
        {"LOADING Redis is loading the dataset in memory", STILE_UNREACHABLE, "still loading"},
        {"BUSY Redis is busy running a script.", STILE_UNREACHABLE, "SCRIPT KILL"},
        {"READONLY You can't write against a read only replica.", STILE_REFUSED, "replica"},
        {"OOM command not allowed when used memory > 'maxmemory'.", STILE_REFUSED, "maxmemory"},
        {"MASTERDOWN Link with MASTER is down", STILE_UNREACHABLE, "lost its primary"},
        {"NOAUTH Authentication required.", STILE_REFUSED, "wants a password"},
        {"NOPERM User x has no permissions to run the 'eval' command", STILE_REFUSED, "'eval'"},
        {"WRONGTYPE Operation against a key", STILE_REFUSED, "no lock"},
        {"ASK 1 127.0.0.1:1", STILE_UNREACHABLE, "127.0.0.1:1"},
        {"CLUSTERDOWN Hash slot not served", STILE_UNREACHABLE, "Cluster is down"},
        {"TRYAGAIN Multiple keys request during rehashing", STILE_UNREACHABLE, "moving"},
        {"CROSSSLOT Keys in request don't hash", STILE_REFUSED, "slots"},
        {"MISCONF Errors writing to the AOF file", STILE_REFUSED, "disk"},
        {"NOREPLICAS Not enough good replicas to write.", STILE_UNREACHABLE, "replicas"},
        {"DENIED Redis is running in protected mode", STILE_REFUSED, "protected"},
        {"ERR unknown command 'x'", STILE_UNSUPPORTED, "too old"},
        {"ERR Error running script (call to f_1): @user_script:1: WRONGTYPE x", STILE_REFUSED,
         "no lock"},
        {"ERR \x01\xff", STILE_REFUSED, "ERR ??"},
    };
    struct heard a;
    char line[128];

    (void)state;
    connect_up();
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        kit_ask(&a, "GET a");
        flush();
        snprintf(line, sizeof line, "-%s\r\n", errors[i].words);
        fake_say(&server, line);
        run_until(kit.loop, a.times);
        assert_string_equal(stile_status_name(a.err.status), stile_status_name(errors[i].status));
        if (!has(&a.err, errors[i].sentence))
            fail_msg("\"%s\" lacks \"%s\"", a.err.message, errors[i].sentence);
    }
}

static void who_is_forgotten_hears_nothing(void **state)
{
    struct heard a, b;

    (void)state;
    connect_up();
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    conn_forget(kit.conn, &a);
    flush();
    fake_say(&server, ":1\r\n:2\r\n");
    run_until(kit.loop, b.times);
    assert_int_equal(a.times, 0);
    assert_int_equal(b.integer, 2);
}

static void too_many_requests_are_refused(void **state)
{
    static struct heard heard;
    struct conn_arg ping = CONN_TEXT("PING");
    struct stile_error err;

    (void)state;
    kit_connect();
    for (unsigned i = 0; i < CONN_PENDING_MAX; i++)
        assert_status(conn_send(kit.conn, &ping, 1, kit_hear, &heard, NULL), OK);
    assert_status(conn_send(kit.conn, &ping, 1, kit_hear, &heard, &err), REFUSED);
    assert_true(has(&err, "too many requests"));
}

static void too_many_bytes_are_refused(void **state)
{
    static char big[1 << 20];
    static struct heard heard;
    struct conn_arg arg = {big, sizeof big};
    enum stile_status status = STILE_OK;
    unsigned n = 0;

    (void)state;
    kit_connect();
    while (!status && n++ < 100)
        status = conn_send(kit.conn, &arg, 1, kit_hear, &heard, NULL);
    assert_status(status, REFUSED);
    assert_int_equal(n, 16);
}

/* ---- what a server may not do ---- */

/* LESSONS row 37: whatever comes, it ends the connection with a sentence. */
static void ends_with(const char *bytes, const char *sentence)
{
    struct heard a;
    unsigned down = kit.down;

    kit_ask(&a, "GET a");
    flush();
    fake_hear(&server, GET_A);
    fake_say(&server, bytes);
    run_until(kit.loop, kit.down > down);
    assert_status(kit.why.status, REFUSED);
    if (!has(&kit.why, sentence))
        fail_msg("\"%s\" lacks \"%s\"", kit.why.message, sentence);
    assert_status(a.err.status, UNCERTAIN);
    welcome();
}

static void bad_bytes_end_it(void **state)
{
    (void)state;
    connect_up();
    ends_with("HTTP/1.1 400 Bad Request\r\n\r\n", "not Redis");
    ends_with("\x15\x03\x03", "speaks TLS");
    ends_with("$x\r\n", "not Redis");
    ends_with("*1\r\n!\r\n", "not Redis");
    ends_with(":12x\r\n", "not Redis");
}

static void promises_too_big_to_keep_end_it(void **state)
{
    (void)state;
    connect_up();
    ends_with("$2147483648\r\n", "too many bytes");
    ends_with("$1048577\r\n", "too many bytes");
    ends_with("*2147483647\r\n", "too many elements");
    ends_with("*65537\r\n", "too many elements");
}

static void nested_arrays_count_together(void **state)
{
    struct heard a;
    char part[] = "*60000\r\n";

    (void)state;
    connect_up();
    kit_ask(&a, "GET a");
    flush();
    fake_say(&server, part);
    fake_say(&server, part);
    run_until(kit.loop, kit.down);
    assert_true(has(&kit.why, "too many elements"));
}

static void nesting_ends_somewhere(void **state)
{
    (void)state;
    connect_up();
    ends_with("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "not Redis");
}

static void the_largest_string_is_taken(void **state)
{
    static char big[RESP_BULK_MAX];
    struct heard a;

    (void)state;
    connect_up();
    memset(big, 'x', sizeof big);
    kit_ask(&a, "GET a");
    flush();
    fake_say(&server, "$1048576\r\n");
    for (size_t at = 0; at < sizeof big; at += 65536) {
        fake_say_bytes(&server, big + at, 65536);
        net_settle(kit.loop);
    }
    fake_say(&server, "\r\n");
    run_until(kit.loop, a.times);
    assert_int_equal(a.type, REDIS_REPLY_STRING);
}

static void a_line_without_end_ends_it(void **state)
{
    static char big[65536];
    struct heard a;

    (void)state;
    connect_up();
    memset(big, 'x', sizeof big);
    kit_ask(&a, "GET a");
    flush();
    fake_say(&server, "+");
    for (int i = 0; i < 20 && !kit.down; i++) {
        fake_say_bytes(&server, big, sizeof big);
        net_settle(kit.loop);
    }
    run_until(kit.loop, kit.down);
    assert_true(has(&kit.why, "too many bytes"));
}

static void an_answer_nobody_asked_for_ends_it(void **state)
{
    (void)state;
    connect_up();
    fake_say(&server, "+OK\r\n");
    run_until(kit.loop, kit.down);
    assert_true(has(&kit.why, "nobody asked for"));
}

/* ---- breaking ---- */

/* LESSONS row 9. */
static void what_was_sent_is_in_doubt_and_what_was_not_is_not(void **state)
{
    struct heard sent, unsent;

    (void)state;
    connect_up();
    kit_ask(&sent, "GET a");
    flush();
    fake_hear(&server, GET_A);
    fake_hang_up(&server);
    kit_ask(&unsent, "GET b");
    loop_wait(kit.loop, true); /* the end is seen before anything is flushed */
    loop_run(kit.loop);
    run_until(kit.loop, unsent.times);
    assert_status(sent.err.status, UNCERTAIN);
    assert_true(has(&sent.err, "the connection broke"));
    assert_status(unsent.err.status, UNREACHABLE);
    assert_true(sent.order == 1 && unsent.order == 2 && kit.down == 1);
}

static void what_left_in_part_was_not_executed(void **state)
{
    static char big[8 << 20];
    static struct heard heard;
    struct conn_arg arg = {big, sizeof big};

    (void)state;
    connect_up();
    assert_status(conn_send(kit.conn, &arg, 1, kit_hear, &heard, NULL), OK);
    flush();
    assert_in_range(stream_sent(kit.conn->stream), 1, sizeof big);
    fake_reset(&server);
    run_until(kit.loop, heard.times);
    assert_status(heard.err.status, UNREACHABLE);
}

static void closed_in_the_middle_of_a_reply(void **state)
{
    struct heard a;

    (void)state;
    connect_up();
    kit_ask(&a, "GET a");
    flush();
    fake_hear(&server, GET_A);
    fake_say(&server, "*2\r\n$5\r\nhel");
    net_settle(kit.loop);
    fake_hang_up(&server);
    run_until(kit.loop, a.times);
    assert_status(a.err.status, UNCERTAIN);
}

static void it_comes_back_by_itself(void **state)
{
    struct heard a;

    (void)state;
    connect_up();
    fake_reset(&server);
    run_until(kit.loop, kit.down);
    welcome();
    assert_int_equal(kit.up, 2);
    kit_ask(&a, "GET a");
    flush();
    fake_hear(&server, GET_A);
    fake_say(&server, ":5\r\n");
    run_until(kit.loop, a.times);
    assert_int_equal(a.integer, 5);
}

static void between_two_attempts_requests_fail_at_once(void **state)
{
    struct heard a;

    (void)state;
    fake_free(&server);
    kit_connect();
    fail_attempts(8);
    loop_arm(kit.loop, &kit.conn->retry, NEVER);
    kit_ask(&a, "GET a");
    net_settle(kit.loop);
    assert_int_equal(a.times, 1);
    assert_status(a.err.status, UNREACHABLE);
    assert_int_equal(a.err.native, ECONNREFUSED);
    assert_true(has(&a.err, "127.0.0.1:"));
}

static void pauses_grow_and_differ(void **state)
{
    uint64_t longest_ns = 0;

    (void)state;
    fake_free(&server);
    kit_connect();
    for (unsigned i = 1; i < 14; i++) {
        fail_attempts(i);
        uint64_t pause_ns = kit.conn->retry.at_ns - loop_now(kit.loop);
        uint64_t most_ns = (20 * NS_PER_MS) << (i - 1);
        if (kit.conn->retry.at_ns > loop_now(kit.loop) && pause_ns > longest_ns)
            longest_ns = pause_ns;
        assert_true(kit.conn->retry.at_ns <= loop_now(kit.loop) ||
                    pause_ns <= (most_ns < 2 * NS_PER_SEC ? most_ns : 2 * NS_PER_SEC));
    }
    assert_true(longest_ns > 40 * NS_PER_MS);
}

/* ---- no answer ---- */

static void late_is_in_doubt_and_its_answer_is_dropped(void **state)
{
    struct heard late, next;

    (void)state;
    connect_up();
    kit_ask(&late, "GET a");
    flush();
    fake_hear(&server, GET_A);
    kit_grow_late();
    run_until(kit.loop, late.times);
    assert_status(late.err.status, UNCERTAIN);
    assert_true(has(&late.err, "no answer in time"));
    assert_int_equal(kit.down, 0);
    kit_ask(&next, "GET b");
    flush();
    fake_hear(&server, GET_B);
    fake_say(&server, ":1\r\n:2\r\n");
    run_until(kit.loop, next.times);
    assert_int_equal(next.integer, 2);
    assert_int_equal(late.times, 1);
    assert_int_equal(kit.down, 0);
}

static void silence_for_long_ends_it(void **state)
{
    struct heard a;

    (void)state;
    kit.options.answer_ns = 10 * NS_PER_MS;
    connect_up();
    kit_ask(&a, "GET a");
    assert_int_equal(kit.conn->overdue.at_ns, kit.conn->sent.first->until_ns);
    run_until(kit.loop, kit.down);
    assert_true(has(&kit.why, "has not answered for 40 ms"));
    assert_int_equal(a.times, 1);
}

static void waiting_for_a_connection_ends_in_time_too(void **state)
{
    struct heard a;

    (void)state;
    kit.options.answer_ns = 10 * NS_PER_MS;
    kit_connect(); /* accepted by the kernel, greeted by nobody */
    kit_ask(&a, "GET a");
    run_until(kit.loop, a.times);
    assert_status(a.err.status, UNREACHABLE);
    assert_true(has(&a.err, "no connection in time"));
}

static void the_timer_is_left_alone_by_requests_that_come_and_go(void **state)
{
    struct heard a;

    (void)state;
    connect_up();
    kit_ask(&a, "GET a");
    flush();
    uint64_t at_ns = kit.conn->overdue.at_ns, armed_ns = kit.loop->armed_ns;
    fake_say(&server, ":1\r\n");
    run_until(kit.loop, a.times);
    for (int i = 0; i < 3; i++) {
        kit_ask(&a, "GET a");
        flush();
        assert_int_equal(kit.conn->overdue.at_ns, at_ns);
        fake_say(&server, ":1\r\n");
        loop_wait(kit.loop, true);
        loop_run(kit.loop);
        assert_int_equal(a.times, 1);
    }
    assert_int_equal(kit.loop->armed_ns, armed_ns);
}

/* ---- scripts ---- */

#define SHA_ONE  "e0e1f9fabfc9d4800c877a703b823ac0578ff8db" /* of "return 1" */
#define SHA_TWO  "7f923f79fe76194c868d7e1d0820de36700eb649" /* of "return 2" */
#define EVAL_ONE "*4\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n1\r\n$1\r\n"
#define EVAL_TWO "*4\r\n$4\r\nEVAL\r\n$8\r\nreturn 2\r\n$1\r\n1\r\n$1\r\n"
#define NAME_ONE "*4\r\n$7\r\nEVALSHA\r\n$40\r\n" SHA_ONE "\r\n$1\r\n1\r\n$1\r\n"
#define NAME_TWO "*4\r\n$7\r\nEVALSHA\r\n$40\r\n" SHA_TWO "\r\n$1\r\n1\r\n$1\r\n"
#define NOSCRIPT "-NOSCRIPT No matching script. Please use EVAL.\r\n"

static struct lua one, two;

static void know_scripts(void)
{
    struct heard a, b;

    lua_init(&one, "return 1");
    lua_init(&two, "return 2");
    assert_string_equal(one.sha1, SHA_ONE);
    assert_string_equal(two.sha1, SHA_TWO);
    connect_up();
    kit_eval(&a, &one, "a");
    kit_eval(&b, &two, "b");
    flush();
    fake_hear(&server, EVAL_ONE "a\r\n" EVAL_TWO "b\r\n");
    fake_say(&server, ":1\r\n:2\r\n");
    run_until(kit.loop, b.times);
}

static void the_source_is_sent_once(void **state)
{
    struct heard a, b;

    (void)state;
    know_scripts();
    kit_eval(&a, &one, "c");
    kit_eval(&b, &two, "d");
    flush();
    fake_hear(&server, NAME_ONE "c\r\n" NAME_TWO "d\r\n");
}

static void and_again_on_the_next_connection(void **state)
{
    struct heard a;

    (void)state;
    know_scripts();
    fake_hang_up(&server);
    run_until(kit.loop, kit.down);
    welcome();
    kit_eval(&a, &one, "c");
    flush();
    fake_hear(&server, EVAL_ONE "c\r\n");
}

static void what_was_forgotten_is_sent_again_in_order(void **state)
{
    struct heard a, get, b, later, last;

    (void)state;
    know_scripts();
    kit_eval(&a, &one, "c");
    kit_ask(&get, "GET a");
    kit_eval(&b, &two, "d");
    flush();
    fake_hear(&server, NAME_ONE "c\r\n" GET_A NAME_TWO "d\r\n");
    fake_say(&server, NOSCRIPT);
    net_settle(kit.loop);
    kit_eval(&later, &one, "e"); /* must not overtake what may have to be sent again */
    kit_ask(&last, "GET b");
    flush();
    fake_say(&server, ":7\r\n" NOSCRIPT);
    run_until(kit.loop, get.times);
    flush();
    fake_hear(&server, EVAL_ONE "c\r\n" EVAL_TWO "d\r\n" NAME_ONE "e\r\n" GET_B);
    assert_int_equal(a.times + b.times, 0);
    fake_say(&server, ":1\r\n:2\r\n:3\r\n:4\r\n");
    run_until(kit.loop, last.times);
    assert_true(a.integer == 1 && b.integer == 2 && later.integer == 3 && last.integer == 4);
    assert_true(get.order < a.order && a.order < b.order && b.order < later.order);
}

static void who_forgets_for_ever_is_not_asked_for_ever(void **state)
{
    struct heard a;

    (void)state;
    know_scripts();
    kit_eval(&a, &one, "c");
    flush();
    fake_hear(&server, NAME_ONE "c\r\n");
    fake_say(&server, NOSCRIPT);
    net_settle(kit.loop);
    fake_hear(&server, EVAL_ONE "c\r\n");
    fake_say(&server, NOSCRIPT);
    run_until(kit.loop, a.times);
    assert_status(a.err.status, UNREACHABLE);
    assert_int_equal(a.fault, FAULT_NO_SCRIPT);
}

static void forgotten_and_broken_was_not_executed(void **state)
{
    struct heard a, get;

    (void)state;
    know_scripts();
    kit_eval(&a, &one, "c");
    kit_ask(&get, "GET a");
    flush();
    fake_hear(&server, NAME_ONE "c\r\n" GET_A);
    fake_say(&server, NOSCRIPT);
    net_settle(kit.loop);
    fake_hang_up(&server);
    run_until(kit.loop, a.times);
    assert_status(a.err.status, UNREACHABLE);
    assert_status(get.err.status, UNCERTAIN);
}

/* ---- channels ---- */

#define SUBSCRIBE_X "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nx\r\n"
#define SUBSCRIBED  "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n"

static void messages_come_as_they_are(void **state)
{
    (void)state;
    kit_connect();
    assert_status(conn_subscribe(kit.conn, "x", 1, NULL), OK);
    welcome();
    flush();
    fake_hear(&server, SUBSCRIBE_X);
    fake_say(&server, SUBSCRIBED "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$5\r\nhello\r\n");
    fake_say(&server, "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$0\r\n\r\n");
    run_until(kit.loop, strstr(kit.heard, "x= "));
    assert_string_equal(kit.heard, "+x x=hello x= ");
}

static void subscriptions_are_renewed(void **state)
{
    struct conn_arg ping = CONN_TEXT("PING");

    (void)state;
    connect_up();
    assert_status(conn_subscribe(kit.conn, "x", 1, NULL), OK);
    assert_status(conn_subscribe(kit.conn, "gone", 4, NULL), OK);
    conn_unsubscribe(kit.conn, "gone", 4);
    flush();
    fake_hear(&server, SUBSCRIBE_X "*2\r\n$9\r\nSUBSCRIBE\r\n$4\r\ngone\r\n"
                                   "*2\r\n$11\r\nUNSUBSCRIBE\r\n$4\r\ngone\r\n");
    fake_say(&server, SUBSCRIBED);
    run_until(kit.loop, kit.heard[0]);
    assert_status(conn_send(kit.conn, &ping, 1, kit_hear, NULL, NULL), MISUSE);
    fake_hang_up(&server);
    run_until(kit.loop, kit.down);
    welcome();
    flush();
    fake_hear(&server, SUBSCRIBE_X);
    fake_say(&server, SUBSCRIBED);
    run_until(kit.loop, strcmp(kit.heard, "+x +x ") == 0);
}

static void a_channel_that_is_not_allowed_brings_it_down(void **state)
{
    (void)state;
    connect_up();
    assert_status(conn_subscribe(kit.conn, "x", 1, NULL), OK);
    flush();
    fake_say(&server, "-NOPERM No permissions to access a channel\r\n");
    run_until(kit.loop, kit.down);
    assert_status(kit.why.status, REFUSED);
    assert_true(has(&kit.why, "access a channel"));
}

static void what_is_no_message_ends_it(void **state)
{
    (void)state;
    connect_up();
    assert_status(conn_subscribe(kit.conn, "x", 1, NULL), OK);
    fake_say(&server, "*3\r\n:1\r\n:2\r\n:3\r\n");
    run_until(kit.loop, kit.down);
    assert_true(has(&kit.why, "nobody asked for"));
}

/* ---- the end, anywhere ---- */

static void freed_in(const char *event)
{
    struct heard a, b;

    kit.free_in = event;
    kit_connect();
    run_until(kit.loop, kit.conn->state == GREETING);
    flush();
    fake_accept(&server);
    fake_say(&server, "+OK\r\n");
    run_until(kit.loop, kit.up);
    if (kit.conn) {
        kit_ask(&a, "GET a");
        kit_ask(&b, "GET b");
        flush();
        fake_say(&server, strcmp(event, "reply") == 0 ? ":1\r\n:2\r\n" : "?");
        run_until(kit.loop, !kit.conn);
    }
    net_settle(kit.loop);
}

static void freed_in_up(void **state)
{
    (void)state;
    freed_in("up");
}

static void freed_in_a_reply(void **state)
{
    (void)state;
    freed_in("reply");
    assert_int_equal(kit.answers, 1);
}

static void freed_in_down(void **state)
{
    (void)state;
    freed_in("down");
    assert_int_equal(kit.answers, 2);
}

static void freed_as_it_breaks(void **state)
{
    struct heard a, b;

    (void)state;
    connect_up();
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    flush();
    kit.free_in = "reply";
    fake_hang_up(&server);
    run_until(kit.loop, !kit.conn);
    assert_true(kit.answers == 1 && kit.down == 0);
}

static void freed_when_overdue(void **state)
{
    struct heard a, b;

    (void)state;
    connect_up();
    kit.free_in = "reply";
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    kit_grow_late();
    run_until(kit.loop, !kit.conn);
    assert_int_equal(kit.answers, 1);
}

static void freed_in_a_message(void **state)
{
    (void)state;
    kit.free_in = "message";
    connect_up();
    assert_status(conn_subscribe(kit.conn, "x", 1, NULL), OK);
    fake_say(&server, "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n1\r\n"
                      "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n2\r\n");
    run_until(kit.loop, !kit.conn);
    assert_string_equal(kit.heard, "x=1 ");
}

static void it_moves(void **state)
{
    struct fake other;
    struct heard sent, kept;
    struct stile_error why = {.status = STILE_UNREACHABLE, .message = "a new primary"};

    (void)state;
    connect_up();
    fake_listen(&other);
    kit_ask(&sent, "GET a");
    flush();
    assert_status(conn_move(kit.conn, "127.0.0.1", other.port, &why, NULL), OK);
    kit_ask(&kept, "GET b");
    assert_int_equal(kit.down, 0);
    run_until(kit.loop, kit.down);
    assert_status(sent.err.status, UNCERTAIN);
    assert_true(has(&kit.why, "a new primary"));
    fake_free(&server);
    server = other;
    welcome();
    flush();
    fake_hear(&server, GET_B);
    assert_int_equal(kept.times, 0);
}

static void it_moves_away_from_one_that_is_down(void **state)
{
    struct fake other;
    struct heard kept;
    struct stile_error why = {.status = STILE_UNREACHABLE, .message = "a new primary"};

    (void)state;
    fake_listen(&other);
    fake_free(&server);
    kit_connect();
    fail_attempts(3);
    assert_status(conn_move(kit.conn, "127.0.0.1", other.port, &why, NULL), OK);
    kit_ask(&kept, "GET b");
    server = other;
    welcome();
    flush();
    fake_hear(&server, GET_B);
    assert_int_equal(kept.times, 0);
    assert_int_equal(kit.down, 4);
}

static void a_forked_child_leaves_it_alone(void **state)
{
    struct heard a;
    int status;

    (void)state;
    connect_up();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        conn_forked(kit.conn);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    kit_ask(&a, "GET a");
    flush();
    fake_hear(&server, GET_A);
    fake_say(&server, ":1\r\n");
    run_until(kit.loop, a.times);
    assert_int_equal(a.integer, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(greeting_comes_first_and_is_waited_for),
        TEST(a_password_alone_is_for_the_default_user),
        TEST(a_user_without_password_is_misuse),
        TEST(a_wrong_password_brings_it_down),
        TEST(no_error_repeats_the_password),
        TEST(nor_does_one_we_have_never_seen),
        TEST(without_its_database_it_does_not_come_up),
        TEST(without_its_name_it_does),
        TEST(an_echo_is_no_redis),
        TEST(a_server_that_is_full_says_so),
        TEST(who_accepts_and_says_nothing_is_left),
        TEST(answers_come_in_order),
        TEST(a_reply_may_come_byte_by_byte),
        TEST(errors_come_with_their_meaning_and_words),
        TEST(each_error_has_a_status_and_a_sentence),
        TEST(who_is_forgotten_hears_nothing),
        TEST(too_many_requests_are_refused),
        TEST(too_many_bytes_are_refused),
        TEST(bad_bytes_end_it),
        TEST(promises_too_big_to_keep_end_it),
        TEST(nested_arrays_count_together),
        TEST(nesting_ends_somewhere),
        TEST(the_largest_string_is_taken),
        TEST(a_line_without_end_ends_it),
        TEST(an_answer_nobody_asked_for_ends_it),
        TEST(what_was_sent_is_in_doubt_and_what_was_not_is_not),
        TEST(what_left_in_part_was_not_executed),
        TEST(closed_in_the_middle_of_a_reply),
        TEST(it_comes_back_by_itself),
        TEST(between_two_attempts_requests_fail_at_once),
        TEST(pauses_grow_and_differ),
        TEST(late_is_in_doubt_and_its_answer_is_dropped),
        TEST(silence_for_long_ends_it),
        TEST(waiting_for_a_connection_ends_in_time_too),
        TEST(the_timer_is_left_alone_by_requests_that_come_and_go),
        TEST(the_source_is_sent_once),
        TEST(and_again_on_the_next_connection),
        TEST(what_was_forgotten_is_sent_again_in_order),
        TEST(who_forgets_for_ever_is_not_asked_for_ever),
        TEST(forgotten_and_broken_was_not_executed),
        TEST(messages_come_as_they_are),
        TEST(subscriptions_are_renewed),
        TEST(a_channel_that_is_not_allowed_brings_it_down),
        TEST(what_is_no_message_ends_it),
        TEST(freed_in_up),
        TEST(freed_in_a_reply),
        TEST(freed_in_down),
        TEST(freed_as_it_breaks),
        TEST(freed_when_overdue),
        TEST(freed_in_a_message),
        TEST(it_moves),
        TEST(it_moves_away_from_one_that_is_down),
        TEST(a_forked_child_leaves_it_alone),
    };

    return cmocka_run_group_tests_name("redis-conn", tests, NULL, NULL);
}
