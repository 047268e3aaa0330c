/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes/elect_value.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define KEY_HEAD "elect:"

enum value_place elect_value_place(const struct stile_client *client, const char *name)
{
    const struct stile_caps *caps = &client->engine->caps;
    if (caps->proclaims)
        return VALUE_IN_CLAIM;
    bool fits = strlen(KEY_HEAD) + strlen(name) <= STILE_NAME_MAX;
    return caps->cells && caps->token && fits ? VALUE_IN_CELL : VALUE_NOWHERE;
}

enum stile_status elect_value_check(const struct stile_client *client, const char *name,
                                    const char *value, struct stile_error *err)
{
    const struct stile_caps *caps = &client->engine->caps;
    if (!value)
        return STILE_OK;
    if (strlen(value) > STILE_PROCLAIM_MAX)
        return error_set(err, STILE_MISUSE, 0, "the proclaimed value has more than %d bytes",
                         STILE_PROCLAIM_MAX);
    if (elect_value_place(client, name) != VALUE_NOWHERE)
        return STILE_OK;
    if (!caps->cells || !caps->token)
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "%s has no %s, so a leader cannot proclaim a value: elect without one, or "
                         "use an engine that has both (stile caps URL prints it)",
                         caps->engine, caps->token ? "cells" : "tokens");
    return error_set(err, STILE_UNSUPPORTED, 0,
                     "with %s, the name of an election that proclaims a value has at most %d bytes",
                     caps->engine, STILE_NAME_MAX - (int)strlen(KEY_HEAD));
}

void elect_value_key(char key[STILE_NAME_MAX + 1], const char *name)
{
    (void)snprintf(key, STILE_NAME_MAX + 1, KEY_HEAD "%s", name);
}

size_t elect_value_write(char text[VALUE_TEXT_MAX + 1], uint64_t token, const char *value)
{
    return (size_t)snprintf(text, VALUE_TEXT_MAX + 1, "%" PRIu64 " %s", token, value);
}

/* Others can write cells, too: nothing but digits and one space is believed. */
const char *elect_value_read(uint64_t *token, const struct stile_cell *cell)
{
    const char *text = cell->value;
    *token = 0;
    size_t digits = text ? strspn(text, "0123456789") : 0;
    if (digits == 0 || digits > 20 || text[digits] != ' ' || strlen(text) != cell->size ||
        cell->size > VALUE_TEXT_MAX)
        return "";
    *token = strtoull(text, NULL, 10);
    return text + digits + 1;
}
