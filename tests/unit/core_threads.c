/* Leader, followers and the background thread, on the real loop. Nobody may hang: what is awaited
 * comes within PATIENCE_SEC or the test fails. Clean under ThreadSanitizer. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/lock.h"
#include "support/unit.h"

#define PATIENCE_SEC 10
#define THREADS      8

static struct {
    struct script *script;
    struct stile_client *client;
    sem_t claims, renewals; /* one post for each request */
} it;

static struct script_rule count(struct script *script, enum script_call call)
{
    if (call == SCRIPT_CLAIM)
        sem_post(&it.claims);
    if (call == SCRIPT_RENEW)
        sem_post(&it.renewals);
    return script->always[call == SCRIPT_CALLS ? SCRIPT_CLAIM : call];
}

static int open_client(void **state)
{
    struct loop *loop;

    (void)state;
    it.script = script_new(NULL);
    it.script->untraced = true;
    it.script->decide = count;
    sem_init(&it.claims, 0, 0);
    sem_init(&it.renewals, 0, 0);
    script_use(it.script);
    if (loop_epoll_new(&loop))
        return -1;
    return client_new(&it.client, script_variant(STILE_LEASE_CLAIM, 0), loop, NULL, NULL, NULL) ? -1
                                                                                                : 0;
}

static int close_client(void **state)
{
    (void)state;
    if (it.client)
        assert_status(stile_client_close(it.client), OK);
    script_free(it.script);
    sem_destroy(&it.claims);
    sem_destroy(&it.renewals);
    return 0;
}

static struct timespec patience(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_SEC;
    return until;
}

static void await(sem_t *semaphore)
{
    struct timespec until = patience();

    assert_int_equal(sem_timedwait(semaphore, &until), 0);
}

static void all_inside(void)
{
    pthread_mutex_lock(&it.client->mutex);
    for (int call = 0; call < SCRIPT_CALLS; call++)
        SCRIPT_ALWAYS(it.script, (enum script_call)call, .inside = true);
    pthread_mutex_unlock(&it.client->mutex);
}

/* The server is the client's: to be touched with the mutex. */
static void occupy(const char *name)
{
    pthread_mutex_lock(&it.client->mutex);
    script_occupy(it.script, name, NEVER);
    pthread_mutex_unlock(&it.client->mutex);
}

/* ---- one thread blocked in acquire() ---- */

struct waiter {
    pthread_t thread;
    struct stile_lock *lock;
    int64_t wait_ms;
    enum stile_status status;
};

static void *wait_for_it(void *arg)
{
    struct waiter *waiter = arg;

    waiter->status = stile_lock_acquire(waiter->lock, waiter->wait_ms, NULL);
    return NULL;
}

static void start(struct waiter *waiter, struct stile_lock *lock)
{
    *waiter = (struct waiter){.lock = lock, .wait_ms = -1};
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_for_it, waiter), 0);
}

static enum stile_status finish(struct waiter *waiter)
{
    struct timespec until = patience();

    assert_int_equal(pthread_timedjoin_np(waiter->thread, NULL, &until), 0); /* else: it hangs */
    return waiter->status;
}

/* ---- cancel ---- */

/* The waiter leads, asleep in the loop; the cancel is answered on the canceller's thread. */
static void cancel_wakes_the_leader(void **state)
{
    struct stile_lock *lock = make_lock(it.client, "a", NULL);
    struct waiter waiter;

    (void)state;
    all_inside();
    occupy("a");
    for (int i = 0; i < 200; i++) {
        start(&waiter, lock);
        await(&it.claims);
        assert_status(stile_lock_cancel(lock), OK);
        assert_status(finish(&waiter), CANCELLED);
    }
}

static void cancel_wakes_followers(void **state)
{
    struct stile_lock *locks[3];
    struct waiter waiters[3];

    (void)state;
    all_inside();
    for (int i = 0; i < 3; i++) {
        char name[2] = {(char)('a' + i), 0};
        occupy(name);
        locks[i] = make_lock(it.client, name, NULL);
    }
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 3; i++)
            start(&waiters[i], locks[i]);
        for (int i = 0; i < 3; i++)
            await(&it.claims);
        for (int i = 0; i < 3; i++) {
            assert_status(stile_lock_cancel(locks[(round + i) % 3]), OK);
            assert_status(finish(&waiters[(round + i) % 3]), CANCELLED);
        }
    }
}

static bool in_turn(const struct stile_lock *lock)
{
    pthread_mutex_lock(&it.client->mutex);
    bool is = lock->state == TURN;
    pthread_mutex_unlock(&it.client->mutex);
    return is;
}

static void cancel_in_the_turn(void **state)
{
    struct stile_lock *first = make_lock(it.client, "a", NULL);
    struct stile_lock *second = make_lock(it.client, "a", NULL);
    struct waiter waiter;

    (void)state;
    assert_status(stile_lock_acquire(first, -1, NULL), OK);
    for (int i = 0; i < 100; i++) {
        start(&waiter, second);
        while (!in_turn(second))
            sched_yield();
        assert_status(stile_lock_cancel(second), OK);
        assert_status(finish(&waiter), CANCELLED);
    }
}

/* ---- handing over ---- */

/* The turn, and with an engine that answers at once the grant, come on the releaser's thread. */
static void a_release_wakes_who_has_the_next_turn(void **state)
{
    struct stile_lock *locks[2] = {make_lock(it.client, "a", NULL),
                                   make_lock(it.client, "a", NULL)};
    struct waiter waiter;

    (void)state;
    all_inside();
    assert_status(stile_lock_acquire(locks[0], -1, NULL), OK);
    for (int i = 0; i < 300; i++) {
        start(&waiter, locks[(i + 1) % 2]);
        if (i % 2)
            sched_yield();
        assert_status(stile_lock_release(locks[i % 2], NULL), OK);
        assert_status(finish(&waiter), OK);
    }
}

/* A blocking call meets the background thread asleep in the driver's seat. */
static void a_call_while_the_background_thread_sleeps(void **state)
{
    struct stile_lock *lock = make_lock(it.client, "a", NULL);

    (void)state;
    for (int i = 0; i < 50; i++) {
        for (bool background = false; !background;) {
            pthread_mutex_lock(&it.client->mutex);
            background = it.client->seat.by_background;
            pthread_mutex_unlock(&it.client->mutex);
            sched_yield();
        }
        assert_status(stile_lock_acquire(lock, -1, NULL), OK);
        assert_status(stile_lock_release(lock, NULL), OK);
    }
}

/* ---- the background thread ---- */

static void it_renews_while_nobody_calls(void **state)
{
    struct stile_lock *lock =
        make_lock(it.client, "a", STILE_OPTIONS(.ttl_ms = 60000, .renew_ms = 5));

    (void)state;
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    for (int i = 0; i < 20; i++)
        await(&it.renewals);
    assert_true(stile_lock_held(lock));
}

static size_t waiting(void)
{
    pthread_mutex_lock(&it.client->mutex);
    size_t n = model_waiting(&it.script->model);
    pthread_mutex_unlock(&it.client->mutex);
    return n;
}

/* Leader and follower are decided in the same run of the loop: the leader offers its seat to the
 * follower, who is leaving as well. Somebody has to drive after that. */
static void it_takes_over_when_leader_and_follower_leave_together(void **state)
{
    struct stile_lock *locks[2];
    struct waiter waiters[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        locks[i] =
            make_lock(it.client, i ? "b" : "a", STILE_OPTIONS(.ttl_ms = 60000, .renew_ms = 5));
    for (int round = 0; round < 30; round++) {
        occupy("a");
        occupy("b");
        for (int i = 0; i < 2; i++)
            start(&waiters[i], locks[i]);
        for (int i = 0; i < 2; i++)
            await(&it.claims);
        while (waiting() < 2)
            sched_yield();
        pthread_mutex_lock(&it.client->mutex); /* so that one run of the loop sees both */
        script_vacate(it.script, "a");
        script_vacate(it.script, "b");
        pthread_mutex_unlock(&it.client->mutex);
        assert_status(finish(&waiters[0]), OK);
        assert_status(finish(&waiters[1]), OK);
        while (sem_trywait(&it.renewals) == 0)
            ;
        for (int i = 0; i < 3; i++)
            await(&it.renewals);
        assert_status(stile_locks_release(locks, 2, NULL), OK);
    }
}

static void on_lost_posts(struct stile_lock *lock, void *data)
{
    (void)lock;
    sem_post(data);
}

static void it_tells_of_the_loss(void **state)
{
    sem_t lost;
    struct stile_lock *lock;

    (void)state;
    sem_init(&lost, 0, 0);
    pthread_mutex_lock(&it.client->mutex);
    SCRIPT_ALWAYS(it.script, SCRIPT_RENEW, .act = SCRIPT_NEVER);
    pthread_mutex_unlock(&it.client->mutex);
    lock = make_lock(it.client, "a",
                     STILE_OPTIONS(.ttl_ms = 50, .on_lost = on_lost_posts, .data = &lost));
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    await(&lost);
    assert_false(stile_lock_held(lock));
    assert_status(stile_lock_release(lock, NULL), LOST);
    assert_status(stile_lock_free(lock), OK);
    sem_destroy(&lost);
}

/* ---- callbacks from the background thread ---- */

struct chain {
    sem_t done;
    _Atomic unsigned left;
};

static void go_on(struct stile_lock *lock, enum stile_status status, const struct stile_error *err,
                  void *data)
{
    struct chain *chain = data;

    (void)err;
    if (status)
        abort();
    if (stile_lock_held(lock)) {
        (void)stile_lock_release_async(lock, go_on, chain);
    } else if (atomic_fetch_sub(&chain->left, 1) > 1) {
        (void)stile_lock_acquire_async(lock, -1, go_on, chain);
    } else {
        (void)stile_lock_free(lock);
        sem_post(&chain->done);
    }
}

static void chains_of_callbacks(void **state)
{
    struct chain chains[4];

    (void)state;
    for (int i = 0; i < 4; i++) {
        sem_init(&chains[i].done, 0, 0);
        atomic_init(&chains[i].left, 500);
        assert_status(stile_lock_acquire_async(make_lock(it.client, i % 2 ? "a" : "b", NULL), -1,
                                               go_on, &chains[i]),
                      OK);
    }
    for (int i = 0; i < 4; i++) {
        await(&chains[i].done);
        sem_destroy(&chains[i].done);
    }
}

static void wait_inside(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    struct chain *chain = data;

    (void)err;
    if (status || stile_lock_release(lock, NULL) || stile_lock_acquire(lock, -1, NULL) ||
        stile_lock_release(lock, NULL))
        abort();
    sem_post(&chain->done);
}

/* Not allowed, but no reason to hang: on the background thread, with callers coming and going. */
static void a_callback_that_waits_is_served(void **state)
{
    struct stile_lock *other = make_lock(it.client, "b", NULL);
    struct stile_lock *lock = make_lock(it.client, "a", NULL);
    struct chain chain;

    (void)state;
    sem_init(&chain.done, 0, 0);
    for (int i = 0; i < 200; i++) {
        assert_status(stile_lock_acquire_async(lock, -1, wait_inside, &chain), OK);
        if (i % 2) {
            assert_status(stile_lock_acquire(other, -1, NULL), OK);
            assert_status(stile_lock_release(other, NULL), OK);
        }
        await(&chain.done);
    }
    sem_destroy(&chain.done);
}

/* ---- everybody at once ---- */

#define NAMES  16
#define ROUNDS 400

static struct {
    unsigned names;
    uint64_t word[NAMES]; /* written and read under its lock only */
    _Atomic unsigned grants, others;
} crowd;

static void *jostle(void *arg)
{
    unsigned seed = *(unsigned *)arg;
    struct stile_lock *locks[NAMES];

    for (unsigned i = 0; i < crowd.names; i++) {
        char name[2] = {(char)('a' + i), 0};
        if (stile_lock_new(&locks[i], it.client, name, NULL, NULL))
            abort();
    }
    for (int round = 0; round < ROUNDS; round++) {
        unsigned i = (unsigned)rand_r(&seed) % crowd.names;
        int64_t wait_ms = (int64_t[]){-1, -1, -1, 0, 1}[rand_r(&seed) % 5];
        uint64_t before, token;
        enum stile_status status = stile_lock_acquire(locks[i], wait_ms, NULL);
        if (status) {
            if (status != STILE_HELD && status != STILE_TIMEOUT)
                abort();
            atomic_fetch_add(&crowd.others, 1);
            continue;
        }
        before = crowd.word[i];
        if (stile_lock_token(locks[i], &token) || token <= before)
            abort();
        crowd.word[i] = token;
        atomic_fetch_add(&crowd.grants, 1);
        if (stile_lock_release(locks[i], NULL))
            abort();
    }
    for (unsigned i = 0; i < crowd.names; i++)
        (void)stile_lock_free(locks[i]);
    return NULL;
}

static void all_threads(unsigned names)
{
    pthread_t threads[THREADS];
    unsigned seeds[THREADS];
    struct timespec until = patience();

    crowd.names = names;
    memset(crowd.word, 0, sizeof(crowd.word));
    crowd.grants = crowd.others = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, jostle, &seeds[i]), 0);
    }
    until.tv_sec += 30;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_timedjoin_np(threads[i], NULL, &until), 0);
    assert_int_equal(crowd.grants + crowd.others, THREADS * ROUNDS);
    assert_true(crowd.grants > ROUNDS);
}

static void many_threads_one_name(void **state)
{
    (void)state;
    all_threads(1);
}

static void many_threads_many_names(void **state)
{
    (void)state;
    all_threads(NAMES);
}

static void many_threads_answered_from_inside(void **state)
{
    (void)state;
    all_inside();
    all_threads(1);
    all_threads(NAMES);
}

/* ---- fork in the midst of it ---- */

static void *keep_busy(void *arg)
{
    struct stile_lock *lock;
    _Atomic bool *stop = arg;

    if (stile_lock_new(&lock, it.client, "a", NULL, NULL))
        abort();
    while (!atomic_load(stop)) {
        if (stile_lock_acquire(lock, -1, NULL) || stile_lock_release(lock, NULL))
            abort();
    }
    return NULL;
}

static void fork_while_threads_call(void **state)
{
    pthread_t threads[3];
    _Atomic bool stop = false;

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_busy, &stop), 0);
    for (int i = 0; i < 20; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(PATIENCE_SEC);
            _exit(stile_client_dispatch(it.client) != STILE_MISUSE ||
                  stile_client_close(it.client) != STILE_MISUSE);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

#define IN_CLIENT(test) cmocka_unit_test_setup_teardown(test, open_client, close_client)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_CLIENT(cancel_wakes_the_leader),
        IN_CLIENT(cancel_wakes_followers),
        IN_CLIENT(cancel_in_the_turn),
        IN_CLIENT(a_release_wakes_who_has_the_next_turn),
        IN_CLIENT(a_call_while_the_background_thread_sleeps),
        IN_CLIENT(it_renews_while_nobody_calls),
        IN_CLIENT(it_takes_over_when_leader_and_follower_leave_together),
        IN_CLIENT(it_tells_of_the_loss),
        IN_CLIENT(chains_of_callbacks),
        IN_CLIENT(a_callback_that_waits_is_served),
        IN_CLIENT(many_threads_one_name),
        IN_CLIENT(many_threads_many_names),
        IN_CLIENT(many_threads_answered_from_inside),
        IN_CLIENT(fork_while_threads_call),
    };
    return cmocka_run_group_tests_name("core_threads", tests, NULL, NULL);
}
