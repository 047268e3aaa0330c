/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One run as a page: an HTML file that needs nothing else (web/). */
#ifndef STILE_SIM_PAGE_H
#define STILE_SIM_PAGE_H

#include "sim/script.h"

/* The build writes these from web/: the run as JSON (sim/story.h) belongs between them. */
extern const char page_head[], page_tail[];

/* One page is written: of the first run that is offered, or of the first one that breaks a rule. */
struct page {
    const char *path;
    bool written, broken;
};

/* Runs it once more if its page is wanted. False, with errno: the file could not be written. */
bool page_offer(struct page *page, const struct run_options *options, bool holds);

enum page_end { PAGE_DONE, PAGE_UNREAD, PAGE_UNWRITTEN };

/* Runs a written story (sim/script.h) and prints how it ended; path NULL: without a page. */
enum page_end page_tell(const char *script, const char *path);

#endif
