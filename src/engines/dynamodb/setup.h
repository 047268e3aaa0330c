/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STILE_DYNAMODB_SETUP_H
#define STILE_DYNAMODB_SETUP_H

#include "engines/dynamodb/dynamodb.h"

/* Creates the table, waits until it can be used, and enables its TTL attribute. */
enum stile_status ddb_setup(const struct url *url, bool dry_run, const char **script,
                            struct stile_error *err);

#endif
