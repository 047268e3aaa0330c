/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of the local engine that use cells, by the public calls. */
#ifndef STILE_LOCAL_CELLS_KIT_H
#define STILE_LOCAL_CELLS_KIT_H

#include "fault/local_place_kit.h"
#include "stile.h"

extern struct stile_error why; /* of the last call that failed */

struct stile_client *cells_open(void); /* in dir */
enum stile_status cells_put(struct stile_client *client, const char *key, const void *value,
                            size_t size, uint64_t token);
enum stile_status cells_put_text(struct stile_client *client, const char *key, const char *text);

/* A value that tells its key, its number and its size. */
void cells_fill(void *value, size_t size, const char *key, unsigned number);
bool cells_is_filled(const struct stile_cell *cell, unsigned number);

/* The whole file `cells`. */
size_t cells_file_read(uint8_t **bytes);
void cells_file_write(const void *bytes, size_t size);

unsigned cells_rounds(unsigned usual, unsigned soak);

#endif
