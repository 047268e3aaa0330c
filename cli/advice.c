/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* From answers to advice: the first rule that fits, with the engine, the TTL and the guard that the
 * answers need. */
#include "advice.h"

#include <stdio.h>
#include <string.h>

#define INSTANT_MS 100
#define SHORT_MS   10000
#define ALL        (~0U)

/* ---- which rule ---- */

/* The engines of a rule as bits; ALL if it uses none. */
static unsigned engines_of(const struct advice_rule *rule)
{
    unsigned bits = 0;
    for (size_t i = 0; i < rule->n_engines; i++)
        bits |= BIT(rule->engines[i]);
    return bits != 0 ? bits : ALL;
}

static unsigned fitting(const struct advice_rule *rule, int question)
{
    unsigned bits = question == ASK_ENGINES ? engines_of(rule) : rule->fits[question];
    return bits != 0 ? bits : ALL;
}

/* The answers that are still possible. */
static unsigned possible(const struct advice_answers *answers, int question)
{
    unsigned n = 0;
    while (advice_questions[question].choices[n].word != NULL)
        n++;
    return answers->picked[question] != 0 ? answers->picked[question] : BIT(n) - 1;
}

static bool may_fit(const struct advice_rule *rule, const struct advice_answers *answers)
{
    for (int q = 0; q < ADVICE_QUESTIONS; q++) {
        if ((fitting(rule, q) & possible(answers, q)) == 0)
            return false;
    }
    return true;
}

/* Whether the rule fits whatever the answer is. Of engines, one of those at hand is enough. */
static bool settles(const struct advice_rule *rule, const struct advice_answers *answers, int q)
{
    if (q == ASK_ENGINES && answers->picked[q] != 0)
        return (fitting(rule, q) & answers->picked[q]) != 0;
    return (possible(answers, q) & ~fitting(rule, q)) == 0;
}

static bool must_fit(const struct advice_rule *rule, const struct advice_answers *answers)
{
    for (int q = 0; q < ADVICE_QUESTIONS; q++) {
        if (!settles(rule, answers, q))
            return false;
    }
    return true;
}

static bool has_guard(const struct advice_rule *rule, const struct advice_answers *answers)
{
    return rule->guarded && (possible(answers, ASK_GOAL) & BIT(CORRECTNESS)) != 0;
}

/* Answers that do not choose the rule, but a value in its command. */
static bool uses(const struct advice_rule *rule, const struct advice_answers *answers, int question)
{
    switch (question) {
    case ASK_HOLD:
        return rule->kind == LOCK;
    case ASK_WHERE:
        return has_guard(rule, answers) || rule->in_mysql != NULL || rule->in_sqlite != NULL;
    case ASK_GOAL:
        return rule->guarded && rule->kind == LOCK;
    case ASK_ENGINES:
        return rule->n_engines > 0;
    default:
        return false;
    }
}

static bool matters(const struct advice_answers *answers, int question)
{
    for (size_t i = 0; i < advice_n_rules; i++) {
        const struct advice_rule *rule = &advice_rules[i];
        if (!may_fit(rule, answers))
            continue;
        if (!settles(rule, answers, question) || uses(rule, answers, question))
            return true;
        if (must_fit(rule, answers))
            return false;
    }
    return false;
}

int advice_next_question(const struct advice_answers *answers)
{
    for (int q = 0; q < ADVICE_QUESTIONS; q++) {
        if (answers->picked[q] == 0 && matters(answers, q))
            return q;
    }
    return -1;
}

void advice_complete(struct advice_answers *answers)
{
    if (answers->picked[ASK_ENGINES] & BIT(REDLOCK))
        answers->picked[ASK_ENGINES] |= BIT(REDIS);
}

const struct advice_rule *advice_for(const struct advice_answers *answers)
{
    for (size_t i = 0; i < advice_n_rules; i++) {
        if (may_fit(&advice_rules[i], answers))
            return must_fit(&advice_rules[i], answers) ? &advice_rules[i] : NULL;
    }
    return NULL;
}

enum advice_hold advice_hold_of(int64_t ms)
{
    return ms <= INSTANT_MS ? INSTANT : ms <= SHORT_MS ? SHORT : LONG;
}

/* ---- its values ---- */

/* What raises the guard when the lock is granted, and what checks each write. */
static const struct {
    const char *option, *how;
} guards[] = {
    [IN_POSTGRES] = {" --guard postgres://HOST/DB#RESOURCE",
                     "SELECT stile.guard('RESOURCE', TOKEN) first in each transaction"},
    [IN_MYSQL] = {" --guard mysql://HOST/DB#RESOURCE",
                  "CALL stile_guard('RESOURCE', TOKEN, '') first in each transaction"},
    [IN_SQLITE] = {" --require-token",
                   "INSERT INTO stile_guard first in each transaction; see stile guard sql "
                   "--dialect sqlite"},
    [IN_REDIS] = {" --guard redis://HOST#RESOURCE",
                  "FCALL stile_guard_set, or another of its functions, instead of SET; see stile "
                  "guard lua"},
    [IN_FILE] = {" --guard file:DIR#FILE", "stile file put DIR/FILE <draft"},
    [IN_HTTP] = {" --require-token",
                 "nginx in front of the API, and the token with each request; see stile guard "
                 "nginx"},
    [IN_CELL] = {" --guard '#KEY'", "stile cell put KEY --token $STILE_TOKEN"},
    [IN_OTHER] = {" --guard '#KEY'",
                  "nothing can check a token there: put what is to be done into a cell (stile cell "
                  "put KEY --token $STILE_TOKEN), do it from there, and give the receiver a key "
                  "that makes a repetition harmless"},
};

static const char *const urls[ADVICE_ENGINES] = {
    [LOCAL] = "local:",
    [REDIS] = "redis://HOST",
    [REDLOCK] = "redlock://HOST1,HOST2,HOST3",
    [ETCD] = "etcd://HOST1,HOST2,HOST3",
    [ZK] = "zk://HOST1,HOST2,HOST3",
    [POSTGRES] = "postgres://HOST/DB",
    [MYSQL] = "mysql://HOST/DB",
    [DYNAMODB] = "'dynamodb://TABLE?region=REGION'",
};

static int lowest(unsigned bits)
{
    return bits != 0 ? __builtin_ctz(bits) : 0;
}

static int pick_engine(const struct advice_rule *rule, unsigned at_hand)
{
    for (size_t i = 0; i < rule->n_engines; i++) {
        if (BIT(rule->engines[i]) & at_hand)
            return rule->engines[i];
    }
    return -1;
}

/* A lease need not cover the work, because it is renewed: it only has to outlast a pause that may
 * pass, and is how long others wait after a crash. */
static const char *pick_ttl(const struct advice *advice, const struct advice_answers *answers)
{
    if (advice->rule->kind < OWN_LOCK || strstr(advice->rule->command, "{ttl}") == NULL ||
        advice->engine == LOCAL)
        return NULL;
    return answers->picked[ASK_HOLD] == BIT(LONG) ? "30s" : "10s";
}

static const char *pick_command(const struct advice_rule *rule, int where)
{
    if (where == IN_MYSQL && rule->in_mysql != NULL)
        return rule->in_mysql;
    return where == IN_SQLITE && rule->in_sqlite != NULL ? rule->in_sqlite : rule->command;
}

/* The engine, the TTL or the guard as options; "" if there is none. */
static void write_value(char *out, size_t size, const char *name, const struct advice *advice,
                        int where)
{
    /* redlock has no cells; one of its servers has. */
    bool elsewhere = advice->engine == REDLOCK && (where == IN_CELL || where == IN_OTHER);
    out[0] = '\0';
    if (name[0] == 'e')
        snprintf(out, size, "-e %s%s", urls[advice->engine],
                 advice->rule->shared && advice->engine == MYSQL ? "?mode=table" : "");
    else if (name[0] == 't' && advice->ttl != NULL)
        snprintf(out, size, " --ttl %s", advice->ttl);
    else if (name[0] == 'g' && advice->guard != NULL)
        snprintf(out, size, "%s", elsewhere ? " --guard redis://HOST1#KEY" : guards[where].option);
}

static void write_command(struct advice *advice, int where)
{
    size_t used = 0;
    for (const char *at = pick_command(advice->rule, where); *at != '\0'; at++) {
        char value[128] = {*at};
        const char *end = *at == '{' ? strchr(at, '}') : NULL;
        if (end != NULL) {
            write_value(value, sizeof value, at + 1, advice, where);
            at = end;
        }
        used +=
            (size_t)snprintf(advice->command + used, sizeof advice->command - used, "%s", value);
    }
}

void advice_make(struct advice *advice, const struct advice_answers *answers)
{
    int where = lowest(answers->picked[ASK_WHERE]);
    *advice = (struct advice){.rule = advice_for(answers)};
    advice->engine = pick_engine(advice->rule, answers->picked[ASK_ENGINES]);
    advice->ttl = pick_ttl(advice, answers);
    if (advice->rule->kind == OWN_LOCK ? advice->rule->guarded : has_guard(advice->rule, answers))
        advice->guard = guards[where].how;
    write_command(advice, where);
}
