/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* watch: show, repeated whenever the name may have changed. */
#ifndef STILE_NAME_WATCH_H
#define STILE_NAME_WATCH_H

#include "engines/engine.h"

/* As engine_events has it. */
void watch_changed(struct query *query);

#endif
