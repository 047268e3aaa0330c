/* Inside the zookeeper engine. */
#ifndef STILE_ZOOKEEPER_H
#define STILE_ZOOKEEPER_H

#include <netdb.h>

#include "base/self.h"
#include "engines/engine.h"
#include "engines/zookeeper/connection.h"

#define BASE_MAX  512
#define PATH_ROOM (BASE_MAX + 3 * STILE_NAME_MAX + 128)
#define INFO_MAX  320
#define GUID_SIZE 37 /* with its dashes and the NUL */

struct zoo;
struct session;

enum dialect { CURATOR, CURATOR_RW, KAZOO };

/* ---- fault.c ---- */

/* The server's codes, by the names that all clients give them, and two of our own. */
enum zoo_code {
    ZOK = 0,
    ZRUNTIMEINCONSISTENCY = -2,
    ZCONNECTIONLOSS = -4,
    ZUNIMPLEMENTED = -6,
    ZOPERATIONTIMEOUT = -7,
    ZNONODE = -101,
    ZNOAUTH = -102,
    ZBADVERSION = -103,
    ZNOCHILDRENFOREPHEMERALS = -108,
    ZNODEEXISTS = -110,
    ZSESSIONEXPIRED = -112,
    ZINVALIDACL = -114,
    ZAUTHFAILED = -115,
    ZSESSIONMOVED = -118,
    ZQUOTAEXCEEDED = -125,
    ZTHROTTLEDOP = -127,
    ZNOMEMORY = 1, /* of ours: no server sends a positive one */
};

/* What a failed request comes to. maybe: it may have been executed. */
enum stile_status fault_set(struct stile_error *err, int rc, bool maybe);
bool fault_may_pass(int rc); /* the connection's, not the request's */

/* ---- names.c: names in paths, nodes in their order ---- */

void path_of_name(char path[PATH_ROOM], const struct zoo *zoo, const char *name, size_t len);
/* A child of the base as a name; false: no name of ours is stored so. */
bool name_of_child(char name[PATH_ROOM], const struct zoo *zoo, const char *child);
/* What a claim's node starts with: the server appends ten digits. */
void path_of_claim(char path[PATH_ROOM], const struct zoo *zoo, const struct claim *claim,
                   const char *guid);
size_t bytes_of_claim(const struct zoo *zoo, const struct claim *claim); /* of its node's path */
bool dialect_find(enum dialect *dialect, const char *name);
void guid_write(char guid[GUID_SIZE], enum dialect dialect, const uint8_t random[16]);

/* No number is left for those that come behind it. */
bool node_is_near_the_last(const struct zoo *zoo, const struct claim *claim, const char *guid,
                           const char *node);

/* The nodes of a name that stand in line, first one first. Borrowed from the answer. */
struct line {
    const char **nodes;
    size_t n;
};

enum stile_status line_sort(struct line *line, const struct zoo *zoo,
                            const struct jute_strings *children, struct stile_error *err);
void line_free(struct line *line);
/* Its place; n if it is not there. */
size_t line_find(const struct line *line, const char *node);
enum stile_mode node_mode(const struct zoo *zoo, const char *node);

/* ---- session.c: sessions on the servers, each over one connection at a time ---- */

struct answer {
    int rc;
    bool maybe; /* rc is about the connection, and the request may have been executed */
    uint64_t sent_ns;
    const char *path; /* of what was created */
    const struct jute_stat *stat;
    const struct jute_strings *children;
    const char *data;
    size_t data_len;
};

struct asker;
typedef void ask_fn(struct asker *asker, const struct answer *answer);

/* Who asks; embedded by its owner. */
struct asker {
    struct ask *asks;
};

/* One node or its children are watched, once: until the server reports something, its owner leaves
 * it, or its session ends. */
typedef void watcher_told_fn(struct asker *asker, int type);

struct watcher {
    struct watcher *next, **link; /* of those whose paths have the same hash */
    struct watcher **slot;        /* where its owner keeps it */
    struct session *session;
    struct asker *asker;
    watcher_told_fn *fn;
    struct ask *ask; /* that sets it */
    bool set;        /* the server knows of it */
    bool absent;     /* there was nothing at its path when it was set */
    char kind;
    uint64_t hash;
    char path[];
};

/* Those of one session. */
struct watchers {
    struct watcher **table;
    size_t buckets, n; /* buckets: a power of two, or 0 */
};

enum session_state { SESSION_DOWN, SESSION_UP, SESSION_DEAD };

struct session {
    struct session *next;
    struct zoo *zoo;
    int asked_ms;
    struct connection *connection; /* NULL: between two attempts */
    enum session_state state;
    bool refused;        /* the server does not want our user */
    bool ending;         /* over on the server; restarted by the task */
    unsigned generation; /* of sessions on the server */
    struct session_id id;
    int64_t zxid; /* the greatest seen: a server that is behind it is not to be believed */
    uint64_t ttl_ns;
    int timeout_ms;         /* of the server's; before it has answered, as asked for */
    struct stile_error why; /* it is down */
    struct timer timer;     /* of the next attempt, or the end of its patience */
    struct task task;       /* what must not happen inside a request or an event */
    struct sender sender;
    struct ask *queue, **queue_tail;   /* not sent yet */
    size_t in_flight;                  /* sent and not answered */
    struct ask *failed, **failed_tail; /* to be answered by the task */
    struct together *together;         /* to be sent before anybody sleeps */
    struct watchers watchers;
    bool unwatched; /* they could not be set again */
    struct zoo_claim *claims;
    size_t bytes; /* of the paths of its nodes */
    /* told.c */
    struct asker asker;
    struct timer told_timer;
    bool renewing, asking;
    uint64_t told_ns;    /* when the leader has surely heard of us */
    uint64_t touched_ns; /* its server has heard of us, and perhaps its leader; 0: no such time */
    uint64_t asked_ns;
    uint64_t connect_ns; /* no later than its present connection was begun */
    /* dial.c */
    unsigned first_host; /* by chance */
    unsigned dials;      /* since it was last up for a while */
    uint64_t up_ns;      /* when it came up; 0: it is not */
    uint64_t down_ns;    /* when it was last up, or made */
    uint64_t dial_ns;    /* not before */
    bool fresh;          /* this attempt asks for a new session, to see whether that is given */
};

/* What all nodes of one session may have in bytes of their paths. When a session ends, the servers
 * write all of them into one record, and refuse to read back one that is larger than 1 MB
 * (jute.maxbuffer): with it, their own log. */
#define SESSION_BYTES_MAX (512u << 10)
#define SESSIONS_MAX      48 /* a server takes 60 connections from one address unless told otherwise */

/* One with this TTL, and room for a path of so many bytes. */
struct session *session_for(struct zoo *zoo, uint64_t ttl_ns, size_t bytes,
                            struct stile_error *err);
/* What is asked for from now on leaves together, before anybody sleeps. */
void session_gather(struct session *session);
void sessions_close(struct zoo *zoo); /* ends them on the servers, for a bounded time, and frees */
void session_forked(struct session *session);
void session_leave_server(struct session *session); /* for the next one; not inside an event */

/* ---- dial.c ---- */

void dial_begins(struct session *session);
void dial_ends(struct session *session); /* no connection is left, and dial_ns is set */
uint64_t dial_patience_ns(const struct session *session);        /* how long an attempt may take */
const struct zoo_host *dial_host(const struct session *session); /* of this attempt */
/* The server has hung up on a session that may be over for all it knows: a new one is asked for
 * next, at the same server. */
bool dial_wants_fresh(const struct session *session);

/* ---- told.c ---- */

void told_up(struct session *session);
void told_answered(struct session *session, uint64_t sent_ns, bool by_leader);
void told_ask(struct timer *timer);
void told_claimed(struct session *session); /* it has claims from now on */
void sessions_renew(struct engine *engine, struct claim *const *claims, size_t n);

/* ---- asks.c ---- */

#define NUDGE_NS (20 * NS_PER_MS)

/* False: out of memory, and no answer comes. Requests of one session are executed in order. */
bool ask_create(struct session *session, struct asker *asker, const char *path, int mode,
                const char *data, ask_fn *fn);
bool ask_delete(struct session *session, struct asker *asker, const char *path, ask_fn *fn);
/* The same, behind all else that is asked for in this turn. */
bool ask_delete_together(struct session *session, struct asker *asker, const char *path,
                         ask_fn *fn);
bool ask_set(struct session *session, struct asker *asker, const char *path, const char *data,
             int version, ask_fn *fn);
bool ask_sync(struct session *session, struct asker *asker, const char *path, ask_fn *fn);
bool ask_exists(struct session *session, struct asker *asker, const char *path,
                struct watcher *watcher, ask_fn *fn);
bool ask_get(struct session *session, struct asker *asker, const char *path,
             struct watcher *watcher, ask_fn *fn);
bool ask_children(struct session *session, struct asker *asker, const char *path,
                  struct watcher *watcher, ask_fn *fn);
void asker_forget(struct asker *asker);
void asks_send(struct session *session); /* as many of the queue as may be under way */
/* All that is not answered fails: what was sent in doubt, the rest as never sent. */
void asks_fail(struct session *session, int rc);
void asks_answer_failed(struct session *session); /* what could not even be queued */

/* For together.c. */
struct ask;
struct ask *ask_new_delete(struct session *session, struct asker *asker, const char *path,
                           ask_fn *fn);
void ask_enqueue(struct ask *ask);
/* Deletes all of these at once, for together_answered(). False: out of memory. */
bool ask_delete_all(struct together *together, struct ask *const *asks, size_t n);
void ask_finish(struct ask *ask, int rc, bool maybe);
void ask_unwatch(struct ask *ask); /* for watchers.c: its watcher has gone */

/* ---- together.c ---- */

struct together;
void together_send(struct session *session);
void together_answered(struct together *together, int rc, bool maybe);

/* ---- watchers.c ---- */

/* kind: which of the requests above it goes with: 'e', 'g' or 'c'. *slot becomes NULL again when it
 * has reported, could not be set, or its session has ended. False: out of memory. */
bool watcher_take(struct watcher **slot, struct session *session, char kind, const char *path,
                  struct asker *asker, watcher_told_fn *fn);
void watcher_leave(struct watcher **slot);
void watcher_settle(struct watcher *watcher, int rc); /* the request that sets it was answered */
void watchers_report(struct session *session, int type, const char *path);
/* On a new connection of the same session, in packets well below what a server takes. */
void watchers_set_again(struct session *session);
void watchers_free(struct session *session);

/* ---- claims.c ---- */

enum standing {
    NOWHERE,
    ASKED,
    IN_LINE, /* watches the one before it, or will look again */
    LOOKING,
    HOLDING,
    WITHDRAWING, /* tried once, and was not the first; or refused */
    LEAVING,
};

/* What only a person can mend: the claim is withdrawn, and fails. */
enum refusal { NOT_REFUSED, NUMBERS_USED_UP, NOT_A_CLAIM };

struct zoo_claim {
    struct asker asker;
    struct zoo_claim *next, **link;             /* of its session */
    struct zoo_claim *fresh_next, **fresh_link; /* held for a short time so far */
    struct session *session;
    unsigned generation; /* of the session its node belongs to */
    enum standing standing;
    char guid[GUID_SIZE];
    char *node;   /* its path; NULL: not known */
    size_t bytes; /* of its path, in its session's account */
    int64_t czxid, owner;
    int created; /* what the server said */
    bool created_maybe;
    unsigned in_flight;
    enum refusal refusal;
    bool leaving; /* release() was called */
    bool was_held;
    bool gone;     /* its node was taken from it */
    bool doubtful; /* a request that removes it may have been executed */
    bool parents;  /* are to be made first */
    bool has_timer;
    unsigned tries;
    uint64_t granted_ns;
    int64_t clock_ms; /* the server's, when it last wrote for us */
    uint64_t clock_ns;
    bool recorded; /* what it leaves behind may be there */
    bool armed;    /* and is */
    struct ghosts *ghosts;
    struct timer timer;
    struct watcher *watcher;
};

void claims_claim(struct engine *engine, struct claim *claim);
void claims_session_ends(struct session *session); /* no handle of it is left */

/* For the parts of a claim's life that have files of their own. */
/* True: the answer is nobody's any more. What a session that has ended leaves open is taken up by
 * claims_session_ends(). */
bool claim_is_over(struct zoo_claim *part);
void claim_fail(struct zoo_claim *part, const struct stile_error *err);
void claim_fail_by(struct zoo_claim *part, int rc, bool maybe);
/* Its place is gone, with its node: by the end of the session, or by somebody's hand. */
void claim_start_over(struct zoo_claim *part);
void claim_forget(struct zoo_claim *part);
void claim_unwatch(struct zoo_claim *part);
void claim_introduce(char data[INFO_MAX], struct zoo_claim *part);
void claim_set_clock(struct zoo_claim *part, int64_t server_ms);
void claim_again_later(struct zoo_claim *part, void (*fn)(struct timer *timer));

/* ---- standing.c ---- */

/* What is in its way, by this listing: nothing, and it holds; else it waits, or is turned away. */
void standing_weigh(struct zoo_claim *part, const struct answer *answer);
/* watched: who comes or goes is told, too. False: out of memory. */
bool standing_list(struct zoo_claim *part, bool watched, ask_fn *fn);
void standing_look(struct zoo_claim *part);
void standing_look_again(struct timer *timer);
void standing_watch(struct zoo_claim *part, const char *node); /* looks again when that has gone */
void standing_wait_for_change(struct zoo_claim *part);         /* when anybody comes or goes */

/* ---- records.c ---- */

struct record {
    int64_t hold_ms, delay_ms;
    uint64_t token;
    int64_t pid;
    const char *host, *command;
};

/* The GUID in a record's name; NULL: the node is none. */
const char *record_guid(enum stile_mode *mode, const char *node);
bool record_is_orphan(const struct line *line, const char *guid); /* its claim has gone */
void path_of_record(char path[PATH_ROOM], const struct zoo *zoo, const struct claim *claim,
                    const char *guid);
void record_write(char data[INFO_MAX], const struct zoo *zoo, const struct record *record);
bool record_read(struct record *record, char *data); /* cuts it up in place */
/* Nobody has written down yet that its holder is gone. */
bool record_is_unmarked(const struct record *record, const struct jute_stat *stat);
/* Until when it keeps the name if its holder is gone; all of the server's clock. */
int64_t record_until(const struct record *record, const struct jute_stat *stat, int64_t now_ms);

/* ---- ghosts.c ---- */

/* It is the first in line but for slots others have: false if no ghost is in its way. */
bool ghosts_meet(struct zoo_claim *part, const struct line *line,
                 const struct jute_strings *children, size_t slots);
void ghosts_forget(struct zoo_claim *part);
ask_fn ghosts_cleared; /* of a record that was asked to be removed or changed */

/* ---- legacy.c ---- */

bool legacy_wanted(struct zoo_claim *part);
void legacy_arm(struct zoo_claim *part); /* looks again when its record is there */
void legacy_drop(struct zoo_claim *part);
/* Its record is removed, or left as it should be. If recorded is still set, fn hears of it. False:
 * out of memory. */
bool legacy_leave(struct zoo_claim *part, ask_fn *fn);
void legacy_close(struct zoo *zoo);

/* ---- holding.c ---- */

void holding_begin(struct zoo_claim *part);
void holding_unfresh(struct zoo_claim *part);
void holding_watch_fresh(struct timer *timer);

/* ---- release.c ---- */

void claims_release(struct engine *engine, struct claim *claim);
void release_answered(struct zoo_claim *part); /* what was in flight is not any more */
void release_session_ended(struct zoo_claim *part);
void claim_withdraw(struct zoo_claim *part); /* tried once; ends in busy(), or if it is refused in
                                              * failed() */

/* ---- doctor.c ---- */

void doctor_examine(struct engine *engine, struct query *query);
void doctor_close(struct zoo *zoo);
void doctor_forked(struct zoo *zoo);

/* ---- hosts.c ---- */

struct zoo_host {
    char name[256];
    uint16_t port;
    char where[300]; /* for people */
};

enum stile_status hosts_read(struct zoo *zoo, const struct url *url, struct stile_error *err);

/* ---- people.c ---- */

void people_list(struct engine *engine, struct query *query);
void people_show(struct engine *engine, struct query *query);
void people_break(struct engine *engine, struct query *query);
void people_watch(struct engine *engine, struct query *query);
void people_unwatch(struct engine *engine, struct query *query);

/* ---- zookeeper.c ---- */

struct zoo {
    struct engine engine;
    enum dialect dialect;
    char base[BASE_MAX + 1]; /* "" or "/path" */
    long pid;                /* these three for people */
    char host[SELF_HOST_MAX + 1];
    char command[INFO_MAX / 2];
    struct zoo_host *hosts;
    size_t n_hosts;
    struct tls_context *tls; /* NULL: plain */
    char *credentials;       /* "user:password" or NULL: then nodes are everybody's */
    struct jute_writer writer;
    bool closing;
    struct session *sessions;
    struct session *main; /* for people */
    struct zoo_claim *fresh, **fresh_tail;
    struct timer sweep;
    struct burial *burials;
    struct stile_error session_error; /* why the doctor has none */
    struct visit *visits;             /* of the doctor's */
};

static inline struct zoo *zoo_of(struct engine *engine)
{
    return (struct zoo *)engine;
}

static inline struct zoo_claim *part_of(struct claim *claim)
{
    return (struct zoo_claim *)claim->state;
}

static inline struct zoo_claim *part_of_asker(struct asker *asker)
{
    return (struct zoo_claim *)((char *)asker - offsetof(struct zoo_claim, asker));
}

static inline struct zoo_claim *part_of_timer(struct timer *timer)
{
    return (struct zoo_claim *)((char *)timer - offsetof(struct zoo_claim, timer));
}

static inline struct claim *claim_of(struct zoo_claim *part)
{
    return (struct claim *)((char *)part - offsetof(struct claim, state));
}

static inline struct zoo *zoo_of_part(struct zoo_claim *part)
{
    return zoo_of(claim_of(part)->engine);
}

#endif
