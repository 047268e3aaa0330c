/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Histories in memory, and as text. */
#include "sim/history.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

void history_init(struct history *history)
{
    *history = (struct history){0};
}

void history_free(struct history *history)
{
    for (uint32_t i = 0; i < history->n_names; i++)
        free(history->names[i]);
    free(history->names);
    free(history->events);
    history_init(history);
}

/* Histories have a handful of names. */
uint32_t history_name(struct history *history, const char *name)
{
    for (uint32_t i = 0; i < history->n_names; i++) {
        if (strcmp(history->names[i], name) == 0)
            return i;
    }
    char *copy = strdup(name);
    char **names = realloc(history->names, (history->n_names + 1) * sizeof *names);
    if (names != NULL)
        history->names = names;
    if (copy == NULL || names == NULL) {
        free(copy);
        history->out_of_memory = true;
        return NO_NUMBER;
    }
    names[history->n_names] = copy;
    return history->n_names++;
}

static bool kind_has_claim(enum event_kind kind)
{
    return kind <= EVENT_BROKEN;
}

static bool kind_has_client(enum event_kind kind)
{
    return kind != EVENT_FAULT && kind != EVENT_HEALED && kind != EVENT_BREAKS &&
           kind != EVENT_BROKE;
}

void history_add(struct history *history, const struct event *event)
{
    if (history->n == history->room) {
        size_t room = history->room != 0 ? 2 * history->room : 256;
        struct event *events = realloc(history->events, room * sizeof *events);
        if (events == NULL) {
            history->out_of_memory = true;
            return;
        }
        history->events = events;
        history->room = room;
    }
    history->events[history->n++] = *event;
    if (kind_has_client(event->kind) && event->client >= history->n_clients)
        history->n_clients = event->client + 1;
    if (kind_has_claim(event->kind) && event->claim >= history->n_claims)
        history->n_claims = event->claim + 1;
}

uint32_t history_ask_more(struct history *history, const struct event *event, const char *name)
{
    struct event asked = *event;
    asked.kind = EVENT_ASKED;
    asked.name = history_name(history, name);
    asked.claim = history->n_claims;
    history_add(history, &asked);
    return asked.claim;
}

uint32_t history_ask(struct history *history, uint64_t ns, uint32_t client, const char *name,
                     enum stile_mode mode, uint32_t slots)
{
    return history_ask_more(
        history, &(struct event){.ns = ns, .client = client, .mode = mode, .slots = slots}, name);
}

const char *history_kind_text(enum event_kind kind)
{
    static const char *const texts[] = {
#define HISTORY_TEXT(name, text) [EVENT_##name] = text,
        HISTORY_KINDS(HISTORY_TEXT)
#undef HISTORY_TEXT
    };
    return texts[kind];
}

static void print_time(uint64_t ns, FILE *out)
{
    if (ns == UINT64_MAX)
        fputs("the end", out);
    else
        fprintf(out, "%" PRIu64 ".%09" PRIu64, ns / NS_PER_S, ns % NS_PER_S);
}

static void print_write(const struct event *event, FILE *out)
{
    static const char *const outcomes[] = {"accepted", "refused", "not answered"};
    fprintf(out, ", token %" PRIu64 ", %" PRIu64 " over %" PRIu64 ", %s%s", event->token,
            event->value, event->seen, event->guarded ? "guarded, " : "", outcomes[event->outcome]);
}

static void print_details(const struct event *event, FILE *out)
{
    static const char *const modes[] = {"exclusive", "shared", "slots"};
    if (event->kind == EVENT_ASKED)
        fprintf(out, ", %s", modes[event->mode]);
    if (event->kind == EVENT_ASKED && event->mode == STILE_SLOTS)
        fprintf(out, " %" PRIu32, event->slots);
    if (event->kind == EVENT_GRANTED)
        fprintf(out, ", token %" PRIu64, event->token);
    if (event->kind == EVENT_GRANTED || event->kind == EVENT_RENEWED) {
        fputs(", until ", out);
        print_time(event->deadline_ns, out);
    }
    if (event->kind == EVENT_ANSWERED || event->kind == EVENT_ENDED || event->kind == EVENT_BROKE)
        fprintf(out, ", %s", stile_status_name(event->status));
    if (event->kind == EVENT_WROTE)
        print_write(event, out);
}

static bool kind_has_name(enum event_kind kind)
{
    return kind == EVENT_ASKED || kind == EVENT_WROTE || kind == EVENT_BREAKS ||
           kind == EVENT_BROKE;
}

void history_print_event(const struct history *history, size_t index, FILE *out)
{
    const struct event *event = &history->events[index];
    print_time(event->ns, out);
    if (kind_has_client(event->kind))
        fprintf(out, " c%" PRIu32, event->client);
    fprintf(out, " %s", history_kind_text(event->kind));
    if (kind_has_claim(event->kind))
        fprintf(out, " claim %" PRIu32, event->claim);
    if (kind_has_name(event->kind))
        fprintf(out, " %s", history->names[event->name]);
    print_details(event, out);
    fputc('\n', out);
}

void history_print(const struct history *history, FILE *out)
{
    for (size_t i = 0; i < history->n; i++)
        history_print_event(history, i, out);
}
