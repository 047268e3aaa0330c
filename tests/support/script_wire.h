/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the scripted engine among themselves. */
#ifndef STILE_SCRIPT_WIRE_H
#define STILE_SCRIPT_WIRE_H

#include "support/script_engine.h"

struct script_engine {
    struct engine engine;
    struct script *script;
    struct script_engine *next;
    unsigned number; /* in the order of opening */
    struct session session;
    uint64_t there_ns, back_ns; /* when the last message arrives: none overtakes another */
    struct timer opening;       /* ?open=: answers it */
    bool opens, refuses;        /* it has been reserved; it answers with an error */
};

/* What it keeps behind struct claim. */
struct script_state {
    struct record *record; /* of the claim under way or granted */
};

static inline struct script_state *script_state(struct claim *claim)
{
    return (struct script_state *)claim->state;
}

enum letter_says {
    SAYS_NOTHING,
    SAYS_GRANTED,
    SAYS_QUEUED,
    SAYS_BUSY,
    SAYS_FAILED,
    SAYS_RELEASED,
    SAYS_RENEWED, /* each of the batch, or lost, or neither if the model was not asked */
    SAYS_UNKNOWN,
    SAYS_LOST,
};

struct letter_item {
    struct record *record;
    bool renewed;
};

/* A message on its way, to the server or back. */
struct letter {
    struct letter *next, *before;
    struct timer timer;
    struct loop *loop;        /* where it arrives */
    struct script_engine *of; /* NULL: its client is closed */
    struct script *script;
    void (*fn)(struct letter *letter);
    enum script_call call;
    struct script_rule rule;
    uint64_t sent_ns;
    bool confirms, mute;
    enum letter_says says;
    struct record *record;
    size_t n;
    struct letter_item *batch; /* renew; owned */
    struct query *query;
    struct watcher *watcher;
};

static inline const struct engine_events *letter_events(const struct letter *letter)
{
    return letter->of->engine.events;
}

struct script_rule wire_rule(struct script *script, enum script_call call);
/* Copies it and lets it arrive; inside, or without memory, at once. */
void wire_post(const struct letter *letter, struct loop *loop, uint64_t at_ns);
void wire_back(struct letter *letter); /* to its client, after rule.back_ns */
void wire_close(struct script_engine *engine);
void wire_cancel(struct script *script, const struct query *query); /* its answer never comes */

struct script_event *script_record(struct script_engine *engine, enum script_call call,
                                   const char *verb);
void script_say(const struct script_engine *engine, const char *format, ...) PRINTF_LIKE(2, 3);
void script_contract(bool kept, const char *promise); /* aborts if it isn't */

/* script_server.c */
void server_ask(struct letter *letter); /* after rule.there_ns */
void server_reply(struct letter *letter, enum letter_says says);
void server_woken(struct record *record);
void server_lost(struct record *record);

/* script_query.c */
void script_list(struct engine *engine, struct query *query);
void script_show(struct engine *engine, struct query *query);
void script_break(struct engine *engine, struct query *query);
void script_cancel(struct engine *engine, struct query *query);
void script_watch(struct engine *engine, struct query *query);
void script_unwatch(struct engine *engine, struct query *query);
void script_store(struct engine *engine, struct query *query);
void script_examine(struct engine *engine, struct query *query);
void script_adopt(struct engine *engine, struct query *query);
void script_changed(struct place *place);

/* script_url.c */
enum stile_status script_from_url(struct script **script, struct engine *engine,
                                  const struct url *url, struct stile_error *err);
void script_url_free(struct script *script); /* its file */

#endif
