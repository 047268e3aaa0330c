/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* show, list and watch (LESSONS row 29). */
#include "contract.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- show ---- */

struct expected {
    struct scene *scene;
    const char *name, *command;
    pid_t pid;
    uint64_t token;
    int64_t since_ms;
    int calls;
};

static int check_holder(const struct stile_info *info, void *data)
{
    struct expected *e = data;
    const struct stile_claim_info *c = &info->claims[0];
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    e->calls++;
    assert_string_equal(info->name, e->name);
    assert_int_equal(info->holders, 1);
    assert_true(info->token >= e->token);
    assert_true(c->held);
    assert_false(c->ghost);
    assert_int_equal(c->mode, STILE_EXCLUSIVE);
    assert_true(c->token == e->token);
    if (e->scene->caps->token || c->age_ms != -1) /* redlock without fences stores no time */
        assert_in_range(c->age_ms, 0, now_ms() - e->since_ms + 1000);
    assert_non_null(c->host);
    assert_non_null(c->command);
    assert_non_null(c->owner);
    if (ends_with_process(e->scene)) {
        assert_true(c->expires_ms == STILE_NO_DEADLINE);
        assert_int_equal(c->pid, e->pid);
        assert_string_equal(c->host, host);
        assert_string_equal(c->command, e->command);
    } else {
        assert_true(c->pid == 0 || c->pid == e->pid);
        assert_true(!*c->host || strcmp(c->host, host) == 0);
        assert_true(!*c->command || strcmp(c->command, e->command) == 0);
    }
    return 0;
}

static void test_show_tells_who_holds_it(void **state)
{
    struct scene *s = *state;
    struct peer *peer = peer_start(s, s->name, NULL);
    /* The program's name alone: arguments may be passwords, and others read what is stored. */
    struct expected e = {
        .scene = s, .name = s->name, .pid = peer->pid, .command = program_invocation_short_name};
    e.since_ms = now_ms();
    e.token = peer_acquire(peer);
    check_ok(stile_show(s->client, s->name, check_holder, &e, &why));
    assert_int_equal(e.calls, 1);
    peer_release(peer);
    check_free(s, s->name);
}

static void test_show_tells_label_and_pid(void **state)
{
    struct scene *s = *state;
    char label[] = "night shift";
    struct stile_client *client =
        scene_client(s, STILE_CLIENT_OPTIONS(.label = label, .pid = 4711));
    memset(label, 'x', sizeof label - 1); /* it was copied */
    struct expected e = {.scene = s, .name = s->name, .pid = 4711, .command = "night shift"};
    e.since_ms = now_ms();
    struct stile_lock *lock = held_on(client, s->name, NULL);
    e.token = token_of(lock);
    check_ok(stile_show(s->client, s->name, check_holder, &e, &why));
    assert_int_equal(e.calls, 1);
}

static int check_proclaimed(const struct stile_info *info, void *data)
{
    const char *const *wanted = data;
    assert_int_equal(info->holders, 1);
    assert_int_equal(info->waiters, 1);
    assert_string_equal(info->claims[0].proclaimed, wanted[0]);
    assert_string_equal(info->claims[1].proclaimed, wanted[1]);
    return 0;
}

static void test_show_tells_what_is_proclaimed(void **state)
{
    struct scene *s = *state;
    struct stile_lock *lock;
    const char *wanted[] = {"web1:8080, the first", ""};
    char text[STILE_PROCLAIM_MAX + 2];
    if (!has_proclaim(s))
        return;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    check_status(STILE_MISUSE,
                 stile_lock_new(&lock, s->client, s->name, STILE_OPTIONS(.proclaim = text), &why));
    strcpy(text, wanted[0]);
    lock = held_on(s->client, s->name, STILE_OPTIONS(.proclaim = text));
    struct peer *peer = peer_start(s, s->name, NULL);
    peer_tell(peer, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 1);
    check_ok(stile_show(s->client, s->name, check_proclaimed, wanted, &why));
    check_ok(stile_lock_release(lock, &why));
}

static void test_show_tells_the_queue(void **state)
{
    struct scene *s = *state;
    struct peer *peers[3];
    struct seen seen = {.holders = 0};
    struct stile_lock *holder = held_on(s->client, s->name, NULL);
    for (size_t i = 0; i < COUNT(peers); i++) {
        peers[i] = peer_start(s, s->name, NULL);
        peer_tell(peers[i], "acquire %d", PATIENCE_MS);
        await_seen(s, s->name, 1, i + 1, &seen);
    }
    if (!s->caps->fifo)
        return;
    for (size_t i = 0; i < COUNT(peers); i++) {
        const struct stile_claim_info *c = &seen.claims[1 + i];
        assert_false(c->held);
        assert_false(c->ghost);
        assert_int_equal(c->token, 0);
        assert_true(c->age_ms >= 0);
        assert_true(c->pid == peers[i]->pid || (!ends_with_process(s) && !c->pid));
    }
    check_ok(stile_lock_release(holder, &why));
}

static void test_show_of_an_unknown_name(void **state)
{
    struct scene *s = *state;
    struct seen seen;
    look(s->client, s->name, &seen);
    assert_int_equal(seen.holders, 0);
    assert_int_equal(seen.waiters, 0);
    check_status(STILE_MISUSE, stile_show(s->client, "", NULL, NULL, &why));
    check_status(STILE_MISUSE, stile_show(s->client, NULL, NULL, NULL, &why));
}

/* ---- list ---- */

struct listing {
    char names[16][160];
    size_t n, stop_after;
};

static int take_name(const struct stile_info *info, void *data)
{
    struct listing *l = data;
    assert_true(l->n < COUNT(l->names));
    assert_int_equal(info->holders, 1);
    snprintf(l->names[l->n++], sizeof l->names[0], "%s", info->name);
    return l->n == l->stop_after;
}

static void test_list_is_in_byte_order_and_by_prefix(void **state)
{
    static const char *const tails[] = {"/b", "/a",   "/a\xff", "/a b",
                                        "/A", "/a/z", "0",      "/\xc3\xa9"};
    static const char *const sorted[] = {"/A",     "/a", "/a b",      "/a/z",
                                         "/a\xff", "/b", "/\xc3\xa9", "0"};
    struct scene *s = *state;
    struct listing l = {.n = 0}, only_a = {.n = 0}, two = {.stop_after = 2}, none = {.n = 0};
    char name[160];
    for (size_t i = 0; i < COUNT(tails); i++) {
        snprintf(name, sizeof name, "%s%s", s->name, tails[i]);
        held_on(s->client, name, NULL);
    }
    check_ok(stile_list(s->client, s->name, take_name, &l, &why));
    assert_int_equal(l.n, COUNT(tails));
    for (size_t i = 0; i < l.n; i++) {
        snprintf(name, sizeof name, "%s%s", s->name, sorted[i]);
        assert_string_equal(l.names[i], name);
    }
    snprintf(name, sizeof name, "%s/a", s->name);
    check_ok(stile_list(s->client, name, take_name, &only_a, &why));
    assert_int_equal(only_a.n, 4);
    check_ok(stile_list(s->client, s->name, take_name, &two, &why));
    assert_int_equal(two.n, 2);
    snprintf(name, sizeof name, "%s/a?", s->name);
    check_ok(stile_list(s->client, name, take_name, &none, &why));
    assert_int_equal(none.n, 0);
}

static void test_list_has_what_others_hold(void **state)
{
    struct scene *s = *state;
    struct listing all = {.n = 0};
    struct peer *peer = peer_start(s, s->name, NULL);
    assert_int_equal(count_listed(s->client, s->name), 0);
    peer_acquire(peer);
    check_ok(stile_list(s->client, s->name, take_name, &all, &why));
    assert_int_equal(all.n, 1);
    assert_string_equal(all.names[0], s->name);
    assert_true(count_listed(s->client, NULL) >= 1);
    assert_true(count_listed(s->client, "") >= 1);
    peer_release(peer);
    assert_int_equal(count_listed(s->client, s->name), 0);
    check_status(STILE_MISUSE, stile_list(s->client, "bad\nprefix", take_name, &all, &why));
}

/* ---- watch ---- */

struct watching {
    struct peer *peer;
    enum { BEFORE, ASKED, SEEN_HELD, SEEN_FREE } state;
    uint64_t token;
};

/* Each change that is seen causes the next one. */
static int follow(const struct stile_info *info, void *data)
{
    struct watching *w = data;
    if (w->state == BEFORE && info->holders == 0) {
        w->state = ASKED;
        peer_tell(w->peer, "acquire %d", PATIENCE_MS);
    } else if (w->state == ASKED && info->holders == 1) {
        w->state = SEEN_HELD;
        w->token = info->claims[0].token;
        peer_tell(w->peer, "release");
    } else if (w->state == SEEN_HELD && info->holders == 0) {
        w->state = SEEN_FREE;
    }
    return w->state == SEEN_FREE;
}

static void test_watch_sees_grant_and_release(void **state)
{
    struct scene *s = *state;
    struct watching w = {.peer = peer_start(s, s->name, NULL)};
    check_ok(stile_watch(s->client, s->name, PATIENCE_MS, follow, &w, &why));
    assert_int_equal(w.state, SEEN_FREE);
    assert_true(peer_expect_grant(w.peer) == w.token);
    peer_expect(w.peer, "released");
}

struct killing {
    struct peer *peer;
    bool killed;
};

static int kill_and_see(const struct stile_info *info, void *data)
{
    struct killing *k = data;
    if (!k->killed && info->holders == 1) {
        peer_kill(k->peer);
        k->killed = true;
    }
    return k->killed && info->holders == 0;
}

static void test_watch_sees_a_death(void **state)
{
    struct scene *s = *state;
    struct killing k = {.peer = peer_start(s, s->name, STILE_OPTIONS(.ttl_ms = short_ttl(s)))};
    peer_acquire(k.peer);
    check_ok(stile_watch(s->client, s->name, PATIENCE_MS, kill_and_see, &k, &why));
    assert_true(k.killed);
}

static int count_call(const struct stile_info *info, void *data)
{
    (void)info;
    ++*(int *)data;
    return 0;
}

static void test_watch_ends_when_nothing_changes(void **state)
{
    struct scene *s = *state;
    int calls = 0;
    held_on(s->client, s->name, NULL);
    for (int64_t ms = 30; calls == 0 && ms < PATIENCE_MS; ms *= 2) /* a server may be slow */
        check_status(STILE_TIMEOUT, stile_watch(s->client, s->name, ms, count_call, &calls, &why));
    assert_int_equal(calls, 1);
    check_status(STILE_MISUSE, stile_watch(s->client, s->name, 30, NULL, NULL, &why));
    check_status(STILE_MISUSE, stile_watch(s->client, "", 30, count_call, &calls, &why));
}

/* clang-format off */
SUITE_PART(inspect,
    SCENE_TEST(test_show_tells_who_holds_it),
    SCENE_TEST(test_show_tells_label_and_pid),
    SCENE_TEST(test_show_tells_what_is_proclaimed),
    SCENE_TEST(test_show_tells_the_queue),
    SCENE_TEST(test_show_of_an_unknown_name),
    SCENE_TEST(test_list_is_in_byte_order_and_by_prefix),
    SCENE_TEST(test_list_has_what_others_hold),
    SCENE_TEST(test_watch_sees_grant_and_release),
    SCENE_TEST(test_watch_sees_a_death),
    SCENE_TEST(test_watch_ends_when_nothing_changes))
/* clang-format on */
