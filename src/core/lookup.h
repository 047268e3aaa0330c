/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* From a text to its engine: a URL's scheme, or the form of a connection string, names it. */
#ifndef STILE_LOOKUP_H
#define STILE_LOOKUP_H

#include "base/url.h"
#include "engines/engine.h"

/* A URL, or a connection string in a form that an engine of the registry claims. */
enum stile_status lookup_url(struct url **url, const char *text, struct stile_error *err);

enum stile_status lookup_engine(const struct engine_class **class, const char *scheme,
                                struct stile_error *err);

/* Both, with the URL's parameters checked. text NULL: the default engine (config.h); "": local:. */
enum stile_status lookup_from_text(struct url **url, const struct engine_class **class,
                                   const char *text, struct stile_error *err);

#endif
