/* break: looks who holds it, has them told or ended, and looks until they are gone. */
#ifndef STILE_SQL_BREAKING_H
#define STILE_SQL_BREAKING_H

#include "engines/sql/people.h"

/* Whose grant is meant. */
struct target {
    uint64_t backend, token;
};

struct breaking {
    struct query *query;
    struct timer timer;
    uint64_t begun_ns;
    answer_fn *looked; /* what it looks like now */
    struct target *targets;
    size_t n;
    bool foreign;              /* one of them is none of ours, and can't be told */
    bool ended;                /* their sessions are being ended */
    struct stile_error denied; /* why one could not be */
};

/* seen: what it looks like before anything was done. */
void breaking_begin(struct query *query, answer_fn *seen, answer_fn *looked);
void breaking_look(struct breaking *breaking);
uint64_t breaking_age_ns(const struct breaking *breaking);
void breaking_wait(struct breaking *breaking); /* they are still there: looks later, or gives up */
void breaking_end(struct breaking *breaking, const struct stile_error *err);
void breaking_end_with(struct breaking *breaking, enum stile_status status, const char *why);
/* Nobody has it, or not by that grant. */
void breaking_end_unmeant(struct breaking *breaking, bool held);

#endif
