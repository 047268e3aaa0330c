/* What a server's answers mean for locks: the rules of `stile doctor`. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redis/doctor_probe.h"
#include "engines/redis/errors.h"
#include "engines/redis/redis.h"

/* ---- the ACL ---- */

#define KEPT "NAME is the user of the URL; ACL SAVE keeps it, where there is an ACL file."

static const struct rule no_info = {
    .severity = STILE_DANGER,
    .id = "info",
    .why = "stile can't check its persistence, memory and replicas, so it refuses the server.",
    .commands = {"ACL SETUSER NAME +info"},
    .cure = KEPT,
};

static const struct rule no_scripts = {
    .severity = STILE_DANGER,
    .id = "scripts",
    .why = "Every step of a lock is a script: nothing can be locked.",
    .commands = {"ACL SETUSER NAME +eval +evalsha"},
    .cure = KEPT,
};

static const struct rule no_messages = {
    .severity = STILE_DANGER,
    .id = "messages",
    .why = "Waiters are woken by messages; without them none would wake.",
    .commands = {"ACL SETUSER NAME +publish +subscribe"},
    .cure = KEPT,
};

static const struct rule no_channels = {
    .severity = STILE_DANGER,
    .id = "messages",
    .why = "Waiters are woken by messages; without them none would wake.",
    .commands = {"ACL SETUSER NAME '&stile:*'"},
    .cure = KEPT,
};

static const struct rule no_wait = {
    .severity = STILE_DANGER,
    .id = "wait",
    .why = "wait_replicas= asks for it after each grant: every claim would fail.",
    .commands = {"ACL SETUSER NAME +wait"},
    .cure = KEPT,
};

static const struct rule no_config = {
    .severity = STILE_WARNING,
    .id = "config",
    .why = "Whether a grant is on disk before it is answered depends on appendfsync, which can't "
           "be read.",
    .commands = {"ACL SETUSER NAME '+config|get'"},
    .cure = "Or check it yourself: CONFIG GET appendfsync must return always.",
};

/* "+del +set" of "del set". */
static void write_rights(char out[RULE_TEXT], const char *names)
{
    size_t n = (size_t)snprintf(out, RULE_TEXT, "ACL SETUSER NAME +");
    for (; *names && n + 3 < RULE_TEXT; names++) {
        out[n++] = *names;
        if (*names == ' ')
            out[n++] = '+';
    }
    out[n] = '\0';
}

static void judge_commands(struct query *query, const struct probe *v)
{
    char allow[RULE_TEXT];
    if (!*v->denied)
        return;
    write_rights(allow, v->denied);
    redis_rules_report(query, v,
                       &(struct rule){.severity = STILE_DANGER,
                                      .id = "commands",
                                      .why =
                                          "Every step of a lock is a script, and a script may only "
                                          "call what its user may.",
                                      .commands = {allow},
                                      .cure = KEPT},
                       "its ACL does not let this user call %s", v->denied);
}

static void judge_keys(struct query *query, const struct probe *v)
{
    char allow[RULE_TEXT];
    if (!v->scripts.known || !redis_error_is_denial(&v->own_keys.error))
        return;
    snprintf(allow, sizeof allow, "ACL SETUSER NAME '~%s*' '~{%s*'%s", v->prefix, v->prefix,
             v->shares_counter ? " '~stile:*'" : "");
    redis_rules_report(
        query, v,
        &(struct rule){.severity = STILE_DANGER,
                       .id = "keys",
                       .why = "The token and the queue of a name are kept beside its "
                              "key: without them nothing can be locked.",
                       .commands = {strchr(v->prefix, '\'') ? NULL : allow},
                       .cure = KEPT},
        "does not let this user access all keys of a lock: %s", v->own_keys.error.message);
}

static void judge_acl(struct query *query, const struct probe *v)
{
    if (redis_error_is_denial(&v->info_error))
        redis_rules_report(query, v, &no_info, "does not let this user call INFO: %s",
                           v->info_error.message);
    if (redis_error_is_denial(&v->scripts.error))
        redis_rules_report(query, v, &no_scripts, "does not let this user run scripts: %s",
                           v->scripts.error.message);
    judge_keys(query, v);
    judge_commands(query, v);
    const struct stile_error *denied =
        redis_error_is_denial(&v->messages.error) ? &v->messages.error : &v->listening.error;
    if (redis_error_is_denial(denied))
        redis_rules_report(query, v,
                           strstr(denied->message, "channel") ? &no_channels : &no_messages,
                           "does not let this user publish and subscribe: %s", denied->message);
    if (redis_error_is_denial(&v->waits.error))
        redis_rules_report(query, v, &no_wait, "does not let this user wait for replicas: %s",
                           v->waits.error.message);
    if (redis_error_is_denial(&v->appendfsync.error))
        redis_rules_report(query, v, &no_config,
                           "does not let this user read its configuration: %s",
                           v->appendfsync.error.message);
}

/* ---- persistence ---- */

/* Of the profiles; the TTLs in use before a restart are unknown. */
#define LONGEST_USUAL_LEASE_MS 30000

#define CRASH                                                                                      \
    "After a crash or a restart locks are free while their holders still rely on them, and "       \
    "tokens "                                                                                      \
    "are given out a second time, so that no guard can distinguish old holders from new ones."

static const struct rule forgets = {
    .severity = STILE_DANGER,
    .id = "persistence",
    .why = CRASH,
    .commands = {"CONFIG SET appendfsync always", "CONFIG SET appendonly yes"},
};

static const struct rule forgets_all = {
    .severity = STILE_WARNING,
    .id = "persistence",
    .why =
        "After a restart it has lost its data, and does not count until stile doctor --adopt takes "
        "it back. Should a majority restart, no more tokens can be given.",
    .commands = {"CONFIG SET appendfsync always", "CONFIG SET appendonly yes"},
};

static const struct rule votes_twice = {
    .severity = STILE_WARNING,
    .id = "persistence",
    .why =
        "After a restart it votes again for what is held, and its vote can make a second holder.",
    .commands = {"CONFIG SET appendfsync always", "CONFIG SET appendonly yes"},
};

static const struct rule syncs_late = {
    .severity = STILE_WARNING,
    .id = "appendfsync",
    .why = "A power cut loses the grants since the last sync: a lock may get a second "
           "holder, with the same token.",
    .commands = {"CONFIG SET appendfsync always"},
};

static const struct rule pauses_sync = {
    .severity = STILE_WARNING,
    .id = "no-appendfsync-on-rewrite",
    .why =
        "While the append-only file is rewritten nothing is synced, whatever appendfsync says: a "
        "power cut then loses the grants made meanwhile.",
    .commands = {"CONFIG SET no-appendfsync-on-rewrite no"},
};

static const struct rule cannot_write = {
    .severity = STILE_DANGER,
    .id = "disk",
    .why = CRASH,
    .cure = "See the server's log and the free space and permissions of its directory.",
    .commands = {"CONFIG GET dir"},
};

static bool keeps_nothing(const struct probe *v)
{
    return !redis_probe_is(v, "aof_enabled", "1") && v->save.known && !*v->save.text;
}

static void judge_disk(struct query *query, const struct probe *v)
{
    static const struct rule *const in_memory[] = {[PROBE_SERVER] = &forgets,
                                                   [PROBE_FENCED_NODE] = &forgets_all,
                                                   [PROBE_PLAIN_NODE] = &votes_twice};
    bool appends = redis_probe_is(v, "aof_enabled", "1");
    const char *sync = v->appendfsync.text;
    if (keeps_nothing(v))
        redis_rules_report(query, v, in_memory[v->role],
                           "keeps its data in memory only (appendonly no, save \"\")");
    else if (!appends)
        redis_rules_report(query, v, v->role == PROBE_PLAIN_NODE ? &votes_twice : &forgets,
                           "writes snapshots at times and nothing in between (appendonly no)");
    if (redis_probe_is(v, "aof_last_write_status", "err"))
        redis_rules_report(query, v, &cannot_write, "cannot write to its append-only file");
    if (!appends || !v->appendfsync.known)
        return;
    if (strcmp(sync, "always") != 0)
        redis_rules_report(
            query, v, &syncs_late, "syncs its append-only file %s (appendfsync %s)",
            strcmp(sync, "everysec") == 0 ? "once a second" : "when the kernel decides", sync);
    else if (strcmp(v->no_fsync_on_rewrite.text, "yes") == 0)
        redis_rules_report(query, v, &pauses_sync,
                           "stops syncing at times (no-appendfsync-on-rewrite yes)");
}

/* Only data that is configured to be on disk survives a restart. */
static void judge_restart(struct query *query, const struct probe *v)
{
    long long up_ms = redis_probe_number(v, "uptime_in_seconds") * 1000;
    bool seen = v->lease_ms > LONGEST_USUAL_LEASE_MS;
    long long lease_ms = seen ? v->lease_ms : LONGEST_USUAL_LEASE_MS;
    char cure[RULE_TEXT];
    bool reported = v->role == PROBE_FENCED_NODE && keeps_nothing(v); /* redlock reports it */
    if (up_ms < 0 || up_ms >= lease_ms || redis_probe_is_durable(v) || reported)
        return;
    snprintf(cure, sizeof cure, "Wait for %lld s more before you rely on it.",
             (lease_ms - up_ms + 999) / 1000);
    redis_rules_report(
        query, v,
        &(struct rule){
            .severity = STILE_WARNING,
            .id = "restarted",
            .why = "What it has forgotten may be granted again while a holder from before "
                   "still relies on it, for as long as its TTL.",
            .cure = cure,
        },
        "was started %lld s ago, less than the longest lease: %lld s, %s", up_ms / 1000,
        lease_ms / 1000,
        seen ? "which one of its locks has now" : "the longest that a profile has");
}

static void judge_persistence(struct query *query, const struct probe *v)
{
    judge_disk(query, v);
    judge_restart(query, v);
}

/* ---- the rules ---- */

/* LPOS, and SCAN by type. */
#define OLDEST_VERSION "6.0.6"
#define CLOCK_FAR_MS   2000
#define NEARLY_FULL    9 / 10
#define MB             (1 << 20)

/* ---- reporting ---- */

static void add_command(char out[2 * RULE_TEXT], const char *cli, const char *command)
{
    size_t n = strlen(out);
    snprintf(out + n, 2 * RULE_TEXT - n, "%s%s %s", n ? "\n" : "", cli, command);
}

/* A change by CONFIG SET is lost at a restart unless CONFIG REWRITE saves it. */
static const char *write_commands(char out[2 * RULE_TEXT], const struct probe *v,
                                  const struct rule *rule)
{
    const char *const *command = rule->commands;
    const char *file;
    out[0] = '\0';
    if (!v->cli)
        return out;
    for (; *command; command++)
        add_command(out, v->cli, *command);
    if (command != rule->commands && strncmp(command[-1], "CONFIG SET", 10) == 0 &&
        redis_probe_field(&file, v, "config_file"))
        add_command(out, v->cli, "CONFIG REWRITE");
    return out;
}

void redis_rules_report(struct query *query, const struct probe *v, const struct rule *rule,
                        const char *format, ...)
{
    char what[RULE_TEXT], command[2 * RULE_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    struct stile_finding finding = {
        .severity = rule->severity,
        .id = rule->id,
        .where = v->where,
        .what = what,
        .why = rule->why,
        .cure = rule->cure,
        .command = write_commands(command, v, rule),
    };
    bool set = strstr(command, "CONFIG SET") != NULL;
    if (set && !strstr(command, "CONFIG REWRITE") && !finding.cure)
        finding.cure = "Give it the same setting where it is started: it has no configuration file "
                       "that CONFIG REWRITE could write it to.";
    query->engine->events->finding(query, &finding);
}

/* ---- memory and clients ---- */

static const struct rule evicts = {
    .severity = STILE_DANGER,
    .id = "eviction",
    .why = "When its memory is full it evicts locks that are held, and their tokens. stile "
           "refuses such a server (allow=eviction in the URL overrides that).",
    .commands = {"CONFIG SET maxmemory-policy noeviction"},
};

static const struct rule would_evict = {
    .severity = STILE_NOTE,
    .id = "eviction",
    .why = "Once maxmemory is set, locks that are held may be evicted.",
    .commands = {"CONFIG SET maxmemory-policy noeviction"},
};

static void judge_memory(struct query *query, const struct probe *v)
{
    long long most = redis_probe_number(v, "maxmemory"),
              used = redis_probe_number(v, "used_memory");
    const char *policy;
    int len = (int)redis_probe_field(&policy, v, "maxmemory_policy");
    char raise[64];
    if (len > 0 && !redis_probe_is(v, "maxmemory_policy", "noeviction"))
        redis_rules_report(query, v, most > 0 ? &evicts : &would_evict,
                           "%s (maxmemory-policy %.*s)",
                           most > 0 ? "evicts keys when its memory is full"
                                    : "would evict keys if maxmemory were set",
                           len, policy);
    if (most <= 0 || used < most * NEARLY_FULL)
        return;
    snprintf(raise, sizeof raise, "CONFIG SET maxmemory %lld", 2 * (used > most ? used : most));
    redis_rules_report(
        query, v,
        &(struct rule){
            .severity = STILE_WARNING,
            .id = "memory",
            .why = "Without memory it refuses new claims; holders can still renew and release.",
            .commands = {raise}},
        "has used %.1f of %.1f MB of memory", (double)used / MB, (double)most / MB);
}

static void judge_clients(struct query *query, const struct probe *v)
{
    long long most = redis_probe_number(v, "maxclients"),
              now = redis_probe_number(v, "connected_clients");
    char raise[64];
    if (most <= 0 || now < most * NEARLY_FULL)
        return;
    snprintf(raise, sizeof raise, "CONFIG SET maxclients %lld", 2 * most);
    redis_rules_report(
        query, v,
        &(struct rule){
            .severity = STILE_WARNING,
            .id = "clients",
            .why = "New clients are refused, and a holder that has to reconnect can't renew.",
            .commands = {raise}},
        "has %lld clients and takes %lld", now, most);
}

/* ---- replicas ---- */

static void judge_replica(struct query *query, const struct probe *v)
{
    const char *host, *port;
    int host_len = (int)redis_probe_field(&host, v, "master_host");
    int port_len = (int)redis_probe_field(&port, v, "master_port");
    char cure[RULE_TEXT];
    snprintf(cure, sizeof cure, "Name the primary in the URL: %.*s:%.*s.", host_len, host, port_len,
             port);
    redis_rules_report(
        query, v,
        &(struct rule){.severity = STILE_DANGER,
                       .id = "replica",
                       .why = "Nothing can be locked on a replica; stile refuses it.",
                       .cure = cure},
        "is a replica, of %.*s:%.*s", host_len, host, port_len, port);
}

#define FAILOVER                                                                                   \
    "Replication is asynchronous: a failover to a replica without the latest grants forgets "      \
    "them, "                                                                                       \
    "and repeats their tokens."

static void judge_primary(struct query *query, const struct probe *v)
{
    long long replicas = redis_probe_number(v, "connected_slaves");
    bool waits = v->wait_replicas > 0 && v->wait_replicas >= replicas;
    char cure[RULE_TEXT], watched[64] = "";
    if (replicas <= 0)
        return;
    if (v->sentinels > 0)
        snprintf(watched, sizeof watched, ", and %lld Sentinel%s to fail over to %s", v->sentinels,
                 v->sentinels == 1 ? "" : "s", replicas == 1 ? "it" : "them");
    if (v->role == PROBE_SERVER)
        snprintf(
            cure, sizeof cure,
            "Put wait_replicas=%lld into the URL, so that a grant counts once they have it; that "
            "narrows the gap. redlock:// over independent servers closes it.",
            replicas);
    else
        snprintf(cure, sizeof cure,
                 "A node of redlock needs no replica: REPLICAOF NO ONE there, or see to it that it "
                 "never takes the node's place.");
    redis_rules_report(query, v,
                       &(struct rule){.severity = waits ? STILE_NOTE : STILE_WARNING,
                                      .id = "replicas",
                                      .why = FAILOVER,
                                      .cure = waits ? NULL : cure},
                       "has %lld replica%s%s%s", replicas, replicas == 1 ? "" : "s", watched,
                       waits ? "; each grant waits for them (wait_replicas)" : "");
}

static void judge_wait(struct query *query, const struct probe *v)
{
    long long replicas = redis_probe_number(v, "connected_slaves");
    if (replicas < 0 || v->wait_replicas <= replicas)
        return;
    redis_rules_report(
        query, v,
        &(struct rule){.severity = STILE_WARNING,
                       .id = "wait-replicas",
                       .why = "Every claim fails, since it never reaches so many.",
                       .cure = "Connect the replicas again, or lower wait_replicas."},
        "has %lld of the %u replicas that wait_replicas asks for", replicas, v->wait_replicas);
}

static const struct rule is_sentinel = {
    .severity = STILE_DANGER,
    .id = "sentinel",
    .why = "A Sentinel keeps no keys, and so no locks.",
    .cure = "Name it in a redis+sentinel:// URL, with the name of its primary as the path.",
};

static const struct rule cluster_down = {
    .severity = STILE_DANGER,
    .id = "cluster-down",
    .why = "Names in slots without a node can't be locked, and with cluster-require-full-coverage "
           "no others can, either.",
    .commands = {"CLUSTER NODES"},
    .cure = "Start the missing nodes, or give their slots to others: redis-cli --cluster fix.",
};

static const struct rule active_replica = {
    .severity = STILE_DANGER,
    .id = "active-replica",
    .why = "Each of several servers takes writes and gets those of the others later: two of them "
           "can grant the same lock. stile refuses a server whose role is active-replica.",
    .cure = "Use a primary with ordinary replicas: active-replica no in keydb.conf.",
};

static void judge_copies(struct query *query, const struct probe *v)
{
    if (v->active_replica || redis_probe_is(v, "role", "active-replica"))
        redis_rules_report(query, v, &active_replica, "is an active replica of KeyDB");
    if (redis_probe_is(v, "role", "slave"))
        judge_replica(query, v);
    else
        judge_primary(query, v);
    if (redis_probe_is(v, "role", "master"))
        judge_wait(query, v);
    if (v->cluster_is_down)
        redis_rules_report(query, v, &cluster_down, "reports that its Cluster is down");
}

/* ---- version, loading, clock ---- */

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

static const struct rule too_old = {
    .severity = STILE_DANGER,
    .id = "version",
    .why = "The scripts of a lock use commands that it does not have: claims would fail.",
    .cure = "Install Redis " OLDEST_VERSION " or later.",
};

static const struct rule is_loading = {
    .severity = STILE_WARNING,
    .id = "loading",
    .why = "Until it is done nothing can be locked or renewed.",
    .cure = "Wait, and ask again.",
};

static const struct rule clock_off = {
    .severity = STILE_NOTE,
    .id = "clock",
    .why = "Only lengths of time are ever sent to it, so this does no harm as such. Set forward in "
           "one jump, it would end leases early.",
    .cure = "Let NTP slew the clocks of both, and never set them by hand.",
};

static void judge_rest(struct query *query, const struct probe *v)
{
    const char *version;
    int len = (int)redis_probe_field(&version, v, "redis_version");
    if (len > 0 && is_older(version, OLDEST_VERSION))
        redis_rules_report(query, v, &too_old, "is Redis %.*s, older than " OLDEST_VERSION, len,
                           version);
    if (redis_probe_is(v, "loading", "1"))
        redis_rules_report(query, v, &is_loading, "is loading its data");
    if (v->role == PROBE_SERVER && v->clock.known && llabs(v->ahead_ms) >= CLOCK_FAR_MS)
        redis_rules_report(query, v, &clock_off, "has a clock that is %lld s %s ours",
                           (llabs(v->ahead_ms) + 500) / 1000,
                           v->ahead_ms > 0 ? "ahead of" : "behind");
}

static void report_what_is_fine(struct query *query, const struct probe *v)
{
    const char *version;
    int len = (int)redis_probe_field(&version, v, "redis_version");
    bool keeps =
        redis_probe_is(v, "maxmemory", "0") || redis_probe_is(v, "maxmemory_policy", "noeviction");
    redis_rules_report(query, v, &(struct rule){.severity = STILE_FINE, .id = "server"},
                       "Redis %.*s%s%s%s", len, version,
                       redis_probe_is_durable(v) ? ", on disk before it answers" : "",
                       keeps ? ", evicts nothing" : "",
                       redis_probe_is(v, "connected_slaves", "0") ? ", no replicas" : "");
}

void redis_rules_judge(struct query *query, const struct probe *v)
{
    if (redis_probe_is(v, "redis_mode", "sentinel")) {
        redis_rules_report(query, v, &is_sentinel, "is a Sentinel, not a server");
        return;
    }
    if (v->info) {
        judge_persistence(query, v);
        judge_memory(query, v);
        judge_clients(query, v);
        judge_copies(query, v);
        judge_rest(query, v);
        report_what_is_fine(query, v);
    }
    judge_acl(query, v);
}

/* ---- examine ---- */

struct examination {
    struct query *query;
    size_t pending, n;
    struct examined {
        struct examination *exam;
        struct probe probe;
        char *where, *cli;
    } servers[];
};

static bool is_up(const struct probe *v)
{
    return v->info || redis_error_is_denial(&v->info_error);
}

static void exam_free(struct examination *exam)
{
    for (size_t i = 0; i < exam->n; i++) {
        redis_probe_free(&exam->servers[i].probe);
        free(exam->servers[i].where);
        free(exam->servers[i].cli);
    }
    exam->query->state = NULL;
    free(exam);
}

/* ---- a Cluster ---- */

static const struct rule is_down = {
    .severity = STILE_DANGER,
    .id = "down",
    .why = "Names in its slots can't be locked, and their holders lose them at the deadline.",
    .cure = "Start it again, with its data.",
};

static const struct rule no_cluster = {
    .severity = STILE_DANGER,
    .id = "no-cluster",
    .why = "stile refuses it: the URL asks for a Cluster.",
    .cure = "Use redis:// for this server.",
};

static void report_cluster(struct examination *exam)
{
    char what[64];
    snprintf(what, sizeof what, "a Redis Cluster with %zu primaries", exam->n);
    exam->query->engine->events->finding(
        exam->query,
        &(struct stile_finding){.severity = STILE_NOTE,
                                .id = "cluster",
                                .what = what,
                                .why = "Each of them keeps a part of the names, and its failover "
                                       "may forget locks and tokens as any failover may."});
}

/* ---- one examination ---- */

static void finish(struct examination *exam)
{
    struct query *query = exam->query;
    const struct engine_events *events = query->engine->events;
    bool alone = !redis_of(query->engine)->cluster;
    struct probe *first = &exam->servers[0].probe;
    if (alone && !is_up(first)) {
        struct stile_error err = first->info_error;
        exam_free(exam);
        events->done(query, &err);
        return;
    }
    for (size_t i = 0; i < exam->n; i++) {
        struct probe *v = &exam->servers[i].probe;
        if (is_up(v))
            redis_rules_judge(query, v);
        else
            redis_rules_report(query, v, &is_down, "does not answer: %s", v->info_error.message);
    }
    if (!alone)
        report_cluster(exam);
    else if (redis_of(query->engine)->clustered && redis_probe_is(first, "cluster_enabled", "0"))
        redis_rules_report(query, first, &no_cluster, "is not part of a Redis Cluster");
    exam_free(exam);
    events->done(query, NULL);
}

static void answered(struct examination *exam)
{
    if (--exam->pending == 0)
        finish(exam);
}

static void on_probed(struct probe *probe)
{
    answered(((struct examined *)probe->owner)->exam);
}

static enum stile_status prepare(struct examination *exam, struct redis *redis, struct node *node,
                                 struct stile_error *err)
{
    struct examined *server = &exam->servers[exam->n];
    enum stile_status status = redis_node_connect(node, err);
    if (status)
        return status;
    exam->n++;
    server->exam = exam;
    server->where = redis_probe_where(redis_conn_options(node->conn));
    server->cli = redis_probe_cli(redis_conn_options(node->conn), redis->cli_flags);
    server->probe = (struct probe){.wait_replicas = redis->wait_replicas,
                                   .loop = redis->engine.loop,
                                   .conn = node->conn,
                                   .where = server->where,
                                   .cli = server->cli,
                                   .prefix = redis->prefix,
                                   .shares_counter = !redis->cluster,
                                   .done = on_probed,
                                   .owner = server};
    return server->where ? STILE_OK : error_set(err, STILE_NOMEM, 0, "out of memory");
}

void redis_doctor_examine(struct engine *engine, struct query *query)
{
    struct redis *redis = redis_of(engine);
    struct stile_error err;
    enum stile_status status = STILE_OK;
    size_t n = 0;
    for (struct node *node = NULL; (node = redis_route_next(redis, node));)
        n++;
    struct examination *exam = calloc(1, sizeof *exam + n * sizeof *exam->servers);
    if (!exam) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    exam->query = query;
    query->state = exam;
    for (struct node *node = NULL; !status && (node = redis_route_next(redis, node));)
        status = prepare(exam, redis, node, &err);
    if (status) {
        exam_free(exam);
        engine->events->done(query, &err);
        return;
    }
    exam->pending = 1;
    for (size_t i = 0; i < exam->n; i++) {
        exam->pending++;
        redis_probe_start(&exam->servers[i].probe);
    }
    answered(exam);
}
