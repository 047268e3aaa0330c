/* What a server writes to its disk, and so remembers after a crash. */
#include <stdio.h>
#include <string.h>

#include "engines/redis/vitals.h"

/* Of the profiles; nobody knows what TTLs were in use before a restart. */
#define LONGEST_USUAL_LEASE_MS 30000

#define CRASH                                                                                      \
    "After a crash or a restart locks are free while their holders still believe in them, and "    \
    "tokens that were given out are given out again, so that no guard can tell old from new."

static const struct verdict forgets = {
    .severity = STILE_DANGER,
    .id = "persistence",
    .why = CRASH,
    .commands = {"CONFIG SET appendfsync always", "CONFIG SET appendonly yes"},
};

static const struct verdict forgets_all = {
    .severity = STILE_WARNING,
    .id = "persistence",
    .why =
        "After a restart it has lost its data, and does not count until stile doctor --adopt takes "
        "it back. Should a majority restart, no token can be given any more.",
    .commands = {"CONFIG SET appendfsync always", "CONFIG SET appendonly yes"},
};

static const struct verdict votes_twice = {
    .severity = STILE_WARNING,
    .id = "persistence",
    .why =
        "After a restart it votes again for what is held, and its vote can make a second holder.",
    .commands = {"CONFIG SET appendfsync always", "CONFIG SET appendonly yes"},
};

static const struct verdict syncs_late = {
    .severity = STILE_WARNING,
    .id = "appendfsync",
    .why =
        "A power cut takes with it what was granted since the last sync: a lock may get a second "
        "holder, with the same token.",
    .commands = {"CONFIG SET appendfsync always"},
};

static const struct verdict pauses_sync = {
    .severity = STILE_WARNING,
    .id = "no-appendfsync-on-rewrite",
    .why =
        "While the append-only file is rewritten nothing is synced, whatever appendfsync says: a "
        "power cut then takes with it what was granted meanwhile.",
    .commands = {"CONFIG SET no-appendfsync-on-rewrite no"},
};

static const struct verdict cannot_write = {
    .severity = STILE_DANGER,
    .id = "disk",
    .why = CRASH,
    .cure = "See the server's log and the free space and permissions of its directory.",
    .commands = {"CONFIG GET dir"},
};

static bool keeps_nothing(const struct vitals *v)
{
    return !vitals_is(v, "aof_enabled", "1") && v->save.known && !*v->save.text;
}

static void judge_disk(struct query *query, const struct vitals *v)
{
    static const struct verdict *const in_memory[] = {[VITALS_SERVER] = &forgets,
                                                      [VITALS_FENCED_NODE] = &forgets_all,
                                                      [VITALS_PLAIN_NODE] = &votes_twice};
    bool appends = vitals_is(v, "aof_enabled", "1");
    const char *sync = v->appendfsync.text;
    if (keeps_nothing(v))
        verdict_tell(query, v, in_memory[v->role],
                     "keeps its data in memory only (appendonly no, save \"\")");
    else if (!appends)
        verdict_tell(query, v, v->role == VITALS_PLAIN_NODE ? &votes_twice : &forgets,
                     "writes snapshots at times and nothing in between (appendonly no)");
    if (vitals_is(v, "aof_last_write_status", "err"))
        verdict_tell(query, v, &cannot_write, "cannot write to its append-only file");
    if (!appends || !v->appendfsync.known)
        return;
    if (strcmp(sync, "always") != 0)
        verdict_tell(query, v, &syncs_late, "syncs its append-only file %s (appendfsync %s)",
                     strcmp(sync, "everysec") == 0 ? "once a second" : "when the kernel likes",
                     sync);
    else if (strcmp(v->no_fsync_on_rewrite.text, "yes") == 0)
        verdict_tell(query, v, &pauses_sync,
                     "stops syncing at times (no-appendfsync-on-rewrite yes)");
}

/* What it was told to keep on disk outlives a restart; what it was not, does not. */
static void judge_restart(struct query *query, const struct vitals *v)
{
    long long up_ms = vitals_number(v, "uptime_in_seconds") * 1000;
    bool seen = v->lease_ms > LONGEST_USUAL_LEASE_MS;
    long long lease_ms = seen ? v->lease_ms : LONGEST_USUAL_LEASE_MS;
    char cure[VERDICT_TEXT];
    bool knows = v->role == VITALS_FENCED_NODE && keeps_nothing(v); /* its group tells the doctor */
    if (up_ms < 0 || up_ms >= lease_ms || vitals_is_durable(v) || knows)
        return;
    snprintf(cure, sizeof cure, "Wait for %lld s more before you rely on it.",
             (lease_ms - up_ms + 999) / 1000);
    verdict_tell(query, v,
                 &(struct verdict){
                     .severity = STILE_WARNING,
                     .id = "restarted",
                     .why = "What it has forgotten may be granted again while a holder from before "
                            "still believes in it, for as long as its TTL.",
                     .cure = cure,
                 },
                 "was started %lld s ago, less than the longest lease: %lld s, %s", up_ms / 1000,
                 lease_ms / 1000,
                 seen ? "which one of its locks has now" : "the longest that a profile has");
}

void disk_of(struct query *query, const struct vitals *v)
{
    judge_disk(query, v);
    judge_restart(query, v);
}
