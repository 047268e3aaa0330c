/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Why a claim was lost, for people to read. */
#ifndef STILE_REDIS_LOSS_H
#define STILE_REDIS_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOSS_MAX 192

/* by: "pid host", as the server has it from the process that broke the lock; NULL or anything else:
 * that process is not known. */
void redis_loss_broken(char text[LOSS_MAX], const char *by);

/* reason: what scripts/lib/loss.lua returned, or NULL. The claim was last extended age_ns ago, for
 * lease_ns. */
void redis_loss_explain(char text[LOSS_MAX], const char *reason, uint64_t age_ns,
                        uint64_t lease_ns);

/* Of two nodes' reasons; before may be "". */
bool redis_loss_is_more_exact(const char *reason, const char *before);

#endif
