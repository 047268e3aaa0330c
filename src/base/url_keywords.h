#ifndef STILE_URL_KEYWORDS_H
#define STILE_URL_KEYWORDS_H

#include "base/error.h"

bool url_is_keywords(const char *text);
enum stile_status url_from_keywords(char **url, const char *text, struct stile_error *err);
void url_keywords_free(char *url); /* wipes it first */

#endif
