/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/redlock/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* ---- names ---- */

int redlock_group_draw(char *hex, size_t digits, struct loop *loop)
{
    unsigned char random[GROUP_ID / 2];
    int rc = loop_random(loop, random, digits / 2);
    hex_encode(hex, random, digits / 2);
    return rc;
}

bool redlock_group_is_closed(const char *text)
{
    return text[0] == '#';
}

/* "id.epoch", "id.epoch-random"; in a group that was resized "id.epoch.size-random", which clients
 * of a release without sizes do not take for a group. */
static bool read_name(const char *text, unsigned long *epoch, unsigned long *size)
{
    char *end;
    if (strspn(text, "0123456789abcdef") != GROUP_ID || text[GROUP_ID] != '.')
        return false;
    *epoch = strtoul(text + GROUP_ID + 1, &end, 10);
    *size = 0;
    if (end == text + GROUP_ID + 1 || *epoch == 0 || *epoch >= UINT32_MAX)
        return false;
    if (*end == '.')
        *size = strtoul(end + 1, &end, 10);
    return *size <= NODES_MAX && (*end == '\0' || *end == '-');
}

unsigned redlock_group_size(const char *text)
{
    unsigned long epoch, size;
    return read_name(text + redlock_group_is_closed(text), &epoch, &size) ? (unsigned)size : 0;
}

bool redlock_group_read(char id[GROUP_ID + 1], uint32_t *epoch, const char *text)
{
    unsigned long value, size;
    text += redlock_group_is_closed(text);
    if (!read_name(text, &value, &size))
        return false;
    memcpy(id, text, GROUP_ID);
    id[GROUP_ID] = '\0';
    *epoch = (uint32_t)value;
    return true;
}

bool redlock_group_is_older(const char *group, const char *was)
{
    group += redlock_group_is_closed(group);
    size_t len = strlen(group);
    for (const char *at = was; len > 0 && (at = strstr(at, group)); at += len) {
        if ((at == was || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0'))
            return true;
    }
    return false;
}

bool redlock_group_is_mark(const char *text)
{
    return text[0] == '!';
}

/* ---- labels ----
 *
 * Which nodes a group consists of can't be known by address: clients may name a node in different
 * ways. So each node has a label, and each epoch the list of its members' labels. A node that lost
 * its data has lost its label with it. When it is adopted it gets a new one, which replaces that of
 * a node that does not answer; should that node come back, it can't follow, and so a group of N
 * never has N + 1 members that vote. */

/* Digits at the end of a label, from the address: which label was a node's before. */
#define HINT_DIGITS 4

bool redlock_words_have(const char *list, const char *word)
{
    return redlock_group_is_older(word, list);
}

static void labels_add(char labels[LABELS_MAX + 1], const char *label)
{
    size_t used = strlen(labels);
    snprintf(labels + used, LABELS_MAX + 1 - used, "%s%s", used ? " " : "", label);
}

static void write_hint(char hint[HINT_DIGITS + 1], const struct node *node)
{
    unsigned hash = 2166136261u;
    for (const char *at = node->address; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    snprintf(hint, HINT_DIGITS + 1, "%04x", (hash ^ hash >> 16) & 0xffff);
}

static int label_draw(char label[LABEL_LEN + 1], const struct node *node)
{
    int rc = redlock_group_draw(label, LABEL_LEN - HINT_DIGITS, node->redlock->engine.loop);
    write_hint(label + LABEL_LEN - HINT_DIGITS, node);
    return rc;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool redlock_labels_of_all(char labels[LABELS_MAX + 1], const struct survey *survey)
{
    const char *sorted[NODES_MAX];
    unsigned n = survey->redlock->n;
    for (unsigned i = 0; i < n; i++) {
        sorted[i] = survey->records[i].label;
        if (!*sorted[i])
            return false;
    }
    qsort(sorted, n, sizeof *sorted, by_text);
    *labels = '\0';
    for (unsigned i = 0; i < n; i++)
        labels_add(labels, sorted[i]);
    return true;
}

static bool is_taken(const struct survey *survey, unsigned members, const char *label)
{
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        if (members & 1u << i && strcmp(survey->records[i].label, label) == 0)
            return true;
    }
    return false;
}

/* A label that no member has; best one that was given to a node of this address. */
static char *find_vacancy(char *labels, const struct survey *survey, unsigned members,
                          const struct node *node)
{
    char hint[HINT_DIGITS + 1], *found = NULL;
    write_hint(hint, node);
    for (char *at = labels; strlen(at) >= LABEL_LEN; at += LABEL_LEN + (at[LABEL_LEN] == ' ')) {
        char label[LABEL_LEN + 1];
        snprintf(label, sizeof label, "%.*s", LABEL_LEN, at);
        if (is_taken(survey, members, label))
            continue;
        if (strcmp(label + LABEL_LEN - HINT_DIGITS, hint) == 0)
            return at;
        found = found ? found : at;
    }
    return found;
}

unsigned redlock_labels_reassign(char labels[LABELS_MAX + 1], const struct survey *survey,
                                 unsigned members, unsigned needy)
{
    unsigned labelled = 0;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        const char *label = survey->records[i].label;
        if (!(needy & 1u << i) || strlen(label) != LABEL_LEN)
            continue;
        char *at = find_vacancy(labels, survey, members | labelled, &survey->redlock->nodes[i]);
        if (!at)
            continue;
        memcpy(at, label, LABEL_LEN);
        labelled |= 1u << i;
    }
    return labelled;
}

/* ---- asking the nodes ---- */

static void answered(struct node_record *record)
{
    struct survey *survey = record->survey;
    redlock_survey_end(survey);
}

static struct node *node_of(const struct node_record *record)
{
    struct survey *survey = record->survey;
    return &survey->redlock->nodes[record - survey->records];
}

static void take_failure(struct node_record *record, const struct stile_error *err)
{
    record->answered = false;
    redlock_node_failed(node_of(record), err);
}

#define FIELDS 9 /* see scripts/lib/report.lua */

#define TAKE_TEXT(to, text) snprintf(to, sizeof(to), "%s", (text) ? (text) : "")

static void take_texts(struct node_record *record, const redisReply *reply, size_t first)
{
    const char *text[FIELDS];
    for (size_t i = 0; i < FIELDS; i++)
        text[i] = text_at(reply, first + i);
    record->answered = true;
    TAKE_TEXT(record->group, text[0]);
    record->highest = text[1] ? strtoull(text[1], NULL, 10) : 0;
    redlock_learn(record->survey->redlock, record->highest);
    record->longest_ms = text[2] ? strtoull(text[2], NULL, 10) : 0;
    TAKE_TEXT(record->was, text[3]);
    TAKE_TEXT(record->label, text[4]);
    TAKE_TEXT(record->labels, text[5]);
    record->n = redlock_group_size(record->group);
    if (!record->n && text[6])
        record->n = (unsigned)strtoul(text[6], NULL, 10);
    TAKE_TEXT(record->next, text[7]);
    TAKE_TEXT(record->past, text[8]);
    memcpy(node_of(record)->group, record->group, sizeof record->group);
}

static void on_record_read(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct node_record *record = data;
    if (err)
        take_failure(record, err);
    else if (is_array(reply, FIELDS))
        take_texts(record, reply, 0);
    answered(record);
}

static void on_changed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct node_record *record = data;
    record->changed = false;
    if (err) {
        take_failure(record, err);
    } else if (is_array(reply, 1 + FIELDS)) {
        record->changed = number_at(reply, 0) == 1;
        take_texts(record, reply, 1);
    }
    answered(record);
}

static void on_done(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct node_record *record = data;
    record->changed = !err && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    if (err)
        take_failure(record, err);
    answered(record);
}

/* Without the permission for INFO the node counts; the doctor reports it. */
static void on_info(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct node_record *record = data;
    if (!err && reply->type == REDIS_REPLY_STRING)
        redlock_node_take_info(node_of(record), reply->str);
    else if (reply)
        redlock_node_take_info(node_of(record), NULL);
    answered(record);
}

/* ---- sending ---- */

static void sent(struct survey *survey, enum stile_status status)
{
    survey->pending += !status;
}

void redlock_survey_begin(struct survey *survey, void (*fn)(struct survey *survey))
{
    survey->fn = fn;
    survey->pending = 1; /* for the caller, so that fn is not called before all were asked */
    survey->rounds++;
}

void redlock_survey_end(struct survey *survey)
{
    if (--survey->pending == 0)
        survey->fn(survey);
    else if (survey->heard)
        survey->heard(survey);
}

void redlock_survey_ask(struct survey *survey, void (*fn)(struct survey *survey))
{
    struct redlock *redlock = survey->redlock;
    struct conn_arg info[] = {CONN_TEXT("INFO")};
    struct conn_arg ask[] = {CONN_TEXT("HMGET"),   CONN_TEXT(NODE_KEY),  CONN_TEXT("group"),
                             CONN_TEXT("highest"), CONN_TEXT("longest"), CONN_TEXT("was"),
                             CONN_TEXT("seat"),    CONN_TEXT("seats"),   CONN_TEXT("n"),
                             CONN_TEXT("next"),    CONN_TEXT("past")};
    redlock_survey_begin(survey, fn);
    for (unsigned i = 0; i < redlock->n; i++) {
        struct node_record *record = &survey->records[i];
        record->survey = survey;
        record->answered = record->changed = false;
        if (survey->rounds == 1 && survey->url)
            sent(survey,
                 redis_conn_send(redlock->nodes[i].requests, info, 1, on_info, record, NULL));
        sent(survey, redis_conn_send(redlock->nodes[i].requests, ask, sizeof ask / sizeof *ask,
                                     on_record_read, record, NULL));
    }
    redlock_survey_end(survey);
}

static void set_if_missing(struct survey *survey, unsigned node, const char *field,
                           const char *text)
{
    struct conn_arg args[] = {CONN_TEXT("HSETNX"), CONN_TEXT(NODE_KEY), CONN_TEXT(field),
                              CONN_TEXT(text)};
    sent(survey, redis_conn_send(survey->redlock->nodes[node].requests, args, 4, on_done,
                                 &survey->records[node], NULL));
}

/* With a label, unless it has one: of two proposals at once the first label stays. */
void redlock_survey_propose(struct survey *survey, unsigned node, const char *text)
{
    char label[LABEL_LEN + 1];
    if (!survey->records[node].label[0] && !label_draw(label, &survey->redlock->nodes[node]))
        set_if_missing(survey, node, "seat", label);
    if (!survey->records[node].group[0])
        set_if_missing(survey, node, "group", text);
}

static void send_script(struct survey *survey, unsigned node, const struct lua *script,
                        const struct conn_arg *args, size_t n)
{
    survey->records[node].changed = false;
    sent(survey, redis_conn_eval(survey->redlock->nodes[node].requests, script, args, 1, n,
                                 on_changed, &survey->records[node], NULL));
}

void redlock_survey_change(struct survey *survey, unsigned node, const struct node_record *to)
{
    char n[12];
    snprintf(n, sizeof n, "%u", to->n);
    struct conn_arg args[] = {CONN_TEXT(NODE_KEY),   CONN_TEXT(survey->records[node].group),
                              CONN_TEXT(to->group),  CONN_TEXT(to->was),
                              CONN_TEXT(to->labels), CONN_TEXT(n)};
    send_script(survey, node, &redlock_script_change, args, 6);
}

void redlock_survey_adopt(struct survey *survey, unsigned node, const struct node_record *as)
{
    char high[24], longest[24], n[12];
    snprintf(high, sizeof high, "%llu", (unsigned long long)as->highest);
    snprintf(longest, sizeof longest, "%llu", (unsigned long long)as->longest_ms);
    snprintf(n, sizeof n, "%u", as->n);
    struct conn_arg args[] = {CONN_TEXT(NODE_KEY),
                              CONN_TEXT(as->group),
                              CONN_TEXT(high),
                              CONN_TEXT(longest),
                              CONN_TEXT(survey->records[node].group),
                              CONN_TEXT(as->was),
                              CONN_TEXT(as->labels),
                              CONN_TEXT(n),
                              CONN_TEXT(as->past)};
    send_script(survey, node, &redlock_script_adopt, args, 9);
}

void redlock_survey_record(struct survey *survey, unsigned node, const char *labels)
{
    char n[12];
    snprintf(n, sizeof n, "%u", survey->redlock->n);
    struct conn_arg args[] = {CONN_TEXT(NODE_KEY), CONN_TEXT(survey->records[node].group),
                              CONN_TEXT(labels), CONN_TEXT(n)};
    send_script(survey, node, &redlock_script_record, args, 4);
}

/* In the epoch that the node has just entered. */
void redlock_survey_close(struct survey *survey, unsigned node, const char *next)
{
    struct conn_arg args[] = {CONN_TEXT(NODE_KEY), CONN_TEXT(survey->group), CONN_TEXT(next)};
    send_script(survey, node, &redlock_script_close, args, 3);
}

void redlock_survey_stop(struct survey *survey)
{
    for (unsigned i = 0; i < survey->redlock->n; i++)
        redis_conn_forget(survey->redlock->nodes[i].requests, &survey->records[i]);
}

/* ---- results ---- */

unsigned redlock_survey_answering(const struct survey *survey)
{
    unsigned mask = 0;
    for (unsigned i = 0; i < survey->redlock->n; i++)
        mask |= survey->records[i].answered ? 1u << i : 0;
    return mask;
}

unsigned redlock_survey_majority(const struct survey *survey, char id[GROUP_ID + 1],
                                 uint32_t *epoch)
{
    unsigned n = survey->redlock->n, most = 0;
    for (unsigned i = 0; i < n; i++) {
        char one[GROUP_ID + 1], other[GROUP_ID + 1];
        uint32_t at, latest = 0;
        unsigned share = 0;
        if (!survey->records[i].answered || !redlock_group_read(one, &at, survey->records[i].group))
            continue;
        for (unsigned k = 0; k < n; k++) {
            const struct node_record *record = &survey->records[k];
            if (!record->answered || !redlock_group_read(other, &at, record->group) ||
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

/* ---- the members ---- */

static bool is_member(const struct node_record *record, const char *id)
{
    char one[GROUP_ID + 1];
    uint32_t at;
    return record->answered && redlock_group_read(one, &at, record->group) && strcmp(one, id) == 0;
}

bool redlock_group_lists(const char *labels, const struct node_record *record)
{
    return !*labels || redlock_words_have(labels, record->label);
}

/* The epoch that most members are in, or can follow to. */
const struct node_record *redlock_group_leader(const struct survey *survey, const char *id)
{
    const struct node_record *leader = NULL;
    unsigned n = survey->redlock->n, most = 0;
    for (unsigned i = 0; i < n; i++) {
        const struct node_record *one = &survey->records[i];
        unsigned share = 0;
        for (unsigned k = 0; is_member(one, id) && k < n; k++) {
            const struct node_record *other = &survey->records[k];
            share += is_member(other, id) && redlock_group_lists(one->labels, other) &&
                     (strcmp(one->group, other->group) == 0 ||
                      redlock_group_is_older(other->group, one->was));
        }
        if (share > most) {
            most = share;
            leader = one;
        }
    }
    return leader;
}

/* Every member's list has all members, and perhaps others. */
static bool agree_on_members(const struct survey *survey, unsigned members)
{
    unsigned n = survey->redlock->n;
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; members & 1u << i && k < n; k++) {
            if (members & 1u << k &&
                !redlock_group_lists(survey->records[i].labels, &survey->records[k]))
                return false;
        }
    }
    return true;
}

/* If they disagree about the members, only those of one line of epochs count: a grant of another
 * epoch must be known to a node that both have in common. */
unsigned redlock_group_members(const struct survey *survey, const char *id,
                               const struct node_record **out)
{
    const struct node_record *leader = redlock_group_leader(survey, id);
    unsigned all = 0, line = 0;
    *out = leader;
    for (unsigned i = 0; leader && i < survey->redlock->n; i++) {
        const struct node_record *one = &survey->records[i];
        if (!is_member(one, id) || !redlock_group_lists(leader->labels, one))
            continue;
        all |= 1u << i;
        if (strcmp(one->group, leader->group) == 0 ||
            redlock_group_is_older(one->group, leader->was))
            line |= 1u << i;
    }
    return agree_on_members(survey, all) ? all : line;
}

unsigned redlock_group_strays(const struct survey *survey, const char *id)
{
    const struct node_record *leader = redlock_group_leader(survey, id);
    unsigned strays = 0;
    for (unsigned i = 0; leader && i < survey->redlock->n; i++) {
        const struct node_record *record = &survey->records[i];
        strays += is_member(record, id) && strcmp(record->group, leader->group) != 0 &&
                  !redlock_group_is_older(record->group, leader->was);
    }
    return strays;
}

/* ---- following, while claims are made ---- */

static void on_followed(void *data, const redisReply *reply, const struct stile_error *err)
{
    (void)data, (void)reply, (void)err; /* the next claim will show */
}

/* A node that was away when the others went to a new epoch has not forgotten: it has its fences,
 * and may follow. But only to an epoch that has its own on record as older: an adoption that was
 * cut short may have made one that no other node knows. Claims alone would not bring it back: those
 * that are decided without this node never read its answer. */
void redlock_group_lead(struct node *node)
{
    struct redlock *redlock = node->redlock;
    struct conn_arg args[] = {CONN_TEXT(NODE_KEY), CONN_TEXT(redlock->group),
                              CONN_TEXT(redlock->was), CONN_TEXT(redlock->labels)};
    if (redlock->was[0])
        redis_conn_eval(node->requests, &redlock_script_follow, args, 1, 4, on_followed, node,
                        NULL);
}

void redlock_group_enter(struct redlock *redlock, const char *group, const char *was,
                         const char *labels)
{
    snprintf(redlock->group, sizeof redlock->group, "%s", group);
    snprintf(redlock->was, sizeof redlock->was, "%s", was);
    snprintf(redlock->labels, sizeof redlock->labels, "%s", labels);
    for (unsigned i = 0; i < redlock->n; i++)
        redlock_group_lead(&redlock->nodes[i]);
}

enum { GROUP, WAS, LABELS, PAST }; /* the texts that a node replies instead of voting */

/* What the user has to change is REFUSED; everything else may pass. */
static enum stile_status what_is_wrong(struct redlock *redlock, const char *const texts[4],
                                       struct stile_error *err)
{
    const char *group = texts[GROUP];
    char id[GROUP_ID + 1];
    uint32_t epoch;
    if (!*group || redlock_group_is_mark(group))
        return error_set(err, STILE_UNREACHABLE, 0, "has lost its data: stile doctor --adopt");
    if (!redlock_group_read(id, &epoch, group))
        return error_set(err, STILE_UNREACHABLE, 0,
                         "is being made part of a group, or has lost its data: stile doctor "
                         "--adopt");
    if (redlock_words_have(texts[PAST], redlock->group_id))
        return error_set(err, STILE_REFUSED, 0,
                         "the group was given other nodes, and has %u now: name all of them in the "
                         "URL, and open it again",
                         redlock_group_size(group));
    if (strcmp(id, redlock->group_id) != 0)
        return error_set(err, STILE_UNREACHABLE, 0, "belongs to another group of nodes");
    if (redlock_group_is_closed(group))
        return error_set(err, STILE_UNREACHABLE, 0,
                         "its group is being given other nodes: stile doctor --resize, with the "
                         "URL of the new nodes, goes on with it");
    if (redlock_group_is_older(group, redlock->was) ||
        redlock_group_is_older(redlock->group, texts[WAS]))
        return error_set(err, STILE_UNREACHABLE, 0, "is in another epoch of its group");
    return error_set(err, STILE_UNREACHABLE, 0,
                     "was left behind by an adoption that was cut short: stile doctor --adopt");
}

static bool most_are_in(const struct redlock *redlock, const char *group)
{
    unsigned n = 0;
    for (unsigned i = 0; i < redlock->n; i++)
        n += strcmp(redlock->nodes[i].group, group) == 0;
    return n >= redlock->majority;
}

/* An adoption that was cut short may have made the epoch that we are in, on a node that has lost it
 * since. Then no other epoch has it on record, and we go where most nodes are. */
void redlock_group_hear(struct node *node, const char *const given[4])
{
    struct redlock *redlock = node->redlock;
    const char *texts[4];
    char id[GROUP_ID + 1] = "";
    uint32_t epoch;
    for (int i = 0; i < 4; i++)
        texts[i] = given[i] ? given[i] : "";
    snprintf(node->group, sizeof node->group, "%s", texts[GROUP]);
    what_is_wrong(redlock, texts, &node->error);
    /* A group has one size: no node follows from one size to another. */
    redlock_group_read(id, &epoch, node->group);
    if (strcmp(id, redlock->group_id) != 0 || redlock_group_is_closed(node->group))
        return;
    if (redlock_group_is_older(node->group, redlock->was))
        redlock_group_lead(node);
    else if (redlock_group_is_older(redlock->group, texts[WAS]) ||
             most_are_in(redlock, node->group))
        redlock_group_enter(redlock, node->group, texts[WAS], texts[LABELS]);
}

bool redlock_group_is_newer(struct redlock_claim *claim)
{
    return strcmp(claim->group, redlock_of_claim(claim)->group) != 0;
}
