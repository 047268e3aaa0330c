/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes/leader.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* ---- copies ---- */

/* Texts that are not known are "". */
static struct leader_copy *copy_leader(const struct stile_leader *from)
{
    struct leader_copy *copy = malloc(sizeof *copy + text_size(from->name) + text_size(from->host) +
                                      text_size(from->command) + text_size(from->value));
    if (!copy)
        return NULL;
    char *text = (char *)(copy + 1);
    *copy = (struct leader_copy){.leader = *from};
    copy->leader.name = text_pack(&text, from->name);
    copy->leader.host = text_pack(&text, from->host);
    copy->leader.command = text_pack(&text, from->command);
    copy->leader.value = text_pack(&text, from->value);
    return copy;
}

/* A proclaimed value may have taken the place of the holder's description (ZooKeeper's data): the
 * record of the same grant has it, too. */
static void fill_from_record(struct stile_leader *leader, const struct stile_last_holder *last)
{
    if (leader->pid || !last || !leader->token || last->token != leader->token)
        return;
    leader->pid = last->pid;
    leader->host = last->host;
    leader->command = last->command;
}

static struct stile_leader leader_of(const struct stile_info *info)
{
    struct stile_leader leader = {
        .name = info->name, .host = "", .command = "", .value = "", .age_ms = -1};
    const struct stile_claim_info *claim = info->holders > 0 ? &info->claims[0] : NULL;
    if (!claim || claim->ghost)
        return leader;
    leader.leads = true;
    leader.host = claim->host ? claim->host : "";
    leader.pid = claim->pid;
    leader.command = claim->command ? claim->command : "";
    leader.token = claim->token;
    leader.age_ms = claim->age_ms;
    leader.value = claim->proclaimed ? claim->proclaimed : "";
    fill_from_record(&leader, info->last);
    return leader;
}

/* ---- seeing ---- */

bool sight_see_name(struct sight *sight, const struct stile_info *info)
{
    const struct stile_leader leader = leader_of(info);
    struct leader_copy *copy = copy_leader(&leader);
    if (!copy)
        return false;
    free(sight->holder);
    sight->holder = copy;
    return true;
}

bool sight_see_cell(struct sight *sight, const struct stile_cell *cell)
{
    uint64_t token;
    char *copy = strdup(elect_value_read(&token, cell));
    if (!copy)
        return false;
    free(sight->value);
    sight->value = copy;
    sight->value_token = token;
    return true;
}

bool sight_is_old(const struct sight *sight)
{
    return sight->holder->leader.leads && sight->value_token > sight->holder->leader.token;
}

struct leader_copy *sight_conclude(const struct sight *sight, enum value_place place)
{
    struct stile_leader leader = sight->holder->leader;
    bool its_own = leader.leads && sight->value_token == leader.token && sight->value;
    if (place != VALUE_IN_CLAIM)
        leader.value = its_own && leader.token ? sight->value : "";
    return copy_leader(&leader);
}

/* Engines without tokens: a leader of another process, or one that has become younger. */
static bool is_other(const struct stile_leader *a, const struct stile_leader *b)
{
    if (a->token || b->token)
        return a->token != b->token;
    return a->pid != b->pid || strcmp(a->host, b->host) != 0 || b->age_ms < a->age_ms;
}

bool leader_differs(const struct leader_copy *a, const struct leader_copy *b)
{
    if (a->leader.leads != b->leader.leads)
        return true;
    return a->leader.leads &&
           (is_other(&a->leader, &b->leader) || strcmp(a->leader.value, b->leader.value) != 0);
}

void sight_clear(struct sight *sight)
{
    free(sight->holder);
    free(sight->value);
    *sight = (struct sight){0};
}
