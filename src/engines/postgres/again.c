/* What is said about a name that is asked for again and again.
 *
 * Reading the key out of a request is most of what a pair costs the server more than the bare one.
 * So the first name that a session is asked for so often in a row has statements of its own there,
 * with its key in them, for as long as the session lives. */
#include <inttypes.h>
#include <stdio.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/sql.h"
#include "mutant.h"

#define OFTEN     64
#define ID_TRY    57
#define ID_UNLOCK 58

/* In quotes: a minus sign in front of the least of all bigints would be one too much. */
static void write_statements(struct favourite *f)
{
    snprintf(f->try_sql, sizeof f->try_sql, "select pg_try_advisory_lock('%" PRId64 "'::bigint)",
             f->id);
    snprintf(f->unlock_sql, sizeof f->unlock_sql,
             "select pg_advisory_unlock('%" PRId64 "'::bigint)", f->id);
    f->take = (struct statement){ID_TRY, f->try_sql};
    f->unlock = (struct statement){ID_UNLOCK, f->unlock_sql};
}

static void count_try(struct favourite *f, int64_t id)
{
    f->times = f->id == id ? f->times + 1 : 0;
    f->id = id;
    if (f->times == OFTEN)
        write_statements(f);
}

static const struct statement *about_favourite(struct favourite *f, enum sql kind, int64_t id)
{
    if (kind == SQL_TRY && f->times < OFTEN)
        count_try(f, id);
#ifdef MUTANT_POSTGRES_ONE_FAVOURITE_FOR_ALL
    id = f->id;
#endif
    if (f->times < OFTEN || f->id != id)
        return NULL;
    return kind == SQL_TRY ? &f->take : &f->unlock;
}

const struct statement *again_for(struct part *part, enum sql kind, int *n)
{
    const struct key *key = &mine(part)->key;
    bool shared = claim_of(part)->mode == STILE_SHARED, bare = pg_of_part(part)->bare;
    const struct statement *own = NULL;
    if (bare && !pg_of_part(part)->pooled && !shared && key->form == KEY_ONE &&
        (kind == SQL_TRY || kind == SQL_UNLOCK))
        own = about_favourite(&part->session->favourite, kind, mine(part)->id);
    if (own)
        *n = 0;
    return own ? own : sql_for(kind, key, shared, pg_of_part(part)->schema);
}
