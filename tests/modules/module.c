/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A module for the test of the loader; its build says what is wrong with it. */
#include "engines/module.h"

static const struct engine_class works = {.schemes = "works works+tls",
                                          .caps = {.engine = "works"}};
static const struct engine_class *const classes[] = {&works, NULL};

#ifdef MODULE_NAMELESS
extern STILE_API const struct engine_module somebody_else;
const struct engine_module somebody_else = {.classes = classes};
#elif defined(MODULE_ABI)
extern STILE_API const struct engine_module stile_engines;
const struct engine_module stile_engines = {
    .abi = MODULE_ABI, .version = MODULE_VERSION, .classes = classes};
#else
ENGINE_MODULE(classes);
#endif
