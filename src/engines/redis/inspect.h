/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Locks as list and show report them. */
#ifndef STILE_REDIS_INSPECT_H
#define STILE_REDIS_INSPECT_H

#include "base/error.h"

#define AGE_UNKNOWN (-1) /* as stile.h has it */

/* One name. Everything points into the replies it was made of, or into texts, which are cut up in
 * place. */
struct view {
    struct stile_info info;
    struct stile_claim_info *claims;
    char **texts;
    size_t n, n_texts;
};

/* With room for so many claims. */
enum stile_status redis_view_init(struct view *view, const char *name, size_t most,
                                  struct stile_error *err);
void redis_view_free(struct view *view);
char *redis_view_keep(struct view *view, const char *text); /* a copy; "" without memory */
uint64_t redis_view_take_number(char **text);
const char *redis_view_take_word(char **text);
void redis_view_take_client(struct stile_claim_info *claim, char *text); /* "pid host command" */

/* Names, from SCAN. */
struct names {
    char **names;
    size_t n, cap;
};

bool redis_names_add(struct names *names, const char *name, size_t len); /* false: too many */
void redis_names_sort(struct names *names); /* by their bytes; once each */
void redis_names_free(struct names *names);

/* The MATCH pattern for all names with this beginning. */
#define PATTERN_ROOM(prefix_len, name_len) (2 * ((prefix_len) + (name_len)) + 2)
void redis_names_pattern(char *pattern, const char *prefix, const char *name);

#endif
