/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STILE_DYNAMODB_INSPECT_H
#define STILE_DYNAMODB_INSPECT_H

#include "engines/dynamodb/dynamodb.h"

void ddb_list(struct engine *engine, struct query *query);
void ddb_show(struct engine *engine, struct query *query);
void ddb_break(struct engine *engine, struct query *query);
void ddb_cancel(struct engine *engine, struct query *query);
void ddb_inspections_free(struct dynamo *dynamo);

#endif
