/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What engines report to core: each event goes to the part that it is about. */
#ifndef STILE_EVENTS_H
#define STILE_EVENTS_H

#include "engines/engine.h"

extern const struct engine_events core_events;

#endif
