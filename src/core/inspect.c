/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/inspect.h"

#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/name.h"
#include "base/text.h"
#include "core/client.h"
#include "core/record.h"

/* ---- results ---- */

static size_t copy_size(const char *text)
{
    return text_size(text ? text : "");
}

static size_t result_size(const struct stile_info *info)
{
    size_t size = sizeof(struct result) + copy_size(info->name);
    for (size_t i = 0; i < info->holders + info->waiters; i++) {
        const struct stile_claim_info *c = &info->claims[i];
        size += sizeof *c + copy_size(c->host) + copy_size(c->command) + copy_size(c->owner) +
                copy_size(c->proclaimed);
    }
    if (info->last)
        size += sizeof *info->last + copy_size(info->last->host) + copy_size(info->last->command);
    return size;
}

/* Missing texts become "". */
static const char *copy_text(char **at, const char *text)
{
    return text_pack(at, text ? text : "");
}

static void copy_claim(struct stile_claim_info *to, const struct stile_claim_info *from,
                       char **text)
{
    *to = *from;
    to->host = copy_text(text, from->host);
    to->command = copy_text(text, from->command);
    to->owner = copy_text(text, from->owner);
    to->proclaimed = copy_text(text, from->proclaimed);
}

/* Behind the struct: the claims, the last holder, and all texts. */
struct result *result_copy(const struct stile_info *info)
{
    size_t n = info->holders + info->waiters;
    struct result *a = malloc(result_size(info));
    if (!a)
        return NULL;
    struct stile_claim_info *claims = (struct stile_claim_info *)(a + 1);
    struct stile_last_holder *last = (struct stile_last_holder *)(claims + n);
    char *text = info->last ? (char *)(last + 1) : (char *)last;
    *a = (struct result){.info = *info};
    a->info.claims = claims;
    a->info.name = copy_text(&text, info->name);
    for (size_t i = 0; i < n; i++)
        copy_claim(&claims[i], &info->claims[i], &text);
    if (info->last) {
        *last = *info->last;
        last->host = copy_text(&text, info->last->host);
        last->command = copy_text(&text, info->last->command);
        a->info.last = last;
    }
    return a;
}

void inspection_keep(struct inspection *inspection, const struct stile_info *info)
{
    struct result *a = result_copy(info);
    if (a) {
        *inspection->last = a;
        inspection->last = &a->next;
    }
    inspection->q.out_of_memory |= !a;
}

void inspect_info(struct query *query, const struct stile_info *info)
{
    struct inspection *inspection = query->core;
    struct stile_last_holder last;
    struct stile_info whole = *info;
    if (record_read(&last, inspection->record))
        whole.last = &last;
    if (inspection->class->take)
        inspection->class->take(inspection, &whole);
    else
        inspection_keep(inspection, &whole);
    inspection->record[0] = '\0';
}

void inspect_record(struct query *query, const char *text, size_t len)
{
    struct inspection *inspection = query->core;
    inspection->record[0] = '\0';
    if (len > RECORD_MAX || memchr(text, '\0', len))
        return; /* not one of ours */
    memcpy(inspection->record, text, len);
    inspection->record[len] = '\0';
}

static struct result *take_results(struct inspection *inspection)
{
    struct result *first = inspection->first;
    inspection->first = NULL;
    inspection->last = &inspection->first;
    return first;
}

/* Without the mutex. True: the user wants no more. */
static bool hand_to_user(struct result *first, stile_info_fn *fn, void *data)
{
    bool enough = false;
    for (struct result *a = first, *next; a; a = next) {
        next = a->next;
        if (fn && !enough)
            enough = fn(&a->info, data) != 0;
        free(a);
    }
    return enough;
}

static void handed_out(struct inspection *inspection, bool enough)
{
    if (inspection->class->handed_out)
        inspection->class->handed_out(inspection, enough);
}

/* ---- the end ---- */

void inspection_notify(struct inspection *inspection)
{
    if (inspection->done)
        callback_queue(inspection->client, &inspection->callback);
    else
        drive_done(&inspection->q.follower);
}

void inspection_end(struct inspection *inspection, const struct stile_error *err)
{
    if (inspection->ended)
        return;
    error_copy(&inspection->error, err);
    inspection->ended = true;
    question_cancel(&inspection->q);
    if (inspection->class->stop)
        inspection->class->stop(inspection);
    inspection_notify(inspection);
}

void inspection_drop(struct inspection *inspection)
{
    hand_to_user(take_results(inspection), NULL, NULL);
}

void inspection_cancel(struct inspection *inspection)
{
    struct stile_error err;
    if (inspection->ended)
        return;
    error_set(&err, STILE_CANCELLED, 0, "%s", stile_status_text(STILE_CANCELLED));
    inspection_drop(inspection);
    inspection_end(inspection, &err);
}

static void on_answered(struct question *q)
{
    struct inspection *inspection = container_of(q, struct inspection, q);
    struct stile_error err;
    inspection_end(inspection, question_outcome(q, &err) ? &err : NULL);
}

static enum stile_status explain(const struct inspection *inspection, struct stile_error *err)
{
    const struct inspection_class *class = inspection->class;
    if (!err || !err->status)
        return STILE_OK;
    if (class->unnamed)
        return error_wrap(err, err->status, "%s", class->doing);
    return error_wrap(err, err->status, "%s '%s'", class->doing, inspection->q.query.name);
}

/* ---- blocking calls ---- */

void inspection_init(struct inspection *inspection, const struct inspection_class *class,
                     struct stile_client *client, const char *name)
{
    *inspection = (struct inspection){.class = class, .client = client, .last = &inspection->first};
    question_init(&inspection->q, client, name);
    inspection->q.answered = on_answered;
}

void inspection_hand_out(struct inspection *inspection, stile_info_fn *fn, void *data)
{
    struct outside outside;
    struct result *first = take_results(inspection);
    if (!first)
        return;
    client_step_out(inspection->client, &outside);
    bool enough = hand_to_user(first, fn, data);
    client_step_in(inspection->client, &outside);
    handed_out(inspection, enough);
}

enum stile_status inspection_leave(struct inspection *inspection, struct stile_error *err)
{
    client_leave(inspection->client);
    enum stile_status status = inspection->error.status;
    if (status && err) {
        *err = inspection->error;
        explain(inspection, err);
    }
    return status;
}

enum stile_status inspection_run(struct inspection *inspection, question_slot *slot,
                                 stile_info_fn *fn, void *data, struct stile_error *err)
{
    question_ask(&inspection->q, slot);
    drive_until(inspection->client, &inspection->q.follower);
    inspection_hand_out(inspection, fn, data);
    return inspection_leave(inspection, err);
}

/* ---- async calls ---- */

static void finish(struct inspection *inspection)
{
    struct stile_error *err = &inspection->error;
    explain(inspection, err);
    inspection->done(inspection->client, err->status, err->status ? err : NULL, inspection->data);
    free(inspection);
}

static void hand_out_kept(struct inspection *inspection)
{
    struct stile_client *client = inspection->client;
    while (inspection->first) {
        struct result *first = take_results(inspection);
        pthread_mutex_unlock(&client->mutex);
        bool enough = hand_to_user(first, inspection->fn, inspection->data);
        pthread_mutex_lock(&client->mutex);
        handed_out(inspection, enough);
    }
}

/* A callback that waits for another call on this client makes callbacks itself: the same
 * inspection's results stay until it returns. */
static void deliver(struct callback *callback)
{
    struct inspection *inspection = container_of(callback, struct inspection, callback);
    struct stile_client *client = inspection->client;
    pthread_mutex_lock(&client->mutex);
    bool ended = false;
    if (!inspection->delivering) {
        inspection->delivering = true;
        hand_out_kept(inspection);
        inspection->delivering = false;
        ended = inspection->ended;
    }
    if (ended) {
        callback_cancel(client, callback);
        *inspection->link = inspection->next;
        if (inspection->next)
            inspection->next->link = inspection->link;
    }
    pthread_mutex_unlock(&client->mutex);
    if (ended)
        finish(inspection);
}

void *inspection_new(size_t size, const struct inspection_class *class, struct stile_client *client,
                     const char *name)
{
    char *memory = calloc(1, size + strlen(name) + 1);
    if (!memory)
        return NULL;
    inspection_init((struct inspection *)memory, class, client, strcpy(memory + size, name));
    return memory;
}

void inspection_defer(struct inspection *inspection, stile_info_fn *fn, stile_query_done_fn *done,
                      void *data)
{
    struct stile_client *client = inspection->client;
    inspection->fn = fn;
    inspection->done = done;
    inspection->data = data;
    inspection->callback.fn = deliver;
    inspection->next = client->inspections;
    inspection->link = &client->inspections;
    if (inspection->next)
        inspection->next->link = &inspection->next;
    client->inspections = inspection;
}

void inspect_cancel_all(struct stile_client *client)
{
    for (struct inspection *at = client->inspections; at; at = at->next)
        inspection_cancel(at);
}

/* Starts it and leaves the client. */
static enum stile_status start(const struct inspection_class *class, struct stile_client *client,
                               const char *name, uint64_t token, question_slot *slot,
                               stile_info_fn *fn, stile_query_done_fn *done, void *data,
                               struct stile_error *err)
{
    struct inspection *inspection = inspection_new(sizeof *inspection, class, client, name);
    if (inspection) {
        inspection_defer(inspection, fn, done, data);
        inspection->q.query.token = token;
        question_ask(&inspection->q, slot);
    }
    client_leave(client);
    return inspection ? STILE_OK : error_set(err, STILE_NOMEM, 0, "out of memory");
}

/* ---- list ---- */

static const struct inspection_class listing = {.doing = "listing locks", .unnamed = true};

static enum stile_status enter_to_list(struct stile_client *client, const char *prefix,
                                       struct stile_error *err)
{
    enum stile_status status = *prefix ? name_check(prefix, strlen(prefix), err) : STILE_OK;
    if (!status)
        status = client_enter_for_locks(client, err);
    return status ? error_wrap(err, status, "listing locks") : STILE_OK;
}

enum stile_status stile_list(struct stile_client *client, const char *prefix, stile_info_fn *fn,
                             void *data, struct stile_error *err)
{
    struct inspection inspection;
    prefix = prefix ? prefix : "";
    enum stile_status status = enter_to_list(client, prefix, err);
    if (status)
        return status;
    inspection_init(&inspection, &listing, client, prefix);
    return inspection_run(&inspection, client->engine->class->list, fn, data, err);
}

static enum stile_status no_callback(const char *doing, struct stile_error *err)
{
    return error_set(err, STILE_MISUSE, 0, "%s: no callback given", doing);
}

enum stile_status stile_list_async(struct stile_client *client, const char *prefix,
                                   stile_info_fn *fn, stile_query_done_fn *done, void *data,
                                   struct stile_error *err)
{
    if (!done)
        return no_callback("listing locks", err);
    prefix = prefix ? prefix : "";
    enum stile_status status = enter_to_list(client, prefix, err);
    if (status)
        return status;
    return start(&listing, client, prefix, 0, client->engine->class->list, fn, done, data, err);
}

/* ---- show and break ---- */

static const struct inspection_class showing = {.doing = "showing"};
static const struct inspection_class breaking = {.doing = "breaking"};

enum stile_status inspection_enter(struct stile_client *client, const char *name,
                                   struct stile_error *err)
{
    if (!name)
        return error_set(err, STILE_MISUSE, 0, "no name given");
    enum stile_status status = name_check(name, strlen(name), err);
    return status ? status : client_enter_for_locks(client, err);
}

enum stile_status stile_show(struct stile_client *client, const char *name, stile_info_fn *fn,
                             void *data, struct stile_error *err)
{
    struct inspection inspection;
    enum stile_status status = inspection_enter(client, name, err);
    if (status)
        return error_wrap(err, status, "showing a lock");
    inspection_init(&inspection, &showing, client, name);
    return inspection_run(&inspection, client->engine->class->show, fn, data, err);
}

enum stile_status stile_show_async(struct stile_client *client, const char *name, stile_info_fn *fn,
                                   stile_query_done_fn *done, void *data, struct stile_error *err)
{
    if (!done)
        return no_callback("showing a lock", err);
    enum stile_status status = inspection_enter(client, name, err);
    if (status)
        return error_wrap(err, status, "showing a lock");
    return start(&showing, client, name, 0, client->engine->class->show, fn, done, data, err);
}

enum stile_status stile_break(struct stile_client *client, const char *name, uint64_t token,
                              struct stile_error *err)
{
    struct inspection inspection;
    enum stile_status status = inspection_enter(client, name, err);
    if (status)
        return error_wrap(err, status, "breaking a lock");
    inspection_init(&inspection, &breaking, client, name);
    inspection.q.query.token = token;
    return inspection_run(&inspection, client->engine->class->break_, NULL, NULL, err);
}

enum stile_status stile_break_async(struct stile_client *client, const char *name, uint64_t token,
                                    stile_query_done_fn *done, void *data, struct stile_error *err)
{
    if (!done)
        return no_callback("breaking a lock", err);
    enum stile_status status = inspection_enter(client, name, err);
    if (status)
        return error_wrap(err, status, "breaking a lock");
    return start(&breaking, client, name, token, client->engine->class->break_, NULL, done, data,
                 err);
}
