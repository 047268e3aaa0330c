/* What open() waits for: the shared session to be up, and the answers to its first statements. */
#ifndef STILE_SQL_OPENING_H
#define STILE_SQL_OPENING_H

#include "base/self.h"
#include "engines/engine.h"

struct opening {
    bool over;     /* the answer has come */
    bool schema;   /* the database has the schema of stile */
    int version;   /* of that */
    uint64_t room; /* for locks */
    struct stile_error error;
};

/* The answer has come; why: it is an error, else NULL. opening NULL: open() is not waiting. */
void sql_opening_done(struct opening *opening, const struct stile_error *why);
enum stile_status sql_opening_wait(struct opening *opening, struct loop *loop,
                                   struct stile_error *err);

/* The class of the URL's mode, instead of the scheme's default. */
void sql_opening_set_class(struct engine *engine, const struct engine_class *class);
/* The database lacks what `stile setup` creates. */
void sql_opening_set_bare(struct engine *engine, const char *token_is, const char *instead);

/* ---- identity ---- */

#define IDENTITY_OWNER_LEN   16
#define IDENTITY_COMMAND_MAX 255

/* All in ASCII: a database may know no other characters. */
struct identity {
    char owner[IDENTITY_OWNER_LEN + 1]; /* drawn anew for each client, in hex */
    char host[SELF_HOST_MAX + 1], pid[12], command[IDENTITY_COMMAND_MAX + 1];
};

enum stile_status sql_identity_init(struct identity *identity, const struct engine *engine,
                                    struct stile_error *err);

#endif
