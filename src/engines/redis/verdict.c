/* What a server's vitals mean for locks. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redis/vitals.h"

/* LPOS, and SCAN by type. */
#define OLDEST_VERSION "6.0.6"
#define CLOCK_FAR_MS   2000
#define NEARLY_FULL    9 / 10
#define MB             (1 << 20)

/* ---- telling ---- */

static void add_command(char out[2 * VERDICT_TEXT], const char *cli, const char *command)
{
    size_t n = strlen(out);
    snprintf(out + n, 2 * VERDICT_TEXT - n, "%s%s %s", n ? "\n" : "", cli, command);
}

/* A change by CONFIG SET is gone after a restart unless it is written down. */
static const char *write_commands(char out[2 * VERDICT_TEXT], const struct vitals *v,
                                  const struct verdict *verdict)
{
    const char *const *command = verdict->commands;
    const char *file;
    out[0] = '\0';
    if (!v->cli)
        return out;
    for (; *command; command++)
        add_command(out, v->cli, *command);
    if (command != verdict->commands && strncmp(command[-1], "CONFIG SET", 10) == 0 &&
        vitals_field(&file, v, "config_file"))
        add_command(out, v->cli, "CONFIG REWRITE");
    return out;
}

void verdict_tell(struct query *query, const struct vitals *v, const struct verdict *verdict,
                  const char *format, ...)
{
    char what[VERDICT_TEXT], command[2 * VERDICT_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    struct stile_finding finding = {
        .severity = verdict->severity,
        .id = verdict->id,
        .where = v->where,
        .what = what,
        .why = verdict->why,
        .cure = verdict->cure,
        .command = write_commands(command, v, verdict),
    };
    bool set = strstr(command, "CONFIG SET") != NULL;
    if (set && !strstr(command, "CONFIG REWRITE") && !finding.cure)
        finding.cure = "Give it the same setting where it is started: it has no configuration file "
                       "that CONFIG REWRITE could write it to.";
    query->engine->events->finding(query, &finding);
}

/* ---- memory and clients ---- */

static const struct verdict evicts = {
    .severity = STILE_DANGER,
    .id = "eviction",
    .why = "When its memory is full it throws away locks that are held, and their tokens. stile "
           "refuses such a server (allow=eviction in the URL overrides that).",
    .commands = {"CONFIG SET maxmemory-policy noeviction"},
};

static const struct verdict would_evict = {
    .severity = STILE_NOTE,
    .id = "eviction",
    .why = "Once somebody sets maxmemory, locks that are held may be thrown away.",
    .commands = {"CONFIG SET maxmemory-policy noeviction"},
};

static void judge_memory(struct query *query, const struct vitals *v)
{
    long long most = vitals_number(v, "maxmemory"), used = vitals_number(v, "used_memory");
    const char *policy;
    int len = (int)vitals_field(&policy, v, "maxmemory_policy");
    char raise[64];
    if (len > 0 && !vitals_is(v, "maxmemory_policy", "noeviction"))
        verdict_tell(query, v, most > 0 ? &evicts : &would_evict, "%s (maxmemory-policy %.*s)",
                     most > 0 ? "evicts keys when its memory is full"
                              : "would evict keys, had it a limit of memory",
                     len, policy);
    if (most <= 0 || used < most * NEARLY_FULL)
        return;
    snprintf(raise, sizeof raise, "CONFIG SET maxmemory %lld", 2 * (used > most ? used : most));
    verdict_tell(query, v,
                 &(struct verdict){.severity = STILE_WARNING,
                                   .id = "memory",
                                   .why = "Without memory it refuses new claims; who holds can "
                                          "still renew and release.",
                                   .commands = {raise}},
                 "has used %.1f of %.1f MB of memory", (double)used / MB, (double)most / MB);
}

static void judge_clients(struct query *query, const struct vitals *v)
{
    long long most = vitals_number(v, "maxclients"), now = vitals_number(v, "connected_clients");
    char raise[64];
    if (most <= 0 || now < most * NEARLY_FULL)
        return;
    snprintf(raise, sizeof raise, "CONFIG SET maxclients %lld", 2 * most);
    verdict_tell(query, v,
                 &(struct verdict){.severity = STILE_WARNING,
                                   .id = "clients",
                                   .why = "Who comes next is turned away, and a holder that has to "
                                          "connect again can't renew.",
                                   .commands = {raise}},
                 "has %lld clients and takes %lld", now, most);
}

/* ---- copies of it ---- */

static void judge_replica(struct query *query, const struct vitals *v)
{
    const char *host, *port;
    int host_len = (int)vitals_field(&host, v, "master_host");
    int port_len = (int)vitals_field(&port, v, "master_port");
    char cure[VERDICT_TEXT];
    snprintf(cure, sizeof cure, "Name the primary in the URL: %.*s:%.*s.", host_len, host, port_len,
             port);
    verdict_tell(query, v,
                 &(struct verdict){.severity = STILE_DANGER,
                                   .id = "replica",
                                   .why = "Nothing can be locked on a replica; stile refuses it.",
                                   .cure = cure},
                 "is a replica, of %.*s:%.*s", host_len, host, port_len, port);
}

#define FAILOVER                                                                                   \
    "Replication runs behind: a failover to a replica that has not seen the latest grants "        \
    "forgets "                                                                                     \
    "them, and repeats their tokens."

static void judge_primary(struct query *query, const struct vitals *v)
{
    long long replicas = vitals_number(v, "connected_slaves");
    bool waits = v->wait_replicas > 0 && v->wait_replicas >= replicas;
    char cure[VERDICT_TEXT], watched[64] = "";
    if (replicas <= 0)
        return;
    if (v->sentinels > 0)
        snprintf(watched, sizeof watched, ", and %lld Sentinel%s to fail over to %s", v->sentinels,
                 v->sentinels == 1 ? "" : "s", replicas == 1 ? "it" : "them");
    if (v->role == VITALS_SERVER)
        snprintf(
            cure, sizeof cure,
            "Put wait_replicas=%lld into the URL, so that a grant counts once they have it; that "
            "narrows the gap. redlock:// over independent servers closes it.",
            replicas);
    else
        snprintf(cure, sizeof cure,
                 "A node of redlock needs no replica: REPLICAOF NO ONE there, or see to it that it "
                 "never takes the node's place.");
    verdict_tell(query, v,
                 &(struct verdict){.severity = waits ? STILE_NOTE : STILE_WARNING,
                                   .id = "replicas",
                                   .why = FAILOVER,
                                   .cure = waits ? NULL : cure},
                 "has %lld replica%s%s%s", replicas, replicas == 1 ? "" : "s", watched,
                 waits ? "; each grant waits for them (wait_replicas)" : "");
}

static void judge_wait(struct query *query, const struct vitals *v)
{
    long long replicas = vitals_number(v, "connected_slaves");
    if (replicas < 0 || v->wait_replicas <= replicas)
        return;
    verdict_tell(query, v,
                 &(struct verdict){.severity = STILE_WARNING,
                                   .id = "wait-replicas",
                                   .why = "Every claim fails, since it never reaches so many.",
                                   .cure = "Connect the replicas again, or lower wait_replicas."},
                 "has %lld of the %u replicas that wait_replicas asks for", replicas,
                 v->wait_replicas);
}

static const struct verdict is_sentinel = {
    .severity = STILE_DANGER,
    .id = "sentinel",
    .why = "A Sentinel keeps no keys, and so no locks.",
    .cure = "Name it in a redis+sentinel:// URL, with the name of its primary as the path.",
};

static const struct verdict cluster_down = {
    .severity = STILE_DANGER,
    .id = "cluster-down",
    .why =
        "Slots that nobody serves can't be locked, and with cluster-require-full-coverage no other "
        "can, either.",
    .commands = {"CLUSTER NODES"},
    .cure = "Start the missing nodes, or give their slots to others: redis-cli --cluster fix.",
};

static const struct verdict active_replica = {
    .severity = STILE_DANGER,
    .id = "active-replica",
    .why =
        "Each of several servers takes writes, and hears of the others' later: two of them grant "
        "the same lock. stile refuses one that says so of itself.",
    .cure = "Use a primary with ordinary replicas: active-replica no in keydb.conf.",
};

static void judge_copies(struct query *query, const struct vitals *v)
{
    if (v->active_replica || vitals_is(v, "role", "active-replica"))
        verdict_tell(query, v, &active_replica, "is an active replica of KeyDB");
    if (vitals_is(v, "role", "slave"))
        judge_replica(query, v);
    else
        judge_primary(query, v);
    if (vitals_is(v, "role", "master"))
        judge_wait(query, v);
    if (v->cluster_is_down)
        verdict_tell(query, v, &cluster_down, "says that its Cluster is down");
}

/* ---- the rest ---- */

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

static const struct verdict too_old = {
    .severity = STILE_DANGER,
    .id = "version",
    .why = "The scripts of a lock use commands that it does not have: claims would fail.",
    .cure = "Install Redis " OLDEST_VERSION " or later.",
};

static const struct verdict is_loading = {
    .severity = STILE_WARNING,
    .id = "loading",
    .why = "Until it is done nothing can be locked, and nobody can renew.",
    .cure = "Wait, and ask again.",
};

static const struct verdict clock_off = {
    .severity = STILE_NOTE,
    .id = "clock",
    .why = "Only lengths of time are ever sent to it, so this does no harm as such. Set forward in "
           "one jump, it would end leases early.",
    .cure = "Let NTP slew the clocks of both, and never set them by hand.",
};

static void judge_rest(struct query *query, const struct vitals *v)
{
    const char *version;
    int len = (int)vitals_field(&version, v, "redis_version");
    if (len > 0 && is_older(version, OLDEST_VERSION))
        verdict_tell(query, v, &too_old, "is Redis %.*s, older than " OLDEST_VERSION, len, version);
    if (vitals_is(v, "loading", "1"))
        verdict_tell(query, v, &is_loading, "is loading its data");
    if (v->role == VITALS_SERVER && v->clock.known && llabs(v->ahead_ms) >= CLOCK_FAR_MS)
        verdict_tell(query, v, &clock_off, "has a clock that is %lld s %s ours",
                     (llabs(v->ahead_ms) + 500) / 1000, v->ahead_ms > 0 ? "ahead of" : "behind");
}

static void tell_what_is_fine(struct query *query, const struct vitals *v)
{
    const char *version;
    int len = (int)vitals_field(&version, v, "redis_version");
    bool keeps = vitals_is(v, "maxmemory", "0") || vitals_is(v, "maxmemory_policy", "noeviction");
    verdict_tell(query, v, &(struct verdict){.severity = STILE_FINE, .id = "server"},
                 "Redis %.*s%s%s%s", len, version,
                 vitals_is_durable(v) ? ", on disk before it answers" : "",
                 keeps ? ", evicts nothing" : "",
                 vitals_is(v, "connected_slaves", "0") ? ", no replicas" : "");
}

void verdict_of(struct query *query, const struct vitals *v)
{
    if (vitals_is(v, "redis_mode", "sentinel")) {
        verdict_tell(query, v, &is_sentinel, "is a Sentinel, not a server");
        return;
    }
    if (v->info) {
        disk_of(query, v);
        judge_memory(query, v);
        judge_clients(query, v);
        judge_copies(query, v);
        judge_rest(query, v);
        tell_what_is_fine(query, v);
    }
    rights_of(query, v);
}
