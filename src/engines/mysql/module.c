/* The engines of mysql.so. */
#include "engines/module.h"

extern const struct engine_class mysql_class;

static const struct engine_class *const classes[] = {
    &mysql_class,
    NULL,
};

ENGINE_MODULE(classes);
