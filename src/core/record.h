/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a name's last holder. Core writes and reads its text; the engine stores it. */
#ifndef STILE_RECORD_H
#define STILE_RECORD_H

#include "core/client.h"

/* Cuts the text into pieces, which *last then points to. False: not a record. */
bool record_read(struct stile_last_holder *last, char *text);

/* For a lock that is held, or lost. The engine is asked, and its answer not waited for. */
enum stile_status record_start(struct stile_lock *lock, struct stile_error *err);
enum stile_status record_end(struct stile_lock *lock, int exit_code, struct stile_error *err);

/* Its handle goes; what was asked for is written all the same. */
void record_lock_freed(struct stile_lock *lock);

/* Closing: what the engine has not answered is no longer waited for. */
void record_cancel_all(struct stile_client *client);

#endif
