/* Asking the nodes about themselves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/group.h"

static void answered(struct account *account)
{
    struct survey *survey = account->survey;
    if (--survey->pending == 0)
        survey->fn(survey);
}

static struct node *node_of(const struct account *account)
{
    struct survey *survey = account->survey;
    return &survey->redlock->nodes[account - survey->accounts];
}

static void take_failure(struct account *account, const struct stile_error *err)
{
    account->answered = false;
    node_failed(node_of(account), err);
}

#define FIELDS 9 /* NODE_FIELDS */

#define TAKE_TEXT(to, text) snprintf(to, sizeof(to), "%s", (text) ? (text) : "")

static void take_texts(struct account *account, const redisReply *reply, size_t first)
{
    const char *text[FIELDS];
    for (size_t i = 0; i < FIELDS; i++)
        text[i] = text_at(reply, first + i);
    account->answered = true;
    TAKE_TEXT(account->group, text[0]);
    account->highest = text[1] ? strtoull(text[1], NULL, 10) : 0;
    account->longest_ms = text[2] ? strtoull(text[2], NULL, 10) : 0;
    TAKE_TEXT(account->was, text[3]);
    TAKE_TEXT(account->seat, text[4]);
    TAKE_TEXT(account->seats, text[5]);
    account->n = group_size(account->group);
    if (!account->n && text[6])
        account->n = (unsigned)strtoul(text[6], NULL, 10);
    TAKE_TEXT(account->next, text[7]);
    TAKE_TEXT(account->past, text[8]);
    memcpy(node_of(account)->group, account->group, sizeof account->group);
}

static void on_told(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct account *account = data;
    if (err)
        take_failure(account, err);
    else if (is_array(reply, FIELDS))
        take_texts(account, reply, 0);
    answered(account);
}

static void on_changed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct account *account = data;
    account->changed = false;
    if (err) {
        take_failure(account, err);
    } else if (is_array(reply, 1 + FIELDS)) {
        account->changed = number_at(reply, 0) == 1;
        take_texts(account, reply, 1);
    }
    answered(account);
}

static void on_done(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct account *account = data;
    account->changed = !err && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    if (err)
        take_failure(account, err);
    answered(account);
}

/* Who may not ask for INFO, is told by the doctor. */
static void on_info(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct account *account = data;
    if (!err && reply->type == REDIS_REPLY_STRING)
        node_take_info(node_of(account), reply->str);
    else if (reply)
        node_take_info(node_of(account), NULL);
    answered(account);
}

/* ---- sending ---- */

static void sent(struct survey *survey, enum stile_status status)
{
    survey->pending += !status;
}

void survey_begin(struct survey *survey, void (*fn)(struct survey *survey))
{
    survey->fn = fn;
    survey->pending = 1; /* for ourselves, so that it does not end before all were asked */
    survey->rounds++;
}

void survey_end(struct survey *survey)
{
    if (--survey->pending == 0)
        survey->fn(survey);
}

void survey_ask(struct survey *survey, void (*fn)(struct survey *survey))
{
    struct redlock *redlock = survey->redlock;
    struct conn_arg info[] = {CONN_TEXT("INFO")};
    struct conn_arg ask[] = {CONN_TEXT("HMGET"),   CONN_TEXT(NODE_KEY),  CONN_TEXT("group"),
                             CONN_TEXT("highest"), CONN_TEXT("longest"), CONN_TEXT("was"),
                             CONN_TEXT("seat"),    CONN_TEXT("seats"),   CONN_TEXT("n"),
                             CONN_TEXT("next"),    CONN_TEXT("past")};
    survey_begin(survey, fn);
    for (unsigned i = 0; i < redlock->n; i++) {
        struct account *account = &survey->accounts[i];
        account->survey = survey;
        account->answered = account->changed = false;
        if (survey->rounds == 1 && survey->url)
            sent(survey, conn_send(redlock->nodes[i].asks, info, 1, on_info, account, NULL));
        sent(survey, conn_send(redlock->nodes[i].asks, ask, sizeof ask / sizeof *ask, on_told,
                               account, NULL));
    }
    survey_end(survey);
}

static void set_if_missing(struct survey *survey, unsigned node, const char *field,
                           const char *text)
{
    struct conn_arg args[] = {CONN_TEXT("HSETNX"), CONN_TEXT(NODE_KEY), CONN_TEXT(field),
                              CONN_TEXT(text)};
    sent(survey, conn_send(survey->redlock->nodes[node].asks, args, 4, on_done,
                           &survey->accounts[node], NULL));
}

/* With a seat, unless it has one: two that propose at once agree on the first. */
void survey_propose(struct survey *survey, unsigned node, const char *text)
{
    char seat[SEAT_LEN + 1];
    if (!survey->accounts[node].seat[0] && !seats_draw(seat, &survey->redlock->nodes[node]))
        set_if_missing(survey, node, "seat", seat);
    if (!survey->accounts[node].group[0])
        set_if_missing(survey, node, "group", text);
}

static void call(struct survey *survey, unsigned node, const struct lua *script,
                 const struct conn_arg *args, size_t n)
{
    survey->accounts[node].changed = false;
    sent(survey, conn_eval(survey->redlock->nodes[node].asks, script, args, 1, n, on_changed,
                           &survey->accounts[node], NULL));
}

void survey_change(struct survey *survey, unsigned node, const struct account *to)
{
    char n[12];
    snprintf(n, sizeof n, "%u", to->n);
    struct conn_arg args[] = {CONN_TEXT(NODE_KEY),  CONN_TEXT(survey->accounts[node].group),
                              CONN_TEXT(to->group), CONN_TEXT(to->was),
                              CONN_TEXT(to->seats), CONN_TEXT(n)};
    call(survey, node, &redlock_script_change, args, 6);
}

void survey_adopt(struct survey *survey, unsigned node, const struct account *as)
{
    char high[24], longest[24], n[12];
    snprintf(high, sizeof high, "%llu", (unsigned long long)as->highest);
    snprintf(longest, sizeof longest, "%llu", (unsigned long long)as->longest_ms);
    snprintf(n, sizeof n, "%u", as->n);
    struct conn_arg args[] = {CONN_TEXT(NODE_KEY),
                              CONN_TEXT(as->group),
                              CONN_TEXT(high),
                              CONN_TEXT(longest),
                              CONN_TEXT(survey->accounts[node].group),
                              CONN_TEXT(as->was),
                              CONN_TEXT(as->seats),
                              CONN_TEXT(n),
                              CONN_TEXT(as->past)};
    call(survey, node, &redlock_script_adopt, args, 9);
}

void survey_record(struct survey *survey, unsigned node, const char *seats)
{
    char n[12];
    snprintf(n, sizeof n, "%u", survey->redlock->n);
    struct conn_arg args[] = {CONN_TEXT(NODE_KEY), CONN_TEXT(survey->accounts[node].group),
                              CONN_TEXT(seats), CONN_TEXT(n)};
    call(survey, node, &redlock_script_record, args, 4);
}

/* In the epoch to which it has just gone. */
void survey_close(struct survey *survey, unsigned node, const char *next)
{
    struct conn_arg args[] = {CONN_TEXT(NODE_KEY), CONN_TEXT(survey->group), CONN_TEXT(next)};
    call(survey, node, &redlock_script_close, args, 3);
}

void survey_stop(struct survey *survey)
{
    for (unsigned i = 0; i < survey->redlock->n; i++)
        conn_forget(survey->redlock->nodes[i].asks, &survey->accounts[i]);
}

/* ---- what comes of it ---- */

unsigned survey_majority(const struct survey *survey, char id[GROUP_ID + 1], uint32_t *epoch)
{
    unsigned n = survey->redlock->n, most = 0;
    for (unsigned i = 0; i < n; i++) {
        char one[GROUP_ID + 1], other[GROUP_ID + 1];
        uint32_t at, latest = 0;
        unsigned share = 0;
        if (!survey->accounts[i].answered || !group_read(one, &at, survey->accounts[i].group))
            continue;
        for (unsigned k = 0; k < n; k++) {
            const struct account *account = &survey->accounts[k];
            if (!account->answered || !group_read(other, &at, account->group) ||
                strcmp(one, other) != 0)
                continue;
            share++;
            latest = at > latest ? at : latest;
        }
        if (share > most) {
            most = share;
            strcpy(id, one);
            *epoch = latest;
        }
    }
    return most;
}
