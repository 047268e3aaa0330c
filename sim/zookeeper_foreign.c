/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/zookeeper_foreign.h"

#include <inttypes.h>
#include <string.h>

#include "base/container.h"
#include "sim/foreign.h"

#define RETRY_NS   (100 * MS)
#define LAG_MAX_NS (1 * SEC)
#define STRANGERS  3
#define FOREVER_MS 1000000 /* longer than a run */
#define DIGITS     10

struct program;

/* It asks a member to take up its session. */
struct greeting {
    struct greeting *next;
    struct program *program;
};

/* A write that was sent. */
struct asked {
    struct zk_txn *txn; /* NULL: none */
    void (*answered)(struct program *program, const struct zk_txn *txn);
    uint64_t sent_ns;
    bool arrived, done;
};

struct program {
    struct foreign foreign;
    struct zk_member *member;
    unsigned term;         /* of the member when the program turned to it */
    bool connected, valid; /* valid: its session, as answered to the greeting */
    struct greeting *greeting;
    uint64_t connects_ns; /* since when it tries to; 0: it does not */
    int64_t session;      /* 0: none */
    int64_t seen;         /* the latest transaction */
    const char *guid;
    bool creates;        /* its node may exist */
    const char *node;    /* its path; NULL: unknown */
    const char *watched; /* a path; NULL: nothing */
    struct asked write, probe;
    uint64_t beats_ns;            /* when its next probe is due; 0: none is */
    uint64_t proven_ns, heard_ns; /* as in engines/zookeeper/session.h */
};

/* How a dialect names and sorts nodes. */
struct dialect {
    const char *name;
    const char *head, *kinds[2]; /* by mode: exclusive, shared */
    const char *words[2];        /* the text behind orders the nodes */
    bool only_contenders;        /* else every child counts, by its whole name if need be */
    const char *stranger;        /* a kind that is none of its own */
};

static const struct dialect dialects[] = {
    {"curator", "_c_", {"-lock-"}, {"lock-"}, false, "-latch-"},
    {"curator-rw", "_c_", {"-__WRIT__", "-__READ__"}, {"__WRIT__", "__READ__"}, false, "-lock-"},
    {"curator-latch", "_c_", {"-latch-"}, {"latch-"}, false, "-lock-"},
    {"kazoo", "", {"__lock__", "__rlock__"}, {"__lock__", "__rlock__"}, true, "-lock-"},
};

static struct {
    struct zk_ensemble *ensemble;
    const struct dialect *dialect;
    const char *base;
    /* Those of the server. */
    zk_changed_fn *changed;
    void (*applied)(struct zk_member *member, struct zk_txn *txn);
    void (*validated)(struct zk_member *member, void *request, bool valid);
    struct program *programs[FOREIGN_MAX];
    unsigned n;
    struct greeting *greetings; /* all there ever were */
} others;

static struct program *program_of(struct foreign *foreign)
{
    return container_of(foreign, struct program, foreign);
}

static void after(struct program *program, uint64_t ns, foreign_fn *fn)
{
    foreign_at(&program->foreign, world_now() + ns, fn);
}

static void soon(struct program *program, foreign_fn *fn)
{
    after(program, foreign_moment(&program->foreign), fn);
}

/* ---- its connection ---- */

static void connect(struct foreign *foreign);
static void plan_beat(struct program *program);
static void proceed(struct program *program);

/* How long it waits for an answer. */
static uint64_t patience(const struct program *program)
{
    return program->foreign.ttl_ns / 3;
}

static bool serves(const struct program *program)
{
    const struct zk_member *member = program->member;
    return server_runs(member->server) && member->role != ZK_LOOKING &&
           member->term == program->term;
}

static void disconnect(struct program *program)
{
    program->connected = false;
    program->connects_ns = 0;
    program->greeting = NULL;
    program->write.txn = program->probe.txn = NULL;
    program->watched = NULL;
    after(program, RETRY_NS, connect);
}

/* Its session is alive, or new. */
static void begin_connection(struct program *program)
{
    program->proven_ns = program->connects_ns;
    program->connected = true;
    program->connects_ns = program->heard_ns = 0;
    if (program->foreign.state != LEAVING)
        foreign_renewed(&program->foreign, program->proven_ns + program->foreign.ttl_ns);
    plan_beat(program);
    proceed(program);
}

static void end_session(struct program *program)
{
    if (program->foreign.state == LEAVING)
        foreign_left(&program->foreign);
    else
        foreign_lose(&program->foreign);
}

static void take_greeting(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    if (program->greeting == NULL || foreign->state == RESTING)
        return;
    program->greeting = NULL;
    if (program->valid)
        begin_connection(program);
    else
        end_session(program);
}

/* An answer to an attempt that was given up comes too late. */
static void on_validated(struct zk_member *member, void *request, bool valid)
{
    struct greeting *greeting = others.greetings;
    while (greeting != NULL && greeting != request)
        greeting = greeting->next;
    if (greeting == NULL) {
        others.validated(member, request, valid);
    } else if (greeting == greeting->program->greeting) {
        greeting->program->valid = valid;
        soon(greeting->program, take_greeting);
    }
}

/* ---- writing ---- */

static struct zk_txn *new_txn(const struct program *program, enum zk_op_kind kind, const char *path)
{
    struct zk_txn *txn = world_alloc(sizeof *txn);
    txn->session = program->session;
    txn->n = 1;
    txn->ops = world_alloc(sizeof *txn->ops);
    *txn->ops = (struct zk_op){.kind = kind,
                               .path = path,
                               .data = {"", 0},
                               .version = -1,
                               .timeout_ms = (int32_t)(program->foreign.ttl_ns / MS)};
    return txn;
}

static struct zk_txn *new_node(const struct program *program, const char *path,
                               enum jute_create_mode mode)
{
    struct zk_txn *txn = new_txn(program, ZK_OP_CREATE, path);
    txn->ops->mode = (int32_t)mode;
    return txn;
}

/* It changes nothing, and is answered behind all that was asked before. */
static struct zk_txn *new_barrier(const struct program *program)
{
    return new_txn(program, ZK_OP_DELETE, "/%nothing");
}

static void propose(struct program *program, struct zk_txn *txn)
{
    if (program->session != 0)
        zk_member_touch(program->member, program->session, (int32_t)(program->foreign.ttl_ns / MS));
    zk_member_propose(program->member, txn);
}

static void arrive(struct program *program, struct asked *asked)
{
    if (asked->txn == NULL || asked->arrived)
        return;
    asked->arrived = true;
    if (serves(program))
        propose(program, asked->txn);
    else if (!program->member->server->stopped)
        disconnect(program);
}

static void arrive_all(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    arrive(program, &program->write);
    arrive(program, &program->probe);
}

static bool is_overdue(const struct program *program, const struct asked *asked)
{
    return asked->txn != NULL && !asked->done && world_now() >= asked->sent_ns + patience(program);
}

static void look_for_answers(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    if (is_overdue(program, &program->write) || is_overdue(program, &program->probe))
        disconnect(program);
}

static void send(struct program *program, struct asked *asked, struct zk_txn *txn,
                 void (*answered)(struct program *program, const struct zk_txn *txn))
{
    *asked = (struct asked){.txn = txn, .answered = answered, .sent_ns = world_now()};
    soon(program, arrive_all);
    after(program, patience(program), look_for_answers);
}

static void take_answer(struct program *program, struct asked *asked)
{
    const struct zk_txn *txn = asked->txn;
    if (txn == NULL || !asked->done || program->foreign.state == RESTING)
        return;
    asked->txn = NULL;
    if (txn->rc == ZSESSIONEXPIRED)
        end_session(program);
    else if (txn->rc == ZSESSIONMOVED)
        disconnect(program);
    else
        asked->answered(program, txn);
}

static void take_answers(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    take_answer(program, &program->probe);
    take_answer(program, &program->write);
}

static void on_applied(struct zk_member *member, struct zk_txn *txn)
{
    others.applied(member, txn);
    for (unsigned i = 0; i < others.n; i++) {
        struct program *program = others.programs[i];
        bool written = txn == program->write.txn, probed = txn == program->probe.txn;
        if (member != program->member || (!written && !probed))
            continue;
        program->write.done |= written;
        program->probe.done |= probed;
        program->seen = txn->zxid;
        soon(program, take_answers);
    }
}

/* ---- its session ---- */

/* At least half a tick: the time in which the leader hears of it from a follower. */
static uint64_t lag(const struct program *program)
{
    uint64_t ns = program->foreign.ttl_ns / 4;
    return ns < LAG_MAX_NS ? ns : LAG_MAX_NS;
}

/* A second answer proves what was sent before the first. */
static void take_proof(struct program *program, const struct zk_txn *txn)
{
    (void)txn;
    if (program->heard_ns > program->proven_ns)
        program->proven_ns = program->heard_ns;
    program->heard_ns = program->probe.sent_ns;
    foreign_renewed(&program->foreign, program->proven_ns + program->foreign.ttl_ns);
    plan_beat(program);
}

static void beat(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    if (foreign->state == LEAVING || !program->connected || program->beats_ns == 0 ||
        world_now() < program->beats_ns)
        return;
    program->beats_ns = 0;
    send(program, &program->probe, new_barrier(program), take_proof);
}

static void plan_beat(struct program *program)
{
    program->beats_ns = world_now() + lag(program);
    after(program, lag(program), beat);
}

static void take_session(struct program *program, const struct zk_txn *txn)
{
    program->session = txn->session;
    begin_connection(program);
}

static void open_session(struct program *program)
{
    struct zk_txn *txn = new_txn(program, ZK_OP_OPEN_SESSION, NULL);
    txn->session = (int64_t)(program->member->number + 1) << 56 |
                   (int64_t)(random_next(&program->foreign.random) >> 9);
    program->write = (struct asked){
        .txn = txn, .answered = take_session, .sent_ns = world_now(), .arrived = true};
    propose(program, txn);
}

static void take_up_session(struct program *program)
{
    struct greeting *greeting = world_alloc(sizeof *greeting);
    *greeting = (struct greeting){others.greetings, program};
    others.greetings = program->greeting = greeting;
    zk_member_validate(program->member, greeting, program->session,
                       (int32_t)(program->foreign.ttl_ns / MS));
}

static void greet(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    if (program->connects_ns == 0 || !serves(program))
        return;
    if (program->session == 0)
        open_session(program);
    else
        take_up_session(program);
}

static void look_for_greeting(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    if (program->connects_ns != 0 && world_now() >= program->connects_ns + patience(program))
        disconnect(program);
}

static struct zk_member *next_member(const struct program *program)
{
    struct zk_ensemble *ensemble = others.ensemble;
    return &ensemble->members[(program->member->number + 1) % ensemble->n];
}

/* A server that is behind what it has seen refuses it, and so does one without a leader. */
static void connect(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    if (program->connected || program->connects_ns != 0)
        return;
    program->member = next_member(program);
    program->term = program->member->term;
    if (program->member->server->down || program->member->role == ZK_LOOKING ||
        program->seen > program->member->tree.zxid) {
        after(program, RETRY_NS, connect);
        return;
    }
    program->connects_ns = world_now();
    soon(program, greet);
    after(program, patience(program), look_for_greeting);
}

/* ---- the queue ---- */

static const char *path_of(const struct program *program)
{
    return world_print("%s/%s", others.base, program->foreign.name);
}

/* NULL: the node is no contender. */
static const char *order_of(const char *node)
{
    for (size_t i = 0; i < 2 && others.dialect->words[i] != NULL; i++) {
        const char *word = others.dialect->words[i], *found = NULL;
        for (const char *at = node; (at = strstr(at, word)) != NULL;)
            found = at += strlen(word);
        if (found != NULL && (!others.dialect->only_contenders || strlen(found) == DIGITS))
            return found;
    }
    return others.dialect->only_contenders ? NULL : node;
}

static bool is_in_the_way(const struct program *program, const char *node)
{
    return program->foreign.mode == STILE_EXCLUSIVE ||
           strstr(node, others.dialect->words[STILE_SHARED]) == NULL;
}

static struct zk_node *parent_of(const struct program *program)
{
    return zk_tree_find(&program->member->tree, path_of(program));
}

/* The last node before its own that excludes it; NULL: there is none. */
static const struct zk_node *find_before(const struct program *program, const struct zk_node *own)
{
    const struct zk_node *last = NULL;
    for (const struct zk_node *each = own->parent->first; each != NULL; each = each->next) {
        const char *order = order_of(each->name);
        if (order == NULL || strcmp(order, order_of(own->name)) >= 0 ||
            !is_in_the_way(program, each->name))
            continue;
        if (last == NULL || strcmp(order, order_of(last->name)) > 0)
            last = each;
    }
    return last;
}

/* The listing and its watch are one step. */
static void judge_place(struct program *program, const struct zk_node *own)
{
    const struct zk_node *last = find_before(program, own);
    if (last == NULL) {
        foreign_granted(&program->foreign, (uint64_t)own->stat.czxid);
        program->watched = program->node;
    } else if (!program->foreign.waits) {
        foreign_turn_away(&program->foreign);
    } else {
        program->watched = zk_node_path(last);
    }
}

static void look(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    if (!program->connected || program->node == NULL ||
        (foreign->state != ENTERING && foreign->state != HOLDING))
        return;
    if (!serves(program)) {
        after(program, RETRY_NS, look);
        return;
    }
    const struct zk_node *own = zk_tree_find(&program->member->tree, program->node);
    if (program->seen < program->member->tree.zxid)
        program->seen = program->member->tree.zxid;
    if (own == NULL)
        foreign_lose(foreign);
    else if (foreign->state == HOLDING)
        program->watched = program->node;
    else
        judge_place(program, own);
}

static void on_changed(void *data, enum jute_event type, const char *path)
{
    others.changed(data, type, path);
    for (unsigned i = 0; i < others.n && type == JUTE_EVENT_DELETED; i++) {
        struct program *program = others.programs[i];
        if (program->member != data || program->watched == NULL ||
            strcmp(program->watched, path) != 0)
            continue;
        program->watched = NULL;
        soon(program, look);
    }
}

/* ---- its node ---- */

static void create(struct program *program);

static void make_parents(struct program *program)
{
    char *path = world_print("%s/", path_of(program));
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        propose(program, new_node(program, world_print("%s", path), JUTE_CONTAINER));
        *slash = '/';
    }
}

static void take_node(struct program *program, const char *path)
{
    program->node = path;
    foreign_queued(&program->foreign);
    look(&program->foreign);
}

static void take_created(struct program *program, const struct zk_txn *txn)
{
    if (txn->rc == ZOK) {
        take_node(program, txn->ops->path);
    } else {
        make_parents(program);
        create(program);
    }
}

static void create(struct program *program)
{
    const struct dialect *dialect = others.dialect;
    const char *path = world_print("%s/%s%s%s", path_of(program), dialect->head, program->guid,
                                   dialect->kinds[program->foreign.mode]);
    program->creates = true;
    send(program, &program->write, new_node(program, path, JUTE_EPHEMERAL_SEQUENTIAL),
         take_created);
}

/* It may have been created by a request that was not answered. */
static void recover(struct program *program, const struct zk_txn *txn)
{
    const struct zk_node *parent = parent_of(program),
                         *each = parent != NULL ? parent->first : NULL;
    const char *kind = others.dialect->kinds[program->foreign.mode];
    (void)txn;
    while (each != NULL &&
           (strstr(each->name, program->guid) == NULL || strstr(each->name, kind) == NULL))
        each = each->next;
    if (each != NULL)
        take_node(program, zk_node_path(each));
    else
        create(program);
}

static void take_closed(struct program *program, const struct zk_txn *txn)
{
    (void)txn;
    foreign_left(&program->foreign);
}

static void take_deleted(struct program *program, const struct zk_txn *txn)
{
    propose(program, new_txn(program, ZK_OP_CLOSE_SESSION, NULL));
    take_closed(program, txn);
}

static void leave(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    program->watched = NULL;
    program->probe.txn = NULL;
    if (program->session == 0)
        foreign_left(foreign);
    else if (program->connected && program->node != NULL)
        send(program, &program->write, new_txn(program, ZK_OP_DELETE, program->node), take_deleted);
    else if (program->connected)
        send(program, &program->write, new_txn(program, ZK_OP_CLOSE_SESSION, NULL), take_closed);
}

/* It has a connection, and goes on where it was. */
static void proceed(struct program *program)
{
    if (program->foreign.state == LEAVING)
        leave(&program->foreign);
    else if (program->node != NULL)
        look(&program->foreign);
    else if (program->creates)
        send(program, &program->write, new_barrier(program), recover);
    else
        create(program);
}

static const char *new_guid(struct random *random)
{
    uint64_t a = random_next(random), b = random_next(random);
    if (others.dialect->only_contenders)
        return world_print("%016" PRIx64 "%016" PRIx64, a, b);
    return world_print("%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%012" PRIx64,
                       a >> 32, a >> 16 & 0xffff, a & 0xffff, b >> 48, b & 0xffffffffffff);
}

static void enter(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    *program = (struct program){.foreign = *foreign, .member = program->member};
    program->guid = new_guid(&foreign->random);
    connect(foreign);
}

static const struct foreign_class class = {.enter = enter, .leave = leave, .ignores_holds = true};
static const struct foreign_class class_with_readers = {
    .enter = enter, .leave = leave, .readers = true, .ignores_holds = true};

/* ---- what is no contender ---- */

/* A lock of another dialect, whose session does not end, and plain data. */
static void add_stranger(void *data)
{
    struct program *stranger = data;
    struct zk_member *leader = zk_ensemble_leader(others.ensemble);
    if (leader == NULL)
        return;
    stranger->member = leader;
    stranger->session = (int64_t)(random_next(&stranger->foreign.random) >> 9);
    zk_member_propose(leader, new_txn(stranger, ZK_OP_OPEN_SESSION, NULL));
    make_parents(stranger);
    const char *path = path_of(stranger);
    propose(stranger, new_node(stranger, world_print("%s/config", path), JUTE_PERSISTENT));
    propose(stranger, new_node(stranger,
                               world_print("%s/_c_%s%s", path, new_guid(&stranger->foreign.random),
                                           others.dialect->stranger),
                               JUTE_EPHEMERAL_SEQUENTIAL));
}

static void plan_strangers(uint64_t end_ns, struct random *random)
{
    for (uint64_t i = random_below(random, STRANGERS); i > 0; i--) {
        struct program *stranger = world_alloc(sizeof *stranger);
        stranger->foreign.name = random_once_in(random, 4) ? "y" : "x";
        stranger->foreign.ttl_ns = FOREVER_MS * MS;
        stranger->foreign.random.state = random_next(random);
        world_at(random_below(random, end_ns / 2), add_stranger, stranger);
    }
}

/* ---- all of them ---- */

static struct foreign *make(void)
{
    struct program *program = world_alloc(sizeof *program);
    program->member = &others.ensemble->members[others.n % others.ensemble->n];
    others.programs[others.n++] = program;
    return &program->foreign;
}

void zk_foreign_begin(struct zk_ensemble *ensemble, const char *dialect, const char *base,
                      uint64_t end_ns, struct random *random)
{
    others.ensemble = ensemble;
    others.base = base;
    others.n = 0;
    others.greetings = NULL;
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++) {
        if (strcmp(dialects[i].name, dialect) == 0)
            others.dialect = &dialects[i];
    }
    others.changed = ensemble->changed;
    others.applied = ensemble->applied;
    others.validated = ensemble->validated;
    ensemble->changed = on_changed;
    ensemble->applied = on_applied;
    ensemble->validated = on_validated;
    foreign_begin(others.dialect->kinds[STILE_SHARED] != NULL ? &class_with_readers : &class,
                  end_ns, random, make);
    plan_strangers(end_ns, random);
}
