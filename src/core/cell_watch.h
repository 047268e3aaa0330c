/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile_cell_watch(): a cell, read whenever it may have changed. */
#ifndef STILE_CELL_WATCH_H
#define STILE_CELL_WATCH_H

struct stile_client;

/* Closing: ends all async watches with CANCELLED. With the mutex. */
void cell_watch_cancel_all(struct stile_client *client);

#endif
