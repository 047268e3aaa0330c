/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The pause of a recipe between two tries. */
#ifndef STILE_NAP_H
#define STILE_NAP_H

#include "core/client.h"
#include "core/drive.h"

/* A random time that grows from try to try, as retry_pause(). The client is driven meanwhile.
 * CANCELLED if it is closed or interrupted. */
enum stile_status nap_take(struct stile_client *client, uint64_t first_ns, unsigned tried,
                           struct stile_error *err);

#endif
