/* show, list and watch of both databases. */
#ifndef STILE_SQL_PEOPLE_H
#define STILE_SQL_PEOPLE_H

#include "engines/sql/pool.h"

struct answer;
typedef void answer_fn(void *data, const struct answer *answer);

/* One name. Its texts point into the answer, or into texts of its own. */
struct view {
    struct stile_info info;
    struct stile_claim_info *claims;
    size_t n;
    char *texts;
    char name[STILE_NAME_MAX + 1];
    uint64_t *backends; /* for each claim, the session that has it; 0: none that is known */
};

/* For so many claims, each with a text of its own. */
enum stile_status view_make_room(struct view *view, size_t n, size_t text_size,
                                 struct stile_error *err);
void view_free(struct view *view);

void people_show(struct engine *engine, struct query *query);
void people_list(struct engine *engine, struct query *query);
/* Looks again and again, as what plain SQL does tells nobody. */
void people_watch(struct engine *engine, struct query *query);
void people_unwatch(struct engine *engine, struct query *query);

/* ---- each database's own ---- */

const struct stile_error *answer_error(const struct answer *answer); /* NULL: it is none */

/* Asks for the query's name on the shared session; an error means that nothing was asked. */
enum stile_status view_ask(const struct query *query, answer_fn *fn, void *data,
                           struct stile_error *err);
/* The answer to that. */
enum stile_status view_of(struct view *view, const struct answer *answer, const struct query *query,
                          struct stile_error *err);

/* The same for all names with the query's prefix, which are then told in the order of their bytes.
 */
enum stile_status list_ask(const struct query *query, answer_fn *fn, void *data,
                           struct stile_error *err);
enum stile_status list_tell(struct query *query, const struct answer *answer,
                            struct stile_error *err);

#endif
