/* The engines of mysql.so. */
#include "engines/module.h"

extern const struct engine_class maria_class;

static const struct engine_class *const classes[] = {
    &maria_class,
    NULL,
};

ENGINE_MODULE(classes);
