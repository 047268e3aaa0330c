/* In place of src/core/registry.c in the test build of the command. */
#include "support/script_engine.h"

#ifdef STILE_ENGINE_LOCAL
extern const struct engine_class local_class;
#endif

const struct engine_class *const engine_classes[] = {
#ifdef STILE_ENGINE_LOCAL
    &local_class,
#endif
    &script_class,
    NULL,
};
