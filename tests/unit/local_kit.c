/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/local_kit.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/name.h"
#include "base/url.h"

extern const struct engine_class local_class;

static struct party *parties[KIT_PARTIES_MAX];
static size_t n_parties;

void kit_be_child(void)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        _exit(2);
    n_parties = 0;
}

/* ---- directories ---- */

void kit_make_dir(char path[64])
{
    const char *tmp = getenv("TMPDIR");
    snprintf(path, 64, "%s/stile-local-XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    assert_non_null(mkdtemp(path));
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void kit_remove_dir(const char *path)
{
    nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- what the engine says ---- */

static struct bid *bid_of(struct claim *claim)
{
    return claim->core;
}

static void say(struct claim *claim, enum said said, const struct stile_error *err)
{
    struct bid *bid = bid_of(claim);
    bid->said = said;
    bid->n_said++;
    error_copy(&bid->error, err);
}

static void opened(struct engine *engine, const struct stile_error *err)
{
    error_copy(engine->core, err);
}

static void granted(struct claim *claim, uint64_t token, uint64_t sent_ns, uint64_t ttl_ns)
{
    (void)sent_ns, (void)ttl_ns;
    bid_of(claim)->token = token;
    say(claim, SAID_GRANTED, NULL);
}

static void busy(struct claim *claim, uint64_t hint_ns)
{
    bid_of(claim)->hint_ns = hint_ns;
    say(claim, SAID_BUSY, NULL);
}

static void failed(struct claim *claim, const struct stile_error *err)
{
    say(claim, SAID_FAILED, err);
}

static void released(struct claim *claim, const struct stile_error *err)
{
    say(claim, SAID_RELEASED, err);
}

static void lost(struct claim *claim, const struct stile_error *err)
{
    say(claim, SAID_LOST, err);
}

static void info(struct query *query, const struct stile_info *found)
{
    struct answer *answer = query->core;
    if (answer->n_infos < 8)
        snprintf(answer->names[answer->n_infos], sizeof answer->names[0], "%s", found->name);
    answer->n_infos++;
    answer->token = found->token;
    answer->holders = found->holders;
    answer->waiters = found->waiters;
    for (size_t i = 0; i < found->holders + found->waiters && i < 8; i++) {
        answer->claims[i] = found->claims[i];
        snprintf(answer->command[i], sizeof answer->command[i], "%s", found->claims[i].command);
    }
}

static void done(struct query *query, const struct stile_error *err)
{
    struct answer *answer = query->core;
    answer->is_done = true;
    error_copy(&answer->error, err);
}

static void changed(struct query *query)
{
    struct answer *answer = query->core;
    answer->n_changes++;
}

static const struct engine_events sink = {
    .opened = opened,
    .granted = granted,
    .busy = busy,
    .failed = failed,
    .released = released,
    .lost = lost,
    .info = info,
    .done = done,
    .changed = changed,
};

/* ---- parties ---- */

enum stile_status kit_try_open(struct party *party, const char *dir, struct stile_error *err)
{
    char text[4200];
    struct url *url;
    struct stile_error unheard;
    err = err ? err : &unheard;
    snprintf(text, sizeof text, "local:%s", dir);
    assert_status(url_parse(&url, text, err), OK);
    assert_int_equal(loop_epoll_new(&party->loop), 0);
    party->engine = calloc(1, local_class.engine_size);
    assert_non_null(party->engine);
    *party->engine = (struct engine){.class = &local_class,
                                     .events = &sink,
                                     .loop = party->loop,
                                     .label = "a test",
                                     .core = err,
                                     .pid = (uint32_t)getpid()};
    local_class.open(party->engine, url);
    url_free(url);
    if (err->status) {
        loop_free(party->loop);
        free(party->engine);
        party->engine = NULL;
        return err->status;
    }
    assert_true(n_parties < KIT_PARTIES_MAX);
    parties[n_parties++] = party;
    return STILE_OK;
}

void kit_open(struct party *party, const char *dir)
{
    struct stile_error err = {0};
    if (kit_try_open(party, dir, &err) != STILE_OK)
        fail_msg("%s", err.message);
}

void kit_close(struct party *party)
{
    size_t i = 0;
    while (parties[i] != party)
        i++;
    parties[i] = parties[--n_parties];
    local_class.close(party->engine);
    loop_free(party->loop);
    free(party->engine);
}

struct local *kit_local(struct party *party)
{
    return (struct local *)party->engine;
}

struct store *kit_store(struct party *party)
{
    return &kit_local(party)->env->store;
}

/* ---- claims ---- */

struct bid *kit_bid_named(struct party *party, const char *name, size_t len,
                          struct bid_options options)
{
    struct bid *bid = calloc(1, sizeof *bid);
    assert_non_null(bid);
    bid->claim = calloc(1, sizeof *bid->claim + local_class.claim_size);
    assert_non_null(bid->claim);
    bid->party = party;
    memcpy(bid->name, name, len);
    *bid->claim = (struct claim){
        .engine = party->engine,
        .core = bid,
        .name = bid->name,
        .name_len = len,
        .name_hash = name_hash(name, len),
        .mode = options.mode,
        .slots = options.slots,
        .hold_ns = options.hold_ms * NS_PER_MS,
        .delay_ns = options.delay_ms * NS_PER_MS,
    };
    return bid;
}

struct bid *kit_bid_with(struct party *party, const char *name, struct bid_options options)
{
    return kit_bid_named(party, name, strlen(name), options);
}

struct bid *kit_bid(struct party *party, const char *name)
{
    return kit_bid_with(party, name, (struct bid_options){0});
}

void kit_bid_free(struct bid *bid)
{
    free(bid->claim);
    free(bid);
}

static enum said claim(struct bid *bid, bool wait)
{
    bid->said = SAID_NOTHING;
    bid->claim->wait = wait;
    local_class.claim(bid->party->engine, bid->claim);
    return bid->said;
}

enum said kit_try(struct bid *bid)
{
    return claim(bid, false);
}

enum said kit_wait(struct bid *bid)
{
    return claim(bid, true);
}

enum said kit_release(struct bid *bid)
{
    bid->said = SAID_NOTHING;
    local_class.release(bid->party->engine, bid->claim);
    return bid->said;
}

void kit_take(struct bid *bid)
{
    if (kit_try(bid) != SAID_GRANTED)
        fail_msg("not granted: %d %s", (int)bid->said, bid->error.message);
}

/* ---- time ---- */

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* True: something was ready. */
static bool run_all(int timeout_ms)
{
    struct pollfd fds[KIT_PARTIES_MAX];
    for (size_t i = 0; i < n_parties; i++) {
        loop_prepare(parties[i]->loop);
        fds[i] =
            (struct pollfd){.fd = parties[i]->loop->class->fd(parties[i]->loop), .events = POLLIN};
    }
    int n = poll(fds, n_parties, timeout_ms);
    for (size_t i = 0; i < n_parties; i++) {
        loop_wait(parties[i]->loop, false);
        loop_run(parties[i]->loop);
    }
    return n > 0;
}

void kit_until(struct bid *bid, enum said said)
{
    int64_t end_ms = now_ms() + KIT_PATIENCE_MS;
    while (bid->said != said) {
        if (now_ms() > end_ms)
            fail_msg("said %d instead of %d: %s", (int)bid->said, (int)said, bid->error.message);
        run_all(100);
    }
}

void kit_until_changes(const struct answer *answer, unsigned n)
{
    int64_t end_ms = now_ms() + KIT_PATIENCE_MS;
    while (answer->n_changes < n) {
        if (now_ms() > end_ms)
            fail_msg("%u changes reported instead of %u", answer->n_changes, n);
        run_all(100);
    }
}

void kit_settle(void)
{
    while (run_all(0))
        ;
}

void kit_ask(struct answer *answer, struct party *party, const char *name,
             void (*how)(struct engine *engine, struct query *query), uint64_t token)
{
    *answer = (struct answer){
        .query = {.engine = party->engine, .name = name, .name_len = strlen(name), .token = token}};
    answer->query.core = answer;
    how(party->engine, &answer->query);
}

/* ---- the file ---- */

void kit_check(struct store *store)
{
    struct stile_error err = {0};
    bool in_use;
    if (local_check_all(store, &in_use, &err) != STILE_OK)
        fail_msg("%s", err.message);
}

uint32_t kit_cells_in_use(const struct store *store)
{
    const struct ledger_cell *ledger = &store->cells[AT_LEDGER].ledger;
    return ledger->n_used - ledger->n_free;
}

void kit_sweep(struct store *store)
{
    for (uint32_t i = 0; i < BUCKETS; i += 64) {
        struct tx tx;
        struct swept swept = {.n = 0};
        assert_true(local_tx_begin(&tx, store));
        local_names_sweep(&tx, 64, EDITS_FOR_SWEEPS, 0, &swept);
        assert_true(local_tx_commit(&tx));
    }
}

/* ---- chance ---- */

uint64_t kit_random(void)
{
    static uint64_t state;
    if (!state) {
        const char *seed = getenv("STILE_SEED");
        state = seed ? strtoull(seed, NULL, 0) : 20240607;
        print_message("# seed %llu (STILE_SEED)\n", (unsigned long long)state);
    }
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

bool kit_is_soak(void)
{
    const char *soak = getenv("STILE_SOAK");
    return soak && soak[0] == '1';
}
