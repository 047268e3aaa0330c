/* The engines of postgres.so. */
#include "engines/module.h"

extern const struct engine_class postgres_class;

static const struct engine_class *const classes[] = {
    &postgres_class,
    NULL,
};

ENGINE_MODULE(classes);
