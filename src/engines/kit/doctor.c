/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/kit/doctor.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"

/* ---- rules ---- */

void doctor_put(struct doctor_draft *draft, const char *format, ...)
{
    va_list args;
    assert(draft->n_values < DOCTOR_VALUES);
    va_start(args, format);
    vsnprintf(draft->values[draft->n_values++], DOCTOR_VALUE_MAX, format, args);
    va_end(args);
}

/* The text with its values, cut off where the room ends. Values are not searched for "$". */
static const char *fill_in(char out[DOCTOR_TEXT_MAX], const struct doctor_draft *draft,
                           const char *text)
{
    size_t n = 0;
    for (; text && *text && n < DOCTOR_TEXT_MAX - 1; text++) {
        if (*text != '$') {
            out[n++] = *text;
            continue;
        }
        size_t i = (size_t)(*++text - '1');
        assert(i < draft->n_values);
        size_t len = strnlen(draft->values[i], DOCTOR_TEXT_MAX - 1 - n);
        memcpy(out + n, draft->values[i], len);
        n += len;
    }
    out[n] = '\0';
    return out;
}

static bool applies(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct doctor_rule *rule = draft->rule;
    return (!rule->when || rule->when(draft, facts)) && (!rule->also || rule->also(draft, facts)) &&
           (!rule->unless || !rule->unless(draft, facts));
}

static void report_draft(const struct doctor_draft *draft, doctor_report *report, void *data)
{
    const struct doctor_rule *rule = draft->rule;
    char what[DOCTOR_TEXT_MAX], why[DOCTOR_TEXT_MAX], cure[DOCTOR_TEXT_MAX],
        command[DOCTOR_TEXT_MAX];
    report(data,
           &(struct stile_finding){
               .severity = draft->severity,
               .id = rule->id,
               .where = draft->where,
               .what = fill_in(what, draft, rule->what),
               .why = fill_in(why, draft, rule->why),
               .cure = fill_in(cure, draft, rule->cure),
               .command = draft->command ? draft->command : fill_in(command, draft, rule->command),
           });
}

void doctor_report_to_query(void *query, const struct stile_finding *finding)
{
    ((struct query *)query)->engine->events->finding(query, finding);
}

size_t doctor_apply(const struct doctor_rule *rules, const struct doctor_facts *facts,
                    const char *where, doctor_report *report, void *data)
{
    size_t n = 0;
    for (const struct doctor_rule *rule = rules; rule->id; rule++) {
        struct doctor_draft draft = {.rule = rule, .severity = rule->severity, .where = where};
        if (!applies(&draft, facts))
            continue;
        report_draft(&draft, report, data);
        n++;
    }
    return n;
}

/* ---- visits ---- */

static struct loop *loop_of(const struct doctor_visit *visit)
{
    return visit->query->engine->loop;
}

static void visit_free(struct doctor_visit *visit)
{
    struct doctor_visit **at = visit->visits;
    while (*at != visit)
        at = &(*at)->next;
    *at = visit->next;
    visit->plan->leave(visit);
    loop_disarm(loop_of(visit), &visit->timer);
    loop_unreserve(loop_of(visit), 1);
    visit->query->state = NULL;
    free(visit);
}

static void finish(struct doctor_visit *visit)
{
    struct query *query = visit->query;
    struct stile_error err = {0};
    visit->plan->judge(visit, &err);
    visit_free(visit);
    query->engine->events->done(query, err.status ? &err : NULL);
}

static void on_timeout(struct timer *timer)
{
    finish(container_of(timer, struct doctor_visit, timer));
}

/* Counts as a question itself: an answer that comes at once must not end the round. */
static void next_round(struct doctor_visit *visit)
{
    visit->pending = 1;
    loop_arm(loop_of(visit), &visit->timer, loop_now(loop_of(visit)) + visit->patience_ns);
    if (visit->plan->ask(visit, visit->round++))
        doctor_answered(visit);
    else
        finish(visit);
}

void doctor_asked(struct doctor_visit *visit)
{
    visit->pending++;
}

void doctor_answered(struct doctor_visit *visit)
{
    if (--visit->pending == 0)
        next_round(visit);
}

void doctor_visit_begin(const struct doctor_plan *plan, size_t size, uint64_t patience_ns,
                        struct query *query, struct doctor_visit **visits)
{
    struct doctor_visit *visit = calloc(1, size);
    struct stile_error err;
    if (!visit || loop_reserve(query->engine->loop, 1)) {
        free(visit);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        query->engine->events->done(query, &err);
        return;
    }
    *visit = (struct doctor_visit){.plan = plan,
                                   .query = query,
                                   .visits = visits,
                                   .next = *visits,
                                   .patience_ns = patience_ns,
                                   .timer.fn = on_timeout};
    *visits = visit;
    query->state = visit;
    next_round(visit);
}

void doctor_visits_drop(struct doctor_visit **visits)
{
    while (*visits)
        visit_free(*visits);
}

void doctor_visits_forked(struct doctor_visit *visits)
{
    for (struct doctor_visit *visit = visits; visit; visit = visit->next)
        visit->plan->forked(visit);
}
