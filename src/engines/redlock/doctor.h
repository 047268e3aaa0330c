/* A visit of the doctor to all nodes. */
#ifndef STILE_REDLOCK_DOCTOR_H
#define STILE_REDLOCK_DOCTOR_H

#include "engines/redis/vitals.h"
#include "engines/redlock/group.h"

#define WHAT_MAX 256

struct visit {
    struct survey survey;
    struct query *query;
    unsigned pending;
    struct patient {
        struct visit *visit;
        struct vitals vitals;
        long long quiet_ms; /* until then it takes no claims, on its clock */
    } patients[NODES_MAX];
};

static inline struct redlock *visit_redlock(const struct visit *visit)
{
    return redlock_of(visit->query->engine);
}

static inline const char *visit_where(const struct visit *visit, unsigned i)
{
    return visit_redlock(visit)->nodes[i].where;
}

bool visit_is_up(const struct visit *visit, unsigned i);
unsigned visit_count_up(const struct visit *visit);
void visit_tell(const struct visit *visit, struct stile_finding finding, const char *where,
                const char *what);

/* doctor_group.c: who remembers. */
void visit_judge_group(const struct visit *visit);

#endif
