/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile doctor: one visit, rules as tables.
 *
 * A visit asks every server of the engine its questions once, in rounds: the questions of a round
 * are under way together, and the next round begins when all of them are answered. A round has a
 * bounded time. When that is over the visit ends, and a server that has not answered is reported as
 * such: set its error before asking, and clear it when the answer comes.
 *
 * The answers are collected in one struct of facts. Rules only read the facts and never send
 * anything, so a test can make up the facts of any server.
 *
 * A rule is one row of a const table: when it applies, and the texts of its finding. Texts are
 * whole sentences; $1 to $9 stand for the values that when() has noted. A user reads these texts
 * while something is wrong: say what is the case, why it matters for locks, and what to do. */
#ifndef STILE_KIT_DOCTOR_H
#define STILE_KIT_DOCTOR_H

#include "engines/engine.h"

#define DOCTOR_VALUES    9
#define DOCTOR_VALUE_MAX 512
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

/* A condition in terms of facts, and of draft->rule, that notes no values of its own. */
#define DOCTOR_WHEN(name, condition)                                                               \
    static bool name(struct doctor_draft *draft, const struct doctor_facts *facts)                 \
    {                                                                                              \
        (void)draft, (void)facts;                                                                  \
        return (condition);                                                                        \
    }

/* A table ends with a row without an id. */
struct doctor_rule {
    const char *id;
    enum stile_severity severity;
    /* It applies if when() and also() hold and unless() does not, in this order. NULL: in any case.
     */
    doctor_when *when, *also, *unless;
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
void doctor_report_to_query(void *query, const struct stile_finding *finding);

/* Reports a finding for each rule that applies, in the order of the table. Returns their number. */
size_t doctor_apply(const struct doctor_rule *rules, const struct doctor_facts *facts,
                    const char *where, doctor_report *report, void *data);

/* ---- visits ---- */

struct doctor_visit;

struct doctor_plan {
    /* Asks the questions of round 0, 1, ..., with doctor_asked() before each. An answer may come
     * from inside. False: there is no such round. */
    bool (*ask)(struct doctor_visit *visit, unsigned round);
    /* Applies the rules. Sets err only if nothing could be checked. */
    void (*judge)(struct doctor_visit *visit, struct stile_error *err);
    /* Frees what the visit has; no answer may come afterwards. Some may not have come. */
    void (*leave)(struct doctor_visit *visit);
    void (*forked)(struct doctor_visit *visit); /* in a child: closes its descriptors */
};

/* The engine's struct starts with it. */
struct doctor_visit {
    const struct doctor_plan *plan;
    struct query *query;
    struct doctor_visit **visits, *next;
    unsigned round;
    uint64_t patience_ns;
    size_t pending; /* questions of this round */
    struct timer timer;
};

/* Begins a visit of size bytes, zero behind the base, with so much time for each round. Ends the
 * query when it is over, or at once if there is no memory for it. visits: the engine's list of
 * those under way. */
void doctor_visit_begin(const struct doctor_plan *plan, size_t size, uint64_t patience_ns,
                        struct query *query, struct doctor_visit **visits);
void doctor_asked(struct doctor_visit *visit);
void doctor_answered(struct doctor_visit *visit); /* the visit may be over then */

/* For the engine's close() and forked(). */
void doctor_visits_drop(struct doctor_visit **visits);
void doctor_visits_forked(struct doctor_visit *visits);

#endif
