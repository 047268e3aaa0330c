/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The scripted engine's answers for people. */
#include <stdlib.h>
#include <string.h>

#include "support/script_wire.h"

#define CLAIMS_MAX 64

static void describe(struct stile_claim_info *info, const struct record *record)
{
    uint64_t now = model_now(record->place->model), expires = model_expires(record);
    bool holds = record->at == HOLDS;

    *info = (struct stile_claim_info){
        .held = holds,
        .mode = STILE_EXCLUSIVE,
        .token = holds ? record->token : 0,
        .age_ms = (int64_t)((now - record->since_ns) / NS_PER_MS),
        .expires_ms =
            !holds || expires == NEVER ? STILE_NO_DEADLINE : (int64_t)((expires - now) / NS_PER_MS),
        .host = "",
        .command = "script",
        .owner = record->owner,
    };
}

static void give_info(struct query *query, const struct engine_events *events, struct place *place)
{
    struct stile_claim_info claims[CLAIMS_MAX];
    struct stile_info info = {.name = place->name, .token = place->token, .claims = claims};

    if (place->holder)
        describe(&claims[info.holders++], place->holder);
    for (struct record *r = place->queue; r && info.waiters + info.holders < CLAIMS_MAX;
         r = r->next)
        describe(&claims[info.holders + info.waiters++], r);
    events->info(query, &info);
}

static void finish(struct letter *letter, enum stile_status status)
{
    struct stile_error err;

    error_set(&err, status, 0, "the script says so");
    letter_events(letter)->done(letter->query, status ? &err : NULL);
}

static int by_name(const void *a, const void *b)
{
    struct place *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static void answer_list(struct letter *letter)
{
    struct model *model = &letter->script->model;
    struct place **sorted = malloc((model->n_places + 1) * sizeof(struct place *));
    size_t n = 0;

    if (!sorted) {
        finish(letter, STILE_NOMEM);
        return;
    }
    for (size_t i = 0; i < MODEL_BUCKETS; i++) {
        for (struct place *place = model->buckets[i]; place; place = place->next) {
            model_settle(place);
            if ((place->holder || place->queue) &&
                strncmp(place->name, letter->query->name, letter->query->name_len) == 0)
                sorted[n++] = place;
        }
    }
    qsort(sorted, n, sizeof(struct place *), by_name);
    for (size_t i = 0; i < n; i++)
        give_info(letter->query, letter_events(letter), sorted[i]);
    free(sorted);
    finish(letter, STILE_OK);
}

static void answer_show(struct letter *letter)
{
    struct place *place = model_place(&letter->script->model, letter->query->name);

    if (!place) {
        finish(letter, STILE_NOMEM);
        return;
    }
    model_settle(place);
    if (place->record[0])
        letter_events(letter)->record(letter->query, place->record, strlen(place->record));
    give_info(letter->query, letter_events(letter), place);
    finish(letter, STILE_OK);
}

static void answer_break(struct letter *letter)
{
    struct place *place = model_place(&letter->script->model, letter->query->name);
    uint64_t token = letter->query->token;
    struct record *holder;

    if (!place) {
        finish(letter, STILE_NOMEM);
        return;
    }
    model_settle(place);
    holder = place->holder;
    if (token && (!holder || holder->token != token)) {
        finish(letter, STILE_CONFLICT);
        return;
    }
    if (holder) {
        place->model->lost(holder);
        model_vacate(place);
    }
    finish(letter, STILE_OK);
}

static void answer_failure(struct letter *letter)
{
    finish(letter, letter->rule.status);
}

static void with_state(struct letter *letter, void (*fn)(struct letter *))
{
    struct script *script = letter->script;

    if (script->before)
        script->before(script);
    fn(letter);
    if (script->after)
        script->after(script);
}

static void arrive_list(struct letter *letter)
{
    with_state(letter, answer_list);
}

static void arrive_show(struct letter *letter)
{
    with_state(letter, answer_show);
}

static void arrive_break(struct letter *letter)
{
    with_state(letter, answer_break);
}

static struct letter query_letter(struct engine *engine, struct query *query, const char *verb,
                                  enum script_call call)
{
    struct script_engine *script_engine = (struct script_engine *)engine;
    struct script_event *event = script_record(script_engine, call, verb);

    (void)snprintf(event->name, sizeof(event->name), "%s", query->name);
    event->token = query->token;
    return (struct letter){.of = script_engine,
                           .script = script_engine->script,
                           .call = call,
                           .rule = wire_rule(script_engine->script, call),
                           .query = query};
}

static void ask_as(struct engine *engine, struct query *query, const char *verb,
                   enum script_call call, void (*fn)(struct letter *))
{
    struct letter letter = query_letter(engine, query, verb, call);

    letter.fn = letter.rule.act == SCRIPT_FAIL ? answer_failure : fn;
    if (letter.rule.act != SCRIPT_NEVER)
        wire_back(&letter);
}

static void ask(struct engine *engine, struct query *query, const char *verb,
                void (*fn)(struct letter *))
{
    ask_as(engine, query, verb, SCRIPT_QUERY, fn);
}

void script_list(struct engine *engine, struct query *query)
{
    ask(engine, query, "list", arrive_list);
}

void script_show(struct engine *engine, struct query *query)
{
    ask(engine, query, "show", arrive_show);
}

void script_break(struct engine *engine, struct query *query)
{
    ask(engine, query, "break", arrive_break);
}

/* ---- records ---- */

static enum stile_status store_record(struct letter *letter)
{
    const struct query *query = letter->query;
    struct place *place = model_place(&letter->script->model, query->name);

    if (!place)
        return STILE_NOMEM;
    script_contract(strlen(query->record) < sizeof(place->record), "a record is bounded");
    if (!place->record[0] || place->record_token <= query->token) {
        (void)snprintf(place->record, sizeof(place->record), "%s", query->record);
        place->record_token = query->token;
    }
    return STILE_OK;
}

static void arrive_record(struct letter *letter)
{
    finish(letter, store_record(letter));
}

void script_store(struct engine *engine, struct query *query)
{
    ask_as(engine, query, "record", SCRIPT_RECORD, arrive_record);
}

/* ---- the doctor ---- */

static void report_findings(struct letter *letter, size_t n)
{
    for (size_t i = 0; i < n && i < letter->script->n_findings; i++)
        letter_events(letter)->finding(letter->query, &letter->script->findings[i]);
    finish(letter, STILE_OK);
}

static void arrive_examine(struct letter *letter)
{
    report_findings(letter, letter->script->n_findings);
}

static void arrive_adopt(struct letter *letter)
{
    report_findings(letter, 1);
}

void script_examine(struct engine *engine, struct query *query)
{
    ask(engine, query, "examine", arrive_examine);
}

void script_adopt(struct engine *engine, struct query *query)
{
    ask(engine, query, "adopt", arrive_adopt);
}

void script_cancel(struct engine *engine, struct query *query)
{
    wire_cancel(((struct script_engine *)engine)->script, query);
}

/* ---- watching ---- */

static void tell_watcher(struct letter *letter)
{
    struct query *query = letter->watcher->query;

    if (query)
        letter_events(letter)->changed(query);
}

static void post_news(struct watcher *watcher, struct script *script)
{
    struct letter letter = {.of = (struct script_engine *)watcher->engine,
                            .script = script,
                            .call = SCRIPT_QUERY,
                            .watcher = watcher,
                            .fn = tell_watcher};

    if (watcher->query)
        wire_back(&letter);
}

void script_changed(struct place *place)
{
    for (struct watcher *watcher = place->watchers; watcher; watcher = watcher->next)
        post_news(watcher, place->model->data);
}

/* In place when it returns. */
void script_watch(struct engine *engine, struct query *query)
{
    struct letter letter = query_letter(engine, query, "watch", SCRIPT_QUERY);
    struct place *place = model_place(&letter.script->model, query->name);
    struct watcher *watcher = place ? calloc(1, sizeof(*watcher)) : NULL;

    if (!watcher || letter.rule.act == SCRIPT_FAIL) {
        letter.rule.status = watcher ? letter.rule.status : STILE_NOMEM;
        free(watcher);
        letter.fn = answer_failure;
        wire_back(&letter);
        return;
    }
    *watcher = (struct watcher){.next = place->watchers, .query = query, .engine = engine};
    place->watchers = watcher;
    query->state = watcher;
}

void script_unwatch(struct engine *engine, struct query *query)
{
    struct watcher *watcher = query->state;

    script_cancel(engine, query); /* the failure of its subscription may be under way */
    if (watcher)
        watcher->query = NULL;
    query->state = NULL;
}
