/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* postgres_session URL: a client that lives for long on a server where things go wrong, and what it
 * has in the server meanwhile. Another connection looks, and does the harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <libpq-fe.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stile.h"

#define PATIENCE_MS 30000
#define MANY        200

static const char *url;
static PGconn *admin;
static struct stile_error why;

#define check(want, call) check_at(want, call, #call, __LINE__)

static void check_at(enum stile_status want, enum stile_status got, const char *call, int line)
{
    if (want != got)
        print_error("%s\n    is %s, not %s: %s\n", call, stile_status_name(got),
                    stile_status_name(want), why.message);
    if (want != got)
        _fail(__FILE__, line);
}

/* ---- the other connection ---- */

static char answer[256];

static const char *sql(const char *text)
{
    PGresult *result = PQexec(admin, text);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        fail_msg("%s: %s", text, PQerrorMessage(admin));
    snprintf(answer, sizeof answer, "%s", PQntuples(result) ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
    return answer;
}

#define SESSIONS "from pg_stat_activity where application_name like 'stile%'"
#define LOCKS    "from pg_locks where locktype = 'advisory'"

/* For what the server does in its own time. */
static void until(const char *text, const char *wanted)
{
    struct timespec tick = {.tv_nsec = 5000000};
    for (int i = 0; i < PATIENCE_MS / 5; i++) {
        if (strcmp(sql(text), wanted) == 0)
            return;
        nanosleep(&tick, NULL);
    }
    fail_msg("%s: %s, not %s", text, answer, wanted);
}

/* ---- clients ---- */

static struct stile_client *client;

/* What the server has of the test before takes a moment to go, and would be counted. */
static int open_client(void **state)
{
    (void)state;
    until("select count(*) " SESSIONS, "0");
    return stile_client_open(&client, url, NULL, &why) != STILE_OK;
}

static int close_client(void **state)
{
    (void)state;
    stile_client_close(client);
    return 0;
}

static struct stile_client *open_with(const char *params)
{
    struct stile_client *other;
    char text[512];
    snprintf(text, sizeof text, "%s?%s", url, params);
    check(STILE_OK, stile_client_open(&other, text, NULL, &why));
    return other;
}

static struct stile_lock *lock_on(struct stile_client *of, const char *name,
                                  const struct stile_lock_options *options)
{
    struct stile_lock *lock;
    check(STILE_OK, stile_lock_new(&lock, of, name, options, &why));
    return lock;
}

static struct stile_lock *held_on(struct stile_client *of, const char *name,
                                  const struct stile_lock_options *options)
{
    struct stile_lock *lock = lock_on(of, name, options);
    check(STILE_OK, stile_lock_acquire(lock, 0, &why));
    return lock;
}

static bool is_lost(struct stile_lock *lock)
{
    struct pollfd p = {.fd = stile_lock_lost_fd(lock), .events = POLLIN};
    return poll(&p, 1, PATIENCE_MS) == 1;
}

struct waiting {
    pthread_t thread;
    struct stile_lock *lock;
    enum stile_status status;
};

static void *wait_for_it(void *data)
{
    struct waiting *w = data;
    w->status = stile_lock_acquire(w->lock, PATIENCE_MS, NULL);
    return NULL;
}

/* ---- many at once ---- */

#define BURST 5000

static _Atomic int answered, granted;

static void count_answer(struct stile_lock *lock, enum stile_status status,
                         const struct stile_error *err, void *data)
{
    (void)lock, (void)data;
    if (status && granted == answered)
        why = *err;
    granted += status == STILE_OK;
    answered++;
}

static void burst(const char *params)
{
    struct stile_client *other = open_with(params);
    struct timespec tick = {.tv_nsec = 5000000};
    char name[24];
    answered = granted = 0;
    for (int i = 0; i < BURST; i++) {
        snprintf(name, sizeof name, "burst%d", i);
        check(STILE_OK, stile_lock_acquire_async(lock_on(other, name, NULL), 2 * PATIENCE_MS,
                                                 count_answer, NULL));
    }
    for (int i = 0; i < 2 * PATIENCE_MS / 5 && answered < BURST; i++)
        nanosleep(&tick, NULL);
    assert_int_equal(answered, BURST);
    if (granted < BURST)
        fail_msg("%d were not granted: %s", BURST - granted, why.message);
    stile_client_close(other);
}

static void a_burst_is_queued(void **state)
{
    (void)state;
    burst("locks=6000");
}

static void a_burst_of_rows_is_queued(void **state)
{
    (void)state;
    burst("mode=table");
}

/* ---- jobs beside locks ---- */

/* Adding waits for a transaction that has the same key: what is held must not be lost by that. */
static void jobs_do_not_hold_up_renewals(void **state)
{
    const struct stile_lock_options *options = STILE_OPTIONS(.ttl_ms = 1500, .renew_ms = 300);
    struct stile_lock *locks[3] = {held_on(client, "ledger", options),
                                   held_on(client, "stock", options),
                                   held_on(client, "orders", options)};
    uint64_t id;
    (void)state;
    sql("begin");
    sql("select stile.job_add('mail', 'x', 'k1')");
    enum stile_status status =
        stile_jobs_add(&id, client, "mail", "y", 1, STILE_JOBS_OPTIONS(.key = "k1"), &why);
    assert_true(status == STILE_UNREACHABLE || status == STILE_UNCERTAIN);
    for (int i = 0; i < 3; i++)
        assert_true(stile_lock_held(locks[i]));
    sql("rollback");
    check(STILE_OK,
          stile_jobs_add(&id, client, "mail", "y", 1, STILE_JOBS_OPTIONS(.key = "k1"), &why));
    for (int i = 0; i < 3; i++)
        check(STILE_OK, stile_lock_release(locks[i], &why));
}

/* ---- what it has in the server ---- */

static void many_locks_share_a_session(void **state)
{
    struct stile_lock *locks[MANY];
    char name[16];
    (void)state;
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "many%d", i);
        locks[i] = held_on(client, name, NULL);
    }
    assert_string_equal(sql("select count(*) " LOCKS), "200");
    assert_true(atoi(sql("select count(*) " SESSIONS)) <= 3);
    for (int i = 0; i < MANY; i++)
        check(STILE_OK, stile_lock_release(locks[i], &why));
    assert_string_equal(sql("select count(*) " LOCKS), "0");
}

/* A claim that waited has its own session, which is reused, or closed when it is idle. */
static void waiters_sessions_are_used_again(void **state)
{
    struct stile_client *other = open_with("sessions=2");
    const struct stile_lock_options *options = STILE_OPTIONS(.ttl_ms = 1500, .renew_ms = 300);
    struct stile_lock *mine = lock_on(client, "x", options), *theirs = lock_on(other, "x", options);
    (void)state;
    for (int i = 0; i < 40; i++) {
        check(STILE_OK, stile_lock_acquire(mine, PATIENCE_MS, &why));
        check(STILE_TIMEOUT, stile_lock_acquire(theirs, 2, &why));
        check(STILE_OK, stile_lock_release(mine, &why));
        check(STILE_OK, stile_lock_acquire(theirs, PATIENCE_MS, &why));
        assert_true(atoi(sql("select count(*) " SESSIONS)) <= 4);
        check(STILE_OK, stile_lock_release(theirs, &why));
    }
    until("select count(*) " SESSIONS, "2");
    stile_client_close(other);
}

/* Beyond sessions= those that wait share the session that all share. */
static void waiters_beyond_the_limit_share_a_session(void **state)
{
    struct stile_client *other = open_with("sessions=2");
    struct stile_lock *held[8];
    struct waiting waiting[8];
    char name[16];
    (void)state;
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "limit%d", i);
        held[i] = held_on(client, name, NULL);
        waiting[i] = (struct waiting){.lock = lock_on(other, name, NULL)};
        assert_int_equal(pthread_create(&waiting[i].thread, NULL, wait_for_it, &waiting[i]), 0);
    }
    until("select count(*) from stile.waiting", "8");
    assert_true(atoi(sql("select count(*) " SESSIONS)) <= 4);
    for (int i = 0; i < 8; i++)
        check(STILE_OK, stile_lock_release(held[i], &why));
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pthread_join(waiting[i].thread, NULL), 0);
        check(STILE_OK, waiting[i].status);
    }
    assert_string_equal(sql("select count(*) from stile.waiting"), "0");
    stile_client_close(other);
}

/* The lease ends sessions that hold something and are silent, not those that are only idle. */
static void an_idle_client_stays_connected(void **state)
{
    struct timespec lease = {.tv_sec = 2, .tv_nsec = 500000000};
    struct stile_lock *lock = held_on(client, "x", STILE_OPTIONS(.ttl_ms = 1500, .renew_ms = 300));
    char before[256];
    (void)state;
    snprintf(before, sizeof before, "%s", sql("select min(pid) " SESSIONS));
    nanosleep(&lease, NULL);
    assert_true(stile_lock_held(lock));
    check(STILE_OK, stile_lock_release(lock, &why));
    nanosleep(&lease, NULL);
    assert_string_equal(sql("select min(pid) " SESSIONS), before);
    check(STILE_OK, stile_lock_acquire(lock, 0, &why));
    assert_in_range(stile_lock_remaining_ms(lock), 1, 1500);
    check(STILE_OK, stile_lock_release(lock, &why));
}

/* ---- errors ---- */

/* LESSONS 20: the advisory lock is taken before the row is written, and an error does not give it
 * back. */
static void an_error_leaves_nothing_behind(void **state)
{
    struct stile_lock *lock = lock_on(client, "x", NULL);
    (void)state;
    sql("alter table stile.lock rename to hidden");
    check(STILE_REFUSED, stile_lock_acquire(lock, 0, &why));
    assert_string_equal(sql("select count(*) " LOCKS), "0");
    check(STILE_REFUSED, stile_lock_acquire(lock, PATIENCE_MS, &why));
    assert_string_equal(sql("select count(*) " LOCKS), "0");
    sql("alter table stile.hidden rename to lock");
    check(STILE_OK, stile_lock_acquire(lock, 0, &why));
    check(STILE_OK, stile_lock_release(lock, &why));
}

/* "plumless" and "buckeroo" have the same crc32: a session would be given it twice. */
static void names_with_one_key_exclude(void **state)
{
    struct stile_client *other = open_with("dialect=django-pglocks");
    struct stile_lock *one = held_on(other, "plumless", NULL);
    struct stile_lock *two = lock_on(other, "buckeroo", NULL);
    (void)state;
    check(STILE_HELD, stile_lock_acquire(two, 0, &why));
    check(STILE_TIMEOUT, stile_lock_acquire(two, 50, &why));
    assert_string_equal(sql("select count(*) " LOCKS " and granted"), "1");
    check(STILE_OK, stile_lock_release(one, &why));
    check(STILE_OK, stile_lock_acquire(two, PATIENCE_MS, &why));
    check(STILE_HELD, stile_lock_acquire(one, 0, &why));
    check(STILE_OK, stile_lock_release(two, &why));
    assert_string_equal(sql("select count(*) " LOCKS), "0");
    stile_client_close(other);
}

/* ---- one name, again and again ---- */

#define AGAIN 100

/* In a database without our tables, where a pair is two bare statements. */
static struct stile_client *open_bare(void)
{
    struct stile_client *bare;
    char text[512];
    if (strcmp(sql("select count(*) from pg_database where datname = 'bare'"), "0") == 0)
        sql("create database bare");
    snprintf(text, sizeof text, "%.*s/bare", (int)(strrchr(url, '/') - url), url);
    check(STILE_OK, stile_client_open(&bare, text, NULL, &why));
    return bare;
}

static struct stile_lock *taken_often(struct stile_client *of, const char *name)
{
    struct stile_lock *lock = lock_on(of, name, NULL);
    for (int i = 0; i < AGAIN; i++) {
        check(STILE_OK, stile_lock_acquire(lock, 0, &why));
        check(STILE_OK, stile_lock_release(lock, &why));
    }
    assert_string_equal(sql("select count(*) " LOCKS), "0");
    return lock;
}

/* It has statements of its own by then; all others are still said by their own keys. */
static void a_favourite_is_no_other(void **state)
{
    struct stile_client *one = open_bare(), *two = open_bare();
    struct stile_lock *often = taken_often(one, "often"), *seldom = lock_on(one, "seldom", NULL);
    struct stile_lock *often_too = lock_on(two, "often", NULL);
    struct stile_lock *seldom_too = lock_on(two, "seldom", NULL);
    (void)state;
    check(STILE_OK, stile_lock_acquire(often, 0, &why));
    check(STILE_OK, stile_lock_acquire(seldom, 0, &why));
    check(STILE_HELD, stile_lock_acquire(often_too, 0, &why));
    check(STILE_HELD, stile_lock_acquire(seldom_too, 0, &why));
    check(STILE_OK, stile_lock_release(seldom, &why));
    check(STILE_OK, stile_lock_acquire(seldom_too, 0, &why));
    check(STILE_HELD, stile_lock_acquire(often_too, 0, &why));
    assert_string_equal(sql("select count(*) " LOCKS), "2");
    check(STILE_OK, stile_lock_release(often, &why));
    check(STILE_OK, stile_lock_acquire(often_too, 0, &why));
    stile_client_close(two);
    stile_client_close(one);
    until("select count(*) " LOCKS, "0");
}

static void a_favourite_may_be_any_number(void **state)
{
    struct stile_client *bare = open_bare();
    (void)state;
    taken_often(bare, "#-9223372036854775808");
    stile_client_close(bare);
}

static void a_favourite_ends_with_its_session(void **state)
{
    struct stile_client *bare = open_bare();
    struct stile_lock *often = taken_often(bare, "often");
    (void)state;
    check(STILE_OK, stile_lock_acquire(often, 0, &why));
    sql("select pg_terminate_backend(pid) " SESSIONS " and datname = 'bare'");
    assert_true(is_lost(often));
    check(STILE_LOST, stile_lock_release(often, &why));
    check(STILE_OK, stile_lock_acquire(often, PATIENCE_MS, &why));
    assert_string_equal(sql("select count(*) " LOCKS), "1");
    check(STILE_OK, stile_lock_release(often, &why));
    assert_string_equal(sql("select count(*) " LOCKS), "0");
    stile_client_close(bare);
}

/* ---- sessions that end ---- */

#define OF_B "from stile.lock where name = 'b' and backend is not null"

static void a_session_takes_only_its_own_with_it(void **state)
{
    struct stile_client *other = open_with("sessions=9");
    struct stile_lock *a = held_on(other, "a", NULL), *b = held_on(client, "b", NULL);
    struct waiting w = {.lock = lock_on(client, "a", NULL)};
    (void)state;
    assert_int_equal(pthread_create(&w.thread, NULL, wait_for_it, &w), 0);
    until("select count(*) " LOCKS " and not granted", "1");
    check(STILE_OK, stile_lock_release(a, &why));
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    check(STILE_OK, w.status);
    /* A grant is described a moment later; until then nothing says whose session this is. */
    until("select count(*) " OF_B, "1");
    sql("select pg_terminate_backend(backend) " OF_B);
    assert_true(is_lost(b));
    check(STILE_LOST, stile_lock_release(b, &why));
    assert_non_null(strstr(why.message, "terminating connection"));
    assert_true(stile_lock_held(w.lock));
    check(STILE_OK, stile_lock_acquire(b, PATIENCE_MS, &why)); /* connects again */
    check(STILE_OK, stile_lock_release(w.lock, &why));
    stile_client_close(other);
}

/* The shared session ends while somebody waits on another: the wait goes on. And is cancelled
 * without it. */
static void waits_do_not_need_the_shared_session(void **state)
{
    struct stile_client *other = open_with("sessions=9");
    struct stile_lock *holder = held_on(other, "x", NULL);
    struct waiting w = {.lock = lock_on(client, "x", NULL)};
    (void)state;
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        assert_int_equal(pthread_create(&w.thread, NULL, wait_for_it, &w), 0);
        until("select count(*) " LOCKS " and not granted", "1");
        sql("select pg_terminate_backend(pid) " SESSIONS
            " and pid not in (select pid from pg_locks where locktype = 'advisory')");
        if (cancelled)
            check(STILE_OK, stile_lock_cancel(w.lock));
        else
            check(STILE_OK, stile_lock_release(holder, &why));
        assert_int_equal(pthread_join(w.thread, NULL), 0);
        check(cancelled ? STILE_CANCELLED : STILE_OK, w.status);
        if (!cancelled) {
            check(STILE_OK, stile_lock_release(w.lock, &why));
            check(STILE_OK, stile_lock_acquire(holder, PATIENCE_MS, &why));
        }
    }
    until("select count(*) " LOCKS " and not granted", "0");
    stile_client_close(other);
    assert_string_equal(sql("select count(*) " LOCKS), "0");
}

/* ---- holds ---- */

/* A waiter with the lock of a name that is held back releases it when it gives up, and notices when
 * an administrator ends the hold. */
static void sitting_on_a_hold(void **state)
{
    struct stile_lock *lock = held_on(client, "x", STILE_OPTIONS(.hold_at_least_ms = 600000));
    struct waiting w = {.lock = lock_on(client, "x", NULL)};
    (void)state;
    check(STILE_OK, stile_lock_release(lock, &why));
    check(STILE_TIMEOUT, stile_lock_acquire(w.lock, 100, &why));
    assert_string_equal(sql("select count(*) " LOCKS), "0");
    assert_int_equal(pthread_create(&w.thread, NULL, wait_for_it, &w), 0);
    until("select count(*) " LOCKS " and granted", "1");
    check(STILE_OK, stile_break(client, "x", 0, &why));
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    check(STILE_OK, w.status);
    check(STILE_OK, stile_lock_release(w.lock, &why));
}

/* The token in the message that `stile break` has sent. */
static uint64_t broken_token(void)
{
    unsigned long long token = 0;
    PGnotify *note;
    for (int i = 0; PQconsumeInput(admin) && !(note = PQnotifies(admin)); i++) {
        struct pollfd p = {.fd = PQsocket(admin), .events = POLLIN};
        assert_true(i < 100 && poll(&p, 1, PATIENCE_MS) == 1);
    }
    assert_int_equal(sscanf(note->extra, "b %*d %*d %llu", &token), 1);
    PQfreemem(note);
    return token;
}

/* All clients hear of it, and a later holder perhaps only after its grant, which is not meant. */
static void a_break_names_the_grant(void **state)
{
    struct stile_lock *lock = lock_on(client, "x", STILE_OPTIONS(.hold_at_least_ms = 600000));
    uint64_t token;
    (void)state;
    sql("listen stile");
    for (int released = 0; released < 2; released++) {
        check(STILE_OK, stile_lock_acquire(lock, PATIENCE_MS, &why));
        check(STILE_OK, stile_lock_token(lock, &token));
        if (released)
            check(STILE_OK, stile_lock_release(lock, &why));
        check(STILE_OK, stile_break(client, "x", 0, &why));
        assert_true(broken_token() == token);
        if (!released)
            check(STILE_LOST, stile_lock_release(lock, &why));
    }
    sql("unlisten stile");
}

/* After a wait longer than its lease it is held for a whole lease, not for what is left of one. */
static void a_long_wait_ends_in_a_whole_lease(void **state)
{
    const struct stile_lock_options *options = STILE_OPTIONS(.ttl_ms = 1000, .renew_ms = 200);
    struct stile_client *other = open_with("sessions=9");
    struct stile_lock *holder = held_on(other, "x", options);
    struct waiting w = {.lock = lock_on(client, "x", options)};
    struct timespec longer = {.tv_sec = 2};
    (void)state;
    assert_int_equal(pthread_create(&w.thread, NULL, wait_for_it, &w), 0);
    nanosleep(&longer, NULL);
    check(STILE_OK, stile_lock_release(holder, &why));
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    check(STILE_OK, w.status);
    assert_in_range(stile_lock_remaining_ms(w.lock), 1, 1000);
    nanosleep(&longer, NULL);
    assert_true(stile_lock_held(w.lock));
    check(STILE_OK, stile_lock_release(w.lock, &why));
    stile_client_close(other);
}

#define WANTED                                                                                     \
    "from pg_locks where relation = 'stile.row_lock'::regclass and not granted and mode = "

/* The cancel of a wait may end the preparation of a statement, here because its table is locked.
 * The next claim on that session needs the statement, too. */
static void a_cancel_leaves_the_session_usable(void **state)
{
    struct stile_client *other = open_with("mode=row");
    struct waiting w = {.lock = lock_on(other, "x", NULL)};
    struct stile_lock *next = lock_on(other, "x", NULL);
    (void)state;
    sql("begin");
    sql("lock table stile.row_lock in access exclusive mode");
    assert_int_equal(pthread_create(&w.thread, NULL, wait_for_it, &w), 0);
    until("select count(*) " WANTED "'RowExclusiveLock'", "1"); /* by the INSERT */
    check(STILE_OK, stile_lock_cancel(w.lock));
    until("select count(*) " WANTED "'RowShareLock'", "1"); /* by SELECT FOR UPDATE */
    sql("commit");
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    check(STILE_CANCELLED, w.status);
    check(STILE_OK, stile_lock_acquire(next, 0, &why));
    assert_string_equal(sql("select count(*) " SESSIONS " and state = 'idle in transaction'"), "1");
    check(STILE_OK, stile_lock_release(next, &why));
    stile_client_close(other);
}

/* ---- grants without a row ---- */

/* From the second time on a session relies on what it knows of the name. */
static struct stile_lock *known(const char *name)
{
    struct stile_lock *lock = lock_on(client, name, NULL);
    for (int i = 0; i < 3; i++) {
        check(STILE_OK, stile_lock_acquire(lock, 0, &why));
        check(STILE_OK, stile_lock_release(lock, &why));
    }
    return lock;
}

static uint64_t token_of(struct stile_lock *lock)
{
    uint64_t token;
    check(STILE_OK, stile_lock_token(lock, &token));
    return token;
}

static uint64_t taken(struct stile_lock *lock)
{
    check(STILE_OK, stile_lock_acquire(lock, 0, &why));
    uint64_t token = token_of(lock);
    check(STILE_OK, stile_lock_release(lock, &why));
    return token;
}

static void what_is_held_for_a_while_gets_a_row(void **state)
{
    struct stile_lock *lock = known("a \"row\", {and} \\ more");
    char token[24];
    (void)state;
    check(STILE_OK, stile_lock_acquire(lock, 0, &why));
    snprintf(token, sizeof token, "%llu", (unsigned long long)token_of(lock));
    until("select max(token) from stile.lock l join pg_stat_activity a on a.pid = l.backend "
          "where l.name like 'a \"row%more' and not l.shared",
          token);
    assert_string_equal(sql("select count(*) from stile.locks where name like 'a \"row%'"), "1");
    check(STILE_OK, stile_lock_release(lock, &why));
    until("select count(*) from stile.lock where backend is not null and name like 'a \"row%'",
          "0");
}

static void a_hold_is_noticed(void **state)
{
    struct stile_client *other = open_with("sessions=2");
    struct stile_lock *lock = known("held back"), *late = known("delayed");
    struct stile_lock *hold =
        held_on(other, "held back", STILE_OPTIONS(.hold_at_least_ms = 2 * PATIENCE_MS));
    (void)state;
    check(STILE_OK, stile_lock_release(hold, &why));
    check(STILE_HELD, stile_lock_acquire(lock, 0, &why));
    held_on(other, "delayed", STILE_OPTIONS(.lock_delay_ms = 2 * PATIENCE_MS));
    sql("select count(pg_terminate_backend(pid)) from pg_locks where locktype = 'advisory' and "
        "granted");
    until("select count(*) " LOCKS " and granted", "0");
    check(STILE_HELD, stile_lock_acquire(late, 0, &why));
    stile_client_close(other);
    sql("delete from stile.lock");
}

static void a_place_in_the_queue_is_noticed(void **state)
{
    struct stile_client *other = open_with("sessions=2");
    struct stile_lock *lock = known("x");
    struct waiting w = {.lock = lock_on(other, "x", NULL)};
    (void)state;
    check(STILE_OK, stile_lock_acquire(lock, 0, &why));
    assert_int_equal(pthread_create(&w.thread, NULL, wait_for_it, &w), 0);
    until("select count(*) from stile.waiting", "1");
    check(STILE_OK, stile_lock_release(lock, &why));
    check(STILE_HELD, stile_lock_acquire(lock, 0, &why));
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    check(STILE_OK, w.status);
    check(STILE_OK, stile_lock_release(w.lock, &why));
    taken(lock);
    stile_client_close(other);
}

#define EPOCH "select epoch from stile.epoch"

static void an_epoch_ends_under_a_session(void **state)
{
    struct stile_lock *lock = known("x");
    uint64_t last = taken(lock), first = last;
    char epoch[24];
    (void)state;
    sql("select setval('stile.tokens', ends - 3) from stile.life");
    for (int i = 0; i < 4; i++) {
        uint64_t next = taken(lock);
        assert_true(next > last);
        last = next;
    }
    assert_true(last >> 20 > first >> 20);
    snprintf(epoch, sizeof epoch, "%llu", (unsigned long long)last >> 20);
    assert_string_equal(sql(EPOCH), epoch);
}

/* It is noticed with the next name that the session does not know. */
static void a_counter_is_put_back_under_a_session(void **state)
{
    struct stile_lock *lock = known("x");
    uint64_t last = taken(lock);
    (void)state;
    sql("create table kept as select started, file, made_by, ends from stile.life");
    sql("create table kept_tokens as select last_value from stile.tokens");
    for (int i = 0; i < 10; i++)
        last = taken(lock);
    sql("delete from stile.life");
    sql("select setval('stile.tokens', last_value) from kept_tokens");
    sql("insert into stile.life (started, file, made_by, ends) select * from kept");
    sql("drop table kept, kept_tokens");
    assert_true(taken(lock_on(client, "unknown", NULL)) > last);
    assert_true(taken(lock) > last);
}

/* `stile setup` of a version without such grants was run: names that the session does not know get
 * rows, as its functions expect. */
static void older_functions_under_a_session(void **state)
{
    (void)state;
    taken(lock_on(client, "before", NULL));
    sql("create table kept as select pg_get_functiondef('stile.granted'::regproc) as granted");
    sql("do $$ begin execute replace((select granted from kept), 'stile.changes', "
        "'stile.tokens'); end $$");
    taken(lock_on(client, "after", NULL));
    assert_string_equal(sql("select count(*) from stile.lock where name = 'after'"), "1");
    sql("do $$ begin execute (select granted from kept); end $$");
    sql("drop table kept");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_client, close_client)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(many_locks_share_a_session),
        TEST(waiters_sessions_are_used_again),
        TEST(waiters_beyond_the_limit_share_a_session),
        TEST(an_idle_client_stays_connected),
        TEST(an_error_leaves_nothing_behind),
        TEST(names_with_one_key_exclude),
        TEST(a_favourite_is_no_other),
        TEST(a_favourite_may_be_any_number),
        TEST(a_favourite_ends_with_its_session),
        TEST(a_session_takes_only_its_own_with_it),
        TEST(waits_do_not_need_the_shared_session),
        TEST(sitting_on_a_hold),
        TEST(a_break_names_the_grant),
        TEST(a_long_wait_ends_in_a_whole_lease),
        TEST(a_cancel_leaves_the_session_usable),
        TEST(a_burst_is_queued),
        TEST(a_burst_of_rows_is_queued),
        TEST(jobs_do_not_hold_up_renewals),
        TEST(what_is_held_for_a_while_gets_a_row),
        TEST(a_hold_is_noticed),
        TEST(a_place_in_the_queue_is_noticed),
        TEST(an_epoch_ends_under_a_session),
        TEST(a_counter_is_put_back_under_a_session),
        TEST(older_functions_under_a_session),
    };
    if (argc < 2)
        return 64;
    url = argv[1];
    admin = PQconnectdb(url);
    if (PQstatus(admin) != CONNECTION_OK) {
        fprintf(stderr, "%s", PQerrorMessage(admin));
        return 1;
    }
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    int rc = cmocka_run_group_tests_name("postgres_session", tests, NULL, NULL);
    PQfinish(admin);
    return rc;
}
