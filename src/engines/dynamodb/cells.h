/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STILE_DYNAMODB_CELLS_H
#define STILE_DYNAMODB_CELLS_H

#include "engines/dynamodb/dynamodb.h"

extern const struct engine_cells ddb_cells;
void ddb_cells_free(struct dynamo *dynamo);

#endif
