/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One request to the cells of an engine, and its answer. */
#ifndef STILE_CELL_CALL_H
#define STILE_CELL_CALL_H

#include "core/client.h"

/* On a blocking caller's stack, or allocated for an async one. */
struct cell_call {
    struct cell_request cell;
    struct stile_client *client;
    struct cell_call *next, **link; /* of the client's, until it is answered */
    struct stile_cell *cells;       /* what the engine has reported; owned */
    size_t n, room;
    struct stile_error error; /* status OK unless it failed */
    bool out_of_memory;
    bool strange; /* a cell had a number in the place of its token that is none */

    /* With the mutex, once the engine has answered. */
    void (*answered)(struct cell_call *call);
    /* Closing, after engine->close() and without the mutex: no answer will come. */
    void (*abandoned)(struct cell_call *call);
    struct follower follower; /* of a blocking call */
};

/* With the mutex. The request and both functions are set. */
void cell_call_start(struct cell_call *call, struct stile_client *client);
/* Starts it and drives until it is answered. */
void cell_call_run(struct cell_call *call, struct stile_client *client);
void cell_call_free_cells(struct cell_call *call);
void cell_call_abandon_all(struct stile_client *client);

/* In one allocation; NULL: out of memory. */
struct stile_cell *cell_copy(const struct stile_cell *cell);

/* As engine_events has them. */
void cell_call_cell(struct cell_request *request, const struct stile_cell *cell);
void cell_call_done(struct cell_request *request, const struct stile_error *err);

#endif
