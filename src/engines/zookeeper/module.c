#include "engines/module.h"

extern const struct engine_class zk_class;

static const struct engine_class *const classes[] = {&zk_class, NULL};

ENGINE_MODULE(classes);
