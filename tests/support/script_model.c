/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/script_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"

void model_init(struct model *model)
{
    *model = (struct model){0};
}

static void place_free(struct place *place)
{
    for (struct watcher *w = place->watchers, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    free(place->name);
    free(place);
}

int model_clock(struct model *model, struct loop *loop)
{
    int error = loop_reserve(loop, model->n_places);

    if (!error)
        model->loop = loop;
    return error;
}

void model_unclock(struct model *model)
{
    for (size_t i = 0; i < MODEL_BUCKETS; i++) {
        for (struct place *place = model->buckets[i]; place; place = place->next)
            loop_disarm(model->loop, &place->timer);
    }
    model->loop = NULL;
}

void model_fini(struct model *model)
{
    if (model->loop)
        model_unclock(model);
    for (size_t i = 0; i < MODEL_BUCKETS; i++) {
        for (struct place *place = model->buckets[i], *next; place; place = next) {
            next = place->next;
            place_free(place);
        }
    }
    for (struct record *record = model->records, *next; record; record = next) {
        next = record->all_next;
        free(record);
    }
}

uint64_t model_now(const struct model *model)
{
    return loop_now(model->loop);
}

/* ---- names ---- */

static void place_timer(struct timer *timer)
{
    model_settle((struct place *)((char *)timer - offsetof(struct place, timer)));
}

static struct place *place_new(struct model *model, const char *name, uint64_t hash)
{
    struct place *place = calloc(1, sizeof(*place));

    if (place)
        place->name = strdup(name);
    if (!place || !place->name || loop_reserve(model->loop, 1)) {
        if (place)
            free(place->name);
        free(place);
        return NULL;
    }
    place->model = model;
    place->hash = hash;
    model->n_places++;
    place->timer.fn = place_timer;
    place->next = model->buckets[hash % MODEL_BUCKETS];
    model->buckets[hash % MODEL_BUCKETS] = place;
    return place;
}

struct place *model_place(struct model *model, const char *name)
{
    uint64_t hash = name_hash(name, strlen(name));

    for (struct place *place = model->buckets[hash % MODEL_BUCKETS]; place; place = place->next) {
        if (place->hash == hash && strcmp(place->name, name) == 0)
            return place;
    }
    return place_new(model, name, hash);
}

struct record *model_record(struct model *model, const char *name)
{
    struct place *place = model_place(model, name);
    struct record *record = place ? calloc(1, sizeof(*record)) : NULL;

    if (!record)
        return NULL;
    record->place = place;
    record->all_next = model->records;
    model->records = record;
    (void)snprintf(record->owner, sizeof(record->owner), "owner%llx-%llu",
                   (unsigned long long)model->salt, (unsigned long long)++model->last_id);
    return record;
}

struct record *model_find_owner(struct model *model, const char *name, const char *owner)
{
    struct place *place = model_place(model, name);

    if (!place)
        return NULL;
    model_settle(place);
    return place->holder && strcmp(place->holder->owner, owner) == 0 ? place->holder : NULL;
}

size_t model_waiting(const struct model *model)
{
    size_t n = 0;

    for (size_t i = 0; i < MODEL_BUCKETS; i++) {
        for (struct place *place = model->buckets[i]; place; place = place->next) {
            for (struct record *record = place->queue; record; record = record->next)
                n++;
        }
    }
    return n;
}

/* ---- holding ---- */

uint64_t model_expires(const struct record *record)
{
    return record->session ? record->session->expires_ns : record->expires_ns;
}

static void prolong(struct record *record)
{
    uint64_t until =
        record->ttl_ns ? model_now(record->place->model) + record->ttl_ns : (uint64_t)NEVER;

    record->expires_ns = until;
    if (record->session && record->session->expires_ns < until)
        record->session->expires_ns = until;
}

static void grant(struct record *record)
{
    struct place *place = record->place;

    record->at = HOLDS;
    record->token = ++place->token;
    record->since_ns = model_now(place->model);
    place->holder = record;
    place->model->grants++;
    prolong(record);
}

static void changed(struct place *place)
{
    if (place->model->changed)
        place->model->changed(place);
}

static void end_holder(struct place *place, bool orderly)
{
    struct record *holder = place->holder;
    uint64_t now = model_now(place->model), until = holder->since_ns + holder->hold_ns;

    if (!orderly && now + holder->delay_ns > until)
        until = now + holder->delay_ns;
    place->ghost_until_ns = until;
    holder->at = GONE;
    place->holder = NULL;
}

static bool is_free(const struct place *place)
{
    return !place->holder && model_now(place->model) >= place->ghost_until_ns;
}

/* The place looks after itself only while somebody waits there. */
static void arm(struct place *place)
{
    uint64_t at = place->holder ? model_expires(place->holder) : place->ghost_until_ns;

    if (place->queue && at != NEVER)
        loop_arm(place->model->loop, &place->timer, at);
    else
        loop_disarm(place->model->loop, &place->timer);
}

/* Waiters on a session that is over are gone. */
static void drop_dead(struct place *place)
{
    struct record **at = &place->queue;

    while (*at) {
        struct record *record = *at;
        if (record->session && record->session->expires_ns <= model_now(place->model)) {
            *at = record->next;
            record->at = GONE;
        } else {
            at = &record->next;
        }
    }
}

void model_settle(struct place *place)
{
    bool news = false;

    if (place->holder && model_expires(place->holder) <= model_now(place->model)) {
        end_holder(place, false);
        news = true;
    }
    drop_dead(place);
    if (place->queue && is_free(place)) {
        struct record *next = place->queue;
        place->queue = next->next;
        grant(next);
        place->model->woken(next);
        news = true;
    }
    arm(place);
    if (news)
        changed(place);
}

enum model_answer model_claim(struct record *record)
{
    struct place *place = record->place;
    struct record **last = &place->queue;

    model_settle(place);
    if (!place->queue && is_free(place)) {
        grant(record);
        changed(place);
        return MODEL_GRANTED;
    }
    if (!record->wait)
        return MODEL_BUSY;
    while (*last)
        last = &(*last)->next;
    *last = record;
    record->next = NULL;
    record->at = QUEUED;
    if (record->session)
        prolong(record);
    record->since_ns = model_now(place->model);
    arm(place);
    changed(place);
    return MODEL_QUEUED;
}

bool model_touch(struct record *record)
{
    model_settle(record->place);
    if (record->at != HOLDS)
        return false;
    prolong(record);
    arm(record->place);
    return true;
}

static void leave_queue(struct record *record)
{
    struct record **at = &record->place->queue;

    while (*at != record)
        at = &(*at)->next;
    *at = record->next;
    record->at = GONE;
}

bool model_release(struct record *record)
{
    model_settle(record->place);
    if (record->at == GONE)
        return false;
    if (record->at == HOLDS)
        end_holder(record->place, true);
    else
        leave_queue(record);
    model_settle(record->place);
    changed(record->place);
    return true;
}

void model_vacate(struct place *place)
{
    if (place->holder)
        end_holder(place, true);
    model_settle(place);
    changed(place);
}
