/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the page calls: one run of the simulator, whose rows come back as JSON (sim/story.h). */
#include <stdlib.h>
#include <string.h>

#include "sim/script.h"

#define EXPORT(name) __attribute__((export_name(#name)))

static struct {
    char *json;
    size_t n;
} written;

static const struct sim_engine_class *engine_named(const char *name)
{
    for (size_t i = 0; sim_engines[i] != NULL; i++) {
        if (strcmp(name, sim_engines[i]->name) == 0)
            return sim_engines[i];
    }
    return NULL;
}

/* Room for a text of the page's; the caller frees it. */
EXPORT(page_alloc) char *page_alloc(size_t n)
{
    return malloc(n);
}

EXPORT(page_free) void page_free(char *bytes)
{
    free(bytes);
}

EXPORT(page_json) const char *page_json(void)
{
    return written.json;
}

EXPORT(page_json_len) size_t page_json_len(void)
{
    return written.n;
}

static FILE *open_json(void)
{
    free(written.json);
    written.json = NULL;
    written.n = 0;
    return open_memstream(&written.json, &written.n);
}

/* A seed, as `stile sim --engine E --seed N` runs it. False: there is no such engine, or no memory.
 */
EXPORT(page_run_seed) int page_run_seed(const char *engine, const char *seed)
{
    struct run_result result;
    struct run_options options = {.engine = engine_named(engine), .seed = strtoull(seed, NULL, 10)};
    options.page = open_json();
    if (options.engine == NULL || options.page == NULL)
        return 0;
    sim_run(&result, &options);
    return fclose(options.page) == 0;
}

/* A story (sim/script.h). False: the text in place of JSON says which line is wrong. */
EXPORT(page_run_story) int page_run_story(const char *text)
{
    static char error[SCRIPT_ERROR_MAX];
    struct run_result result;
    FILE *page = open_json();
    if (page == NULL)
        return 0;
    bool fine = script_run(&result, text, page, error);
    if (!fine)
        fputs(error, page);
    return fclose(page) == 0 && fine;
}
