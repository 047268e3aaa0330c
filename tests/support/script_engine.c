#include "support/script_engine.h"

#include <stdlib.h>
#include <string.h>

#include "support/script_wire.h"

static struct script *current;

/* What the engine keeps behind struct claim. */
struct script_state {
    struct record *record; /* of the claim under way or granted */
};

static struct script_engine *of(struct engine *engine)
{
    return (struct script_engine *)engine;
}

static struct script_state *state_of(struct claim *claim)
{
    return (struct script_state *)claim->state;
}

static const struct engine_events *events_of(const struct letter *letter)
{
    return letter->of->engine.events;
}

/* ---- answers ---- */

/* Nothing but released() may come after release(). */
static struct claim *addressee(const struct letter *letter)
{
    struct record *record = letter->record;

    if (!letter->of || record->engine != &letter->of->engine)
        return NULL;
    return record->releasing == (letter->call == SCRIPT_RELEASE) ? record->claim : NULL;
}

/* The record and the claim part; core may use the claim again at once. */
static struct claim *part(struct record *record)
{
    struct claim *claim = record->claim;

    record->claim = NULL;
    state_of(claim)->record = NULL;
    return claim;
}

static void say_failed(struct letter *letter, struct claim *claim)
{
    struct stile_error err;

    error_set(&err, letter->rule.status, 0, "the script says so");
    script_say(letter->script, "failed %s: %s", claim->name, stile_status_name(err.status));
    /* In doubt: core calls release(), so we go on knowing it. */
    if (err.status != STILE_UNCERTAIN)
        part(letter->record);
    events_of(letter)->failed(claim, &err);
}

static void say_released(struct letter *letter)
{
    struct stile_error err;
    enum stile_status status = letter->rule.status;
    struct claim *claim = part(letter->record);

    script_say(letter->script, "released %s: %s", claim->name, stile_status_name(status));
    error_set(&err, status, 0, "the script says so");
    events_of(letter)->released(claim, status ? &err : NULL);
}

static void answer_claim(struct letter *letter)
{
    struct record *record = letter->record;
    struct claim *claim = addressee(letter);

    if (!claim)
        return;
    switch (letter->says) {
    case SAYS_GRANTED:
        record->granted = true;
        script_say(letter->script, "granted %s: token %llu", claim->name,
                   (unsigned long long)record->token);
        events_of(letter)->granted(claim, record->token, letter->sent_ns, record->ttl_ns);
        break;
    case SAYS_BUSY:
        script_say(letter->script, "busy %s", claim->name);
        part(record);
        events_of(letter)->busy(claim, letter->rule.hint_ns);
        break;
    case SAYS_FAILED:
        say_failed(letter, claim);
        break;
    default:
        say_released(letter);
    }
}

static void answer_one(struct letter *letter, struct letter_item *item)
{
    const struct engine_events *events = events_of(letter);
    struct claim *claim;
    struct stile_error err;

    letter->record = item->record;
    claim = addressee(letter);
    if (!claim)
        return;
    if (letter->says == SAYS_UNKNOWN) {
        events->unknown(claim);
    } else if (letter->says == SAYS_RENEWED && item->renewed) {
        events->renewed(claim, letter->sent_ns, item->record->ttl_ns);
    } else {
        error_set(&err, STILE_LOST, 0, "the server does not know it any more");
        events->lost(claim, &err);
    }
}

static void answer_session(struct letter *letter)
{
    const struct engine_events *events = events_of(letter);
    struct engine *engine = &letter->of->engine;
    struct stile_error err;

    if (letter->says == SAYS_UNKNOWN) {
        events->session_unknown(engine);
    } else if (letter->says == SAYS_RENEWED) {
        events->session_renewed(engine, letter->sent_ns, letter->rule.ttl_ns);
    } else {
        error_set(&err, STILE_LOST, 0, "the server has ended the session");
        events->session_lost(engine, &err);
    }
}

static void answer_renewal(struct letter *letter)
{
    static const char *const words[] = {[SAYS_RENEWED] = "renewed",
                                        [SAYS_UNKNOWN] = "renewal unknown",
                                        [SAYS_LOST] = "renewal: lost"};

    if (!letter->of)
        return;
    script_say(letter->script, "%s %zu", words[letter->says], letter->n);
    if (letter->n == 0)
        answer_session(letter);
    for (size_t i = 0; i < letter->n; i++)
        answer_one(letter, &letter->batch[i]);
}

static void reply(struct letter *letter, enum letter_says says)
{
    letter->says = says;
    letter->fn = letter->call == SCRIPT_RENEW ? answer_renewal : answer_claim;
    if (!letter->mute)
        wire_back(letter);
    else
        free(letter->batch);
    letter->batch = NULL; /* belongs to the answer, or is gone */
}

/* ---- at the server ---- */

static void serve_claim(struct letter *letter)
{
    struct record *record = letter->record;
    enum model_answer answer;

    if (letter->confirms && model_touch(record))
        answer = MODEL_GRANTED;
    else
        answer = model_claim(record);
    if (answer == MODEL_GRANTED)
        reply(letter, SAYS_GRANTED);
    else if (answer == MODEL_BUSY)
        reply(letter, SAYS_BUSY);
}

static void serve_resume(struct letter *letter)
{
    struct record *record = letter->record;
    struct record *found =
        model_find_owner(&letter->script->model, record->place->name, record->owner);

    if (!found) {
        letter->rule.status = STILE_LOST;
        reply(letter, SAYS_FAILED);
        return;
    }
    /* The claim goes on with the record that the server has. */
    found->engine = record->engine;
    found->claim = part(record);
    found->ttl_ns = record->ttl_ns;
    found->releasing = false;
    state_of(found->claim)->record = found;
    letter->record = found;
    (void)model_touch(found);
    reply(letter, SAYS_GRANTED);
}

static void serve_release(struct letter *letter)
{
    bool ours = model_release(letter->record);

    letter->rule.status = ours || !letter->record->granted ? STILE_OK : STILE_LOST;
    reply(letter, SAYS_RELEASED);
}

/* A session that has run out takes what it holds with it before it can be used again. */
static bool session_lives(struct script_engine *engine)
{
    struct model *model = &engine->script->model;

    if (engine->session.expires_ns > model_now(model))
        return true;
    for (struct record *record = model->records; record; record = record->all_next) {
        if (record->session == &engine->session && record->at == HOLDS)
            model_settle(record->place);
    }
    return false;
}

static void serve_renewal(struct letter *letter)
{
    bool lives = true;

    if (letter->n == 0 && letter->of) {
        lives = session_lives(letter->of);
        if (lives)
            letter->of->session.expires_ns =
                model_now(&letter->script->model) + letter->rule.ttl_ns;
    }
    for (size_t i = 0; i < letter->n; i++)
        letter->batch[i].renewed = model_touch(letter->batch[i].record);
    reply(letter, lives ? SAYS_RENEWED : SAYS_LOST);
}

static void serve(struct letter *letter)
{
    static void (*const servers[])(struct letter *) = {[SCRIPT_CLAIM] = serve_claim,
                                                       [SCRIPT_RESUME] = serve_resume,
                                                       [SCRIPT_RELEASE] = serve_release,
                                                       [SCRIPT_RENEW] = serve_renewal};
    struct script *script = letter->script;

    if (letter->of && letter->record && letter->record->session)
        (void)session_lives(letter->of);
    if (script->before)
        script->before(script);
    servers[letter->call](letter);
    if (script->after)
        script->after(script);
}

/* ---- requests ---- */

static void ask_model(struct letter *letter)
{
    struct script_engine *engine = letter->of;
    uint64_t at_ns = letter->sent_ns + letter->rule.there_ns;

    if (at_ns < engine->there_ns)
        at_ns = engine->there_ns;
    engine->there_ns = at_ns;
    letter->fn = serve;
    wire_post(letter, letter->script->model.loop, at_ns);
}

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
        ask_model(letter);
        return;
    }
    if (letter->rule.reached) {
        unheard.mute = true;
        unheard.batch = letter->n ? copy_batch(letter) : NULL;
        unheard.n = unheard.batch ? letter->n : 0;
        if (unheard.batch || !letter->n)
            ask_model(&unheard);
    }
    if (letter->rule.act == SCRIPT_NEVER)
        free(letter->batch);
    else
        reply(letter, letter->call == SCRIPT_RELEASE ? SAYS_RELEASED : scripted[letter->rule.act]);
}

static void check_alone(struct script_engine *engine, const struct claim *claim)
{
    /* Of a detached claim nobody tells us when it is gone. */
    if (engine->engine.class->apart || engine->engine.class->caps.detached ||
        engine->script->untraced)
        return;
    for (struct record *r = engine->script->model.records; r; r = r->all_next) {
        if (r->engine == &engine->engine && r->claim)
            script_contract(strcmp(r->claim->name, claim->name) != 0 || r->claim == claim,
                            "one claim per name and client reaches the engine");
    }
}

static struct record *begin(struct script_engine *engine, struct claim *claim)
{
    struct script_state *state = state_of(claim);
    struct record *record = model_record(&engine->script->model, claim->name);
    enum stile_lease lease = engine->engine.class->caps.lease;

    script_contract(!state->record || engine->engine.class->caps.detached,
                    "a claim is made once before it is given back");
    check_alone(engine, claim);
    if (!record)
        return NULL;
    if (state->record)
        state->record->claim = NULL; /* detached, and core has told nobody */
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
    script_say(script, "%s %s", event->verb, claim->name);
    if (!record) {
        struct stile_error err;
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->failed(claim, &err);
        return;
    }
    if (letter.rule.ttl_ns)
        record->ttl_ns = letter.rule.ttl_ns;
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
    struct record *record = state_of(claim)->record;
    struct script_event *event = script_record(of(engine), SCRIPT_RELEASE, "release");

    script_contract(record && record->claim == claim && !record->releasing,
                    "only what was claimed is released, and once");
    (void)snprintf(event->name, sizeof(event->name), "%s", claim->name);
    event->token = record->token;
    script_say(script, "release %s", claim->name);
    record->releasing = true;
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
    script_say(script, "renew %zu", n);
    if (session && !letter.rule.ttl_ns)
        letter.rule.ttl_ns = of(engine)->session.ttl_ns;
    letter.batch = n ? malloc(n * sizeof(*letter.batch)) : NULL;
    for (size_t i = 0; i < n; i++) {
        struct record *record = state_of(claims[i])->record;
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
    return state_of(claim)->record->owner;
}

/* ---- what the server says by itself ---- */

static void confirm(struct letter *letter)
{
    if (!letter->of || !addressee(letter))
        return;
    letter->confirms = true;
    letter->sent_ns = loop_now(letter->of->engine.loop);
    ask_model(letter);
}

/* Woken is not granted: the lease may be over when we hear of it, so it is asked for once more. */
static void woken(struct record *record)
{
    struct script *script = record->place->model->data;
    struct letter letter = {.script = script,
                            .of = (struct script_engine *)record->engine,
                            .call = SCRIPT_CLAIM,
                            .rule = script->always[SCRIPT_CLAIM],
                            .record = record,
                            .fn = confirm};

    letter.rule.act = SCRIPT_MODEL;
    letter.rule.inside = false;
    if (script->decide)
        letter.rule = script->decide(script, SCRIPT_CALLS);
    wire_back(&letter);
}

static void say_lost(struct letter *letter)
{
    struct stile_error err;
    struct claim *claim = letter->of ? addressee(letter) : NULL;

    if (!claim || !letter->record->granted)
        return;
    script_say(letter->script, "lost %s", claim->name);
    error_set(&err, STILE_LOST, 0, "somebody has broken it");
    events_of(letter)->lost(claim, &err);
}

static void tell_lost(struct record *record)
{
    struct script *script = record->place->model->data;

    wire_back(&(struct letter){.script = script,
                               .of = (struct script_engine *)record->engine,
                               .call = SCRIPT_RENEW,
                               .record = record,
                               .fn = say_lost});
}

void script_tell_lost(struct script *script, const char *name)
{
    struct place *place = model_place(&script->model, name);

    if (place && place->holder)
        tell_lost(place->holder);
}

void script_tell_session_lost(struct script *script)
{
    for (struct script_engine *engine = script->engines; engine; engine = engine->next)
        wire_back(&(struct letter){.script = script,
                                   .of = engine,
                                   .call = SCRIPT_RENEW,
                                   .says = SAYS_LOST,
                                   .fn = answer_renewal});
}

void script_occupy(struct script *script, const char *name, uint64_t for_ns)
{
    struct record *record = model_record(&script->model, name);

    record->ttl_ns = for_ns == NEVER ? 0 : for_ns;
    script_contract(model_claim(record) == MODEL_GRANTED, "the test occupies a free name");
}

void script_vacate(struct script *script, const char *name)
{
    model_vacate(model_place(&script->model, name));
}

/* ---- life ---- */

struct script *script_new(struct loop *clock)
{
    struct script *script = calloc(1, sizeof(*script));

    if (!script)
        return NULL;
    model_init(&script->model);
    script->model.woken = woken;
    script->model.lost = tell_lost;
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

static enum stile_status script_open(struct engine *engine, const struct url *url,
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

static void script_close(struct engine *engine)
{
    struct script *script = of(engine)->script;
    struct script_engine **at = &script->engines;

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

static void script_forked(struct engine *engine)
{
    (void)engine; /* it has no file descriptors of its own */
}

/* ---- the classes ---- */

static const char *const params[] = {"ttl", "renew", "grant", "lease", "detached", NULL};

#define CLASS(lease_, apart_, detached_)                                                           \
    {                                                                                              \
        .scheme = "test", .params = params,                                                        \
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
        .renew = (lease_) == STILE_LEASE_PROCESS ? NULL : renew,                                   \
        .resume = (detached_) ? resume : NULL, .owner = (detached_) ? owner : NULL,                \
        .list = script_list, .show = script_show, .break_ = script_break, .watch = script_watch,   \
        .unwatch = script_unwatch                                                                  \
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
