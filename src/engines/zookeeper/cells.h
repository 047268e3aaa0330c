/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Cells: small values with versions and guards. */
#ifndef STILE_ZOOKEEPER_CELLS_H
#define STILE_ZOOKEEPER_CELLS_H

#include "engines/zookeeper/zookeeper.h"

void zk_cells_run(struct engine *engine, struct cell_request *request);
void zk_cells_close(struct zk *zk); /* no request is answered any longer */

#endif
