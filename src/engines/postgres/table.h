/* mode=table: a claim is a row with an owner and an end, on the database's clock. */
#ifndef STILE_POSTGRES_TABLE_H
#define STILE_POSTGRES_TABLE_H

#include "engines/postgres/pg.h"

#define TABLE_OWNER_LEN 32

enum place_in_table {
    OUT,
    ASKING,
    IN_QUEUE, /* its row waits */
    OWNING,
    GOING,
};

struct row_claim {
    struct row_claim *next; /* with the same head in pg->by_owner */
    char owner[TABLE_OWNER_LEN + 1];
    enum place_in_table place;
    bool listed, has_timer;
    bool has_waited;   /* its row may be there: what is asked now, is asked again */
    bool told;         /* granted by a message that overtook the answer */
    bool may_be_there; /* release: what the server does not know was not ours to lose */
    unsigned tries;
    uint64_t give_up_ns;
    char stored[STORED_MAX];
    struct timer timer; /* in the queue: when to look; going: when to say it again */
    struct batch *batch;
};

extern const struct session_events table_events;

void table_claim(struct engine *engine, struct claim *claim);
void table_resume(struct engine *engine, struct claim *claim);
void table_detach(struct engine *engine, struct claim *claim);
const char *table_owner(struct engine *engine, struct claim *claim);
void table_forget(struct row_claim *row);

void table_release(struct engine *engine, struct claim *claim);
void table_renew(struct engine *engine, struct claim *const *claims, size_t n);
void table_leave_batch(struct row_claim *row);
void table_free_batches(struct pg *pg);
void table_break(struct engine *engine, struct query *query);

static inline struct row_claim *row_of(struct claim *claim)
{
    return (struct row_claim *)claim->state;
}

static inline struct claim *claim_of_row(struct row_claim *row)
{
    return (struct claim *)((char *)row - offsetof(struct claim, state));
}

static inline struct pg *pg_of_row(struct row_claim *row)
{
    return pg_of(claim_of_row(row)->engine);
}

#endif
