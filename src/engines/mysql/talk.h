/* Between session.c, the life of a connection, and talk.c, what is said on it. */
#ifndef STILE_MYSQL_TALK_H
#define STILE_MYSQL_TALK_H

#include "engines/mysql/session.h"

struct request {
    struct request *next;
    char *sql;
    answer_fn *fn;
    void *data;
    uint64_t sent_ns;
    unsigned code;
    size_t n;
    struct outcome outcomes[OUTCOMES_MAX]; /* so many as there are */
    struct stile_error error;              /* if it has a status */
};

/* What a call of the library waits for: MYSQL_WAIT_...; 0: it is done; or there is none. */
#define IDLE (-1)

/* ---- talk.c ---- */

/* sql is the request's then. */
struct request *talk_new(struct session *session, char *sql, answer_fn *fn, void *data);
void talk_free(struct session *session, struct request *request);
struct request *talk_take_first(struct session *session);
void talk_answer(struct session *session, struct request *request, const struct stile_error *err);
int talk_start(struct session *session); /* says the first request */
int talk_go_on(struct session *session, int ready);
void talk_drive(struct session *session, int waits_for); /* with what the calls have brought */
void talk_abort(struct session *session);
void talk_on_time(struct timer *timer); /* it was not answered, or could not be reached, in time */

/* ---- session.c ---- */

void session_enter(struct session *session); /* callbacks may end it, but not free it, until: */
void session_leave(struct session *session);
void session_fail(struct session *session, const struct stile_error *why);
int session_connected(struct session *session); /* or it could not be */
void session_watch(struct session *session, int waits_for);
void session_begin(struct session *session, int waits_for); /* never from inside */

#endif
