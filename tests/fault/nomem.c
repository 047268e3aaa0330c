/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of an engine (ENGINE_CLASS) fails in turn, on a real server: each call ends with
 * a status that says why or does its work all the same, nothing hangs or leaks, no second one
 * holds, and in the end nothing of it is left on the server. With support/refusals.c in place of
 * support/scarcity.c it is the system calls that fail. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engines/registry.h"
#include "stile/elect.h"
#include "stile/jobs.h"
#include "stile/once.h"
#include "stile/pace.h"
#include "support/scarcity.h"

#define SCENE_S      60    /* more is a hang */
#define ALONE        3     /* links to /proc/self/task of one thread */
#define SEEN_MAX     10000 /* in one scene; more is a loop that does not sleep */
#define PATIENCE_MS  20000
#define DESCRIBED_MS 40

extern const struct engine_class ENGINE_CLASS;

/* In place of the library's registry: the engine inside, and not as a module. */
const struct engine_entry engine_registry[] = {
    {.name = "one", .schemes = ENGINE_SCHEMES, .class = &ENGINE_CLASS},
    {.name = NULL},
};

/* ---- the scene ---- */

static const char *url;

struct cast {
    struct stile_client *clients[2];
    struct stile_lock *locks[2];
    bool done;
    enum stile_status granted;
};

/* What was asked for and what went wrong for want of memory; nothing that blames the server. */
static bool expect(enum stile_status status, const struct stile_error *err, const char *doing)
{
    switch (status) {
    case STILE_OK:
        return true;
    case STILE_REFUSED: /* the kernel may have done so */
        if (!scarcity_of_memory && scarcity.failed > 0)
            return false;
        /* fall through */
    case STILE_CORRUPT:
    case STILE_MISUSE:
    case STILE_UNSUPPORTED:
    case STILE_TIMEOUT: /* it was free, and no wake-up came */
        fail_msg("%s: %s (%s), at %u", doing, stile_status_name(status), err->message, scarcity.at);
        return false;
    default:
        if (scarcity.failed == 0)
            fail_msg("%s: %s (%s) without a reason", doing, stile_status_name(status),
                     err->message);
        return false;
    }
}

static int ignore_info(const struct stile_info *info, void *data)
{
    (void)info, (void)data;
    return 0;
}

static int ignore_finding(const struct stile_finding *finding, void *data)
{
    (void)finding, (void)data;
    return 0;
}

static void on_granted(struct stile_lock *lock, enum stile_status status,
                       const struct stile_error *err, void *data)
{
    struct cast *cast = data;
    struct stile_error none = {0};
    (void)lock;
    cast->done = true;
    cast->granted = status;
    expect(status, err ? err : &none, "waiting");
}

/* False: nothing has come for so long. poll() is among the calls that are refused. */
static bool wait_for(struct pollfd *fds, nfds_t n, int ms)
{
    int rc;
    do
        rc = poll(fds, n, ms);
    while (rc < 0 && (errno == EINTR || errno == ENOMEM));
    return rc > 0;
}

/* The first one as well: it may still have to take back what it asked for. */
static void drive(struct cast *cast)
{
    struct pollfd fds[2];
    for (size_t i = 0; i < 2; i++)
        fds[i] = (struct pollfd){.fd = stile_client_fd(cast->clients[i]), .events = POLLIN};
    for (;;) {
        stile_client_dispatch(cast->clients[0]);
        stile_client_dispatch(cast->clients[1]);
        if (cast->done)
            return;
        (void)wait_for(fds, 2, 1000);
    }
}

/* All that may go with an exclusive lock, as far as the engine has it. */
static struct stile_lock_options everything(const struct stile_caps *caps)
{
    return *STILE_OPTIONS(.ttl_ms = 3000, .proclaim = caps->proclaims ? "first" : NULL,
                          .hold_at_least_ms = caps->hold_at_least,
                          .lock_delay_ms = caps->lock_delay);
}

static bool enter(struct cast *cast, size_t i, const char *name)
{
    struct stile_error err = {0};
    struct stile_lock_options options = *STILE_OPTIONS(.ttl_ms = 2000);
    if (!expect(stile_client_open(&cast->clients[i], url, STILE_CLIENT_OPTIONS(.threadless = true),
                                  &err),
                &err, "opening"))
        return false;
    if (strncmp(name, "share/", 6) == 0)
        options.mode = STILE_SHARED;
    else if (strncmp(name, "slots/", 6) == 0)
        options = *STILE_OPTIONS(.ttl_ms = 2000, .mode = STILE_SLOTS, .slots = 1);
    else if (i == 0 && strncmp(name, "locks/", 6) == 0)
        options = everything(stile_client_caps(cast->clients[i]));
    return expect(stile_lock_new(&cast->locks[i], cast->clients[i], name, &options, &err), &err,
                  "making a lock");
}

static void look_around(struct stile_client *client, const char *name)
{
    struct stile_error err = {0};
    expect(stile_show(client, name, ignore_info, NULL, &err), &err, "show");
    expect(stile_list(client, name, ignore_info, NULL, &err), &err, "list");
    expect(stile_doctor(client, 0, ignore_finding, NULL, &err), &err, "doctor");
}

/* What could not be stored is not waited for, and only logged. */
static void record(struct stile_client *client, struct stile_lock *lock)
{
    struct stile_error err = {0};
    if (!stile_client_caps(client)->history || !stile_lock_held(lock))
        return;
    if (expect(stile_lock_record_start(lock, &err), &err, "recording the start"))
        expect(stile_lock_record_end(lock, 0, &err), &err, "recording the end");
}

/* On the databases a holder is described some milliseconds after its grant, by its own client, and
 * show, ls and break wait for that. */
static void let_it_describe(struct stile_client *client)
{
    struct pollfd fd = {.fd = stile_client_fd(client), .events = POLLIN};
    bool is_database = strstr(ENGINE_SCHEMES, "mysql") || strstr(ENGINE_SCHEMES, "postgres");
    while (is_database && wait_for(&fd, 1, DESCRIBED_MS))
        stile_client_dispatch(client);
}

/* An exclusive lock with all that may go with it, or a slot. One holds, another waits, and gets it
 * when the first has given it back. */
static void pass_on(struct cast *cast, const char *name)
{
    struct stile_error err = {0};
    bool first = expect(stile_lock_acquire(cast->locks[0], 0, &err), &err, "trying");
    if (first)
        assert_int_not_equal(stile_lock_acquire(cast->locks[1], 0, &err), STILE_OK);
    if (!expect(stile_lock_acquire_async(cast->locks[1], PATIENCE_MS, on_granted, cast), &err,
                "asking"))
        cast->done = true;
    if (first) {
        record(cast->clients[0], cast->locks[0]);
        look_around(cast->clients[0], name);
        stile_client_dispatch(cast->clients[1]);
        if (stile_lock_held(cast->locks[0]) && stile_lock_held(cast->locks[1]))
            fail_msg("two hold, at %u", scarcity.at);
        enum stile_status status = stile_lock_release(cast->locks[0], &err);
        if (status && status != STILE_LOST) /* it is said again until it is heard */
            fail_msg("giving back: %s, at %u", err.message, scarcity.at);
    }
    drive(cast);
    if (cast->granted == STILE_OK && stile_lock_held(cast->locks[1])) {
        let_it_describe(cast->clients[1]);
        expect(stile_break(cast->clients[0], name, 0, &err), &err, "breaking");
    }
}

/* ---- only opening, without waiting ---- */

static void on_opened(struct stile_client *client, enum stile_status status,
                      const struct stile_error *err, void *data)
{
    struct cast *cast = data;
    struct stile_error none = {0};
    (void)client;
    assert_false(cast->done);
    cast->done = true;
    expect(status, err ? err : &none, "opening");
}

static void open_one(struct cast *cast)
{
    struct stile_error err = {0};
    if (!expect(stile_client_open_async(&cast->clients[0], url,
                                        STILE_CLIENT_OPTIONS(.threadless = true), on_opened, cast,
                                        &err),
                &err, "starting to open"))
        return;
    struct pollfd fd = {.fd = stile_client_fd(cast->clients[0]), .events = POLLIN};
    while (!cast->done && wait_for(&fd, 1, PATIENCE_MS))
        stile_client_dispatch(cast->clients[0]);
    assert_true(cast->done);
}

/* ---- with a background thread ---- */

static void use_thread(struct cast *cast, const char *name)
{
    struct stile_error err = {0};
    if (expect(stile_client_open(&cast->clients[0], url, NULL, &err), &err, "opening") &&
        expect(stile_lock_new(&cast->locks[0], cast->clients[0], name, NULL, &err), &err,
               "making a lock") &&
        expect(stile_lock_acquire(cast->locks[0], 0, &err), &err, "trying"))
        expect(stile_lock_release(cast->locks[0], &err), &err, "giving back");
}

/* ---- watching ---- */

/* Released as soon as a watcher is there, which must see it. */
static int give_back_once(const struct stile_info *info, void *data)
{
    struct cast *cast = data;
    if (!cast->done)
        stile_lock_release(cast->locks[0], NULL);
    cast->done = true;
    return info->holders == 0;
}

static void watch(struct cast *cast, const char *name)
{
    struct stile_error err = {0};
    if (!expect(stile_lock_acquire(cast->locks[0], 0, &err), &err, "trying"))
        return;
    let_it_describe(cast->clients[0]);
    expect(stile_watch(cast->clients[1], name, PATIENCE_MS, give_back_once, cast, &err), &err,
           "watching");
}

/* ---- cells ---- */

static int ignore_cell(const struct stile_cell *cell, void *data)
{
    (void)cell, (void)data;
    return 0;
}

/* Written by another client as soon as the watcher is there, which must see it. */
static int write_once(const struct stile_cell *cell, void *data)
{
    struct cast *cast = data;
    struct stile_error err = {0};
    if (cast->done)
        return 1;
    cast->done = true;
    return !expect(stile_cell_put(NULL, cast->clients[0], cell->key, "seen", 4,
                                  STILE_CELL_OPTIONS(.token = 5), &err),
                   &err, "putting for a watcher");
}

static void use_cells(struct cast *cast, const char *key)
{
    struct stile_client *client = cast->clients[0];
    struct stile_error err = {0};
    struct stile_cell *cell = NULL;
    uint64_t version = 0;
    if (!expect(stile_cell_put(&version, client, key, "a", 1,
                               STILE_CELL_OPTIONS(.if_version = &version), &err),
                &err, "creating"))
        return;
    expect(
        stile_cell_put(NULL, client, key, "b", 1, STILE_CELL_OPTIONS(.if_version = &version), &err),
        &err, "putting");
    expect(stile_guard_raise(client, key, 5, STILE_GUARD_OPTIONS(.issuer = "one:x"), &err), &err,
           "raising");
    if (expect(stile_cell_get(&cell, client, key, &err), &err, "reading"))
        assert_true(cell->version >= version);
    stile_cell_free(cell);
    expect(stile_cell_list(client, key, ignore_cell, NULL, &err), &err, "listing");
    expect(stile_cell_watch(cast->clients[1], key, PATIENCE_MS, write_once, cast, &err), &err,
           "watching a cell");
    expect(stile_cell_remove(client, key, STILE_CELL_OPTIONS(.token = 6), &err), &err, "removing");
}

/* ---- recipes ---- */

static int ignore_leader(const struct stile_leader *leader, void *data)
{
    (void)leader, (void)data;
    return 1;
}

static void elect(struct cast *cast, const char *name)
{
    bool proclaims = stile_client_caps(cast->clients[0])->proclaims;
    struct stile_client *client = cast->clients[0];
    struct stile_election *election;
    struct stile_error err = {0};
    if (!expect(stile_election_new(&election, client, name, STILE_ELECTION_OPTIONS(.ttl_ms = 2000),
                                   &err),
                &err, "making an election"))
        return;
    if (expect(stile_election_campaign(election, proclaims ? "first" : NULL, PATIENCE_MS, &err),
               &err, "campaigning")) {
        if (proclaims)
            expect(stile_election_proclaim(election, "second", &err), &err, "proclaiming");
        let_it_describe(client);
        expect(stile_leader_show(cast->clients[1], name, ignore_leader, NULL, &err), &err,
               "looking for the leader");
        expect(stile_election_resign(election, &err), &err, "resigning");
    }
    stile_election_free(election);
}

static int run(struct stile_once_output *output, struct stile_lock *lock, void *data)
{
    unsigned *runs = data;
    (void)lock;
    ++*runs;
    *output = (struct stile_once_output){.bytes = "done", .size = 4};
    return 0;
}

/* It runs once, unless the first call says that it is not certain to have run. */
static void run_once(struct cast *cast, const char *key)
{
    struct stile_once_result *first = NULL, *second = NULL;
    struct stile_error err = {0};
    unsigned runs = 0;
    bool done = expect(stile_once(&first, cast->clients[0], key, run, &runs,
                                  STILE_ONCE_OPTIONS(.ttl_ms = 2000), &err),
                       &err, "running once");
    if (expect(stile_once(&second, cast->clients[1], key, run, &runs,
                          STILE_ONCE_OPTIONS(.ttl_ms = 2000, .wait_ms = PATIENCE_MS), &err),
               &err, "finding the result") &&
        done)
        assert_true(runs == 1 && !second->ran);
    stile_once_free(first);
    stile_once_free(second);
    expect(stile_once_forget(cast->clients[0], key, &err), &err, "forgetting");
}

static void keep_pace(struct cast *cast, const char *name)
{
    struct stile_error err = {0};
    expect(stile_pace(NULL, cast->clients[0], name,
                      STILE_PACE_OPTIONS(.count = 20, .per_ms = 10000), PATIENCE_MS, &err),
           &err, "starting at a pace");
    expect(stile_pace(NULL, cast->clients[1], name,
                      STILE_PACE_OPTIONS(.count = 20, .per_ms = 10000), 0, &err),
           &err, "starting once more");
}

/* ---- more than one lock, and one that outlives its process ---- */

static void acquire_two(struct cast *cast, const char *name)
{
    char other[48];
    struct stile_lock *pair[2] = {cast->locks[0], NULL};
    struct stile_error err = {0};
    snprintf(other, sizeof other, "%s/other", name);
    if (!expect(
            stile_lock_new(&pair[1], cast->clients[0], other, STILE_OPTIONS(.ttl_ms = 2000), &err),
            &err, "making another lock") ||
        !expect(stile_locks_acquire(pair, 2, 0, &err), &err, "trying two"))
        return;
    expect(stile_locks_release(pair, 2, &err), &err, "giving two back");
}

/* Two readers, and a writer that has to wait for them. */
static void share(struct cast *cast, const char *name)
{
    struct stile_lock *writer;
    struct stile_error err = {0};
    if (!expect(stile_lock_acquire(cast->locks[0], 0, &err), &err, "reading") ||
        !expect(stile_lock_acquire(cast->locks[1], PATIENCE_MS, &err), &err, "reading as well") ||
        !expect(
            stile_lock_new(&writer, cast->clients[1], name, STILE_OPTIONS(.ttl_ms = 2000), &err),
            &err, "making a writer"))
        return;
    expect(stile_lock_release(cast->locks[1], &err), &err, "giving back");
    if (stile_lock_acquire(writer, 0, &err) == STILE_OK && stile_lock_held(cast->locks[0]))
        fail_msg("a reader and a writer hold, at %u", scarcity.at);
    expect(stile_lock_release(cast->locks[0], &err), &err, "giving back");
}

static void detach(struct cast *cast, const char *name)
{
    char owner[256];
    struct stile_lock *resumed;
    struct stile_error err = {0};
    if (!expect(stile_lock_acquire(cast->locks[0], 0, &err), &err, "trying") ||
        !stile_lock_owner(cast->locks[0]))
        return;
    snprintf(owner, sizeof owner, "%s", stile_lock_owner(cast->locks[0]));
    if (expect(stile_lock_detach(cast->locks[0], &err), &err, "detaching") &&
        expect(stile_lock_new(&resumed, cast->clients[1], name,
                              STILE_OPTIONS(.ttl_ms = 2000, .owner = owner), &err),
               &err, "making it again") &&
        expect(stile_lock_resume(resumed, &err), &err, "resuming"))
        expect(stile_lock_release(resumed, &err), &err, "giving back");
}

/* ---- jobs ---- */

static int ignore_job(const struct stile_job *job, void *data)
{
    (void)job, (void)data;
    return 0;
}

static int ignore_queue(const struct stile_queue *queue, void *data)
{
    (void)queue, (void)data;
    return 0;
}

static void look_at_jobs(struct stile_client *client, const char *queue, uint64_t id)
{
    struct stile_job *job = NULL;
    struct stile_error err = {0};
    if (expect(stile_jobs_show(&job, client, queue, id, &err), &err, "showing a job"))
        stile_jobs_free(job, 1);
    expect(stile_jobs_list(client, queue, NULL, ignore_job, NULL, &err), &err, "listing jobs");
    expect(stile_jobs_count(client, queue, ignore_queue, NULL, &err), &err, "counting jobs");
}

/* Once it is given back, the next time it fails for good, and then it is done. */
static bool work_once(struct stile_client *client, const char *queue, unsigned time)
{
    struct stile_error err = {0};
    struct stile_job *jobs = NULL;
    size_t n = 0;
    bool claimed =
        expect(stile_jobs_claim(&jobs, &n, client, queue,
                                STILE_JOBS_OPTIONS(.lease_ms = 2000, .wait_ms = 1000), &err),
               &err, "claiming a job");
    bool works = claimed && n == 1 &&
                 expect(stile_jobs_extend(client, jobs, n, 3000, &err), &err, "extending a job");
    if (works && time == 0)
        works = expect(stile_jobs_give_back(client, jobs, n, &err), &err, "giving a job back");
    else if (works && time == 1)
        works =
            expect(stile_jobs_fail(client, jobs, n, "why", STILE_JOBS_OPTIONS(.tries = 1), &err),
                   &err, "failing a job");
    else if (works)
        works = expect(stile_jobs_ack(client, jobs, n, &err), &err, "acknowledging a job");
    if (claimed)
        stile_jobs_free(jobs, n);
    return works;
}

static void use_jobs(struct cast *cast, const char *queue)
{
    struct stile_client *client = cast->clients[0];
    struct stile_error err = {0};
    uint64_t id = 0;
    if (!expect(stile_jobs_add(&id, client, queue, "work", 4, STILE_JOBS_OPTIONS(.key = "k"), &err),
                &err, "adding a job"))
        return;
    look_at_jobs(client, queue, id);
    if (work_once(client, queue, 0) && work_once(client, queue, 1) &&
        expect(stile_jobs_retry(NULL, client, queue, 0, &err), &err, "retrying a job"))
        work_once(client, queue, 2);
}

/* By the first part of the name. */
static const struct {
    const char *scene;
    void (*play)(struct cast *cast, const char *name);
} scenes[] = {{"watch/", watch},    {"cells/", use_cells}, {"elect/", elect}, {"once/", run_once},
              {"pace/", keep_pace}, {"two/", acquire_two}, {"share/", share}, {"detach/", detach},
              {"jobs/", use_jobs},  {"", pass_on}};

static void play_with_two(struct cast *cast, const char *name)
{
    size_t i = 0;
    while (strncmp(name, scenes[i].scene, strlen(scenes[i].scene)) != 0)
        i++;
    scenes[i].play(cast, name);
}

static void play(const char *name)
{
    struct cast cast = {.granted = STILE_CANCELLED};
    alarm(SCENE_S);
    if (strncmp(name, "open/", 5) == 0) {
        open_one(&cast);
    } else if (strncmp(name, "thread/", 7) == 0) {
        use_thread(&cast, name);
    } else if (enter(&cast, 0, name) && enter(&cast, 1, name)) {
        play_with_two(&cast, name);
    }
    for (size_t i = 0; i < 2; i++) {
        if (cast.clients[i])
            stile_client_close(cast.clients[i]);
    }
    alarm(0);
}

/* ---- in turn ---- */

/* The thread that has looked up a name frees what it has a moment after its answer. */
static void wait_for_threads(void)
{
    struct stat st;
    scarcity.armed = false;
    alarm(SCENE_S);
    while (stat("/proc/self/task", &st) == 0 && st.st_nlink > ALONE)
        sched_yield();
    alarm(0);
}

static void play_short_of(const char *name, unsigned at)
{
    long before = scarcity_outstanding;
    scarcity_begin(at, false);
    play(name);
    wait_for_threads();
    scarcity_end();
    if (scarcity_outstanding != before)
        fail_msg("%ld leaked, at %u", scarcity_outstanding - before, at);
    if (scarcity.seen > SEEN_MAX)
        fail_msg("%u tries of %s, at %u", scarcity.seen, name, at);
}

static void each_fails_in_turn(const char *scene, unsigned least)
{
    char name[40];
    for (unsigned at = 0; at == 0 || scarcity.failed; at++) {
        snprintf(name, sizeof name, "%s/%u", scene, at);
        play_short_of(name, at);
        assert_true(at < 10000);
    }
    assert_true(scarcity.seen > least);
}

static void opening_short_of_it(void **state)
{
    (void)state;
    each_fails_in_turn("open", 4);
}

/* Allocations are counted for one thread only. */
static void threads_short_of_it(void **state)
{
    (void)state;
    if (!scarcity_of_memory)
        each_fails_in_turn("thread", 10);
}

static void locks_short_of_it(void **state)
{
    (void)state;
    each_fails_in_turn("locks", 30);
}

static struct stile_caps caps(void)
{
    struct stile_client *client;
    struct stile_error err;
    assert_int_equal(stile_client_open(&client, url, NULL, &err), STILE_OK);
    struct stile_caps all = *stile_client_caps(client);
    stile_client_close(client);
    return all;
}

static void slots_short_of_it(void **state)
{
    (void)state;
    if (caps().modes & 1u << STILE_SLOTS)
        each_fails_in_turn("slots", 30);
}

static void watching_short_of_it(void **state)
{
    (void)state;
    each_fails_in_turn("watch", 30);
}

static void cells_short_of_it(void **state)
{
    (void)state;
    if (ENGINE_CLASS.cells)
        each_fails_in_turn("cells", 30);
}

static void elections_short_of_it(void **state)
{
    (void)state;
    if (caps().lease != STILE_LEASE_PROCESS)
        each_fails_in_turn("elect", 30);
}

static void once_short_of_it(void **state)
{
    (void)state;
    if (caps().token && caps().keeps)
        each_fails_in_turn("once", 30);
}

static void pace_short_of_it(void **state)
{
    (void)state;
    if (caps().paces)
        each_fails_in_turn("pace", 10);
}

static void two_short_of_it(void **state)
{
    (void)state;
    each_fails_in_turn("two", 10);
}

static void sharing_short_of_it(void **state)
{
    (void)state;
    if (caps().modes & 1u << STILE_SHARED)
        each_fails_in_turn("share", 10);
}

static void detaching_short_of_it(void **state)
{
    (void)state;
    if (caps().detached)
        each_fails_in_turn("detach", 10);
}

static void jobs_short_of_it(void **state)
{
    (void)state;
    if (caps().jobs)
        each_fails_in_turn("jobs", 10);
}

static int is_empty(const struct stile_info *info, void *data)
{
    (void)data;
    return info->holders + info->waiters == 0;
}

static int keep_name(const struct stile_info *info, void *data)
{
    snprintf(data, STILE_NAME_MAX + 1, "%s", info->name);
    return 1;
}

/* What could not be given back goes with its lease. */
static void nothing_is_left(void **state)
{
    struct stile_client *client;
    struct stile_error err;
    (void)state;
    assert_int_equal(stile_client_open(&client, url, NULL, &err), STILE_OK);
    for (char name[STILE_NAME_MAX + 1] = "";; name[0] = '\0') {
        assert_int_equal(stile_list(client, NULL, keep_name, name, &err), STILE_OK);
        if (!name[0])
            break;
        if (stile_watch(client, name, PATIENCE_MS, is_empty, NULL, &err))
            fail_msg("%s stays: %s", name, err.message);
    }
    stile_client_close(client);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_short_of_it),   cmocka_unit_test(threads_short_of_it),
        cmocka_unit_test(locks_short_of_it),     cmocka_unit_test(slots_short_of_it),
        cmocka_unit_test(watching_short_of_it),  cmocka_unit_test(cells_short_of_it),
        cmocka_unit_test(elections_short_of_it), cmocka_unit_test(once_short_of_it),
        cmocka_unit_test(pace_short_of_it),      cmocka_unit_test(two_short_of_it),
        cmocka_unit_test(sharing_short_of_it),   cmocka_unit_test(detaching_short_of_it),
        cmocka_unit_test(jobs_short_of_it),      cmocka_unit_test(nothing_is_left),
    };
    if (argc < 2) {
        fprintf(stderr, "usage: %s URL [FILTER]\n", argv[0]);
        return 2;
    }
    url = argv[1];
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name("nomem", tests, NULL, NULL);
}
