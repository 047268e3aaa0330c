/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/page.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool write_page(const char *path, const struct run_options *options)
{
    struct run_options told = *options;
    struct run_result result;
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return false;
    told.trace = told.story = NULL;
    told.page = file;
    fputs(page_head, file);
    sim_run(&result, &told);
    fputs(page_tail, file);
    bool written = !ferror(file);
    int why = errno;
    if (fclose(file) != 0)
        return false;
    errno = why;
    return written;
}

bool page_offer(struct page *page, const struct run_options *options, bool holds)
{
    if (page->broken || (page->written && holds))
        return true;
    page->written = true;
    page->broken = !holds;
    return write_page(page->path, options);
}

#define SCRIPT_MAX 65536

static bool write_rows(const char *path, const char *json, size_t n)
{
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return false;
    fputs(page_head, file);
    fwrite(json, 1, n, file);
    fputs(page_tail, file);
    bool written = !ferror(file);
    return fclose(file) == 0 && written;
}

static bool read_script(char text[SCRIPT_MAX], const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t n = fread(text, 1, SCRIPT_MAX - 1, file);
    text[n] = '\0';
    bool whole = !ferror(file) && feof(file);
    if (!whole && !ferror(file))
        errno = EFBIG;
    fclose(file);
    return whole;
}

enum page_end page_tell(const char *script, const char *path)
{
    static char text[SCRIPT_MAX];
    char error[SCRIPT_ERROR_MAX];
    struct run_result result;
    char *json = NULL;
    size_t n;
    FILE *rows = open_memstream(&json, &n);
    if (rows == NULL || !read_script(text, script)) {
        fprintf(stderr, "stile: sim: %s: %s\n", script, strerror(errno));
        return PAGE_UNREAD;
    }
    bool fine = script_run(&result, text, rows, error);
    fclose(rows);
    if (!fine)
        fprintf(stderr, "stile: sim: %s: %s\n", script, error);
    bool written = !fine || path == NULL || write_rows(path, json, n);
    if (!written)
        fprintf(stderr, "stile: sim: %s: %s\n", path, strerror(errno));
    free(json);
    if (!fine)
        return PAGE_UNREAD;
    const struct verdict *verdict = &result.verdict;
    printf("%s: %s; %zu grants, %zu losses, %zu late writes refused, %zu updates lost, trace "
           "%016" PRIx64 "\n",
           script, verdict->holds ? "every rule holds" : verdict->violation.sentence,
           verdict->grants, verdict->losses, verdict->writes_refused, verdict->updates_lost,
           result.trace_sum);
    return written ? PAGE_DONE : PAGE_UNWRITTEN;
}
