/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/script_engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/url.h"
#include "support/script_wire.h"

static struct script *current;

static struct script_engine *of(struct engine *engine)
{
    return (struct script_engine *)engine;
}

/* ---- requests ---- */

static struct letter_item *copy_batch(const struct letter *letter)
{
    struct letter_item *copy = malloc(letter->n * sizeof(*copy));

    if (copy)
        memcpy(copy, letter->batch, letter->n * sizeof(*copy));
    return copy;
}

static void request(struct letter *letter)
{
    static const enum letter_says scripted[] = {[SCRIPT_BUSY] = SAYS_BUSY,
                                                [SCRIPT_FAIL] = SAYS_FAILED,
                                                [SCRIPT_UNKNOWN] = SAYS_UNKNOWN,
                                                [SCRIPT_LOST] = SAYS_LOST};
    struct letter unheard = *letter;

    letter->sent_ns = unheard.sent_ns = loop_now(letter->of->engine.loop);
    if (letter->rule.act == SCRIPT_MODEL) {
        server_ask(letter);
        return;
    }
    if (letter->rule.reached) {
        unheard.mute = true;
        unheard.batch = letter->n ? copy_batch(letter) : NULL;
        unheard.n = unheard.batch ? letter->n : 0;
        if (unheard.batch || !letter->n)
            server_ask(&unheard);
    }
    if (letter->rule.act == SCRIPT_NEVER)
        free(letter->batch);
    else
        server_reply(letter,
                     letter->call == SCRIPT_RELEASE ? SAYS_RELEASED : scripted[letter->rule.act]);
}

static void check_alone(struct script_engine *engine, const struct claim *claim)
{
    /* No event reports the end of a detached claim. */
    if (engine->engine.class->apart || engine->engine.class->caps.detached ||
        engine->script->untraced)
        return;
    for (struct record *r = engine->script->model.records; r; r = r->all_next) {
        if (r->engine == &engine->engine && r->claim && !r->unreleased)
            script_contract(strcmp(r->claim->name, claim->name) != 0 || r->claim == claim,
                            "one claim per name and client reaches the engine");
    }
}

static struct record *begin(struct script_engine *engine, struct claim *claim)
{
    struct script_state *state = script_state(claim);
    struct record *record = model_record(&engine->script->model, claim->name);
    enum stile_lease lease = engine->engine.class->caps.lease;

    script_contract(!state->record || state->record->unreleased ||
                        engine->engine.class->caps.detached,
                    "a claim is made once before it is given back");
    check_alone(engine, claim);
    if (!record)
        return NULL;
    if (state->record)
        state->record->claim = NULL; /* detached, or its lease ended before its release */
    record->engine = &engine->engine;
    record->claim = claim;
    record->wait = claim->wait && !engine->script->polled;
    record->ttl_ns = lease == STILE_LEASE_PROCESS ? 0 : claim->ttl_ns;
    record->hold_ns = claim->hold_ns;
    record->delay_ns = claim->delay_ns;
    record->session = lease == STILE_LEASE_SESSION ? &engine->session : NULL;
    state->record = record;
    return record;
}

static void start(struct engine *engine, struct claim *claim, enum script_call call)
{
    struct script *script = of(engine)->script;
    struct record *record = begin(of(engine), claim);
    struct script_event *event =
        script_record(of(engine), call, call == SCRIPT_CLAIM ? "claim" : "resume");
    struct letter letter = {.of = of(engine),
                            .script = script,
                            .call = call,
                            .rule = wire_rule(script, call),
                            .record = record};

    (void)snprintf(event->name, sizeof(event->name), "%s", claim->name);
    event->wait = claim->wait;
    event->ttl_ns = claim->ttl_ns;
    event->hold_ns = claim->hold_ns;
    event->delay_ns = claim->delay_ns;
    script_say(of(engine), "%s %s", event->verb, claim->name);
    if (!record) {
        struct stile_error err;
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->failed(claim, &err);
        return;
    }
    if (letter.rule.ttl_ns)
        record->ttl_ns = letter.rule.ttl_ns;
    if (record->session && record->session->ttl_ns)
        record->ttl_ns =
            record->session->ttl_ns; /* one session, one TTL: that of its first claim */
    of(engine)->session.ttl_ns = record->ttl_ns;
    if (call == SCRIPT_RESUME)
        (void)snprintf(record->owner, sizeof(record->owner), "%s", claim->owner);
    request(&letter);
}

static void claim(struct engine *engine, struct claim *claim)
{
    start(engine, claim, SCRIPT_CLAIM);
}

static void resume(struct engine *engine, struct claim *claim)
{
    script_contract(claim->owner != NULL, "what is resumed has an owner value");
    start(engine, claim, SCRIPT_RESUME);
}

static void release(struct engine *engine, struct claim *claim)
{
    struct script *script = of(engine)->script;
    struct record *record = script_state(claim)->record;
    struct script_event *event = script_record(of(engine), SCRIPT_RELEASE, "release");

    script_contract(record && record->claim == claim && (!record->releasing || record->unreleased),
                    "only what was claimed is released, and once");
    (void)snprintf(event->name, sizeof(event->name), "%s", claim->name);
    event->token = record->token;
    event->unused = claim->unused;
    if (claim->unused)
        record->hold_ns = 0;
    script_say(of(engine), "release %s", claim->name);
    record->releasing = true;
    record->unreleased = false;
    request(&(struct letter){.of = of(engine),
                             .script = script,
                             .call = SCRIPT_RELEASE,
                             .rule = wire_rule(script, SCRIPT_RELEASE),
                             .record = record});
}

static void renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    struct script *script = of(engine)->script;
    struct script_event *event = script_record(of(engine), SCRIPT_RENEW, "renew");
    bool session = engine->class->caps.lease == STILE_LEASE_SESSION;
    struct letter letter = {.of = of(engine),
                            .script = script,
                            .call = SCRIPT_RENEW,
                            .rule = wire_rule(script, SCRIPT_RENEW),
                            .n = n};

    script_contract(session == (n == 0), "a session is renewed as one, claims are named");
    event->n = n;
    script_say(of(engine), "renew %zu", n);
    if (session && !letter.rule.ttl_ns)
        letter.rule.ttl_ns = of(engine)->session.ttl_ns;
    letter.batch = n ? malloc(n * sizeof(*letter.batch)) : NULL;
    for (size_t i = 0; i < n; i++) {
        struct record *record = script_state(claims[i])->record;
        script_contract(record && record->granted && !record->releasing,
                        "only what is granted is renewed");
        if (letter.batch)
            letter.batch[i] = (struct letter_item){.record = record};
        else
            engine->events->unknown(claims[i]); /* no memory to ask with */
    }
    if (letter.batch || session)
        request(&letter);
}

static const char *owner(struct engine *engine, struct claim *claim)
{
    (void)engine;
    return script_state(claim)->record->owner;
}

/* ---- life ---- */

struct script *script_new(struct loop *clock)
{
    struct script *script = calloc(1, sizeof(*script));

    if (!script)
        return NULL;
    model_init(&script->model);
    script->model.woken = server_woken;
    script->model.lost = server_lost;
    script->model.changed = script_changed;
    script->model.data = script;
    script->model.loop = clock;
    return script;
}

void script_free(struct script *script)
{
    script_contract(!script->engines, "clients are closed before their script is freed");
    while (script->letters) {
        struct letter *letter = script->letters;
        script->letters = letter->next;
        loop_disarm(letter->loop, &letter->timer);
        free(letter->batch);
        free(letter);
    }
    model_fini(&script->model);
    if (script->owned)
        script_url_free(script);
    free(script->events);
    free(script);
    if (current == script)
        current = NULL;
}

void script_use(struct script *script)
{
    current = script;
}

static enum stile_status open_now(struct engine *engine, const struct url *url,
                                  struct stile_error *err)
{
    struct script *script = current;

    if (url) {
        enum stile_status status = script_from_url(&script, engine, url, err);
        if (status)
            return status;
    }
    if (!script->model.loop && model_clock(&script->model, engine->loop)) {
        if (script->owned)
            script_free(script);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    of(engine)->script = script;
    of(engine)->number = script->n_opened++;
    of(engine)->next = script->engines;
    script->engines = of(engine);
    return STILE_OK;
}

/* Records outlive the engine whose they were. */
static void disown(struct script_engine *engine)
{
    for (struct record *r = engine->script->model.records; r; r = r->all_next) {
        if (r->session == &engine->session) {
            r->expires_ns = engine->session.expires_ns;
            r->session = NULL;
        }
        if (r->engine == &engine->engine) {
            r->engine = NULL;
            r->claim = NULL;
        }
    }
}

static void stop_opening(struct script_engine *engine)
{
    if (!engine->opens)
        return;
    engine->opens = false;
    loop_disarm(engine->engine.loop, &engine->opening);
    loop_unreserve(engine->engine.loop, 1);
}

static void script_close(struct engine *engine)
{
    struct script *script = of(engine)->script;
    struct script_engine **at = &script->engines;

    script->closed_ns = loop_now(engine->loop);
    stop_opening(of(engine));
    wire_close(of(engine));
    disown(of(engine));
    while (*at != of(engine))
        at = &(*at)->next;
    *at = of(engine)->next;
    if (script->model.loop == engine->loop)
        model_unclock(&script->model);
    if (script->owned)
        script_free(script);
}

/* ?open=MS: so long; never; refused: soon, with an error. */
static void answer_opening(struct timer *timer)
{
    struct script_engine *engine =
        (struct script_engine *)((char *)timer - offsetof(struct script_engine, opening));
    struct stile_error err;

    stop_opening(engine);
    if (engine->refuses) {
        script_close(&engine->engine);
        error_set(&err, STILE_REFUSED, 0, "the script says so");
    }
    engine->engine.events->opened(&engine->engine, engine->refuses ? &err : NULL);
}

static void open_later(struct script_engine *engine, const char *how)
{
    struct loop *loop = engine->engine.loop;

    script_contract(loop_reserve(loop, 1) == 0, "there is memory for a timer");
    engine->opens = true;
    engine->opening.fn = answer_opening;
    engine->refuses = strcmp(how, "refused") == 0;
    if (strcmp(how, "never") != 0)
        loop_arm(loop, &engine->opening, loop_now(loop) + strtoull(how, NULL, 10) * NS_PER_MS);
}

static void script_open(struct engine *engine, const struct url *url)
{
    struct stile_error err;
    enum stile_status status = open_now(engine, url, &err);
    const char *how = url && !status ? url_param(url, "open") : NULL;

    if (how)
        open_later(of(engine), how);
    else
        engine->events->opened(engine, status ? &err : NULL);
}

static void script_forked(struct engine *engine)
{
    (void)engine; /* it has no file descriptors of its own */
}

/* ---- the classes ---- */

static const char *const params[] = {"ttl",    "renew", "grant", "lease", "detached",
                                     "doctor", "open",  "bare",  "show",  NULL};

static const struct engine_push push = {.watch = script_watch, .unwatch = script_unwatch};
static const struct engine_detached detached = {.resume = resume, .owner = owner};
static const struct engine_admin admin = {.examine = script_examine, .adopt = script_adopt};

static const struct engine_history history = {.record = script_store};

#define CLASS(lease_, apart_, detached_)                                                           \
    {                                                                                              \
        .schemes = "test", .params = params,                                                       \
        .caps = {.engine = "test",                                                                 \
                 .modes = 1u << STILE_EXCLUSIVE,                                                   \
                 .lease = lease_,                                                                  \
                 .fifo = true,                                                                     \
                 .token = true,                                                                    \
                 .hold_at_least = true,                                                            \
                 .lock_delay = true,                                                               \
                 .detached = detached_,                                                            \
                 .token_is = "a counter in a test",                                                \
                 .survives = "nothing",                                                            \
                 .condition = "the test means it"},                                                \
        .apart = apart_, .engine_size = sizeof(struct script_engine),                              \
        .claim_size = sizeof(struct script_state), .open = script_open, .close = script_close,     \
        .forked = script_forked, .claim = claim, .release = release,                               \
        .renew = (lease_) == STILE_LEASE_PROCESS ? NULL : renew, .list = script_list,              \
        .show = script_show, .break_ = script_break, .cancel = script_cancel, .push = &push,       \
        .detached = (detached_) ? &detached : NULL, .admin = &admin, .history = &history           \
    }

#define CLASSES(lease_)                                                                            \
    {                                                                                              \
        CLASS(lease_, false, false), CLASS(lease_, true, false), CLASS(lease_, false, true),       \
            CLASS(lease_, true, true)                                                              \
    }

static const struct engine_class variants[][4] = {
    [STILE_LEASE_PROCESS] = CLASSES(STILE_LEASE_PROCESS),
    [STILE_LEASE_SESSION] = CLASSES(STILE_LEASE_SESSION),
    [STILE_LEASE_CLAIM] = CLASSES(STILE_LEASE_CLAIM),
};

const struct engine_class *script_variant(enum stile_lease lease, unsigned flags)
{
    return &variants[lease][flags];
}

const struct engine_class script_class = CLASS(STILE_LEASE_CLAIM, false, false);
