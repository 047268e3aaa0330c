/* The engines inside the library. Those that need libraries of others are modules: find.c. */
#include "engines/engine.h"

#ifdef STILE_ENGINE_LOCAL
extern const struct engine_class local_class;
#endif

const struct engine_class *const engine_classes[] = {
#ifdef STILE_ENGINE_LOCAL
    &local_class,
#endif
    NULL,
};
