/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Rules, letters and the trace. */
#include "support/script_wire.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- rules ---- */

void script_always(struct script *script, enum script_call call, struct script_rule rule)
{
    script->always[call] = rule;
}

void script_next(struct script *script, enum script_call call, struct script_rule rule)
{
    script_contract(script->n_next[call] < SCRIPT_NEXT_MAX, "the test has not too many rules");
    script->next[call][script->n_next[call]++] = rule;
}

struct script_rule wire_rule(struct script *script, enum script_call call)
{
    struct script_rule rule = script->always[call];

    if (script->decide)
        return script->decide(script, call);
    if (script->n_next[call]) {
        rule = script->next[call][0];
        memmove(script->next[call], script->next[call] + 1,
                --script->n_next[call] * sizeof(struct script_rule));
    }
    return rule;
}

/* ---- letters ---- */

static void unlink_letter(struct letter *letter)
{
    if (letter->before)
        letter->before->next = letter->next;
    else
        letter->script->letters = letter->next;
    if (letter->next)
        letter->next->before = letter->before;
}

static void drop(struct letter *letter)
{
    unlink_letter(letter);
    loop_disarm(letter->loop, &letter->timer);
    loop_unreserve(letter->loop, 1);
    free(letter->batch);
    free(letter);
}

/* The list's head may have been freed by what it has led to: off the list first. */
static void arrive(struct timer *timer)
{
    struct letter *letter = (struct letter *)((char *)timer - offsetof(struct letter, timer));

    unlink_letter(letter);
    loop_unreserve(letter->loop, 1);
    letter->fn(letter);
    free(letter->batch);
    free(letter);
}

void wire_post(const struct letter *proto, struct loop *loop, uint64_t at_ns)
{
    struct letter now = *proto;
    struct letter *letter = proto->rule.inside ? NULL : malloc(sizeof(*letter));

    if (letter && loop_reserve(loop, 1)) {
        free(letter);
        letter = NULL;
    }
    if (!letter) {
        now.fn(&now);
        free(now.batch);
        return;
    }
    *letter = *proto;
    letter->before = NULL;
    letter->next = letter->script->letters;
    if (letter->next)
        letter->next->before = letter;
    letter->script->letters = letter;
    letter->loop = loop;
    letter->timer = (struct timer){.fn = arrive};
    loop_arm(loop, &letter->timer, at_ns);
}

void wire_back(struct letter *letter)
{
    struct script_engine *engine = letter->of;
    uint64_t at_ns;

    if (!engine) {
        free(letter->batch);
        return;
    }
    at_ns = loop_now(engine->engine.loop) + letter->rule.back_ns;
    if (at_ns < engine->back_ns)
        at_ns = engine->back_ns;
    engine->back_ns = at_ns;
    wire_post(letter, engine->engine.loop, at_ns);
}

/* What is on its way to a server of its own still arrives there; nobody hears the answer. */
void wire_close(struct script_engine *engine)
{
    for (struct letter *letter = engine->script->letters, *next; letter; letter = next) {
        next = letter->next;
        if (letter->loop == engine->engine.loop)
            drop(letter);
        else if (letter->of == engine)
            letter->of = NULL;
    }
}

void wire_cancel(struct script *script, const struct query *query)
{
    for (struct letter *letter = script->letters, *next; letter; letter = next) {
        next = letter->next;
        if (letter->query == query)
            drop(letter);
    }
}

/* ---- the trace ---- */

void script_contract(bool kept, const char *promise)
{
    if (kept)
        return;
    (void)fprintf(stderr, "# the contract of an engine is broken: expected that %s\n", promise);
    abort();
}

void script_say(const struct script_engine *engine, const char *format, ...)
{
    FILE *log = engine->script->log;
    va_list args;

    if (!log)
        return;
    (void)fprintf(log, "# %12.6f  client %u: ", (double)loop_now(engine->engine.loop) / 1e9,
                  engine->number);
    va_start(args, format);
    (void)vfprintf(log, format, args);
    va_end(args);
    (void)fputc('\n', log);
}

/* Without memory, or untraced, the last one is written over. */
struct script_event *script_record(struct script_engine *engine, enum script_call call,
                                   const char *verb)
{
    static struct script_event nowhere;
    struct script *script = engine->script;
    struct script_event *event = &nowhere;

    if (!script->untraced && script->n_events == script->cap_events) {
        size_t cap = script->cap_events ? 2 * script->cap_events : 64;
        struct script_event *events = realloc(script->events, cap * sizeof(*events));
        if (events) {
            script->events = events;
            script->cap_events = cap;
        }
    }
    if (!script->untraced && script->n_events < script->cap_events)
        event = &script->events[script->n_events++];
    *event =
        (struct script_event){.call = call, .verb = verb, .at_ns = loop_now(engine->engine.loop)};
    return event;
}

const char *script_trace(const struct script *script, char *out, size_t out_size)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < script->n_events && used < out_size; i++) {
        const struct script_event *e = &script->events[i];
        const char *comma = i ? ", " : "";
        int n = e->call == SCRIPT_RENEW
                    ? snprintf(out + used, out_size - used, "%s%s %zu", comma, e->verb, e->n)
                    : snprintf(out + used, out_size - used, "%s%s %s", comma, e->verb, e->name);
        used += n > 0 ? (size_t)n : 0;
    }
    return out;
}

void script_forget(struct script *script)
{
    script->n_events = 0;
}

size_t script_count(const struct script *script, enum script_call call)
{
    size_t n = 0;

    for (size_t i = 0; i < script->n_events; i++)
        n += script->events[i].call == call;
    return n;
}

const struct script_event *script_last(const struct script *script, enum script_call call)
{
    for (size_t i = script->n_events; i > 0; i--) {
        if (script->events[i - 1].call == call)
            return &script->events[i - 1];
    }
    return NULL;
}
