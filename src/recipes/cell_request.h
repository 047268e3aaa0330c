/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What every call on cells and guards goes through: its checks, the request to the engine, and its
 * answer, to a caller that waits for it or to a callback. */
#ifndef STILE_CELL_REQUEST_H
#define STILE_CELL_REQUEST_H

#include "core/cell_call.h"

/* Checks the issuer (NULL: "") and the token. */
enum stile_status cell_check_token(const char **issuer, uint64_t token, struct stile_error *err);
/* Checks the key (of a list: the prefix), and enters the client if the engine has cells. */
enum stile_status cell_enter(struct cell_call *call, struct stile_client *client,
                             struct stile_error *err);

/* Runs it to its end and leaves the client. The call's cells are still to be freed. */
enum stile_status cell_run(struct cell_call *call, struct stile_error *err);
/* The same in two steps, for a caller that may refuse what the engine has answered. */
void cell_ask(struct cell_call *call);
enum stile_status cell_conclude(struct cell_call *call, struct stile_error *err);
/* What the engine has reported of the cell; NULL: nothing. */
const struct stile_cell *cell_reported(const struct cell_call *call);
/* As the options have it; may be NULL. */
void cell_report_highest(const struct cell_call *call, uint64_t *highest);

/* What an async call ends in. */
struct cell_callbacks {
    stile_cell_done_fn *done;
    stile_query_done_fn *over; /* list, instead of done */
    stile_cell_fn *each;       /* list */
    void *data;
};

/* Starts it with copies of what it was given, and leaves the client. */
enum stile_status cell_start(const struct cell_call *call, struct stile_client *client,
                             struct cell_callbacks to);

/* Calls fn for each cell that was listed, without the mutex. */
void cell_hand_out(const struct cell_call *call, stile_cell_fn *fn, void *data);

#endif
