/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile show: holders and queue of one name, one row each. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static void add_row(struct table *table, const struct stile_claim_info *claim, bool proclaims)
{
    char text[DURATION_TEXT_MAX];
    bool forever = claim->expires_ms == STILE_NO_DEADLINE || !claim->held;
    table_add(table, claim->ghost ? "kept" : claim->held ? "held" : "waiting");
    table_add(table, info_mode(claim->mode));
    if (claim->token != 0)
        table_addf(table, "%" PRIu64, claim->token);
    else
        table_add(table, "");
    table_add(table, info_age(text, claim));
    table_add(table, forever ? "" : duration_format(text, claim->expires_ms));
    if (claim->pid != 0)
        table_addf(table, "%" PRId64, claim->pid);
    else
        table_add(table, "");
    table_add(table, claim->host);
    table_add(table, claim->command);
    if (proclaims)
        table_add(table, claim->proclaimed);
}

/* Few engines have such values and few claims use them; without any, the column is left out. */
static bool any_proclaims(const struct stile_info *info)
{
    for (size_t i = 0; i < info->holders + info->waiters; i++) {
        if (info->claims[i].proclaimed[0] != '\0')
            return true;
    }
    return false;
}

/* Its row says it all. */
static bool is_holder(const struct stile_info *info, const struct stile_last_holder *last)
{
    for (size_t i = 0; i < info->holders; i++) {
        const struct stile_claim_info *claim = &info->claims[i];
        bool same = last->token != 0
                        ? claim->token == last->token
                        : claim->pid == last->pid && strcmp(claim->host, last->host) == 0;
        if (same && !claim->ghost)
            return true;
    }
    return false;
}

static int print_table(const struct stile_info *info, void *data)
{
    static const char *const plain[] = {"STATE", "MODE", "TOKEN",   "SINCE", "EXPIRES",
                                        "PID",   "HOST", "COMMAND", NULL};
    static const char *const wide[] = {"STATE", "MODE", "TOKEN",   "SINCE",     "EXPIRES",
                                       "PID",   "HOST", "COMMAND", "PROCLAIMS", NULL};
    bool proclaims = any_proclaims(info);
    (void)data;
    if (info->holders + info->waiters == 0) {
        char *name = text_escape(info->name);
        printf("%s is free", name);
        if (info->token != 0)
            printf("; later tokens are larger than %" PRIu64, info->token);
        putchar('\n');
        free(name);
        if (info->last != NULL)
            info_print_last(info->last);
        return 0;
    }
    struct table table;
    table_start(&table, proclaims ? wide : plain);
    for (size_t i = 0; i < info->holders + info->waiters; i++)
        add_row(&table, &info->claims[i], proclaims);
    table_finish(&table, stdout);
    if (info->last != NULL && !is_holder(info, info->last))
        info_print_last(info->last);
    return 0;
}

static int print_json(const struct stile_info *info, void *data)
{
    (void)data;
    struct json json = {.out = stdout};
    json_open(&json, NULL, '{');
    info_json_members(&json, info);
    info_json_last(&json, info->last);
    json_close(&json, '}');
    putchar('\n');
    return 0;
}

static int show(struct options *options)
{
    struct stile_client *client;
    struct stile_error err = {0};
    int code = engine_open(&client, options, 0, "stile show");
    if (code != 0)
        return code;
    enum stile_status status = stile_show(
        client, options->args[0], options->given & OPT_JSON ? print_json : print_table, NULL, &err);
    if (status != STILE_OK)
        code = say_failure("show", status, &err);
    stile_client_close(client);
    return code != 0 ? code : finish_output(0);
}

const struct verb verb_show = {
    .name = "show",
    .accepts = OPT_JSON,
    .min_args = 1,
    .max_args = 1,
    .operands = "NAME",
    .about = "Shows the holders and the waiters of NAME in queue order. SINCE: how long ago the "
             "claim was granted or made. EXPIRES: how long it lasts without a renewal. last: the "
             "most recent holder on record, even if NAME is free now.",
    .run = show,
};
