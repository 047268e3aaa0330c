/* The engines of redis.so. */
#include "engines/module.h"

extern const struct engine_class redis_class, redlock_class;

static const struct engine_class *const classes[] = {
    &redis_class,
    &redlock_class,
    NULL,
};

ENGINE_MODULE(classes);
