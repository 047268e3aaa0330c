/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STILE_POSTGRES_KEYWORDS_H
#define STILE_POSTGRES_KEYWORDS_H

#include "base/error.h"

/* As struct engine_entry has it. */
enum stile_status postgres_url_from_keywords(char **url, const char *text, struct stile_error *err);

#endif
