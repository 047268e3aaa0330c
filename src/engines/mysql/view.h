/* What the server tells of locks, as people see it. */
#ifndef STILE_MYSQL_VIEW_H
#define STILE_MYSQL_VIEW_H

#include "engines/mysql/my.h"

/* One name. Its texts point into the answer, or into texts of its own. */
struct view {
    struct stile_info info;
    struct stile_claim_info *claims;
    size_t n;
    char *texts;
    char name[STILE_NAME_MAX + 1];
    uint64_t *backends; /* for each claim, the session that has it; 0: none that is known */
};

/* The next row of an answer to sql_show() or sql_list(); *made false: there is none. */
enum stile_status view_next(struct view *view, bool *made, const struct answer *answer,
                            struct stile_error *err);
void view_rewind(const struct answer *answer);
void view_free(struct view *view);

/* Asks for one name on the shared session. */
enum stile_status view_ask(struct my *my, const char *name, size_t len, answer_fn *fn, void *data,
                           struct stile_error *err);
/* Its answer. */
enum stile_status view_of(struct view *view, const struct answer *answer, struct stile_error *err);

#endif
