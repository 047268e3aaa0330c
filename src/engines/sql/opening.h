/* open() may wait: for the shared session to be up, and for the answers to its first questions. */
#ifndef STILE_SQL_OPENING_H
#define STILE_SQL_OPENING_H

#include "engines/engine.h"

struct opening {
    bool over;     /* what was waited for has come */
    bool schema;   /* the database has ours */
    int version;   /* of that */
    uint64_t room; /* for locks */
    struct stile_error error;
};

/* It has come: why NULL, or as an error. opening NULL: nobody waits. */
void opening_hear(struct opening *opening, const struct stile_error *why);
enum stile_status opening_wait(struct opening *opening, struct loop *loop, struct stile_error *err);

/* What the mode of a URL promises, instead of what the scheme does. */
void opening_promise(struct engine *engine, const struct engine_class *class);
/* A database without what `stile setup` makes. */
void opening_promise_less(struct engine *engine, const char *token_is, const char *instead);

#endif
