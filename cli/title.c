/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for a warden, in ps, pkill and killall. */
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "process.h"

static char *area;
static size_t area_size;

void title_begin(char **argv)
{
    area = argv[0];
    for (; *argv != NULL; argv++) {
        if (*argv == area + area_size)
            area_size += strlen(*argv) + 1;
    }
}

static void copy_text(char **text)
{
    if (*text != NULL)
        *text = must_alloc(strdup(*text));
}

static char **copy_list(char **list, size_t n)
{
    char **out = must_alloc(calloc(n + 1, sizeof *out));
    for (size_t i = 0; i < n; i++)
        out[i] = must_alloc(strdup(list[i]));
    return out;
}

/* The copies live as long as the process, in a place that a leak checker sees. */
static void copy_options(struct options *options)
{
    static struct options kept __attribute__((used));
    size_t n = 0;
    while (options->command[n] != NULL)
        n++;
    options->command = copy_list(options->command, n);
    options->args = copy_list(options->args, options->n_args);
    copy_text(&options->engine);
    copy_text(&options->label);
    copy_text(&options->proclaim);
    copy_text(&options->guard);
    copy_text(&options->fingerprint);
    kept = *options;
}

void title_set(const char *name, pid_t front, struct options *options)
{
    char text[64];
    prctl(PR_SET_NAME, name);
    copy_options(options);
    snprintf(text, sizeof text, "%s of %d", name, (int)front);
    if (area_size > 0) {
        memset(area, 0, area_size);
        memcpy(area, text, strnlen(text, area_size - 1));
    }
}
