#include "engines/kit/doctor.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
    return (!rule->when || rule->when(draft, facts)) &&
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

void doctor_apply(const struct doctor_rule *rules, const struct doctor_facts *facts,
                  const char *where, doctor_report *report, void *data)
{
    for (const struct doctor_rule *rule = rules; rule->id; rule++) {
        struct doctor_draft draft = {.rule = rule, .severity = rule->severity, .where = where};
        if (applies(&draft, facts))
            report_draft(&draft, report, data);
    }
}
