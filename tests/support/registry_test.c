/* In place of the library's registry in the test build of the command. */
#include "engines/registry.h"
#include "support/script_engine.h"

extern const struct engine_class local_class;

const struct engine_entry engine_registry[] = {
    {.name = "local", .schemes = "local", .class = &local_class},
    {.name = "test", .schemes = "test", .class = &script_class},
    {.name = NULL},
};
