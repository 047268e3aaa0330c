#include "engines/module.h"

extern const struct engine_class zookeeper_class;

static const struct engine_class *const classes[] = {&zookeeper_class, NULL};

ENGINE_MODULE(classes);
