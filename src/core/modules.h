/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: engines in shared objects of their own (engines/module.h), and where they are. */
#ifndef STILE_MODULES_H
#define STILE_MODULES_H

#include "engines/module.h"

#define MODULE_PATH_MAX 4096

/* Where the module of this name is: the first file there is. False: there is none. */
bool module_find(char path[MODULE_PATH_MAX], const char *name);

/* engine: the one that is wanted of it. */
enum stile_status module_load(const struct engine_module **module, const char *name,
                              const char *engine, struct stile_error *err);

#endif
