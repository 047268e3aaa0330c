/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a simulated Redis says and stores, for a reader of the run (sim/story.h). */
#ifndef STILE_SIM_REDIS_TEXT_H
#define STILE_SIM_REDIS_TEXT_H

#include "sim/net.h"

/* Requests as "SET x y" or "redlock/claim.lua KEY... | ARG...", answers as "[2, 34]". */
void redis_describe(struct buffer *text, enum direction way, const void *bytes, size_t n);

#endif
