/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The server's end of the wire: what it does with a request, and how its answer reaches core. */
#include <stdlib.h>
#include <string.h>

#include "support/script_wire.h"

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
    script_state(claim)->record = NULL;
    return claim;
}

static void say_failed(struct letter *letter, struct claim *claim)
{
    struct stile_error err;

    error_set(&err, letter->rule.status, 0, "the script says so");
    script_say(letter->of, "failed %s: %s", claim->name, stile_status_name(err.status));
    /* In doubt: core calls release(), so we go on knowing it. */
    if (err.status != STILE_UNCERTAIN)
        part(letter->record);
    letter_events(letter)->failed(claim, &err);
}

static void say_released(struct letter *letter)
{
    struct stile_error err;
    enum stile_status status = letter->rule.status;
    struct claim *claim = letter->record->claim;

    script_say(letter->of, "released %s: %s", claim->name, stile_status_name(status));
    error_set(&err, status, 0, "the script says so");
    letter->record->unreleased = status != STILE_OK && status != STILE_LOST;
    if (!letter->record->unreleased)
        part(letter->record); /* else core asks again, so we go on knowing it */
    letter_events(letter)->released(claim, status ? &err : NULL);
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
        script_say(letter->of, "granted %s: token %llu", claim->name,
                   (unsigned long long)record->token);
        letter_events(letter)->granted(claim, record->token, letter->sent_ns, record->ttl_ns);
        break;
    case SAYS_QUEUED:
        letter_events(letter)->queued(claim);
        break;
    case SAYS_BUSY:
        script_say(letter->of, "busy %s", claim->name);
        part(record);
        letter_events(letter)->busy(claim, letter->rule.hint_ns);
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
    const struct engine_events *events = letter_events(letter);
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
        error_set(&err, STILE_LOST, 0, "the server no longer knows it");
        events->lost(claim, &err);
    }
}

/* What waited on the lost session waits on the next one, at the end of its queue. */
static void claim_again(struct script_engine *engine)
{
    for (struct record *r = engine->script->model.records; r; r = r->all_next) {
        if (r->engine == &engine->engine && r->claim && !r->granted && !r->releasing && r->queued)
            server_ask(&(struct letter){.of = engine,
                                        .script = engine->script,
                                        .call = SCRIPT_CLAIM,
                                        .sent_ns = loop_now(engine->engine.loop),
                                        .confirms = true,
                                        .record = r});
    }
}

static void answer_session(struct letter *letter)
{
    const struct engine_events *events = letter_events(letter);
    struct engine *engine = &letter->of->engine;
    struct stile_error err;

    if (letter->says == SAYS_UNKNOWN) {
        events->session_unknown(engine, NULL);
    } else if (letter->says == SAYS_RENEWED) {
        events->session_renewed(engine, NULL, letter->sent_ns, letter->rule.ttl_ns);
    } else {
        error_set(&err, STILE_LOST, 0, "the server has ended the session");
        events->session_lost(engine, NULL, &err);
        claim_again(letter->of);
    }
}

static void answer_renewal(struct letter *letter)
{
    static const char *const words[] = {[SAYS_RENEWED] = "renewed",
                                        [SAYS_UNKNOWN] = "renewal unknown",
                                        [SAYS_LOST] = "renewal: lost"};

    if (!letter->of)
        return;
    script_say(letter->of, "%s %zu", words[letter->says], letter->n);
    if (letter->n == 0)
        answer_session(letter);
    for (size_t i = 0; i < letter->n; i++)
        answer_one(letter, &letter->batch[i]);
}

void server_reply(struct letter *letter, enum letter_says says)
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

    if (letter->confirms && record->at == QUEUED)
        return;
    if (letter->confirms && model_touch(record))
        answer = MODEL_GRANTED;
    else
        answer = model_claim(record);
    record->queued = answer == MODEL_QUEUED;
    if (answer == MODEL_GRANTED)
        server_reply(letter, SAYS_GRANTED);
    else
        server_reply(letter, answer == MODEL_QUEUED ? SAYS_QUEUED : SAYS_BUSY);
}

static void serve_resume(struct letter *letter)
{
    struct record *record = letter->record;
    struct record *found =
        model_find_owner(&letter->script->model, record->place->name, record->owner);

    if (!found) {
        letter->rule.status = STILE_LOST;
        server_reply(letter, SAYS_FAILED);
        return;
    }
    /* The claim goes on with the record that the server has. */
    found->engine = record->engine;
    found->claim = part(record);
    found->ttl_ns = record->ttl_ns;
    found->releasing = false;
    script_state(found->claim)->record = found;
    letter->record = found;
    (void)model_touch(found);
    server_reply(letter, SAYS_GRANTED);
}

static void serve_release(struct letter *letter)
{
    bool ours = model_release(letter->record);

    letter->rule.status = ours || !letter->record->granted ? STILE_OK : STILE_LOST;
    server_reply(letter, SAYS_RELEASED);
}

/* A session that has run out takes what it holds with it before it can be used again. */
static bool session_lives(struct script_engine *engine)
{
    struct model *model = &engine->script->model;

    if (engine->session.expires_ns > model_now(model))
        return true;
    for (struct record *record = model->records; record; record = record->all_next) {
        if (record->session == &engine->session && record->at != GONE)
            model_settle(record->place);
    }
    return false;
}

/* The next request on it reports that; a claim then starts a new session. */
static void notice_lost_session(struct script_engine *engine)
{
    bool was_there = engine->session.expires_ns != 0;

    if (session_lives(engine) || !was_there)
        return;
    engine->session.expires_ns = 0;
    wire_back(&(struct letter){.script = engine->script,
                               .of = engine,
                               .call = SCRIPT_RENEW,
                               .says = SAYS_LOST,
                               .fn = answer_renewal});
}

static void serve_renewal(struct letter *letter)
{
    uint64_t until = model_now(&letter->script->model) + letter->rule.ttl_ns;
    bool lives = true;

    if (letter->n == 0 && letter->of) {
        lives = session_lives(letter->of);
        if (lives && letter->of->session.expires_ns < until)
            letter->of->session.expires_ns = until;
    }
    for (size_t i = 0; i < letter->n; i++)
        letter->batch[i].renewed = model_touch(letter->batch[i].record);
    server_reply(letter, lives ? SAYS_RENEWED : SAYS_LOST);
}

static void serve(struct letter *letter)
{
    static void (*const servers[])(struct letter *) = {[SCRIPT_CLAIM] = serve_claim,
                                                       [SCRIPT_RESUME] = serve_resume,
                                                       [SCRIPT_RELEASE] = serve_release,
                                                       [SCRIPT_RENEW] = serve_renewal};
    struct script *script = letter->script;

    if (letter->of && letter->record && letter->record->session)
        notice_lost_session(letter->of);
    if (script->before)
        script->before(script);
    servers[letter->call](letter);
    if (script->after)
        script->after(script);
}

/* What is answered from inside must not overtake what was sent before. */
static bool is_clear(const struct script_engine *engine)
{
    for (const struct letter *l = engine->script->letters; l; l = l->next) {
        if (l->of == engine && l->fn == serve)
            return false;
    }
    return true;
}

void server_ask(struct letter *letter)
{
    struct script_engine *engine = letter->of;
    uint64_t at_ns = letter->sent_ns + letter->rule.there_ns;

    if (at_ns < engine->there_ns)
        at_ns = engine->there_ns;
    engine->there_ns = at_ns;
    letter->rule.inside = letter->rule.inside && is_clear(engine);
    letter->fn = serve;
    wire_post(letter, letter->script->model.loop, at_ns);
}

/* ---- what the server says by itself ---- */

static void confirm(struct letter *letter)
{
    if (!letter->of || !addressee(letter))
        return;
    letter->confirms = true;
    letter->sent_ns = loop_now(letter->of->engine.loop);
    server_ask(letter);
}

/* Woken is not granted: the lease may be over when we hear of it, so it is asked for once more. */
void server_woken(struct record *record)
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
    script_say(letter->of, "lost %s", claim->name);
    error_set(&err, STILE_LOST, 0, "somebody has broken it");
    letter_events(letter)->lost(claim, &err);
}

void server_lost(struct record *record)
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
        server_lost(place->holder);
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
