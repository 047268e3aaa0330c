/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The registry: the engines that this library knows. The build writes it (registry.c.in) from the
 * meson.build of each engine: a new engine is one folder and one line in src/meson.build. */
#ifndef STILE_REGISTRY_H
#define STILE_REGISTRY_H

#include "engines/engine.h"

/* Translates a connection string in the engine's own form into a URL, which the caller wipes and
 * frees. *url stays NULL if the text does not have that form; no URL and no string of another
 * engine may have it. */
typedef enum stile_status engine_url_fn(char **url, const char *text, struct stile_error *err);

struct engine_entry {
    const char *name;                 /* "redlock" */
    const char *schemes;              /* separated by spaces */
    const char *module;               /* the file that contains it, without .so: "redis" */
    const struct engine_class *class; /* NULL: in the module */
    engine_url_fn *url_from_text;     /* NULL: its texts are URLs */
};

extern const struct engine_entry engine_registry[]; /* ends with a name of NULL */

#endif
