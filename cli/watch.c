/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile watch: a line for every change of one name. */
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "cli.h"

void stamp_write(char stamp[STAMP_MAX])
{
    struct timespec now;
    struct tm parts;
    char seconds[24];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(stamp, STAMP_MAX, "%s.%03dZ", seconds, (int)(now.tv_nsec / 1000000));
}

int stamp_end_line(void)
{
    putchar('\n');
    return fflush(stdout) != 0;
}

static int print_json(const struct stile_info *info, void *data)
{
    (void)data;
    char stamp[STAMP_MAX];
    struct json json = {.out = stdout};
    stamp_write(stamp);
    json_open(&json, NULL, '{');
    json_text(&json, "at", stamp);
    info_json_members(&json, info);
    json_close(&json, '}');
    return stamp_end_line();
}

static int print_line(const struct stile_info *info, void *data)
{
    (void)data;
    char stamp[STAMP_MAX];
    stamp_write(stamp);
    char *name = text_escape(info->name);
    printf("%s  %s", stamp, name);
    free(name);
    if (info->holders == 0)
        printf("  free");
    for (size_t i = 0; i < info->holders; i++) {
        char *holder = info_holder(&info->claims[i]), *safe = text_escape(holder);
        printf("%s  held by %s (token %" PRIu64 ")", i > 0 ? "," : "", safe, info->claims[i].token);
        free(holder);
        free(safe);
    }
    if (info->waiters > 0)
        printf(", %zu waiting", info->waiters);
    return stamp_end_line();
}

static int watch(struct options *options)
{
    struct stile_client *client;
    struct stile_error err = {0};
    int code = engine_open(&client, options, 0, "stile watch");
    if (code != 0)
        return code;
    enum stile_status status =
        stile_watch(client, options->args[0], -1,
                    options->given & OPT_JSON ? print_json : print_line, NULL, &err);
    if (status != STILE_OK)
        code = say_failure("watch", status, &err);
    stile_client_close(client);
    return code != 0 ? code : finish_output(0);
}

const struct verb verb_watch = {
    .name = "watch",
    .accepts = OPT_JSON,
    .min_args = 1,
    .max_args = 1,
    .operands = "NAME",
    .about = "Prints the state of NAME, now and after every change, until interrupted.",
    .run = watch,
};
