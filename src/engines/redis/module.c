/* The engines of redis.so. */
#include "engines/module.h"

static const struct engine_class *const classes[] = {
    NULL,
};

ENGINE_MODULE(classes);
