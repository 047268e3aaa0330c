/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A process is killed with -9 at an instruction of an operation, at every one in turn under
 * STILE_SOAK=1, else at a seeded choice. ptrace steps it there. Whatever it leaves, the others must
 * get the lock, one at a time, with tokens that grow, and nothing may leak.
 *
 * LESSONS rows 6, 10: a dead waiter, holder or releaser keeps nobody waiting. */
#include "unit/local_kit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/name.h"

/* In a normal run, for each scene: as many kills as so many steps allow. */
#define STEPS     30000
#define KILLS_MIN 6
#define KILLS_MAX 40

/* One sweep does not reach all names of a crowd. */
#define SWEEPS_OF_A_CROWD 50

struct scene;

/* The stage: two parties of ours, and one process that will die. */
struct stage {
    char dir[64];
    struct party first, second;
    struct bid *bid, *second_bid;
    uint64_t last_token;
    uint32_t cells;
};

struct scene {
    const char *name;
    struct bid_options options;
    /* In us, before the process starts to be stepped, and after it has died. */
    void (*before)(struct stage *stage);
    void (*after)(struct stage *stage);
    /* In the process: up to the point of interest, and the operation itself. */
    void (*prepare)(struct party *party, struct bid *bid);
    void (*act)(struct party *party, struct bid *bid);
    bool is_crowded; /* among so many names that one more needs another segment of hash chains */
};

/* ---- in the process that dies ---- */

static void die(const char *why)
{
    fprintf(stderr, "# the process to be killed: %s\n", why);
    _exit(3);
}

static void child(const struct stage *stage, const struct scene *scene)
{
    struct party party;
    struct stile_error err = {0};
    kit_be_child();
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        die("ptrace is not permitted here");
    if (kit_try_open(&party, stage->dir, &err) != STILE_OK)
        die(err.message);
    struct bid *bid = kit_bid_with(&party, "lock", scene->options);
    scene->prepare(&party, bid);
    raise(SIGSTOP);
    scene->act(&party, bid);
    raise(SIGSTOP);
    _exit(4);
}

static void nothing(struct party *party, struct bid *bid)
{
    (void)party, (void)bid;
}

static void take(struct party *party, struct bid *bid)
{
    (void)party;
    if (kit_wait(bid) != SAID_GRANTED)
        die("not granted");
}

static void stand_in_line(struct party *party, struct bid *bid)
{
    (void)party;
    kit_wait(bid);
}

static void give(struct party *party, struct bid *bid)
{
    (void)party;
    kit_release(bid);
}

/* Takes what it has been granted meanwhile, as it does after a wake-up. */
static void look(struct party *party, struct bid *bid)
{
    (void)party;
    kit_until(bid, SAID_GRANTED);
}

/* With fair=: its release leaves the lock free for a moment. */
static void take_for_a_turn(struct party *party, struct bid *bid)
{
    kit_local(party)->fair_ns = 3600 * NS_PER_SEC;
    take(party, bid);
}

static void give_and_take(struct party *party, struct bid *bid)
{
    kit_release(bid);
    take(party, bid);
}

/* By the word of the name, which its second release opens. */
static void warm_up(struct party *party, struct bid *bid)
{
    for (int i = 0; i < 3; i++) {
        take(party, bid);
        kit_release(bid);
    }
}

static void take_by_word(struct party *party, struct bid *bid)
{
    warm_up(party, bid);
    take(party, bid);
    if (!local_claim_of(bid->claim)->watcher.quick)
        die("not taken by the word");
}

/* Its next release opens the name. */
static void take_to_open(struct party *party, struct bid *bid)
{
    take(party, bid);
    kit_release(bid);
    take(party, bid);
}

static void take_a_new_name(struct party *party, struct bid *bid)
{
    (void)bid;
    take(party, kit_bid(party, "a new name"));
}

/* ---- stepping ---- */

static void expect_stop(pid_t pid, int *status)
{
    pid_t rc;
    do
        rc = waitpid(pid, status, 0);
    while (rc < 0 && errno == EINTR);
    assert_int_equal(rc, pid);
    if (!WIFSTOPPED(*status))
        fail_msg("the process to be killed ended by itself (status %x)", (unsigned)*status);
}

static pid_t start(const struct stage *stage, const struct scene *scene)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child(stage, scene);
    expect_stop(pid, &status);
    assert_int_equal(WSTOPSIG(status), SIGSTOP);
    return pid;
}

static void fail_on_signal(pid_t pid, long n)
{
    siginfo_t info = {0};
    ptrace(PTRACE_GETSIGINFO, pid, NULL, &info);
    kill(pid, SIGKILL);
    fail_msg("the process to be killed got signal %d (code %d, address %p) after %ld instructions",
             info.si_signo, info.si_code, info.si_addr, n);
}

/* Steps at most that many instructions; how many there were until the end of the operation. */
static long step(pid_t pid, long most)
{
    int status;
    for (long n = 0; n < most; n++) {
        if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0)
            fail_msg("ptrace is not permitted here: %s", strerror(errno));
        expect_stop(pid, &status);
        if (WSTOPSIG(status) == SIGSTOP)
            return n;
        if (WSTOPSIG(status) != SIGTRAP) /* stepping on would swallow it, and repeat the fault */
            fail_on_signal(pid, n);
    }
    return most;
}

static void end(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

/* ---- what must be true afterwards ---- */

static void expect_growth(struct stage *stage, const struct bid *bid)
{
    if (bid->token <= stage->last_token)
        fail_msg("token %lu after %lu", (unsigned long)bid->token,
                 (unsigned long)stage->last_token);
    stage->last_token = bid->token;
}

static void take_and_give(struct stage *stage, struct bid *bid)
{
    kit_wait(bid);
    kit_until(bid, SAID_GRANTED);
    expect_growth(stage, bid);
    assert_int_equal(kit_release(bid), SAID_RELEASED);
    assert_status(bid->error.status, OK);
}

static void anybody_can_take_it(struct stage *stage)
{
    take_and_give(stage, stage->bid);
    take_and_give(stage, stage->second_bid);
}

/* The process stood behind us, and perhaps somebody behind it. */
static void we_hold(struct stage *stage)
{
    kit_take(stage->bid);
    expect_growth(stage, stage->bid);
}

static void next_is_served(struct stage *stage)
{
    kit_wait(stage->second_bid);
    assert_int_equal(stage->second_bid->said, SAID_NOTHING);
    assert_int_equal(kit_release(stage->bid), SAID_RELEASED);
    kit_until(stage->second_bid, SAID_GRANTED);
    expect_growth(stage, stage->second_bid);
    assert_int_equal(kit_release(stage->second_bid), SAID_RELEASED);
    anybody_can_take_it(stage);
}

/* We wait in the queue behind the process, which holds: exactly one of us gets it at a time. */
static void two_in_line(struct stage *stage)
{
    assert_int_equal(kit_wait(stage->bid), SAID_NOTHING);
    assert_int_equal(kit_wait(stage->second_bid), SAID_NOTHING);
}

static void both_are_served(struct stage *stage)
{
    kit_until(stage->bid, SAID_GRANTED);
    expect_growth(stage, stage->bid);
    kit_settle();
    assert_int_equal(stage->second_bid->said, SAID_NOTHING);
    assert_int_equal(kit_release(stage->bid), SAID_RELEASED);
    kit_until(stage->second_bid, SAID_GRANTED);
    expect_growth(stage, stage->second_bid);
    assert_int_equal(kit_release(stage->second_bid), SAID_RELEASED);
}

/* Both slots, or both readers, at once. */
static void room_for_two(struct stage *stage)
{
    kit_wait(stage->bid);
    kit_wait(stage->second_bid);
    kit_until(stage->bid, SAID_GRANTED);
    expect_growth(stage, stage->bid);
    kit_until(stage->second_bid, SAID_GRANTED);
    expect_growth(stage, stage->second_bid);
    assert_int_equal(kit_release(stage->bid), SAID_RELEASED);
    assert_int_equal(kit_release(stage->second_bid), SAID_RELEASED);
}

static void nothing_yet(struct stage *stage)
{
    (void)stage;
}

static void we_hold_by_word(struct stage *stage)
{
    for (int i = 0; i < 3; i++) {
        kit_take(stage->bid);
        kit_release(stage->bid);
    }
    we_hold(stage);
    assert_int_not_equal(local_claim_of(stage->bid->claim)->watcher.quick, 0);
}

static void we_release(struct stage *stage)
{
    assert_int_equal(kit_release(stage->bid), SAID_RELEASED);
}

/* ---- the scenes ---- */

#define SLOTS_2 .mode = STILE_SLOTS, .slots = 2

static const struct scene acquire = {"acquire", .before = nothing_yet, .prepare = nothing,
                                     .act = take, .after = anybody_can_take_it};
static const struct scene release = {"release", .before = nothing_yet, .prepare = take, .act = give,
                                     .after = anybody_can_take_it};
static const struct scene hold = {"release with a hold", .options = {.hold_ms = 2},
                                  .before = nothing_yet, .prepare = take,
                                  .act = give,           .after = anybody_can_take_it};
static const struct scene delay = {"acquire with a lock-delay",
                                   .options = {.delay_ms = 2},
                                   .before = nothing_yet,
                                   .prepare = nothing,
                                   .act = take,
                                   .after = anybody_can_take_it};
static const struct scene enqueue = {"stand in line", .before = we_hold, .prepare = nothing,
                                     .act = stand_in_line, .after = next_is_served};
static const struct scene withdraw = {"leave the line", .before = we_hold, .prepare = stand_in_line,
                                      .act = give, .after = next_is_served};
static const struct scene hand_over = {"hand over", .before = nothing_yet, .prepare = take,
                                       .act = give, .after = both_are_served};
static const struct scene leave_open = {"leave it open", .before = nothing_yet,
                                        .prepare = take_for_a_turn, .act = give,
                                        .after = both_are_served};
static const struct scene retake = {"take it again", .before = nothing_yet,
                                    .prepare = take_for_a_turn, .act = give_and_take,
                                    .after = both_are_served};
static const struct scene word_take = {"take by the word", .before = nothing_yet,
                                       .prepare = warm_up, .act = take,
                                       .after = anybody_can_take_it};
static const struct scene word_give = {"give by the word", .before = nothing_yet,
                                       .prepare = take_by_word, .act = give,
                                       .after = anybody_can_take_it};
static const struct scene word_open = {"open the name", .before = nothing_yet,
                                       .prepare = take_to_open, .act = give,
                                       .after = anybody_can_take_it};
static const struct scene word_close = {"stand in line behind a word", .before = we_hold_by_word,
                                        .prepare = nothing, .act = stand_in_line,
                                        .after = next_is_served};
static const struct scene word_hand_over = {"hand over what was taken by the word",
                                            .before = nothing_yet, .prepare = take_by_word,
                                            .act = give, .after = both_are_served};
static const struct scene be_granted = {"be granted", .before = we_hold, .prepare = stand_in_line,
                                        .act = look, .after = anybody_can_take_it};
static const struct scene slot = {"take a slot",      .options = {SLOTS_2}, .before = nothing_yet,
                                  .prepare = nothing, .act = take,          .after = room_for_two};
static const struct scene give_slot = {"give a slot",         .options = {SLOTS_2},
                                       .before = nothing_yet, .prepare = take,
                                       .act = give,           .after = room_for_two};
static const struct scene reader = {"shared",
                                    .options = {.mode = STILE_SHARED},
                                    .before = nothing_yet,
                                    .prepare = nothing,
                                    .act = take,
                                    .after = room_for_two};

static const struct scene grow = {"acquire a name that needs more chains",
                                  .before = nothing_yet,
                                  .prepare = nothing,
                                  .act = take_a_new_name,
                                  .after = anybody_can_take_it,
                                  .is_crowded = true};

/* What we do once the process stands where its steps begin. */
static void in_between(struct stage *stage, const struct scene *scene)
{
    if (scene == &hand_over || scene == &word_hand_over || scene == &leave_open || scene == &retake)
        two_in_line(stage);
    if (scene == &be_granted)
        we_release(stage);
}

/* So many held names that the next one brings a segment: found out once. */
static void crowd(struct party *party)
{
    static uint32_t n_wanted;
    struct store *store = kit_store(party);
    const uint32_t *n_names = &store->cells[AT_LEDGER].ledger.n_names;
    const uint32_t *segment = &store->cells[AT_SEGMENTS].segments.first[0];
    for (uint32_t i = 0; n_wanted ? *n_names < n_wanted : !*segment; i++) {
        struct tx tx;
        char name[32];
        struct claim_request request = {.session = kit_local(party)->id, .id = UINT32_MAX};
        struct wakeups wakeups;
        wakeups_init(&wakeups);
        snprintf(name, sizeof name, "crowd %u", i);
        assert_true(local_tx_begin(&tx, store));
        uint32_t index =
            local_names_open(&tx, name_hash(name, strlen(name)), name, strlen(name), 0);
        local_queue_enter(&tx, index, &request, 0, &wakeups);
        assert_true(local_tx_commit(&tx));
    }
    if (!n_wanted)
        n_wanted = *n_names - 1;
}

static void set_up(struct stage *stage, const struct scene *scene)
{
    memset(stage, 0, sizeof *stage);
    kit_make_dir(stage->dir);
    kit_open(&stage->first, stage->dir);
    kit_open(&stage->second, stage->dir);
    struct bid_options ours = scene->options;
    ours.hold_ms = ours.delay_ms = 0;
    stage->bid = kit_bid_with(&stage->first, "lock", ours);
    stage->second_bid = kit_bid_with(&stage->second, "lock", ours);
    kit_take(stage->bid);
    kit_release(stage->bid);
    stage->last_token = stage->bid->token;
    if (scene->is_crowded)
        crowd(&stage->first);
    stage->cells = kit_cells_in_use(kit_store(&stage->first));
}

static void tear_down(struct stage *stage)
{
    kit_bid_free(stage->bid);
    kit_bid_free(stage->second_bid);
    kit_close(&stage->first);
    kit_close(&stage->second);
    kit_remove_dir(stage->dir);
}

/* But for the segment that was added. */
static uint32_t cells_in_use(struct stage *stage)
{
    const struct store *store = kit_store(&stage->first);
    bool has_segment = store->cells[AT_SEGMENTS].segments.first[0] != 0;
    return kit_cells_in_use(store) - (has_segment ? local_chain_segment_cells(0) : 0);
}

/* How many instructions there were, if the process wasn't killed before the end. */
static long kill_after(struct stage *stage, const struct scene *scene, long steps)
{
    scene->before(stage);
    pid_t pid = start(stage, scene);
    in_between(stage, scene);
    long n = step(pid, steps);
    end(pid);
    scene->after(stage);
    kit_settle();
    kit_sweep(kit_store(&stage->first));
    for (int i = 0; i < SWEEPS_OF_A_CROWD && cells_in_use(stage) != stage->cells; i++)
        kit_sweep(kit_store(&stage->first));
    kit_check(kit_store(&stage->first));
    uint32_t cells = cells_in_use(stage);
    if (cells != stage->cells)
        fail_msg("%s, killed after %ld instructions: %u cells in use, were %u", scene->name, steps,
                 cells, stage->cells);
    return n;
}

static long n_kills(long n_instructions)
{
    long n = STEPS / (n_instructions / 2);
    return n < KILLS_MIN ? KILLS_MIN : n > KILLS_MAX ? KILLS_MAX : n;
}

static void run(const struct scene *scene)
{
    struct stage stage;
    set_up(&stage, scene);
    long n = kill_after(&stage, scene, 100000000);
    print_message("# %s: %ld instructions\n", scene->name, n);
    assert_true(n > 100);
    if (kit_is_soak())
        for (long k = 0; k <= n; k++)
            kill_after(&stage, scene, k);
    else
        for (long i = n_kills(n); i > 0; i--)
            kill_after(&stage, scene, (long)(kit_random() % (uint64_t)(n + 1)));
    tear_down(&stage);
}

#define SCENE(scene)                                                                               \
    static void test_##scene(void **state)                                                         \
    {                                                                                              \
        (void)state;                                                                               \
        run(&scene);                                                                               \
    }

/* A segment is added once: each kill on a stage of its own. */
static void run_crowded(const struct scene *scene)
{
    struct stage stage;
    long n = 100000000, kills = 1;
    set_up(&stage, scene); /* of how many names it takes */
    tear_down(&stage);
    for (long i = 0; i <= kills; i++) {
        long steps = i == 0 ? n : kit_is_soak() ? i - 1 : (long)(kit_random() % (uint64_t)(n + 1));
        set_up(&stage, scene);
        long done = kill_after(&stage, scene, steps);
        if (i == 0) {
            n = done;
            kills = kit_is_soak() ? n + 1 : n_kills(n);
            assert_int_not_equal(kit_store(&stage.first)->cells[AT_SEGMENTS].segments.first[0], 0);
        }
        tear_down(&stage);
    }
}

static void test_grow(void **state)
{
    (void)state;
    run_crowded(&grow);
}

SCENE(acquire)
SCENE(release)
SCENE(hold)
SCENE(delay)
SCENE(enqueue)
SCENE(withdraw)
SCENE(hand_over)
SCENE(leave_open)
SCENE(retake)
SCENE(word_take)
SCENE(word_give)
SCENE(word_open)
SCENE(word_close)
SCENE(word_hand_over)
SCENE(be_granted)
SCENE(slot)
SCENE(give_slot)
SCENE(reader)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_acquire),    cmocka_unit_test(test_release),
        cmocka_unit_test(test_hold),       cmocka_unit_test(test_delay),
        cmocka_unit_test(test_enqueue),    cmocka_unit_test(test_withdraw),
        cmocka_unit_test(test_hand_over),  cmocka_unit_test(test_be_granted),
        cmocka_unit_test(test_slot),       cmocka_unit_test(test_give_slot),
        cmocka_unit_test(test_reader),     cmocka_unit_test(test_leave_open),
        cmocka_unit_test(test_retake),     cmocka_unit_test(test_word_take),
        cmocka_unit_test(test_word_give),  cmocka_unit_test(test_word_open),
        cmocka_unit_test(test_word_close), cmocka_unit_test(test_word_hand_over),
        cmocka_unit_test(test_grow),
    };
    return cmocka_run_group_tests_name("local_kill", tests, NULL, NULL);
}
