/* One question about a name to all nodes, and what they say together. */
#ifndef STILE_REDLOCK_POLL_H
#define STILE_REDLOCK_POLL_H

#include "engines/redis/view.h"
#include "engines/redlock/redlock.h"

struct poll;
typedef void poll_fn(struct poll *poll);

struct ballot {
    struct poll *poll;
    bool answered;
    long long number; /* break */
    char *holder, *fence, **queue;
    long long ms, age_ms;
    size_t n_queue;
};

struct poll {
    struct redlock *redlock;
    poll_fn *fn; /* called once all have answered or failed; frees it */
    void *data;
    const char *name;
    unsigned pending;
    struct ballot ballots[NODES_MAX];
};

/* A script of a name's keys with an argument or none (NULL). NULL: no memory, or no node can be
 * asked. */
struct poll *poll_start(struct redlock *redlock, const struct lua *script, const char *name,
                        const char *arg, poll_fn *fn, void *data);
unsigned poll_answering(const struct poll *poll); /* nodes, one bit each */
/* What the show script's answers come to: who has a majority holds it. */
enum stile_status poll_view(struct view *view, const struct poll *poll, struct stile_error *err);
void poll_free(struct poll *poll); /* fn is not called any more */

/* For its users. */
void query_end(struct query *query, const struct stile_error *err);
void query_end_unasked(struct query *query);

#endif
