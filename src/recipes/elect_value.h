/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Where a leader's proclaimed value is, and its form in a cell: "TOKEN VALUE". The token in it is
 * the one that the value was written with; the cell's guard may have seen a larger one since. */
#ifndef STILE_ELECT_VALUE_H
#define STILE_ELECT_VALUE_H

#include "core/client.h"

enum value_place {
    VALUE_NOWHERE,
    VALUE_IN_CLAIM,
    VALUE_IN_CELL,
};

#define VALUE_TEXT_MAX (24 + STILE_PROCLAIM_MAX)

enum value_place elect_value_place(const struct stile_client *client, const char *name);
/* OK if an election of this name can proclaim this value; NULL: it always can. */
enum stile_status elect_value_check(const struct stile_client *client, const char *name,
                                    const char *value, struct stile_error *err);

void elect_value_key(char key[STILE_NAME_MAX + 1], const char *name);
size_t elect_value_write(char text[VALUE_TEXT_MAX + 1], uint64_t token, const char *value);
/* What the cell holds; the token is 0 if that is nothing. Borrowed from it. */
const char *elect_value_read(uint64_t *token, const struct stile_cell *cell);

#endif
