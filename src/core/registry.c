/* The engines of this build. A new engine is one folder and one line here. */
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
