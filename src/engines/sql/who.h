/* Who a client is, to the database and to people. */
#ifndef STILE_SQL_WHO_H
#define STILE_SQL_WHO_H

#include "base/self.h"
#include "engines/engine.h"

#define WHO_OWNER_LEN   16
#define WHO_COMMAND_MAX 255

/* All in ASCII: a database may know no other characters. */
struct who {
    char owner[WHO_OWNER_LEN + 1]; /* drawn anew for each client, in hex */
    char host[SELF_HOST_MAX + 1], pid[12], command[WHO_COMMAND_MAX + 1];
};

enum stile_status who_introduce(struct who *who, const struct engine *engine,
                                struct stile_error *err);

#endif
