/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile_cell_watch(): a cell, read whenever it may have changed. */
#ifndef STILE_CELL_WATCH_H
#define STILE_CELL_WATCH_H

#include <stdint.h>

struct stile_client;

/* With the mutex: as stile_cell_watch_cancel(). */
void cell_watch_cancel(struct stile_client *client, uint64_t number);

/* Closing: ends all async watches with CANCELLED. With the mutex. */
void cell_watch_cancel_all(struct stile_client *client);

#endif
