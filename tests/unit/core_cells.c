/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on cells and guards in virtual time, against an engine that keeps them in memory and
 * answers as the test has written down; and with every allocation failed in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/guard.h"
#include "core/client.h"
#include "support/loop_virtual.h"
#include "support/scarcity.h"

#define SEC NS_PER_SEC
#define MS  NS_PER_MS

/* ---- an engine with one cell ---- */

#define REQUESTS_MAX 4

struct pending {
    struct timer timer;
    struct cell_request *request;
    struct fake *fake;
};

struct fake {
    struct engine engine;
    struct pending pending[REQUESTS_MAX];
    struct query *subscription;
};

/* What it keeps, and how it behaves. */
static struct {
    char value[64], issuer[64];
    uint64_t version, token;
    uint64_t takes_ns; /* until an answer */
    bool silent;       /* no answer ever */
    enum stile_status fails;
    unsigned reads, asked, listed;
    uint64_t read_ns[64];
    void (*on_read)(void); /* while a read is under way */
} server;

static struct loop *loop;
static struct stile_client *client;
static struct stile_error why;
static struct fake *engine_now;

static enum stile_status judge(const struct cell_request *request)
{
    struct guard_seen seen = {.token = server.token, .issuer = server.issuer};
    enum stile_status status = guard_judge(seen, request->token, request->issuer, request->strict);
    bool writes = request->verb == CELL_PUT || request->verb == CELL_REMOVE;
    if (!status && writes && !request->any_version && request->if_version != server.version)
        return STILE_CONFLICT;
    if (status || request->token == 0)
        return status;
    server.token = request->token;
    (void)snprintf(server.issuer, sizeof server.issuer, "%s",
                   guard_issuer(seen, request->token, request->issuer));
    return STILE_OK;
}

static enum stile_status execute(const struct cell_request *request)
{
    enum stile_status status = STILE_OK;
    if (request->verb == CELL_PUT || request->verb == CELL_REMOVE || request->verb == CELL_RAISE)
        status = judge(request);
    if (!status && request->verb == CELL_PUT) {
        (void)snprintf(server.value, sizeof server.value, "%.*s", (int)request->size,
                       (const char *)request->value);
        server.version++;
    } else if (!status && request->verb == CELL_REMOVE) {
        server.version = 0;
    } else if (request->verb == CELL_RESET) {
        server.token = request->token;
        (void)snprintf(server.issuer, sizeof server.issuer, "%s", request->issuer);
    }
    return status;
}

static void answer(struct timer *timer)
{
    struct pending *pending = (struct pending *)timer;
    struct cell_request *request = pending->request;
    const struct engine_events *events = pending->fake->engine.events;
    struct stile_error err = {.status = server.fails, .message = "the test says so"};
    pending->request = NULL;
    if (!server.fails)
        err.status = execute(request);
    bool known = !server.fails;
    struct stile_cell cell = {.key = request->key,
                              .value =
                                  request->verb == CELL_GET && server.version ? server.value : NULL,
                              .size = server.version ? strlen(server.value) : 0,
                              .version = server.version,
                              .token = server.token,
                              .issuer = server.token ? server.issuer : NULL};
    for (unsigned i = 0; known && i < (request->verb == CELL_LIST ? server.listed : 1); i++)
        events->cell(request, &cell);
    events->cell_done(request, err.status ? &err : NULL);
}

static void fake_run(struct engine *engine, struct cell_request *request)
{
    struct fake *fake = (struct fake *)engine;
    struct pending *pending = fake->pending;
    while (pending->request)
        pending++;
    assert_true(pending < fake->pending + REQUESTS_MAX);
    server.asked++;
    if (request->verb == CELL_GET && server.reads < 64)
        server.read_ns[server.reads++] = loop_now(engine->loop);
    pending->request = request;
    if (server.on_read && request->verb == CELL_GET)
        server.on_read();
    if (!server.silent)
        loop_arm(engine->loop, &pending->timer, loop_now(engine->loop) + server.takes_ns);
}

static void fake_watch(struct engine *engine, struct query *query)
{
    ((struct fake *)engine)->subscription = query;
}

static void fake_unwatch(struct engine *engine, struct query *query)
{
    assert_ptr_equal(((struct fake *)engine)->subscription, query);
    ((struct fake *)engine)->subscription = NULL;
}

static void report_change(void)
{
    if (engine_now->subscription)
        engine_now->engine.events->changed(engine_now->subscription);
}

static void fake_open(struct engine *engine, const struct url *url)
{
    struct fake *fake = (struct fake *)engine;
    struct stile_error err = {.status = STILE_NOMEM};
    (void)url;
    for (int i = 0; i < REQUESTS_MAX; i++) {
        fake->pending[i].timer.fn = answer;
        fake->pending[i].fake = fake;
    }
    engine_now = fake;
    engine->events->opened(engine, loop_reserve(engine->loop, REQUESTS_MAX) ? &err : NULL);
}

static void fake_close(struct engine *engine)
{
    struct fake *fake = (struct fake *)engine;
    assert_null(fake->subscription);
    for (int i = 0; i < REQUESTS_MAX; i++)
        loop_disarm(engine->loop, &fake->pending[i].timer);
}

static const struct engine_cells polled_cells = {.run = fake_run};
static const struct engine_cells pushed_cells = {
    .run = fake_run, .watch = fake_watch, .unwatch = fake_unwatch};

#define CLASS(cells_)                                                                              \
    {                                                                                              \
        .schemes = "fake", .caps = {.engine = "fake", .cells = true},                              \
        .engine_size = sizeof(struct fake), .open = fake_open, .close = fake_close,                \
        .cells = cells_                                                                            \
    }
static const struct engine_class polled = CLASS(&polled_cells), pushed = CLASS(&pushed_cells),
                                 without = CLASS(NULL);

static void begin(const struct engine_class *class)
{
    memset(&server, 0, sizeof server);
    server.takes_ns = MS;
    assert_int_equal(loop_virtual_new(&loop, 7), 0);
    assert_int_equal(
        client_new(&client, class, loop, NULL, STILE_CLIENT_OPTIONS(.threadless = true), &why),
        STILE_OK);
}

static void pass(uint64_t ns)
{
    loop_virtual_advance(loop, ns);
    assert_int_equal(stile_client_dispatch(client), STILE_OK);
}

/* ---- outcomes ---- */

static struct {
    unsigned dones, calls;
    enum stile_status status;
    uint64_t version;
    char message[248];
    unsigned stop_after;
    bool close; /* the callback closes the client */
} told;

static void note_error(enum stile_status status, const struct stile_error *err)
{
    assert_int_equal(status != STILE_OK, err != NULL);
    told.dones++;
    told.status = status;
    (void)snprintf(told.message, sizeof told.message, "%s", err ? err->message : "");
}

static void on_done(const struct stile_cell *cell, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    (void)data;
    told.version = cell ? cell->version : 0;
    note_error(status, err);
}

static void on_end(struct stile_client *c, enum stile_status status, const struct stile_error *err,
                   void *data)
{
    (void)c, (void)data;
    note_error(status, err);
}

static int on_cell(const struct stile_cell *cell, void *data)
{
    (void)data;
    assert_int_equal(told.dones, 0);
    told.calls++;
    told.version = cell->version;
    if (told.close)
        stile_client_close(client);
    return told.stop_after && told.calls >= told.stop_after;
}

#define WATCH(wait_ms) stile_cell_watch_async(NULL, client, "k", wait_ms, on_cell, on_end, NULL)

/* ---- messages and misuse ---- */

static void refusals_say_why(void **state)
{
    uint64_t none = 0, seven = 7;
    (void)state;
    begin(&polled);
    struct stile_cell_options *o = &(struct stile_cell_options){.size = sizeof *o, .token = 34};
    assert_int_equal(stile_cell_put(NULL, client, "k", "x", 1, o, &why), STILE_OK);
    o->token = 33;
    assert_int_equal(stile_cell_put(NULL, client, "k", "x", 1, o, &why), STILE_STALE);
    assert_string_equal(why.message, "putting 'k': stale token 33: the highest seen is 34");
    o->token = 34;
    o->strict = true;
    assert_int_equal(stile_cell_remove(client, "k", o, &why), STILE_STALE);
    assert_string_equal(why.message,
                        "removing 'k': token 34 was used before, and the call is strict");
    o->strict = false;
    o->if_version = &none;
    assert_int_equal(stile_cell_put(NULL, client, "k", "x", 1, o, &why), STILE_CONFLICT);
    assert_string_equal(why.message, "putting 'k': it exists already, with version 1");
    o->if_version = &seven;
    assert_int_equal(stile_cell_put(NULL, client, "k", "x", 1, o, &why), STILE_CONFLICT);
    assert_string_equal(why.message, "putting 'k': its version is 1, not 7");
    assert_int_equal(stile_guard_reset(client, "k", 5, "redis:a", &why), STILE_OK);
    assert_int_equal(
        stile_guard_raise(client, "k", 9, STILE_GUARD_OPTIONS(.issuer = "etcd:a"), &why),
        STILE_FOREIGN);
    assert_string_equal(why.message, "guarding 'k': the token is of etcd:a, but its tokens come "
                                     "from redis:a (see stile guard reset)");
    server.fails = STILE_UNREACHABLE;
    assert_int_equal(stile_cell_list(client, "k", NULL, NULL, &why), STILE_UNREACHABLE);
    assert_string_equal(why.message, "listing cells: the test says so");
    stile_client_close(client);
}

static void misuse_is_refused(void **state)
{
    struct stile_cell *cell;
    char big[STILE_ISSUER_MAX + 2];
    (void)state;
    memset(big, 'i', sizeof big);
    big[sizeof big - 1] = '\0';
    begin(&polled);
    assert_int_equal(stile_cell_get(NULL, client, "k", &why), STILE_MISUSE);
    assert_int_equal(stile_cell_get(&cell, client, "", &why), STILE_MISUSE);
    assert_int_equal(stile_cell_get(&cell, client, NULL, &why), STILE_MISUSE);
    assert_int_equal(stile_cell_get(&cell, NULL, "k", &why), STILE_MISUSE);
    assert_int_equal(stile_cell_put(NULL, client, "k", NULL, 1, NULL, &why), STILE_MISUSE);
    assert_int_equal(
        stile_cell_put(NULL, client, "k", "", 0, STILE_CELL_OPTIONS(.issuer = big), &why),
        STILE_MISUSE);
    assert_int_equal(
        stile_cell_put(NULL, client, "k", "", 0, STILE_CELL_OPTIONS(.issuer = "a\nb"), &why),
        STILE_MISUSE);
    assert_int_equal(stile_guard_raise(client, "k", 0, NULL, &why), STILE_MISUSE);
    assert_int_equal(stile_cell_watch(client, "k", 0, NULL, NULL, &why), STILE_MISUSE);
    assert_int_equal(stile_cell_update(NULL, client, "k", NULL, NULL, NULL, &why), STILE_MISUSE);
    assert_int_equal(stile_cell_get_async(client, "k", NULL, NULL), STILE_MISUSE);
    assert_int_equal(stile_cell_list_async(client, NULL, NULL, NULL, NULL), STILE_MISUSE);
    assert_int_equal(stile_cell_watch_async(NULL, client, "k", 0, on_cell, NULL, NULL),
                     STILE_MISUSE);
    assert_int_equal(server.asked, 0);
    stile_client_close(client);
}

static void an_engine_without_cells_says_so(void **state)
{
    (void)state;
    begin(&without);
    assert_int_equal(stile_cell_watch(client, "k", 0, on_cell, NULL, &why), STILE_UNSUPPORTED);
    assert_int_equal(stile_cell_put_async(client, "k", "x", 1, NULL, on_done, NULL),
                     STILE_UNSUPPORTED);
    stile_client_close(client);
}

/* ---- closing ---- */

static void closing_answers_what_the_engine_does_not(void **state)
{
    (void)state;
    memset(&told, 0, sizeof told);
    begin(&polled);
    server.silent = true;
    assert_int_equal(stile_cell_put_async(client, "k", "x", 1, NULL, on_done, NULL), STILE_OK);
    stile_client_close(client);
    assert_int_equal(told.dones, 1);
    assert_int_equal(told.status, STILE_UNCERTAIN);
}

static void closing_waits_for_an_answer(void **state)
{
    (void)state;
    memset(&told, 0, sizeof told);
    begin(&polled);
    server.takes_ns = SEC;
    assert_int_equal(stile_cell_put_async(client, "k", "x", 1, NULL, on_done, NULL), STILE_OK);
    stile_client_close(client);
    assert_int_equal(told.dones, 1);
    assert_int_equal(told.status, STILE_OK);
    assert_int_equal(told.version, 1);
}

static void closing_ends_a_watch(void **state)
{
    (void)state;
    for (int during = 0; during < 3; during++) {
        memset(&told, 0, sizeof told);
        begin(during == 1 ? &pushed : &polled);
        server.silent = during == 2;
        assert_int_equal(WATCH(-1), STILE_OK);
        if (during == 1)
            pass(SEC);
        stile_client_close(client);
        assert_int_equal(told.dones, 1);
        assert_int_equal(told.status, STILE_CANCELLED);
    }
}

/* ---- watching ---- */

static void without_reports_the_cell_is_read_again_and_again(void **state)
{
    (void)state;
    memset(&told, 0, sizeof told);
    begin(&polled);
    assert_int_equal(WATCH(-1), STILE_OK);
    pass(2 * SEC);
    assert_in_range(server.reads, 10, 30);
    uint64_t last = server.read_ns[server.reads - 1] - server.read_ns[server.reads - 2];
    assert_in_range(last, 100 * MS, 202 * MS);
    assert_int_equal(told.calls, 1);
    server.version = 5;
    pass(SEC);
    assert_int_equal(told.calls, 2);
    assert_int_equal(told.version, 5);
    server.token = 3; /* the guard counts, too */
    pass(SEC);
    assert_int_equal(told.calls, 3);
    stile_client_close(client);
}

/* The watch goes on reading while its callback waits for something else. */
static int on_cell_slowly(const struct stile_cell *cell, void *data)
{
    struct stile_cell *other;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(stile_cell_get(&other, client, "k", &why), STILE_OK);
        stile_cell_free(other);
    }
    return on_cell(cell, data);
}

static void what_is_read_during_the_callback_is_no_news(void **state)
{
    (void)state;
    for (int async = 0; async < 2; async++) {
        memset(&told, 0, sizeof told);
        begin(&polled);
        if (async) {
            assert_int_equal(
                stile_cell_watch_async(NULL, client, "k", 100, on_cell_slowly, on_end, NULL),
                STILE_OK);
            pass(SEC);
            pass(SEC); /* its patience begins after the callback */
            assert_int_equal(told.status, STILE_TIMEOUT);
        } else {
            assert_int_equal(stile_cell_watch(client, "k", 100, on_cell_slowly, NULL, &why),
                             STILE_TIMEOUT);
        }
        assert_int_equal(told.calls, 1);
        stile_client_close(client);
    }
}

static void change_once(void)
{
    if (server.reads != 2)
        return;
    report_change();
    server.version = 9;
}

static void a_report_leads_to_a_read(void **state)
{
    (void)state;
    memset(&told, 0, sizeof told);
    begin(&pushed);
    assert_int_equal(WATCH(-1), STILE_OK);
    pass(10 * SEC);
    assert_int_equal(server.reads, 1);
    server.version = 2;
    server.on_read = change_once; /* one more report while the second read is under way */
    report_change();
    report_change();
    pass(SEC);
    assert_int_equal(server.reads, 3);
    assert_int_equal(told.version, 9);
    stile_client_close(client);
}

static void a_server_that_is_away_is_waited_out(void **state)
{
    (void)state;
    memset(&told, 0, sizeof told);
    begin(&polled);
    assert_int_equal(WATCH(-1), STILE_OK);
    pass(SEC);
    server.fails = STILE_UNREACHABLE;
    pass(10 * SEC);
    server.fails = STILE_OK;
    server.version = 4;
    pass(2 * SEC);
    assert_int_equal(told.dones, 0);
    assert_int_equal(told.version, 4);
    server.fails = STILE_REFUSED;
    pass(SEC);
    assert_int_equal(told.dones, 1);
    assert_string_equal(told.message, "watching 'k': the test says so");
    stile_client_close(client);
    memset(&told, 0, sizeof told);
    begin(&polled);
    server.fails = STILE_UNREACHABLE;
    assert_int_equal(stile_cell_watch(client, "k", -1, on_cell, NULL, &why), STILE_UNREACHABLE);
    stile_client_close(client);
}

static void patience_begins_anew_with_each_change(void **state)
{
    (void)state;
    memset(&told, 0, sizeof told);
    begin(&pushed);
    assert_int_equal(WATCH(1000), STILE_OK);
    pass(10 * MS); /* callbacks come at the end of it */
    for (int i = 0; i < 3; i++) {
        pass(900 * MS);
        server.version++;
        report_change();
        pass(10 * MS);
    }
    assert_int_equal(told.dones, 0);
    pass(2 * SEC);
    assert_int_equal(told.status, STILE_TIMEOUT);
    assert_int_equal(told.calls, 4);
    stile_client_close(client);
}

static void a_callback_may_close_the_client(void **state)
{
    (void)state;
    memset(&told, 0, sizeof told);
    told.close = true;
    begin(&polled);
    assert_int_equal(stile_cell_watch(client, "k", -1, on_cell, NULL, &why), STILE_CANCELLED);
    assert_int_equal(told.calls, 1);
}

/* ---- updating ---- */

static int write_x(struct stile_cell_next *next, const struct stile_cell *now, void *data)
{
    (void)now;
    ++*(unsigned *)data;
    server.version++; /* somebody else */
    next->value = "x";
    next->size = 1;
    return 0;
}

static void an_update_pauses_longer_and_longer(void **state)
{
    unsigned calls = 0;
    (void)state;
    begin(&polled);
    uint64_t start = loop_now(loop);
    assert_int_equal(stile_cell_update(NULL, client, "k", write_x, &calls, NULL, &why),
                     STILE_CONFLICT);
    assert_int_equal(calls, 20);
    assert_non_null(strstr(why.message, "20 times"));
    /* At most the sum of the pauses, each a random part of its limit. */
    assert_in_range(loop_now(loop) - start, 100 * MS, 90 * SEC);
    stile_client_close(client);
}

/* ---- every allocation fails in turn ---- */

static void expect_ok_or_nomem(enum stile_status status)
{
    if (status && scarcity.failed == 0)
        fail_msg("%s without a reason", stile_status_name(status));
    if (status != STILE_OK && status != STILE_NOMEM)
        fail_msg("%s, not NOMEM, at allocation %u", stile_status_name(status), scarcity.at);
}

static void await_answer(enum stile_status started)
{
    expect_ok_or_nomem(started);
    loop_virtual_advance(loop, SEC);
    assert_int_equal(stile_client_dispatch(client), STILE_OK);
    assert_int_equal(told.dones, started ? 0 : 1);
    expect_ok_or_nomem(told.status);
}

#define AWAIT(call)                                                                                \
    do {                                                                                           \
        memset(&told, 0, sizeof told);                                                             \
        told.stop_after = 1;                                                                       \
        await_answer(call);                                                                        \
    } while (0)

static void use_everything(void)
{
    struct stile_cell *cell = NULL;
    expect_ok_or_nomem(stile_cell_put(NULL, client, "k", "x", 1, NULL, &why));
    expect_ok_or_nomem(stile_cell_get(&cell, client, "k", &why));
    stile_cell_free(cell);
    expect_ok_or_nomem(stile_cell_list(client, NULL, NULL, NULL, &why));
    memset(&told, 0, sizeof told);
    told.stop_after = 1;
    expect_ok_or_nomem(stile_cell_watch(client, "k", -1, on_cell, NULL, &why));
    AWAIT(stile_cell_put_async(client, "k", "y", 1, NULL, on_done, NULL));
    AWAIT(stile_cell_get_async(client, "k", on_done, NULL));
    AWAIT(stile_cell_list_async(client, "k", NULL, on_end, NULL));
    AWAIT(WATCH(-1));
    AWAIT(stile_guard_raise_async(client, "k", 4, NULL, on_done, NULL));
    expect_ok_or_nomem(stile_guard_raise(client, "k", 5, NULL, &why));
}

static void no_memory_is_reported_once_and_leaks_nothing(void **state)
{
    (void)state;
    for (int all = 0; all < 2; all++) {
        unsigned at = 0;
        do {
            long before = scarcity_outstanding;
            begin(&polled);
            server.listed = 20;
            scarcity_begin(at++, all);
            use_everything();
            scarcity_end();
            stile_client_close(client);
            assert_int_equal(scarcity_outstanding, before);
        } while (scarcity.failed > 0 && at < 1000);
        assert_int_equal(scarcity.failed, 0);
        assert_true(scarcity.seen > 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(an_engine_without_cells_says_so),
        cmocka_unit_test(closing_answers_what_the_engine_does_not),
        cmocka_unit_test(closing_waits_for_an_answer),
        cmocka_unit_test(closing_ends_a_watch),
        cmocka_unit_test(without_reports_the_cell_is_read_again_and_again),
        cmocka_unit_test(what_is_read_during_the_callback_is_no_news),
        cmocka_unit_test(a_report_leads_to_a_read),
        cmocka_unit_test(a_server_that_is_away_is_waited_out),
        cmocka_unit_test(patience_begins_anew_with_each_change),
        cmocka_unit_test(a_callback_may_close_the_client),
        cmocka_unit_test(an_update_pauses_longer_and_longer),
        cmocka_unit_test(no_memory_is_reported_once_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
