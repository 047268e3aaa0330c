/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* In place of the library's registry in the test build of the command. */
#include "engines/registry.h"
#include "support/script_engine.h"

#ifdef STILE_ENGINE_LOCAL
extern const struct engine_class local_class;
#endif

const struct engine_entry engine_registry[] = {
#ifdef STILE_ENGINE_LOCAL
    {.name = "local", .schemes = "local", .class = &local_class},
#endif
    {.name = "test", .schemes = "test", .class = &script_class},
    {.name = NULL},
};
