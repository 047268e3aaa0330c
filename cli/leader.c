/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile leader: which process leads an election, and what it proclaims. */
#include <inttypes.h>
#include <stdlib.h>

#include "cli.h"

/* "PID@HOST COMMAND", or what is known of it; escaped. Yours to free. */
static char *leader_text(const struct stile_leader *leader)
{
    char *text = NULL;
    int len = leader->pid != 0
                  ? asprintf(&text, "%" PRId64 "@%s %s", leader->pid, leader->host, leader->command)
                  : asprintf(&text, "%s",
                             leader->command[0] != '\0' ? leader->command
                             : leader->value[0] != '\0' ? leader->value
                                                        : "another client");
    char *safe = text_escape(must_alloc(len < 0 ? NULL : text));
    free(text);
    return safe;
}

static void print_leader(const struct stile_leader *leader)
{
    char age[DURATION_TEXT_MAX];
    if (!leader->leads) {
        printf("nobody leads");
        return;
    }
    char *process = leader_text(leader), *value = text_escape(leader->value);
    printf("led by %s", process);
    if (leader->age_ms >= 0) {
        duration_format(age, leader->age_ms);
        printf(" for %s", age);
    }
    if (leader->token != 0)
        printf(" (token %" PRIu64 ")", leader->token);
    if (leader->value[0] != '\0')
        printf(", proclaims %s", value);
    free(process);
    free(value);
}

static void leader_json(struct json *json, const struct stile_leader *leader)
{
    json_text(json, "name", leader->name);
    json_bool(json, "leads", leader->leads);
    if (!leader->leads)
        return;
    json_int(json, "pid", leader->pid);
    json_text(json, "host", leader->host);
    json_text(json, "command", leader->command);
    json_uint(json, "token", leader->token);
    if (leader->age_ms < 0)
        json_null(json, "age_ms");
    else
        json_int(json, "age_ms", leader->age_ms);
    json_text(json, "value", leader->value);
}

struct printing {
    const struct options *options;
    bool leads;
};

/* --watch: one line for each report, with its time. */
static int print(const struct stile_leader *leader, void *data)
{
    struct printing *printing = data;
    bool watching = printing->options->given & OPT_WATCH;
    char stamp[STAMP_MAX];
    stamp_write(stamp);
    printing->leads = leader->leads;
    if (printing->options->given & OPT_JSON) {
        struct json json = {.out = stdout};
        json_open(&json, NULL, '{');
        if (watching)
            json_text(&json, "at", stamp);
        leader_json(&json, leader);
        json_close(&json, '}');
    } else {
        char *name = text_escape(leader->name);
        printf("%s%s%s  ", watching ? stamp : "", watching ? "  " : "", name);
        free(name);
        print_leader(leader);
    }
    return stamp_end_line();
}

static int leader(struct options *options)
{
    struct printing printing = {.options = options};
    struct stile_client *client;
    struct stile_error err = {0};
    int code = engine_open(&client, options, 0, "stile leader");
    if (code != 0)
        return code;
    enum stile_status status =
        options->given & OPT_WATCH
            ? stile_leader_watch(client, options->args[0], -1, print, &printing, &err)
            : stile_leader_show(client, options->args[0], print, &printing, &err);
    if (status != STILE_OK)
        code = say_failure("leader", status, &err);
    stile_client_close(client);
    if (code == 0 && !printing.leads && !(options->given & OPT_WATCH))
        code = EXIT_NO;
    return finish_output(code);
}

const struct verb verb_leader = {
    .name = "leader",
    .accepts = OPT_JSON | OPT_WATCH,
    .min_args = 1,
    .max_args = 1,
    .operands = "NAME",
    .about = "Prints which process leads the election NAME, for how long, its token, and what it "
             "proclaims. Exits with 1 if nobody leads. With --watch, prints a line now and after "
             "every change, until interrupted, and also when nobody leads any longer.",
    .run = leader,
};
