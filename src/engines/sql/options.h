/* What the URLs of both databases may say. */
#ifndef STILE_SQL_OPTIONS_H
#define STILE_SQL_OPTIONS_H

#include "base/error.h"

struct url;

#define SESSIONS_DEFAULT 20

/* sessions=, and whether allow= says pooler. */
enum stile_status options_read_sessions(unsigned *sessions, bool *allow_pooler,
                                        const struct url *url, struct stile_error *err);

/* On this machine: nobody can listen on the way there. */
bool options_is_near(const char *host, size_t len);

#endif
