/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile ls: every name that is held or waited for. */
#include <inttypes.h>
#include <stdlib.h>

#include "cli.h"

struct listing {
    struct table table;
    struct json json;
    bool begun; /* the JSON array: not before the engine has answered */
};

static void begin_json(struct listing *listing)
{
    if (!listing->begun)
        json_open(&listing->json, NULL, '[');
    listing->begun = true;
}

static int add_row(const struct stile_info *info, void *data)
{
    struct table *table = &((struct listing *)data)->table;
    char age[DURATION_TEXT_MAX];
    const struct stile_claim_info *first = info->holders + info->waiters > 0 ? info->claims : NULL;
    table_add(table, info->name);
    table_add(table, first != NULL ? info_mode(first->mode) : "");
    table_addf(table, "%zu", info->holders);
    table_addf(table, "%zu", info->waiters);
    table_addf(table, "%" PRIu64, info->token);
    table_add(table, info->holders > 0 ? info_age(age, first) : "");
    char *holder = info->holders > 0 ? info_holder(first) : NULL;
    table_add(table, holder != NULL ? holder : "");
    free(holder);
    return 0;
}

static int add_json(const struct stile_info *info, void *data)
{
    begin_json(data);
    info_json(&((struct listing *)data)->json, NULL, info);
    return 0;
}

static int ls(struct options *options)
{
    static const char *const heads[] = {"NAME",  "MODE",  "HOLDERS", "WAITERS",
                                        "TOKEN", "SINCE", "HOLDER",  NULL};
    struct stile_client *client;
    struct stile_error err = {0};
    bool json = options->given & OPT_JSON;
    int code = engine_open(&client, options, 0, "stile ls");
    if (code != 0)
        return code;
    struct listing listing = {.json = {.out = stdout}};
    table_start(&listing.table, heads);
    const char *prefix = options->n_args > 0 ? options->args[0] : NULL;
    enum stile_status status =
        stile_list(client, prefix, json ? add_json : add_row, &listing, &err);
    if (status != STILE_OK)
        code = say_failure("ls", status, &err);
    else if (json) {
        begin_json(&listing);
        json_close(&listing.json, ']');
        putchar('\n');
    }
    table_finish(&listing.table, status == STILE_OK && !json ? stdout : NULL);
    stile_client_close(client);
    return code != 0 ? code : finish_output(0);
}

const struct verb verb_ls = {
    .name = "ls",
    .accepts = OPT_JSON,
    .max_args = 1,
    .operands = "[PREFIX]",
    .about = "Lists names that have holders or waiters. SINCE: how long ago HOLDER was granted it.",
    .run = ls,
};
