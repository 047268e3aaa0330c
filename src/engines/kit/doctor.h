/* stile doctor: rules as tables.
 *
 * An engine collects what its servers answer in one struct of facts. Rules only read the facts and
 * never send anything, so a test can make up the facts of any server.
 *
 * A rule is one row of a const table: when it applies, and the texts of its finding. Texts are
 * whole sentences; $1 to $9 stand for the values that when() has noted. A user reads these texts
 * while something is wrong: say what is the case, why it matters for locks, and what to do. */
#ifndef STILE_KIT_DOCTOR_H
#define STILE_KIT_DOCTOR_H

#include "engines/engine.h"

#define DOCTOR_VALUES    6
#define DOCTOR_VALUE_MAX 320
#define DOCTOR_TEXT_MAX  1024

/* Each engine defines its own. */
struct doctor_facts;

struct doctor_rule;

/* A finding before it is reported. */
struct doctor_draft {
    const struct doctor_rule *rule;
    enum stile_severity severity; /* the rule's; when() may change it */
    const char *where;            /* when() may change it; borrowed */
    const char *command;          /* set by when(): used literally, instead of the rule's */
    char values[DOCTOR_VALUES][DOCTOR_VALUE_MAX];
    size_t n_values;
};

typedef bool doctor_when(struct doctor_draft *draft, const struct doctor_facts *facts);

/* A table ends with a row without an id. */
struct doctor_rule {
    const char *id;
    enum stile_severity severity;
    /* It applies when when() holds and unless() does not, in this order; NULL: in any case. */
    doctor_when *when, *unless;
    /* The fact in question, for a when() that several rules use. */
    union {
        const char *field;
        unsigned column;
    };
    const char *what, *why, *cure, *command; /* NULL: none */
};

/* Notes the next value: $1, then $2. */
void doctor_put(struct doctor_draft *draft, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

typedef void doctor_report(void *data, const struct stile_finding *finding);

/* To the events of a query. */
doctor_report doctor_report_to_query;

/* Reports a finding for each rule that applies, in the order of the table. */
void doctor_apply(const struct doctor_rule *rules, const struct doctor_facts *facts,
                  const char *where, doctor_report *report, void *data);

#endif
