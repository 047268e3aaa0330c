/* `stile setup`: the schema, made or brought up to date. */
#ifndef STILE_POSTGRES_SETUP_H
#define STILE_POSTGRES_SETUP_H

#include "base/error.h"

struct url;

enum stile_status postgres_setup(const struct url *url, bool dry_run, const char **script,
                                 struct stile_error *err);

#endif
