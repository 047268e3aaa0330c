/* What people see of names: their nodes, as claims in the order of the line. */
#ifndef STILE_ZOOKEEPER_VIEW_H
#define STILE_ZOOKEEPER_VIEW_H

#include "engines/zookeeper/zookeeper.h"

struct looking;

/* One node in line, or a ghost. */
struct entry {
    struct asker asker;
    struct looking *looking;
    char *path;
    enum stile_mode mode;
    bool there; /* it was read, and has not gone meanwhile */
    bool held;
    bool ghost;       /* not in line any more: its record keeps the name */
    int64_t until_ms; /* of a ghost */
    char *record;     /* the path of what it leaves behind; NULL: nothing */
    unsigned slots;
    int64_t czxid, ctime_ms;
    uint64_t token;
    char *data; /* cut up in place */
    int64_t pid, timeout_ms;
    const char *host, *command;
};

/* One name, with its line. */
struct place {
    struct asker asker;
    struct looking *looking;
    char *name, *path;
    int64_t pzxid; /* of the last change among its nodes; 0: it is not there */
    struct entry *entries;
    size_t n;
};

/* The ghosts, then the nodes of the line; not yet read. */
enum stile_status place_fill(struct place *place, const struct zoo *zoo,
                             const struct jute_strings *children, struct stile_error *err);
void entry_read(struct entry *entry, const struct answer *answer);
void place_weigh(struct place *place); /* who holds it, when all is read */
/* claims has room for place->n. */
void place_tell(const struct place *place, struct stile_info *info,
                struct stile_claim_info *claims);
/* How long its first ghost stays; 0: there is none. */
int64_t place_haunted_ms(const struct place *place);
void place_empty(struct place *place); /* its entries */

enum what { LIST, SHOW, WATCH, BREAK };

/* One question. A watch repeats it. */
struct looking {
    struct asker asker;
    struct query *query;
    enum what what;
    struct place *places;
    size_t n;
    size_t next_place, next_entry; /* to be asked for */
    bool reading;                  /* entries, not places */
    size_t pending;
    struct stile_error error;
    bool busy, changed, told, has_timer, broken;
    unsigned tries;
    uint64_t seen; /* fingerprint of what was told */
    struct watcher *watcher;
    struct timer timer;
};

/* ---- gather.c ---- */

void gather_begin(struct looking *looking); /* ends in people_gathered() */
void gather_forget(struct looking *looking);

/* ---- people.c ---- */

void people_gathered(struct looking *looking); /* or could not be */
void people_changed(struct asker *asker, int type);

static inline struct zoo *zoo_of_looking(const struct looking *looking)
{
    return zoo_of(looking->query->engine);
}

static inline struct session *session_of(const struct looking *looking)
{
    return zoo_of_looking(looking)->main;
}

static inline struct looking *looking_of(struct asker *asker)
{
    return (struct looking *)((char *)asker - offsetof(struct looking, asker));
}

#endif
