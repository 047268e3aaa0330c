/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What an observer knows of an election: which claim holds the name, and what the cell with the
 * proclaimed value says, where there is one. */
#ifndef STILE_LEADER_H
#define STILE_LEADER_H

#include "core/client.h"
#include "recipes/elect_value.h"

/* A leader with everything it points to, in one allocation. */
struct leader_copy {
    struct leader_copy *next;
    struct stile_leader leader;
};

struct sight {
    struct leader_copy *holder; /* as the name was shown last; NULL: not yet */
    uint64_t value_token;       /* of the cell; 0: none */
    char *value;                /* NULL: the cell has not been read */
};

/* False: out of memory, and nothing has changed. */
bool sight_see_name(struct sight *sight, const struct stile_info *info);
bool sight_see_cell(struct sight *sight, const struct stile_cell *cell);
/* A later leader has proclaimed than the one that was shown: the name is about to change. */
bool sight_is_old(const struct sight *sight);
/* What both say together; the value counts if its token is the leader's. NULL: out of memory. */
struct leader_copy *sight_conclude(const struct sight *sight, enum value_place place);
/* True: an observer has to be told. */
bool leader_differs(const struct leader_copy *a, const struct leader_copy *b);
void sight_clear(struct sight *sight);

#endif
