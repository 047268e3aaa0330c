#include "engines/module.h"

extern const struct engine_class etcd_class;

static const struct engine_class *const classes[] = {&etcd_class, NULL};

ENGINE_MODULE(classes);
