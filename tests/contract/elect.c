/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Elections: one candidate leads, its value is seen by all, and only a leader is told of a loss
 * (LESSONS row 47). */
#include "contract.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- kit ---- */

/* What a candidate was told. */
struct told {
    _Atomic int gained, lost;
    sem_t *loss;
};

static void note_change(struct stile_election *election, enum stile_election_state state,
                        void *data)
{
    struct told *told = data;
    (void)election;
    if (state == STILE_ELECTION_LEADING)
        told->gained++;
    if (state == STILE_ELECTION_LOST) {
        told->lost++;
        sem_post(told->loss);
    }
}

static struct told *told_in(struct scene *s)
{
    struct told *told = scene_memory(s, sizeof *told);
    told->loss = scene_semaphore(s);
    return told;
}

static struct stile_election *candidate(struct stile_client *client, const char *name,
                                        struct told *told)
{
    struct stile_election *election;
    check_ok(stile_election_new(&election, client, name,
                                STILE_ELECTION_OPTIONS(.ttl_ms = 3000,
                                                       .on_change = told ? note_change : NULL,
                                                       .data = told),
                                &why));
    return election;
}

/* Whether leaders can proclaim here; else it has been checked that it is refused. */
static const char *value_if_any(struct scene *s, const char *value)
{
    const struct stile_caps *caps = s->caps;
    if (caps->proclaims || (caps->cells && caps->token))
        return value;
    struct stile_election *election = candidate(s->client, s->name, NULL);
    check_status(STILE_UNSUPPORTED, stile_election_campaign(election, value, 0, &why));
    assert_true(strlen(why.message) > 0);
    assert_int_equal(stile_election_state(election, NULL), STILE_ELECTION_IDLE);
    stile_election_free(election);
    print_message("# %s elects leaders that cannot proclaim, and says so\n", caps->engine);
    return NULL;
}

struct observed {
    bool leads;
    uint64_t token;
    int64_t pid;
    char value[STILE_PROCLAIM_MAX + 1];
    int calls;
};

static int observe(const struct stile_leader *leader, void *data)
{
    struct observed *observed = data;
    observed->leads = leader->leads;
    observed->token = leader->token;
    observed->pid = leader->pid;
    observed->calls++;
    snprintf(observed->value, sizeof observed->value, "%s", leader->value);
    assert_true(leader->leads || (leader->token == 0 && leader->pid == 0 && !*leader->value));
    return 0;
}

static struct observed leader_of(struct stile_client *client, const char *name)
{
    struct observed observed = {0};
    check_ok(stile_leader_show(client, name, observe, &observed, &why));
    assert_int_equal(observed.calls, 1);
    return observed;
}

static void check_leader(struct stile_client *client, const char *name, uint64_t token,
                         const char *value)
{
    struct observed seen = leader_of(client, name);
    assert_true(seen.leads);
    assert_true(seen.token == token);
    assert_string_equal(seen.value, value ? value : "");
}

/* Some engines store no process, or the value in its place. */
static void check_pid(int64_t pid)
{
    assert_true(pid == getpid() || pid == 0);
}

static uint64_t lead(struct stile_election *election, const char *value)
{
    uint64_t token;
    check_ok(stile_election_campaign(election, value, PATIENCE_MS, &why));
    assert_int_equal(stile_election_state(election, &token), STILE_ELECTION_LEADING);
    return token;
}

/* ---- leading ---- */

static void test_elect_one_leads(void **state)
{
    struct scene *s = *state;
    struct stile_client *other = scene_client(s, NULL);
    const char *value = value_if_any(s, "10.0.0.1:80");
    struct stile_election *first = candidate(s->client, s->name, NULL),
                          *second = candidate(other, s->name, NULL);
    assert_false(leader_of(other, s->name).leads);
    uint64_t token = lead(first, value);
    assert_true(!s->caps->token || token > 0);
    check_leader(other, s->name, token, value);
    check_pid(leader_of(other, s->name).pid);
    check_status(STILE_HELD, stile_election_campaign(second, NULL, 0, &why));
    assert_int_equal(stile_election_state(second, NULL), STILE_ELECTION_IDLE);
    check_ok(stile_election_resign(first, &why));
    assert_int_equal(stile_election_state(first, NULL), STILE_ELECTION_IDLE);
    assert_false(leader_of(other, s->name).leads);
    uint64_t later = lead(second, NULL);
    assert_true(!s->caps->token || later > token);
    check_leader(s->client, s->name, later, "");
    check_ok(stile_election_resign(second, &why));
    stile_election_free(first);
    stile_election_free(second);
}

static void test_elect_misuse(void **state)
{
    struct scene *s = *state;
    struct stile_election *election = candidate(s->client, s->name, NULL), *none;
    char *long_value = scene_memory(s, STILE_PROCLAIM_MAX + 2);
    memset(long_value, 'v', STILE_PROCLAIM_MAX + 1);
    check_status(STILE_MISUSE, stile_election_resign(election, &why));
    check_status(STILE_MISUSE, stile_election_proclaim(election, "x", &why));
    check_status(STILE_MISUSE, stile_election_campaign(election, long_value, 0, &why));
    check_status(STILE_MISUSE, stile_election_new(&none, s->client, "", NULL, &why));
    assert_null(none);
    check_status(STILE_MISUSE, stile_leader_show(s->client, s->name, NULL, NULL, &why));
    lead(election, NULL);
    check_status(STILE_MISUSE, stile_election_campaign(election, NULL, 0, &why));
    check_status(STILE_MISUSE, stile_election_proclaim(election, NULL, &why));
    check_ok(stile_election_resign(election, &why));
    stile_election_free(election);
    stile_election_free(NULL);
}

/* ---- gain and loss ---- */

static void test_elect_loss_is_told_once(void **state)
{
    struct scene *s = *state;
    struct stile_client *other = scene_client(s, NULL);
    struct told *told = told_in(s);
    struct stile_election *election = candidate(s->client, s->name, told);
    int fd = stile_election_lost_fd(election);
    uint64_t token = lead(election, NULL), lost;
    assert_int_equal(told->gained, 1);
    assert_false(readable(fd, 0));
    check_ok(stile_break(other, s->name, 0, &why));
    assert_true(readable(fd, PATIENCE_MS));
    await_post(told->loss);
    assert_int_equal(stile_election_state(election, &lost), STILE_ELECTION_LOST);
    assert_true(lost == token);
    check_status(STILE_LOST, stile_election_proclaim(election, "late", &why));
    uint64_t again = lead(election, NULL);
    assert_true(!s->caps->token || again > token);
    assert_int_equal(told->gained, 2);
    check_ok(stile_election_resign(election, &why));
    assert_int_equal(told->lost, 1);
    stile_election_free(election);
}

struct campaign {
    struct stile_election *election;
    _Atomic int answers;
    enum stile_status status;
    sem_t *answered;
};

static void note_answer(struct stile_election *election, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    struct campaign *campaign = data;
    (void)election;
    assert_true((err == NULL) == (status == STILE_OK));
    campaign->status = status;
    campaign->answers++;
    sem_post(campaign->answered);
}

static struct campaign *campaign_of(struct scene *s, struct stile_election *election)
{
    struct campaign *campaign = scene_memory(s, sizeof *campaign);
    campaign->election = election;
    campaign->answered = scene_semaphore(s);
    return campaign;
}

/* A candidate waits while leaders come and go, and gives up: nothing was gained, nothing lost. */
static void test_elect_candidate_is_never_told(void **state)
{
    struct scene *s = *state;
    struct stile_client *other = scene_client(s, NULL);
    struct told *told = told_in(s);
    struct stile_election *leader = candidate(other, s->name, NULL),
                          *waiter = candidate(s->client, s->name, told);
    struct campaign *campaign = campaign_of(s, waiter);
    lead(leader, NULL);
    check_ok(stile_election_campaign_async(waiter, NULL, -1, note_answer, campaign));
    assert_int_equal(stile_election_state(waiter, NULL), STILE_ELECTION_CAMPAIGNING);
    check_status(STILE_MISUSE, stile_election_campaign(waiter, NULL, 0, &why));
    check_ok(stile_election_cancel(waiter));
    await_post(campaign->answered);
    assert_int_equal(campaign->status, STILE_CANCELLED);
    check_status(STILE_TIMEOUT, stile_election_campaign(waiter, NULL, 50, &why));
    assert_int_equal(told->gained + told->lost, 0);
    assert_false(readable(stile_election_lost_fd(waiter), 0));
    check_ok(stile_election_resign(leader, &why));
    check_free(s, s->name);
    stile_election_free(waiter);
    stile_election_free(leader);
}

static void test_elect_next_candidate_leads(void **state)
{
    struct scene *s = *state;
    struct stile_client *other = scene_client(s, NULL);
    const char *value = value_if_any(s, "next");
    struct told *told = told_in(s);
    struct stile_election *leader = candidate(other, s->name, NULL),
                          *waiter = candidate(s->client, s->name, told);
    struct campaign *campaign = campaign_of(s, waiter);
    uint64_t token = lead(leader, NULL), next;
    check_ok(stile_election_campaign_async(waiter, value, -1, note_answer, campaign));
    check_ok(stile_election_resign(leader, &why));
    await_post(campaign->answered);
    assert_int_equal(campaign->status, STILE_OK);
    assert_int_equal(stile_election_state(waiter, &next), STILE_ELECTION_LEADING);
    assert_true(!s->caps->token || next > token);
    assert_int_equal(told->gained, 1);
    check_leader(other, s->name, next, value);
    check_ok(stile_election_resign_async(waiter, note_answer, campaign));
    await_post(campaign->answered);
    assert_int_equal(campaign->status, STILE_OK);
    assert_int_equal(campaign->answers, 2);
    assert_int_equal(told->lost, 0);
    stile_election_free(waiter);
    stile_election_free(leader);
}

static void *campaign_thread(void *arg)
{
    struct campaign *campaign = arg;
    campaign->status = stile_election_campaign(campaign->election, NULL, -1, NULL);
    sem_post(campaign->answered);
    return NULL;
}

/* Freed, or its client closed, while a thread waits in it: that ends with CANCELLED. */
static void test_elect_freed_while_it_waits(void **state)
{
    struct scene *s = *state;
    for (int closing = 0; closing < 2; closing++) {
        struct stile_client *other;
        pthread_t thread;
        check_ok(stile_client_open(&other, suite.url, NULL, &why));
        struct stile_election *leader = candidate(s->client, s->name, NULL);
        struct campaign *campaign = campaign_of(s, candidate(other, s->name, NULL));
        lead(leader, NULL);
        assert_int_equal(pthread_create(&thread, NULL, campaign_thread, campaign), 0);
        while (stile_election_state(campaign->election, NULL) != STILE_ELECTION_CAMPAIGNING)
            usleep(1000);
        if (!closing)
            stile_election_free(campaign->election);
        else
            stile_client_close(other);
        await_post(campaign->answered);
        pthread_join(thread, NULL);
        assert_int_equal(campaign->status, STILE_CANCELLED);
        if (!closing)
            stile_client_close(other);
        check_ok(stile_election_resign(leader, &why));
        stile_election_free(leader);
        check_free(s, s->name);
    }
}

/* Freeing a leader resigns. */
static void test_elect_freed_while_it_leads(void **state)
{
    struct scene *s = *state;
    struct told *told = told_in(s);
    struct stile_election *leader = candidate(s->client, s->name, told),
                          *next = candidate(scene_client(s, NULL), s->name, NULL);
    lead(leader, NULL);
    stile_election_free(leader);
    lead(next, NULL);
    assert_int_equal(told->lost, 0);
    check_ok(stile_election_resign(next, &why));
    stile_election_free(next);
}

/* ---- values ---- */

static void test_elect_proclaims_again(void **state)
{
    struct scene *s = *state;
    struct stile_client *other = scene_client(s, NULL);
    char *longest = scene_memory(s, STILE_PROCLAIM_MAX + 1);
    if (!value_if_any(s, "first"))
        return;
    memset(longest, 'v', STILE_PROCLAIM_MAX);
    struct stile_election *election = candidate(s->client, s->name, NULL);
    uint64_t token = lead(election, "first");
    check_leader(other, s->name, token, "first");
    for (const char *const *value = (const char *const[]){"", "7 8", "\xc3\xa4 %s", longest, NULL};
         *value; value++) {
        check_ok(stile_election_proclaim(election, *value, &why));
        check_leader(other, s->name, token, *value);
        check_pid(leader_of(other, s->name).pid);
    }
    assert_int_equal(stile_election_state(election, NULL), STILE_ELECTION_LEADING);
    check_ok(stile_election_resign(election, &why));
    token = lead(election, NULL);
    check_leader(other, s->name, token, ""); /* the value was of the leadership before */
    check_ok(stile_election_proclaim(election, "after all", &why));
    check_leader(other, s->name, token, "after all");
    check_ok(stile_election_resign(election, &why));
    stile_election_free(election);
}

/* An ex-leader that has not noticed yet: nothing of its own runs between the break and its call. */
static void test_elect_late_proclaim_is_refused(void **state)
{
    struct scene *s = *state;
    struct seen seen;
    if (!value_if_any(s, "old"))
        return;
    struct stile_client *late = scene_client(s, STILE_CLIENT_OPTIONS(.threadless = true));
    struct stile_election *old = candidate(late, s->name, NULL),
                          *new = candidate(s->client, s->name, NULL);
    lead(old, "old");
    check_ok(stile_break(s->client, s->name, 0, &why));
    uint64_t token = lead(new, "new");
    enum stile_status status = stile_election_proclaim(old, "late", &why);
    assert_true(status == STILE_STALE || status == STILE_LOST);
    check_leader(s->client, s->name, token, "new");
    look(s->client, s->name, &seen);
    assert_int_equal(seen.holders, 1);
    assert_int_equal(seen.waiters, 0);
    check_ok(stile_election_resign(new, &why));
    check_status(STILE_LOST, stile_election_resign(old, &why));
    check_free(s, s->name);
    stile_election_free(old);
    stile_election_free(new);
}

/* Where the value is in a cell: one of another token is not the leader's, and neither is garbage.
 */
static void test_elect_value_of_another_token(void **state)
{
    struct scene *s = *state;
    char key[96], text[64];
    if (s->caps->proclaims || !value_if_any(s, "x"))
        return;
    snprintf(key, sizeof key, "elect:%s", s->name);
    struct stile_election *election = candidate(s->client, s->name, NULL);
    uint64_t token = lead(election, "before");
    check_ok(stile_election_resign(election, &why));
    token = lead(election, NULL);
    check_leader(s->client, s->name, token, "");
    for (const char *const *bytes =
             (const char *const[]){"", " ", "x", "99999999999999999999999 x", "12", NULL};
         *bytes; bytes++) {
        check_ok(stile_cell_put(NULL, s->client, key, *bytes, strlen(*bytes),
                                STILE_CELL_OPTIONS(.token = token), &why));
        check_leader(s->client, s->name, token, "");
    }
    /* The guard has seen the leader's token, but the value was not written with it. */
    snprintf(text, sizeof text, "%llu x", (unsigned long long)token - 1);
    check_ok(stile_cell_put(NULL, s->client, key, text, strlen(text),
                            STILE_CELL_OPTIONS(.token = token), &why));
    check_leader(s->client, s->name, token, "");
    check_ok(stile_election_resign(election, &why));
    stile_election_free(election);
}

/* ---- watching ---- */

#define WATCHED_MAX 16

struct watched {
    struct observed seen[WATCHED_MAX];
    _Atomic int n;
    int at; /* the next one to be looked at */
    sem_t *event;
    sem_t *ended;
    enum stile_status status;
};

static int note_leader(const struct stile_leader *leader, void *data)
{
    struct watched *watched = data;
    if (watched->n < WATCHED_MAX)
        observe(leader, &watched->seen[watched->n]);
    watched->n++;
    sem_post(watched->event);
    return 0;
}

static void note_end(struct stile_client *client, enum stile_status status,
                     const struct stile_error *err, void *data)
{
    struct watched *watched = data;
    (void)client, (void)err;
    watched->status = status;
    sem_post(watched->ended);
}

/* Waits for the next report; a leader may first be reported without its value. */
static const struct observed *next_report(struct watched *watched, bool leads, const char *value)
{
    const struct observed *seen;
    do {
        await_post(watched->event);
        assert_true(watched->at < WATCHED_MAX);
        seen = &watched->seen[watched->at++];
    } while (seen->leads != leads || strcmp(seen->value, value) != 0);
    return seen;
}

static void test_elect_watch(void **state)
{
    struct scene *s = *state;
    struct stile_client *other = scene_client(s, NULL);
    const char *value = value_if_any(s, "v1");
    struct watched *watched = scene_memory(s, sizeof *watched);
    uint64_t number;
    watched->event = scene_semaphore(s);
    watched->ended = scene_semaphore(s);
    struct stile_election *election = candidate(s->client, s->name, NULL);
    check_ok(stile_leader_watch_async(&number, other, s->name, -1, note_leader, note_end, watched,
                                      &why));
    next_report(watched, false, "");
    uint64_t token = lead(election, value);
    assert_true(next_report(watched, true, value ? value : "")->token == token);
    if (value) {
        check_ok(stile_election_proclaim(election, "v2", &why));
        assert_true(next_report(watched, true, "v2")->token == token);
    }
    check_ok(stile_election_resign(election, &why));
    next_report(watched, false, "");
    check_ok(stile_watch_cancel(other, number));
    await_post(watched->ended);
    assert_int_equal(watched->status, STILE_CANCELLED);
    stile_election_free(election);
}

static int stop_at_leader(const struct stile_leader *leader, void *data)
{
    observe(leader, data);
    return leader->leads;
}

static void *lead_thread(void *arg)
{
    struct campaign *campaign = arg;
    campaign->status = stile_election_campaign(campaign->election, NULL, PATIENCE_MS, NULL);
    return NULL;
}

static void test_elect_watch_blocks(void **state)
{
    struct scene *s = *state;
    struct stile_client *other = scene_client(s, NULL);
    struct observed seen = {0};
    struct campaign *campaign = campaign_of(s, candidate(s->client, s->name, NULL));
    pthread_t thread;
    check_status(STILE_TIMEOUT, stile_leader_watch(other, s->name, 50, observe, &seen, &why));
    assert_int_equal(seen.calls, 1);
    assert_int_equal(pthread_create(&thread, NULL, lead_thread, campaign), 0);
    check_ok(stile_leader_watch(other, s->name, PATIENCE_MS, stop_at_leader, &seen, &why));
    pthread_join(thread, NULL);
    assert_int_equal(campaign->status, STILE_OK);
    assert_true(seen.leads);
    check_ok(stile_election_resign(campaign->election, &why));
    stile_election_free(campaign->election);
}

/* ---- event loops, names ---- */

static void dispatch_until(struct stile_client *client, const _Atomic int *count, int n)
{
    int64_t end = now_ms() + PATIENCE_MS;
    while (*count < n) {
        assert_true(now_ms() < end);
        readable(stile_client_fd(client), 1000);
        stile_client_dispatch(client);
    }
}

static void test_elect_in_an_event_loop(void **state)
{
    struct scene *s = *state;
    const char *value = value_if_any(s, "loop");
    struct stile_client *client = scene_client(s, STILE_CLIENT_OPTIONS(.threadless = true));
    struct stile_election *election = candidate(client, s->name, NULL);
    struct campaign *campaign = campaign_of(s, election);
    struct watched *watched = scene_memory(s, sizeof *watched);
    watched->event = scene_semaphore(s);
    watched->ended = scene_semaphore(s);
    check_ok(stile_election_campaign_async(election, value, -1, note_answer, campaign));
    assert_int_equal(campaign->answers, 0);
    dispatch_until(client, &campaign->answers, 1);
    assert_int_equal(campaign->status, STILE_OK);
    if (value) {
        check_ok(stile_election_proclaim_async(election, "again", note_answer, campaign));
        dispatch_until(client, &campaign->answers, 2);
        assert_int_equal(campaign->status, STILE_OK);
    }
    check_ok(stile_leader_show_async(client, s->name, note_leader, note_end, watched, &why));
    dispatch_until(client, &watched->n, 1);
    assert_string_equal(watched->seen[0].value, value ? "again" : "");
    check_ok(stile_election_resign_async(election, note_answer, campaign));
    dispatch_until(client, &campaign->answers, value ? 3 : 2);
    assert_int_equal(campaign->status, STILE_OK);
    stile_election_free(election);
}

/* Names with every printable trouble, and the longest that a value has room for. */
static void test_elect_names(void **state)
{
    struct scene *s = *state;
    char *longest = scene_memory(s, STILE_NAME_MAX + 1);
    const char *value = value_if_any(s, "of a name");
    memset(longest, 'n', STILE_NAME_MAX);
    const char *const names[] = {"a b/%41:c", "\xc3\xa4\xe2\x82\xac", longest};
    for (size_t i = 0; i < COUNT(names); i++) {
        struct stile_election *election = candidate(s->client, names[i], NULL);
        if (strlen(names[i]) == STILE_NAME_MAX && value && !s->caps->proclaims) {
            check_status(STILE_UNSUPPORTED, stile_election_campaign(election, value, 0, &why));
            value = NULL;
        }
        uint64_t token = lead(election, value);
        check_leader(s->client, names[i], token, value);
        check_ok(stile_election_resign(election, &why));
        stile_election_free(election);
    }
}

SUITE_PART(elect, SCENE_TEST(test_elect_one_leads), SCENE_TEST(test_elect_misuse),
           SCENE_TEST(test_elect_loss_is_told_once), SCENE_TEST(test_elect_candidate_is_never_told),
           SCENE_TEST(test_elect_next_candidate_leads), SCENE_TEST(test_elect_freed_while_it_waits),
           SCENE_TEST(test_elect_freed_while_it_leads), SCENE_TEST(test_elect_proclaims_again),
           SCENE_TEST(test_elect_late_proclaim_is_refused),
           SCENE_TEST(test_elect_value_of_another_token), SCENE_TEST(test_elect_watch),
           SCENE_TEST(test_elect_watch_blocks), SCENE_TEST(test_elect_in_an_event_loop),
           SCENE_TEST(test_elect_names))
