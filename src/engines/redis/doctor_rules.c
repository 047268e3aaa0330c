/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a server's answers mean for locks: the rules of `stile doctor`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redis/doctor_probe.h"
#include "engines/redis/errors.h"
#include "engines/redis/redis.h"

struct doctor_facts {
    const struct probe *v;
    size_t n; /* primaries of a Cluster */
};

/* "name:value" of INFO, in the rule's field. */
static bool info_says(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    char name[40];
    const char *field = draft->rule->field, *value = strchr(field, ':');
    snprintf(name, sizeof name, "%.*s", (int)(value - field), field);
    return redis_probe_is(facts->v, name, value + 1);
}

static void put_field(struct doctor_draft *draft, const struct probe *v, const char *name)
{
    const char *value;
    int len = (int)redis_probe_field(&value, v, name);
    doctor_put(draft, "%.*s", len, value);
}

/* ---- the ACL ---- */

/* The rule's column is the place of the error in the probe. */
static bool is_denied(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct stile_error *error = (const void *)((const char *)facts->v + draft->rule->column);
    doctor_put(draft, "%s", error->message);
    return redis_error_is_denial(error);
}

/* A prefix with a quote would need another one around it. */
static bool lacks_keys(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct probe *v = facts->v;
    doctor_put(draft, "%s", v->own_keys.error.message);
    doctor_put(draft, strchr(v->prefix, '\'') ? "" : "ACL SETUSER NAME '~%s*' '~{%s*'%s", v->prefix,
               v->prefix, v->shares_counter ? " '~stile:*'" : "");
    return v->scripts.known && redis_error_is_denial(&v->own_keys.error);
}

/* "+del +set" of "del set"; the rule's column is their place in the probe. */
static bool lacks_commands(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const char *denied = (const char *)facts->v + draft->rule->column;
    char rights[2 * PROBE_DENIED_SIZE] = "";
    size_t n = 0;
    for (const char *name = denied; *name; name++) {
        rights[n++] = *name;
        if (*name == ' ')
            rights[n++] = '+';
    }
    doctor_put(draft, "%s", denied);
    doctor_put(draft, "+%s", rights);
    return *denied;
}

static bool lacks_messages(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct stile_error *publish = &facts->v->messages.error;
    const struct stile_error *error =
        redis_error_is_denial(publish) ? publish : &facts->v->listening.error;
    doctor_put(draft, "%s", error->message);
    doctor_put(draft, "%s",
               strstr(error->message, "channel") ? "'&stile:*'" : "+publish +subscribe");
    return redis_error_is_denial(error);
}

#define KEPT         "NAME is the user of the URL; ACL SAVE keeps it, where there is an ACL file."
#define ERROR(which) .column = offsetof(struct probe, which)

static const struct doctor_rule acl_rules[] = {
    {"info", STILE_DANGER, is_denied, ERROR(info_error),
     .what = "does not let this user call INFO: $1",
     .why = "stile can't check its persistence, memory and replicas, so it refuses the server.",
     .cure = KEPT, .command = "ACL SETUSER NAME +info"},
    {"scripts", STILE_DANGER, is_denied, ERROR(scripts.error),
     .what = "does not let this user run scripts: $1",
     .why = "Every step of a lock is a script: nothing can be locked.", .cure = KEPT,
     .command = "ACL SETUSER NAME +eval +evalsha"},
    {"keys", STILE_DANGER, lacks_keys,
     .what = "does not let this user access all keys of a lock: $1",
     .why = "The token and the queue of a name are kept beside its key: without them nothing can "
            "be locked.",
     .cure = KEPT, .command = "$2"},
    {"commands", STILE_DANGER, lacks_commands, ERROR(denied),
     .what = "its ACL does not let this user call $1",
     .why = "Every step of a lock is a script, and a script may only call what its user may.",
     .cure = KEPT, .command = "ACL SETUSER NAME $2"},
    {"cell-commands", STILE_NOTE, lacks_commands, ERROR(denied_to_cells),
     .what = "its ACL does not let this user call $1",
     .why =
         "Locks do not need them, but stile cell, guard, once, elect --proclaim, pace and crdt do.",
     .cure = KEPT, .command = "ACL SETUSER NAME $2"},
    {"messages", STILE_DANGER, lacks_messages,
     .what = "does not let this user publish and subscribe: $1",
     .why = "Waiters are woken by messages; without them none would wake.", .cure = KEPT,
     .command = "ACL SETUSER NAME $2"},
    {"wait", STILE_DANGER, is_denied, ERROR(waits.error),
     .what = "does not let this user wait for replicas: $1",
     .why = "wait_replicas= asks for it after each grant: every claim would fail.", .cure = KEPT,
     .command = "ACL SETUSER NAME +wait"},
    {"config", STILE_WARNING, is_denied, ERROR(appendfsync.error),
     .what = "does not let this user read its configuration: $1",
     .why = "Whether a grant is on disk before it is answered depends on appendfsync, which can't "
            "be read.",
     .cure = "Or check it yourself: CONFIG GET appendfsync must return always.",
     .command = "ACL SETUSER NAME '+config|get'"},
    {0},
};

/* ---- persistence ---- */

/* Of the profiles; the TTLs in use before a restart are unknown. */
#define LONGEST_USUAL_LEASE_MS 30000

static bool appends(const struct probe *v)
{
    return redis_probe_is(v, "aof_enabled", "1");
}

static bool keeps_nothing(const struct probe *v)
{
    return !appends(v) && v->save.known && !*v->save.text;
}

/* The rule's column is the role that it is for. */
DOCTOR_WHEN(is_in_memory, keeps_nothing(facts->v) && facts->v->role == draft->rule->column)
DOCTOR_WHEN(is_plain_node, facts->v->role == PROBE_PLAIN_NODE)
DOCTOR_WHEN(writes_snapshots, !appends(facts->v) && !keeps_nothing(facts->v))

static bool syncs_late(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct probe_word *sync = &facts->v->appendfsync;
    doctor_put(draft, "%s",
               strcmp(sync->text, "everysec") == 0 ? "once a second" : "when the kernel decides");
    doctor_put(draft, "%s", sync->text);
    return appends(facts->v) && sync->known && strcmp(sync->text, "always") != 0;
}

DOCTOR_WHEN(pauses_sync, redis_probe_is_durable(facts->v) &&
                             strcmp(facts->v->no_fsync_on_rewrite.text, "yes") == 0)

/* Only data that is configured to be on disk survives a restart. redlock itself reports a node that
 * has forgotten everything. */
static bool has_restarted(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct probe *v = facts->v;
    long long up_ms = redis_probe_number(v, "uptime_in_seconds") * 1000;
    bool seen = v->lease_ms > LONGEST_USUAL_LEASE_MS;
    long long lease_ms = seen ? v->lease_ms : LONGEST_USUAL_LEASE_MS;
    doctor_put(draft, "%lld", up_ms / 1000);
    doctor_put(draft, "%lld", lease_ms / 1000);
    doctor_put(draft, "%s",
               seen ? "which one of its locks has now" : "the longest that a profile has");
    doctor_put(draft, "%lld", (lease_ms - up_ms + 999) / 1000);
    return up_ms >= 0 && up_ms < lease_ms && !redis_probe_is_durable(v) &&
           !(v->role == PROBE_FENCED_NODE && keeps_nothing(v));
}

/* ---- memory and clients ---- */

/* LPOS, and SCAN by type. */
#define OLDEST_VERSION "6.0.6"
#define CLOCK_FAR_MS   2000
#define NEARLY_FULL    9 / 10
#define MB             (1 << 20)

static bool would_evict(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    put_field(draft, facts->v, "maxmemory_policy");
    return *draft->values[0] && strcmp(draft->values[0], "noeviction") != 0;
}

DOCTOR_WHEN(has_a_limit, redis_probe_number(facts->v, "maxmemory") > 0)

static bool is_nearly_full(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    long long most = redis_probe_number(facts->v, "maxmemory");
    long long used = redis_probe_number(facts->v, "used_memory");
    doctor_put(draft, "%.1f", (double)used / MB);
    doctor_put(draft, "%.1f", (double)most / MB);
    doctor_put(draft, "%lld", 2 * (used > most ? used : most));
    return most > 0 && used >= most * NEARLY_FULL;
}

static bool has_many_clients(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    long long most = redis_probe_number(facts->v, "maxclients");
    long long now = redis_probe_number(facts->v, "connected_clients");
    doctor_put(draft, "%lld", now);
    doctor_put(draft, "%lld", most);
    doctor_put(draft, "%lld", 2 * most);
    return most > 0 && now >= most * NEARLY_FULL;
}

/* ---- replicas ---- */

DOCTOR_WHEN(is_active_replica, strcmp(facts->v->active_replica.text, "yes") == 0 ||
                                   redis_probe_is(facts->v, "role", "active-replica"))

static bool is_replica(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    put_field(draft, facts->v, "master_host");
    put_field(draft, facts->v, "master_port");
    return redis_probe_is(facts->v, "role", "slave");
}

static bool has_replicas(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct probe *v = facts->v;
    long long n = redis_probe_number(v, "connected_slaves");
    doctor_put(draft, "%lld", n);
    doctor_put(draft, "%s", n == 1 ? "replica" : "replicas");
    if (v->sentinels > 0)
        doctor_put(draft, ", and %lld Sentinel%s to fail over to %s", v->sentinels,
                   v->sentinels == 1 ? "" : "s", n == 1 ? "it" : "them");
    else
        doctor_put(draft, "%s", "");
    return n > 0 && !redis_probe_is(v, "role", "slave");
}

DOCTOR_WHEN(waits_for_all,
            facts->v->wait_replicas > 0 &&
                facts->v->wait_replicas >= redis_probe_number(facts->v, "connected_slaves"))
DOCTOR_WHEN(is_server, facts->v->role == PROBE_SERVER)

static bool lacks_replicas(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    long long n = redis_probe_number(facts->v, "connected_slaves");
    doctor_put(draft, "%lld", n);
    doctor_put(draft, "%u", facts->v->wait_replicas);
    return n >= 0 && facts->v->wait_replicas > n && redis_probe_is(facts->v, "role", "master");
}

DOCTOR_WHEN(is_cluster_down, facts->v->cluster_is_down)

/* ---- version and clock ---- */

static bool is_older(const char *version, const char *than)
{
    for (int i = 0; i < 3; i++) {
        char *end, *than_end;
        long a = strtol(version, &end, 10), b = strtol(than, &than_end, 10);
        if (a != b)
            return a < b;
        version = end + (*end == '.');
        than = than_end + (*than_end == '.');
    }
    return false;
}

static bool is_too_old(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    put_field(draft, facts->v, "redis_version");
    return *draft->values[0] && is_older(draft->values[0], OLDEST_VERSION);
}

static bool has_clock_off(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct probe *v = facts->v;
    doctor_put(draft, "%lld", (llabs(v->ahead_ms) + 500) / 1000);
    doctor_put(draft, "%s", v->ahead_ms > 0 ? "ahead of" : "behind");
    return v->role == PROBE_SERVER && v->clock.known && llabs(v->ahead_ms) >= CLOCK_FAR_MS;
}

static bool note_what_is_fine(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct probe *v = facts->v;
    bool keeps =
        redis_probe_is(v, "maxmemory", "0") || redis_probe_is(v, "maxmemory_policy", "noeviction");
    put_field(draft, v, "redis_version");
    doctor_put(draft, "%s%s%s", redis_probe_is_durable(v) ? ", on disk before it answers" : "",
               keeps ? ", evicts nothing" : "",
               redis_probe_is(v, "connected_slaves", "0") ? ", no replicas" : "");
    return true;
}

/* ---- the rules ---- */

#define MEMORY      "keeps its data in memory only (appendonly no, save \"\")"
#define SNAPSHOTS   "writes snapshots at times and nothing in between (appendonly no)"
#define APPEND      "CONFIG SET appendfsync always\nCONFIG SET appendonly yes"
#define NO_EVICTION "CONFIG SET maxmemory-policy noeviction"
#define CRASH                                                                                      \
    "After a crash or a restart locks are free while their holders still rely on them, and "       \
    "tokens are given out a second time, so that no guard can distinguish old holders from new "   \
    "ones."
#define VOTES_TWICE                                                                                \
    "After a restart it votes again for what is held, and its vote can make a second holder."
#define FAILOVER                                                                                   \
    "Replication is asynchronous: a failover to a replica without the latest grants forgets "      \
    "them, and repeats their tokens."

static const struct doctor_rule server_rules[] = {
    {"persistence", STILE_DANGER, is_in_memory, .column = PROBE_SERVER, .what = MEMORY,
     .why = CRASH, .command = APPEND},
    {"persistence", STILE_WARNING, is_in_memory, .column = PROBE_FENCED_NODE, .what = MEMORY,
     .why = "After a restart it has lost its data, and does not count until stile doctor --adopt "
            "takes it back. Should a majority restart, no more tokens can be given.",
     .command = APPEND},
    {"persistence", STILE_WARNING, is_in_memory, .column = PROBE_PLAIN_NODE, .what = MEMORY,
     .why = VOTES_TWICE, .command = APPEND},
    {"persistence", STILE_DANGER, writes_snapshots, .unless = is_plain_node, .what = SNAPSHOTS,
     .why = CRASH, .command = APPEND},
    {"persistence", STILE_WARNING, writes_snapshots, .also = is_plain_node, .what = SNAPSHOTS,
     .why = VOTES_TWICE, .command = APPEND},
    {"disk", STILE_DANGER, info_says, .field = "aof_last_write_status:err",
     .what = "cannot write to its append-only file", .why = CRASH,
     .cure = "See the server's log and the free space and permissions of its directory.",
     .command = "CONFIG GET dir"},
    {"appendfsync", STILE_WARNING, syncs_late,
     .what = "syncs its append-only file $1 (appendfsync $2)",
     .why = "A power cut loses the grants since the last sync: a lock may get a second holder, "
            "with the same token.",
     .command = "CONFIG SET appendfsync always"},
    {"no-appendfsync-on-rewrite", STILE_WARNING, pauses_sync,
     .what = "stops syncing at times (no-appendfsync-on-rewrite yes)",
     .why = "While the append-only file is rewritten nothing is synced, whatever appendfsync says: "
            "a power cut then loses the grants made meanwhile.",
     .command = "CONFIG SET no-appendfsync-on-rewrite no"},
    {"restarted", STILE_WARNING, has_restarted,
     .what = "was started $1 s ago, less than the longest lease: $2 s, $3",
     .why = "What it has forgotten may be granted again while a holder from before still relies on "
            "it, for as long as its TTL.",
     .cure = "Wait for $4 s more before you rely on it."},

    {"eviction", STILE_DANGER, would_evict, .also = has_a_limit,
     .what = "evicts keys when its memory is full (maxmemory-policy $1)",
     .why =
         "When its memory is full it evicts locks that are held, their tokens and, if the policy "
         "covers all keys, guards: an old token passes again. stile refuses such a server "
         "(allow=eviction in the URL overrides that).",
     .command = NO_EVICTION},
    {"eviction", STILE_NOTE, would_evict, .unless = has_a_limit,
     .what = "would evict keys if maxmemory were set (maxmemory-policy $1)",
     .why = "Once maxmemory is set, locks that are held, and guards, may be evicted.",
     .command = NO_EVICTION},
    {"memory", STILE_WARNING, is_nearly_full, .what = "has used $1 of $2 MB of memory",
     .why = "Without memory it refuses new claims; holders can still renew and release.",
     .command = "CONFIG SET maxmemory $3"},
    {"clients", STILE_WARNING, has_many_clients, .what = "has $1 clients and accepts $2",
     .why = "New clients are refused, and a holder that has to reconnect can't renew.",
     .command = "CONFIG SET maxclients $3"},

    {"active-replica", STILE_DANGER, is_active_replica, .what = "is an active replica of KeyDB",
     .why = "Each of several servers takes writes and gets those of the others later: two of them "
            "can grant the same lock. stile refuses a server whose role is active-replica.",
     .cure = "Use a primary with ordinary replicas: active-replica no in keydb.conf."},
    {"replica", STILE_DANGER, is_replica, .what = "is a replica, of $1:$2",
     .why = "Nothing can be locked on a replica; stile refuses it.",
     .cure = "Name the primary in the URL: $1:$2."},
    {"replicas", STILE_NOTE, has_replicas, .also = waits_for_all,
     .what = "has $1 $2$3; each grant waits for them (wait_replicas)", .why = FAILOVER},
    {"replicas", STILE_WARNING, has_replicas, .also = is_server, .unless = waits_for_all,
     .what = "has $1 $2$3", .why = FAILOVER,
     .cure = "Put wait_replicas=$1 into the URL, so that a grant counts once they have it; that "
             "narrows the gap. redlock:// over independent servers closes it."},
    {"replicas", STILE_WARNING, has_replicas, .unless = is_server, .what = "has $1 $2$3",
     .why = FAILOVER,
     .cure = "A node of redlock needs no replica: REPLICAOF NO ONE there, or see to it that it "
             "never takes the node's place."},
    {"wait-replicas", STILE_WARNING, lacks_replicas,
     .what = "has $1 of the $2 replicas that wait_replicas asks for",
     .why = "Every claim fails, since it never reaches that many.",
     .cure = "Connect the replicas again, or lower wait_replicas."},
    {"cluster-down", STILE_DANGER, is_cluster_down, .what = "reports that its Cluster is down",
     .why = "Names in slots without a node can't be locked, and with cluster-require-full-coverage "
            "no others can, either.",
     .cure = "Start the missing nodes, or give their slots to others: redis-cli --cluster fix.",
     .command = "CLUSTER NODES"},

    {"version", STILE_DANGER, is_too_old, .what = "is Redis $1, older than " OLDEST_VERSION,
     .why = "The scripts of a lock use commands that it does not have: claims would fail.",
     .cure = "Install Redis " OLDEST_VERSION " or later."},
    {"loading", STILE_WARNING, info_says, .field = "loading:1", .what = "is loading its data",
     .why = "Until it is done nothing can be locked or renewed.", .cure = "Wait, and ask again."},
    {"clock", STILE_NOTE, has_clock_off, .what = "has a clock that is $1 s $2 ours",
     .why = "Only lengths of time are ever sent to it, so this does no harm as such. Set forward "
            "in one jump, it would end leases early.",
     .cure = "Let NTP slew the clocks of both, and never set them by hand."},
    {"server", STILE_FINE, note_what_is_fine, .what = "Redis $1$2"},
    {0},
};

static const struct doctor_rule sentinel_rules[] = {
    {"sentinel", STILE_DANGER, info_says, .field = "redis_mode:sentinel",
     .what = "is a Sentinel, not a server", .why = "A Sentinel keeps no keys, and so no locks.",
     .cure = "Name it in a redis+sentinel:// URL, with the name of its primary as the path."},
    {0},
};

/* ---- reporting ---- */

static void add_command(char out[DOCTOR_TEXT_MAX], const char *cli, const char *command, size_t len)
{
    size_t n = strlen(out);
    snprintf(out + n, DOCTOR_TEXT_MAX - n, "%s%s %.*s", n ? "\n" : "", cli, (int)len, command);
}

/* A change by CONFIG SET is lost at a restart unless CONFIG REWRITE saves it. */
void redis_rules_report(void *data, const struct stile_finding *rule)
{
    const struct probe *v = data;
    struct stile_finding finding = *rule;
    char commands[DOCTOR_TEXT_MAX] = "";
    const char *file, *command = v->cli ? rule->command : "";
    bool sets = strncmp(command, "CONFIG SET", 10) == 0;
    for (size_t len; *command; command += len + (command[len] == '\n')) {
        len = strcspn(command, "\n");
        add_command(commands, v->cli, command, len);
    }
    if (sets && redis_probe_field(&file, v, "config_file"))
        add_command(commands, v->cli, "CONFIG REWRITE", strlen("CONFIG REWRITE"));
    else if (sets && !*finding.cure)
        finding.cure = "Give it the same setting where it is started: it has no configuration file "
                       "that CONFIG REWRITE could write it to.";
    finding.command = commands;
    doctor_report_to_query(v->visit->query, &finding);
}

static size_t apply(const struct doctor_rule *rules, const struct probe *v, size_t n)
{
    const struct doctor_facts facts = {.v = v, .n = n};
    return doctor_apply(rules, &facts, v->where, redis_rules_report, (void *)v);
}

void redis_rules_judge(const struct probe *v)
{
    if (apply(sentinel_rules, v, 0))
        return;
    if (v->info)
        apply(server_rules, v, 0);
    apply(acl_rules, v, 0);
}

/* ---- the visit ---- */

/* The connection reports after 3 s why there is no answer. */
#define PATIENCE_NS (4 * NS_PER_SEC)

struct visit {
    struct doctor_visit base;
    struct stile_error error; /* why not all servers could be asked */
    size_t n;
    struct visited {
        struct probe probe;
        char *where, *cli;
    } servers[];
};

static struct visit *visit_of(struct doctor_visit *base)
{
    return container_of(base, struct visit, base);
}

static bool note_error(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%s", facts->v->info_error.message);
    return true;
}

static bool note_number(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    draft->where = NULL;
    doctor_put(draft, "%zu", facts->n);
    return true;
}

static const struct doctor_rule is_down[] = {
    {"down", STILE_DANGER, note_error, .what = "does not answer: $1",
     .why = "Names in its slots can't be locked, and their holders lose them at the deadline.",
     .cure = "Start it again, with its data."},
    {0},
};

static const struct doctor_rule is_cluster[] = {
    {"cluster", STILE_NOTE, note_number, .what = "a Redis Cluster with $1 primaries",
     .why = "Each of them keeps a part of the names, and its failover may forget locks and tokens "
            "as any failover may."},
    {0},
};

static const struct doctor_rule is_no_cluster[] = {
    {"no-cluster", STILE_DANGER, info_says, .field = "cluster_enabled:0",
     .what = "is not part of a Redis Cluster",
     .why = "stile refuses it: the URL asks for a Cluster.",
     .cure = "Use redis:// for this server."},
    {0},
};

static void prepare(struct visit *visit, struct redis *redis, struct node *node)
{
    if (visit->error.status || redis_node_connect(node, &visit->error))
        return;
    struct visited *server = &visit->servers[visit->n++];
    const struct conn_options *options = redis_conn_options(node->conn);
    server->where = redis_probe_where(options);
    server->cli = redis_probe_cli(options, redis->cli_flags);
    server->probe = (struct probe){.visit = &visit->base,
                                   .wait_replicas = redis->wait_replicas,
                                   .conn = node->conn,
                                   .where = server->where,
                                   .cli = server->cli,
                                   .prefix = redis->prefix,
                                   .shares_counter = !redis->cluster};
    if (!server->where)
        error_set(&visit->error, STILE_NOMEM, 0, "out of memory");
}

static bool visit_ask(struct doctor_visit *base, unsigned round)
{
    struct visit *visit = visit_of(base);
    struct redis *redis = redis_of(base->query->engine);
    struct node *node = NULL;
    while (round == 0 && (node = redis_route_next(redis, node)))
        prepare(visit, redis, node);
    for (size_t i = 0; !visit->error.status && i < visit->n; i++)
        redis_probe_ask(&visit->servers[i].probe, round);
    return round < PROBE_ROUNDS;
}

static void visit_judge(struct doctor_visit *base, struct stile_error *err)
{
    struct visit *visit = visit_of(base);
    struct redis *redis = redis_of(base->query->engine);
    const struct probe *first = &visit->servers[0].probe;
    if (visit->error.status || (!redis->cluster && !redis_probe_is_up(first))) {
        *err = visit->error.status ? visit->error : first->info_error;
        return;
    }
    for (size_t i = 0; i < visit->n; i++) {
        const struct probe *v = &visit->servers[i].probe;
        if (redis_probe_is_up(v))
            redis_rules_judge(v);
        else
            apply(is_down, v, 0);
    }
    if (redis->cluster)
        apply(is_cluster, first, visit->n);
    else if (redis->clustered)
        apply(is_no_cluster, first, 0);
}

static void visit_leave(struct doctor_visit *base)
{
    struct visit *visit = visit_of(base);
    for (size_t i = 0; i < visit->n; i++) {
        redis_probe_free(&visit->servers[i].probe);
        free(visit->servers[i].where);
        free(visit->servers[i].cli);
    }
}

static void visit_forked(struct doctor_visit *base)
{
    struct visit *visit = visit_of(base);
    for (size_t i = 0; i < visit->n; i++)
        redis_probe_forked(&visit->servers[i].probe);
}

void redis_doctor_examine(struct engine *engine, struct query *query)
{
    static const struct doctor_plan plan = {
        .ask = visit_ask, .judge = visit_judge, .leave = visit_leave, .forked = visit_forked};
    struct redis *redis = redis_of(engine);
    size_t n = 0;
    for (struct node *node = NULL; (node = redis_route_next(redis, node));)
        n++;
    doctor_visit_begin(&plan, sizeof(struct visit) + n * sizeof(struct visited), PATIENCE_NS, query,
                       &redis->visits);
}
