/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile_doctor(): examines the engine. */
#ifndef STILE_ADMIN_H
#define STILE_ADMIN_H

#include "engines/engine.h"

/* As engine_events has it. */
void admin_finding(struct query *query, const struct stile_finding *finding);

#endif
