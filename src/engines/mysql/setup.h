/* `stile setup`: the tables, made or brought up to date. */
#ifndef STILE_MYSQL_SETUP_H
#define STILE_MYSQL_SETUP_H

#include "base/error.h"

struct url;

enum stile_status mysql_setup(const struct url *url, bool dry_run, const char **script,
                              struct stile_error *err);

#endif
