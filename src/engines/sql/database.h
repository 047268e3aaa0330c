/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a database does for the code in this folder, which is compiled once for all of them. */
#ifndef STILE_SQL_DATABASE_H
#define STILE_SQL_DATABASE_H

#include "engines/sql/session.h"

struct view;

struct sql_database {
    /* ---- sessions ---- */

    enum stile_status (*connect)(struct session **session, struct pool *pool,
                                 const struct session_events *events, struct stile_error *err);
    void (*close)(struct session *session); /* its connection */
    /* Calls the request's function, with err or its result, and then drops it. */
    void (*answer)(struct session *session, struct request *request, const struct stile_error *err);
    void (*drop)(struct session *session, struct request *request);
    void (*forked)(struct session *session);
    /* May, else NULL: for a request that is in no list. */
    void (*forget)(struct session *session, const void *data);
    void (*dispose)(struct session *session);

    /* Ends in sql_pool_renewed(); an error means that nothing was sent. */
    enum stile_status (*renew)(struct session *session, uint64_t ttl_ns);
    void (*keep)(struct session *session); /* it holds nothing: its lease is turned off */
    /* Stops the statement that waits in it, from the shared session. Ends in sql_claim_stopped();
     * an error means that nothing was sent. */
    enum stile_status (*stop)(struct session *session);
    /* May, else NULL: an idle session becomes the shared one. */
    void (*share)(struct session *session);

    /* ---- claims whose lock ends with a session ---- */

    /* Waits in the server, on a session of its own. NULL: such a claim never leaves its session. */
    void (*wait)(struct sql_claim *c);
    /* Releases a held lock. Ends in sql_claim_release_answered() or sql_claim_released(). */
    void (*give_back)(struct sql_claim *c);
    /* A withdrawn claim has no request under way, and its session is up: gives back what it may
     * have in the server. Ends in the same functions. */
    void (*clear)(struct sql_claim *c);
    /* May, else NULL: it is held now, or no longer. */
    void (*note)(struct sql_claim *c, bool holds);

    /* ---- inspection, on the shared session; an error means that nothing was asked ---- */

    enum stile_status (*ask_show)(const struct query *query, answer_fn *fn, void *data,
                                  struct stile_error *err);
    /* The answer to that, or its error. */
    enum stile_status (*read_show)(struct view *view, const struct answer *answer,
                                   const struct query *query, struct stile_error *err);
    /* The same for all names with the query's prefix, which are reported in the order of their
     * bytes. */
    enum stile_status (*ask_list)(const struct query *query, answer_fn *fn, void *data,
                                  struct stile_error *err);
    enum stile_status (*report_list)(struct query *query, const struct answer *answer,
                                     struct stile_error *err);
    /* Stores query->record, in this session. Ends in sql_inspect_recorded(). */
    enum stile_status (*record)(struct query *query, struct session *session,
                                struct stile_error *err);
};

#endif
