/* Waits that end without a grant, and what they must not leave behind (LESSONS rows 6, 7). */
#include "contract.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

struct wait {
    pthread_t thread;
    struct stile_lock *lock;
    int64_t wait_ms;
    atomic_int over;
    enum stile_status status;
};

static void *wait_for_it(void *arg)
{
    struct wait *w = arg;
    w->status = stile_lock_acquire(w->lock, w->wait_ms, NULL);
    atomic_store(&w->over, 1);
    return NULL;
}

static void start_wait(struct wait *w, struct stile_lock *lock)
{
    *w = (struct wait){.lock = lock, .wait_ms = PATIENCE_MS};
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_it, w), 0);
}

static enum stile_status end_wait(struct wait *w)
{
    assert_int_equal(pthread_join(w->thread, NULL), 0);
    return w->status;
}

/* ---- time ---- */

/* Row 6: nothing of it may stay in the queue. */
static void test_timeout_leaves_no_entry(void **state)
{
    struct scene *s = *state;
    struct peer *holder = peer_start(s, s->name, NULL);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    peer_acquire(holder);
    int64_t start = now_ms();
    check_status(STILE_TIMEOUT, stile_lock_acquire(lock, 40, &why));
    assert_true(now_ms() - start >= 40);
    assert_non_null(strstr(why.message, s->name));
    await_state(s, s->name, 1, 0);
    peer_tell(holder, "held");
    peer_expect(holder, "held");
    peer_release(holder);
    check_free(s, s->name);
    check_ok(stile_lock_acquire(lock, 0, &why));
}

static void test_timeout_behind_our_own_handle(void **state)
{
    struct scene *s = *state;
    struct stile_lock *first = held_on(s->client, s->name, NULL);
    struct stile_lock *second = lock_on(s->client, s->name, NULL);
    check_status(STILE_TIMEOUT, stile_lock_acquire(second, 20, &why));
    await_state(s, s->name, 1, 0);
    check_ok(stile_lock_release(first, &why));
    check_ok(stile_lock_acquire(second, 0, &why));
}

/* Row 6: those behind one that gave up must not wait for a ghost. */
static void test_those_behind_a_timeout_go_on(void **state)
{
    struct scene *s = *state;
    struct stile_lock *holder = held_on(s->client, s->name, NULL);
    struct peer *impatient = peer_start(s, s->name, NULL), *behind = peer_start(s, s->name, NULL);
    peer_tell(impatient, "acquire 1500");
    await_state(s, s->name, 1, 1);
    peer_tell(behind, "acquire %d", PATIENCE_MS);
    peer_expect(impatient, "failed TIMEOUT");
    await_state(s, s->name, 1, 1);
    check_ok(stile_lock_release(holder, &why));
    peer_expect_grant(behind);
    peer_release(behind);
    check_free(s, s->name);
}

/* ---- cancelling ---- */

/* Where the queue can't be seen, nobody can tell when the wait has begun: cancel until it took. */
static void cancel_once_waiting(struct scene *s, struct wait *w)
{
    struct timespec tick = {.tv_nsec = 1000000};
    int64_t until = now_ms() + PATIENCE_MS;
    await_state(s, s->name, 1, 1);
    check_ok(stile_lock_cancel(w->lock));
    while (!s->caps->fifo && !atomic_load(&w->over) && now_ms() < until) {
        nanosleep(&tick, NULL);
        check_ok(stile_lock_cancel(w->lock));
    }
}

/* Rows 6, 7. */
static void test_cancel_from_another_thread(void **state)
{
    struct scene *s = *state;
    struct wait w;
    struct peer *holder = peer_start(s, s->name, NULL), *behind = peer_start(s, s->name, NULL);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    peer_acquire(holder);
    start_wait(&w, lock);
    cancel_once_waiting(s, &w);
    check_status(STILE_CANCELLED, end_wait(&w));
    await_state(s, s->name, 1, 0);
    peer_tell(behind, "acquire %d", PATIENCE_MS);
    peer_release(holder);
    peer_expect_grant(behind);
    peer_release(behind);
    check_ok(stile_lock_acquire(lock, 0, &why));
}

static void test_cancel_of_what_does_not_wait(void **state)
{
    struct scene *s = *state;
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    check_ok(stile_lock_cancel(lock));
    check_ok(stile_lock_acquire(lock, 0, &why));
    check_ok(stile_lock_cancel(lock));
    assert_true(stile_lock_held(lock));
    check_ok(stile_lock_release(lock, &why));
}

/* Of two handles of one client that wait, the first is cancelled; the second still gets it. */
static void test_cancel_before_our_own_handle(void **state)
{
    struct scene *s = *state;
    struct wait first, second;
    struct peer *holder = peer_start(s, s->name, NULL);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    peer_acquire(holder);
    start_wait(&first, lock);
    await_state(s, s->name, 1, 1);
    start_wait(&second, lock_on(s->client, s->name, NULL));
    cancel_once_waiting(s, &first);
    check_status(STILE_CANCELLED, end_wait(&first));
    peer_release(holder);
    check_ok(end_wait(&second));
    assert_true(stile_lock_held(second.lock));
    check_ok(stile_lock_release(second.lock, &why));
    check_free(s, s->name);
}

/* ---- signals ---- */

static atomic_int alarms;

static void count_alarm(int signal)
{
    (void)signal;
    atomic_fetch_add(&alarms, 1);
}

static void bombard(bool on)
{
    struct sigaction action = {.sa_handler = on ? count_alarm : SIG_IGN}; /* no SA_RESTART */
    struct itimerval every = {{0, on ? 500 : 0}, {0, on ? 500 : 0}};
    if (on)
        sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    if (!on)
        sigaction(SIGALRM, &action, NULL);
}

/* EINTR at every turn: the wait goes on, and ends in a grant. */
static void test_signals_do_not_end_a_wait(void **state)
{
    struct scene *s = *state;
    struct peer *holder = peer_start(s, s->name, NULL);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    peer_acquire(holder);
    atomic_store(&alarms, 0);
    bombard(true);
    enum stile_status refused = stile_lock_acquire(lock, 50, NULL);
    peer_tell(holder, "release");
    enum stile_status granted = stile_lock_acquire(lock, PATIENCE_MS, NULL);
    enum stile_status released = granted ? granted : stile_lock_release(lock, NULL);
    bombard(false);
    check_status(STILE_TIMEOUT, refused);
    check_ok(granted);
    check_ok(released);
    assert_true(atomic_load(&alarms) > 0);
    peer_expect(holder, "released");
}

/* clang-format off */
SUITE_PART(waiting,
    SCENE_TEST(test_timeout_leaves_no_entry),
    SCENE_TEST(test_timeout_behind_our_own_handle),
    SCENE_TEST(test_those_behind_a_timeout_go_on),
    SCENE_TEST(test_cancel_from_another_thread),
    SCENE_TEST(test_cancel_of_what_does_not_wait),
    SCENE_TEST(test_cancel_before_our_own_handle),
    SCENE_TEST(test_signals_do_not_end_a_wait))
/* clang-format on */
