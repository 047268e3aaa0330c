/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cell_call.h"

#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/text.h"

#define FIRST_ROOM 4

/* ---- copies ---- */

/* The texts of a cell, behind each other at *memory. */
static void pack(struct stile_cell *to, const struct stile_cell *from, char *memory)
{
    *to = *from;
    to->memory = NULL;
    if (from->value) {
        to->value = memcpy(memory, from->value, from->size);
        memory[from->size] = '\0';
        memory += from->size + 1;
    }
    to->key = text_pack(&memory, from->key);
    to->issuer = text_pack(&memory, from->issuer ? from->issuer : "");
}

static size_t packed_size(const struct stile_cell *cell)
{
    return (cell->value ? cell->size + 1 : 0) + text_size(cell->key) +
           text_size(cell->issuer ? cell->issuer : "");
}

struct stile_cell *cell_copy(const struct stile_cell *cell)
{
    struct stile_cell *copy = malloc(sizeof *copy + packed_size(cell));
    if (copy)
        pack(copy, cell, (char *)(copy + 1));
    return copy;
}

static bool make_room(struct cell_call *call)
{
    if (call->n < call->room)
        return true;
    size_t room = call->room ? call->room * 2 : FIRST_ROOM;
    struct stile_cell *grown = realloc(call->cells, room * sizeof *grown);
    if (!grown)
        return false;
    call->cells = grown;
    call->room = room;
    return true;
}

void cell_call_free_cells(struct cell_call *call)
{
    for (size_t i = 0; i < call->n; i++)
        free(call->cells[i].memory);
    free(call->cells);
    call->cells = NULL;
    call->n = call->room = 0;
}

/* ---- what the engine reports ---- */

static struct cell_call *call_of(struct cell_request *request)
{
    return container_of(request, struct cell_call, cell);
}

void cell_call_cell(struct cell_request *request, const struct stile_cell *cell)
{
    struct cell_call *call = call_of(request);
    if (cell->token > STILE_TOKEN_MAX) { /* no guard has accepted it: something else wrote it */
        call->strange = true;
        return;
    }
    char *memory = make_room(call) ? malloc(packed_size(cell)) : NULL;
    if (!memory) {
        call->out_of_memory = true;
        return;
    }
    pack(&call->cells[call->n], cell, memory);
    call->cells[call->n++].memory = memory;
}

static void unlink_call(struct cell_call *call)
{
    *call->link = call->next;
    if (call->next)
        call->next->link = call->link;
    call->link = NULL;
}

/* A write that was executed is reported as such, even if its result did not fit into memory. */
void cell_call_done(struct cell_request *request, const struct stile_error *err)
{
    struct cell_call *call = call_of(request);
    bool read = request->verb == CELL_GET || request->verb == CELL_LIST;
    unlink_call(call);
    error_copy(&call->error, err);
    if (!call->error.status && call->out_of_memory && read)
        error_set(&call->error, STILE_NOMEM, 0, "out of memory");
    if (!call->error.status && call->strange && read)
        error_set(&call->error, STILE_CORRUPT, 0, "the stored token is not a valid token");
    call->answered(call);
}

/* ---- beginning and end ---- */

void cell_call_start(struct cell_call *call, struct stile_client *client)
{
    struct engine *engine = client->engine;
    call->client = client;
    call->cell.engine = engine;
    call->error = (struct stile_error){0};
    call->out_of_memory = call->strange = false;
    call->cell.ends_ns = 0;
    memset(call->cell.state, 0, sizeof call->cell.state);
    call->next = client->cell_calls;
    call->link = &client->cell_calls;
    if (call->next)
        call->next->link = &call->next;
    client->cell_calls = call;
    engine->class->cells->run(engine, &call->cell);
}

static void wake_follower(struct cell_call *call)
{
    drive_done(&call->follower);
}

void cell_call_run(struct cell_call *call, struct stile_client *client)
{
    call->answered = wake_follower;
    cell_call_start(call, client);
    drive_until(client, &call->follower);
}

void cell_call_abandon_all(struct stile_client *client)
{
    while (client->cell_calls) {
        struct cell_call *call = client->cell_calls;
        unlink_call(call);
        error_set(&call->error, STILE_UNCERTAIN, 0,
                  "the client was closed before the engine had answered");
        call->abandoned(call);
    }
}
