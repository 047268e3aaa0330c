/* The engines of redis.so. */
#include "engines/module.h"

extern const struct engine_class redis_class;

static const struct engine_class *const classes[] = {
    &redis_class,
    NULL,
};

ENGINE_MODULE(classes);
