/* From a URL's scheme to its engine: one of this library, or one of a module that is loaded now. */
#ifndef STILE_FIND_H
#define STILE_FIND_H

#include "engines/engine.h"

enum stile_status find_engine(const struct engine_class **class, const char *scheme,
                              struct stile_error *err);

#endif
