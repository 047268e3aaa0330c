/* Between session.c, the life of a connection, and talk.c, what is said on it. */
#ifndef STILE_POSTGRES_TALK_H
#define STILE_POSTGRES_TALK_H

#include "engines/postgres/session.h"

struct request {
    struct request *next;
    const struct statement *statement;
    answer_fn *fn;
    void *data;
    uint64_t sent_ns;
    PGresult *result;
    struct stile_error error;
    char sqlstate[6];
    uint64_t tag; /* the number in its column's name; 0: it has none */
    int n;
    size_t room; /* for texts */
    const char *values[SEND_PARAMS_MAX];
    char texts[];
};

/* ---- talk.c ---- */

struct request *talk_new(struct session *session, const struct statement *statement,
                         const char *const *values, int n, answer_fn *fn, void *data);
void talk_free(struct session *session, struct request *request);
void talk_send(struct session *session, struct request *request);
void talk_send_unsent(struct session *session);
void talk_flush(struct session *session);
void talk_watch(struct session *session, uint32_t events);
struct request *talk_take_first(struct session *session);
void talk_answer(struct session *session, struct request *request, const struct stile_error *err);
void talk_take_results(struct session *session);
void talk_take_notes(struct session *session);
void talk_on_time(struct timer *timer); /* it was not answered, or could not be reached, in time */

/* ---- session.c ---- */

void session_enter(struct session *session); /* callbacks may end it, but not free it, until: */
bool session_leave(struct session *session); /* false: it is gone */
void session_fail(struct session *session, const struct stile_error *why);

#endif
