/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile caps: what an engine promises, and on what condition. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const char *lease_text(enum stile_lease lease)
{
    switch (lease) {
    case STILE_LEASE_PROCESS:
        return "none: a lock ends with its process";
    case STILE_LEASE_SESSION:
        return "one for all locks of a client";
    case STILE_LEASE_CLAIM:
        return "one for each lock";
    }
    return "?";
}

static const char *lease_word(enum stile_lease lease)
{
    static const char *const words[] = {"process", "session", "claim"};
    return words[lease];
}

/* ---- recipes: the verbs that need more than locks ---- */

static bool works_everywhere(const struct stile_caps *caps)
{
    (void)caps;
    return true;
}

static bool works_once(const struct stile_caps *caps)
{
    return caps->token && caps->keeps;
}

static bool works_paced(const struct stile_caps *caps)
{
    return caps->paces;
}

static bool works_in_cells(const struct stile_caps *caps)
{
    return caps->cells;
}

static bool works_with_jobs(const struct stile_caps *caps)
{
    return caps->jobs;
}

static const struct recipe {
    const char *verb;
    bool (*works)(const struct stile_caps *caps);
} recipes[] = {
    {"elect", works_everywhere}, {"once", works_once},      {"pace", works_paced},
    {"crdt", works_in_cells},    {"jobs", works_with_jobs},
};

#define N_RECIPES (sizeof recipes / sizeof recipes[0])

/* "elect, crdt; not once, pace, jobs" */
static void recipes_text(char *text, size_t size, const struct stile_caps *caps)
{
    const char *between = "";
    size_t n = 0;
    for (int works = 1; works >= 0; works--, between = "; not ") {
        for (size_t i = 0; i < N_RECIPES; i++) {
            if (recipes[i].works(caps) != works)
                continue;
            n += (size_t)snprintf(text + n, size - n, "%s%s", between, recipes[i].verb);
            between = ", ";
        }
    }
}

/* Which engine was meant, and why that one. */
struct choice {
    char url[STILE_URL_MAX + 1]; /* without secrets */
    const char *from;            /* as of engine_origin() */
    bool asked;                  /* its server; else these are the promises of any such engine */
};

static void choice_make(struct choice *choice, const struct options *options, bool asked)
{
    choice->asked = asked;
    choice->from = engine_origin(options);
    stile_url_redact(choice->url, sizeof choice->url, engine_url(options));
}

static void print_json(const struct stile_caps *caps, const struct choice *choice)
{
    struct json json = {.out = stdout};
    json_open(&json, NULL, '{');
    json_text(&json, "engine", caps->engine);
    json_text(&json, "url", choice->url);
    json_text(&json, "url_from", choice->from[0] != '\0' ? choice->from : "default");
    json_bool(&json, "asked", choice->asked);
    json_open(&json, "modes", '[');
    for (unsigned mode = STILE_EXCLUSIVE; mode <= STILE_SLOTS; mode++) {
        if (caps->modes & 1U << mode)
            json_text(&json, NULL, info_mode((enum stile_mode)mode));
    }
    json_close(&json, ']');
    json_text(&json, "lease", lease_word(caps->lease));
    json_bool(&json, "fifo", caps->fifo);
    json_bool(&json, "token", caps->token);
    json_bool(&json, "hold_at_least", caps->hold_at_least);
    json_bool(&json, "lock_delay", caps->lock_delay);
    json_bool(&json, "proclaims", caps->proclaims);
    json_bool(&json, "detached", caps->detached);
    json_bool(&json, "restores", caps->restores);
    json_bool(&json, "jobs", caps->jobs);
    json_bool(&json, "cells", caps->cells);
    json_bool(&json, "clock", caps->clock);
    json_bool(&json, "keeps", caps->keeps);
    json_bool(&json, "paces", caps->paces);
    json_open(&json, "recipes", '[');
    for (size_t i = 0; i < N_RECIPES; i++) {
        if (recipes[i].works(caps))
            json_text(&json, NULL, recipes[i].verb);
    }
    json_close(&json, ']');
    json_bool(&json, "history", caps->history);
    if (caps->most_locks > 0)
        json_uint(&json, "most_locks", caps->most_locks);
    json_text(&json, "token_is", caps->token_is);
    json_text(&json, "survives", caps->survives);
    json_text(&json, "condition", caps->condition);
    if (caps->instead != NULL)
        json_text(&json, "instead", caps->instead);
    json_close(&json, '}');
    putchar('\n');
}

#define NOT_SET                                                                                    \
    "nothing: local: is the default, for this user on this machine. -e URL, $STILE_ENGINE or "     \
    "`engine = URL` in ~/.config/stile.conf or /etc/stile.conf name another"

static void add_row(struct table *table, const char *what, const char *promise)
{
    table_add(table, what);
    table_add(table, promise);
}

static void print_table(const struct stile_caps *caps, const struct choice *choice)
{
    static const char *const heads[] = {"WHAT", "PROMISE", NULL};
    struct table table;
    char modes[64] = "", most[48], works[80];
    for (unsigned mode = STILE_EXCLUSIVE; mode <= STILE_SLOTS; mode++) {
        if (caps->modes & 1U << mode)
            snprintf(modes + strlen(modes), sizeof modes - strlen(modes), "%s%s",
                     modes[0] != '\0' ? ", " : "", info_mode((enum stile_mode)mode));
    }
    table_start(&table, heads);
    add_row(&table, "engine", caps->engine);
    add_row(&table, "URL", choice->url);
    add_row(&table, "set by", choice->from[0] != '\0' ? choice->from : NOT_SET);
    if (!choice->asked)
        add_row(&table, "asked", "no: these are the promises of a server that is set up for them");
    add_row(&table, "modes", modes);
    add_row(&table, "lease", lease_text(caps->lease));
    add_row(&table, "waiting",
            caps->fifo ? "a queue, first come first served" : "in no strict order");
    add_row(&table, "token", caps->token_is);
    add_row(&table, "hold-at-least", caps->hold_at_least ? "yes, on the engine's clock" : "no");
    add_row(&table, "lock-delay", caps->lock_delay ? "yes" : "no");
    add_row(&table, "proclaim",
            caps->proclaims              ? "yes, for all to see"
            : caps->cells && caps->token ? "leaders only (stile elect)"
                                         : "no");
    add_row(&table, "acquire, release", caps->detached ? "yes" : "no: use stile run");
    add_row(&table, "jobs", caps->jobs ? "yes, after stile setup" : "no");
    add_row(&table, "cells, guards", caps->cells ? "yes" : "no");
    if (caps->cells) {
        add_row(&table, "cells with an end",
                caps->keeps ? "yes" : "no: without --keep, until they are removed");
        add_row(&table, "clock",
                caps->clock   ? "the engine's"
                : caps->paces ? "the engine's, at the price of a write: for stile pace"
                              : "none that its clients could read");
    }
    recipes_text(works, sizeof works, caps);
    add_row(&table, "recipes", works);
    add_row(&table, "last holder", caps->history ? "recorded by stile run" : "not recorded");
    snprintf(most, sizeof most, "%u by one client", caps->most_locks);
    if (caps->most_locks > 0)
        add_row(&table, "locks at once", most);
    add_row(&table, "survives", caps->survives);
    add_row(&table, "on condition", caps->condition);
    if (caps->instead != NULL)
        add_row(&table, "what is missing", caps->instead);
    table_finish(&table, stdout);
}

static int caps_verb(struct options *options)
{
    struct stile_client *client = NULL;
    const struct stile_caps *caps;
    struct choice choice;
    engine_from_argument(options);
    int code = engine_open_for_caps(&client, &caps, options, "stile caps");
    if (code != 0)
        return code;
    choice_make(&choice, options, client != NULL);
    if (options->given & OPT_JSON)
        print_json(caps, &choice);
    else
        print_table(caps, &choice);
    stile_client_close(client);
    return finish_output(0);
}

const struct verb verb_caps = {
    .name = "caps",
    .accepts = OPT_JSON,
    .max_args = 1,
    .operands = "[URL]",
    .about = "Prints what the engine promises, and on what condition.",
    .run = caps_verb,
};
