/* What the facts about the servers mean for locks: findings, without any I/O. */
#include "engines/zookeeper/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MAX_MS  2000  /* what liveness.c relies on */
#define SESSION_LONG 10000 /* the default TTL */

const char *const zk_doctor_words[WORDS] = {
    [WORD_RUOK] = "ruok", [WORD_SRVR] = "srvr", [WORD_CONF] = "conf", [WORD_MNTR] = "mntr"};

/* ---- reading answers ---- */

/* The rest of the line that starts with this word; NULL: there is none. */
static const char *value_of(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (; text; text = strchr(text, '\n')) {
        text += *text == '\n';
        if (strncmp(text, word, n) == 0)
            return text + n;
    }
    return NULL;
}

static void copy_word(char *out, size_t size, const char *text)
{
    size_t n = text ? strcspn(text, " \t\r\n,") : 0;
    snprintf(out, size, "%.*s", (int)(n < size ? n : size - 1), text ? text : "");
}

static long number(const char *text, const char *word, long otherwise)
{
    const char *found = value_of(text, word);
    return found ? strtol(found, NULL, 10) : otherwise;
}

static size_t count_voters(const char *text)
{
    size_t n = 0;
    for (const char *at = value_of(text, "server."); at; at = value_of(at, "server.")) {
        size_t len = strcspn(at, ";\n");
        n += len < 8 || memcmp(at + len - 8, "observer", 8) != 0;
    }
    return n;
}

static void read_conf(struct server_facts *server, const char *text)
{
    server->tick_ms = number(text, "tickTime=", 0);
    server->min_ms = number(text, "minSessionTimeout=", 0);
    server->max_ms = number(text, "maxSessionTimeout=", 0);
    server->connections = number(text, "maxClientCnxns=", -1);
    size_t voters = count_voters(text);
    server->voters = voters ? voters : server->voters;
}

void zk_doctor_read_answer(struct server_facts *server, enum word word, const char *text)
{
    server->answered = true;
    if (strstr(text, "not in the whitelist")) {
        server->closed[word] = true;
    } else if (strstr(text, "not currently serving")) {
        server->not_serving = true;
    } else if (word == WORD_SRVR) {
        copy_word(server->version, sizeof server->version, value_of(text, "Zookeeper version: "));
        server->version[strcspn(server->version, "-")] = '\0';
        copy_word(server->mode, sizeof server->mode, value_of(text, "Mode: "));
    } else if (word == WORD_CONF) {
        read_conf(server, text);
    } else if (word == WORD_MNTR) {
        server->followers = number(text, "zk_synced_followers\t", -1);
        if (!*server->mode)
            copy_word(server->mode, sizeof server->mode, value_of(text, "zk_server_state\t"));
        if (!server->voters)
            server->voters = (size_t)number(text, "zk_quorum_size\t", 0);
    }
}

/* ---- findings ---- */

struct report {
    const struct ensemble_facts *facts;
    finding_fn *fn;
    void *data;
};

static void add_finding(const struct report *report, const char *where,
                        struct stile_finding finding)
{
    finding.where = where;
    report->fn(report->data, &finding);
}

static bool is(const struct server_facts *server, const char *mode)
{
    return strcmp(server->mode, mode) == 0;
}

static bool serves(const struct server_facts *server)
{
    return *server->mode && !is(server, "read-only");
}

struct totals {
    size_t named, answering, serving, leaders, standalone, voters;
    const struct server_facts *leader;
};

static struct totals add_up(const struct ensemble_facts *facts)
{
    struct totals totals = {0};
    for (size_t i = 0; i < facts->n; i++) {
        const struct server_facts *server = &facts->servers[i];
        if (server->duplicate)
            continue;
        totals.named++;
        totals.answering += server->answered;
        totals.serving += serves(server);
        totals.standalone += is(server, "standalone");
        totals.leaders += is(server, "leader");
        totals.leader = is(server, "leader") ? server : totals.leader;
        totals.voters = server->voters > totals.voters ? server->voters : totals.voters;
    }
    if (!totals.serving && facts->given_ms)
        totals.serving = 1; /* a server that answers no word gave it */
    if (!totals.voters)
        totals.voters = totals.standalone ? 1 : totals.named;
    return totals;
}

/* ---- each server ---- */

static void check_down(const struct report *report, const struct server_facts *server,
                       const struct totals *totals)
{
    char what[200], why[160];
    if (server->answered)
        return;
    snprintf(what, sizeof what, "it does not answer (%s)", server->error);
    snprintf(why, sizeof why,
             "%zu of the %zu servers in the URL serve clients; locking needs more than half of "
             "%zu",
             totals->serving, totals->named, totals->voters);
    add_finding(report, server->where,
                (struct stile_finding){.severity = totals->serving ? STILE_WARNING : STILE_DANGER,
                                       .id = "down",
                                       .what = what,
                                       .why = why,
                                       .cure = "start it, or remove it from the URL"});
}

static void check_state(const struct report *report, const struct server_facts *server,
                        const struct totals *totals)
{
    enum stile_severity severity = totals->serving ? STILE_WARNING : STILE_DANGER;
    if (is(server, "read-only"))
        add_finding(
            report, server->where,
            (struct stile_finding){.severity = severity,
                                   .id = "read-only",
                                   .what = "it is cut off from the other servers and read-only",
                                   .why = "it accepts no sessions that write, so nothing can be "
                                          "locked through it",
                                   .cure = "find out why it cannot reach the other servers"});
    else if (server->not_serving)
        add_finding(report, server->where,
                    (struct stile_finding){
                        .severity = severity,
                        .id = "no-quorum",
                        .what = "it runs without a leader, and serves no clients",
                        .why = "nothing can be locked through it",
                        .cure = "check that more than half of the servers are up and can "
                                "reach each other"});
}

static void check_words(const struct report *report, const struct server_facts *server)
{
    char what[80] = "it does not answer the commands";
    bool any = false;
    for (int i = 0; i < WORDS; i++) {
        if (server->closed[i])
            strcat(strcat(what, any ? ", " : " "), zk_doctor_words[i]);
        any = any || server->closed[i];
    }
    if (!any)
        return;
    add_finding(report, server->where,
                (struct stile_finding){.severity = STILE_NOTE,
                                       .id = "closed-words",
                                       .what = what,
                                       .why = "the number of servers, the leader and the limits of "
                                              "sessions cannot be checked completely",
                                       .cure =
                                           "set 4lw.commands.whitelist=ruok,srvr,conf,mntr in its "
                                           "zoo.cfg and restart it"});
}

static void check_tick_time(const struct report *report, const struct server_facts *server)
{
    char what[80];
    if (server->tick_ms <= TICK_MAX_MS)
        return;
    snprintf(what, sizeof what, "its tickTime is %ld ms", server->tick_ms);
    add_finding(
        report, server->where,
        (struct stile_finding){.severity = STILE_DANGER,
                               .id = "tick-time",
                               .what = what,
                               .why = "servers report sessions to the leader every half tick; with "
                                      "more than 2 s, a server's crash may cost a session so much "
                                      "time that its lock passes on before its holder knows",
                               .cure = "set tickTime=2000 or less in the zoo.cfg of all servers"});
}

static void check_version(const struct report *report, const struct server_facts *server)
{
    char what[80];
    int major = 0, minor = 0;
    if (sscanf(server->version, "%d.%d", &major, &minor) != 2 || major > 3 || minor >= 5)
        return;
    snprintf(what, sizeof what, "its version is %s", server->version);
    add_finding(report, server->where,
                (struct stile_finding){.severity = STILE_DANGER,
                                       .id = "version",
                                       .what = what,
                                       .why = "it has no container nodes, which locks need",
                                       .cure = "upgrade it to 3.5 or later"});
}

/* ---- the ensemble ---- */

static void check_single(const struct report *report, const struct totals *totals)
{
    if (totals->voters == 1 && totals->serving)
        add_finding(report, report->facts->servers[0].where,
                    (struct stile_finding){
                        .severity = STILE_WARNING,
                        .id = "one-server",
                        .what = "there is only one server",
                        .why = "nothing can be locked while it is down, and tokens start "
                               "again from the beginning if its disk is lost",
                        .cure = "run three, on separate machines"});
}

static void check_count(const struct report *report, const struct totals *totals)
{
    char what[120], why[120];
    snprintf(what, sizeof what, "%zu voting servers, %zu of them answered%s%s", totals->voters,
             totals->answering, totals->leader ? "; the leader is " : "",
             totals->leader ? totals->leader->where : "");
    if (totals->voters > 1 && totals->serving)
        add_finding(report, NULL,
                    (struct stile_finding){.severity = STILE_FINE, .id = "servers", .what = what});
    snprintf(what, sizeof what, "the number of voting servers, %zu, is even", totals->voters);
    snprintf(why, sizeof why, "it tolerates %zu failures, as many as %zu servers would",
             (totals->voters - 1) / 2, totals->voters - 1);
    if (totals->voters % 2 == 0)
        add_finding(report, NULL,
                    (struct stile_finding){.severity = STILE_NOTE,
                                           .id = "even",
                                           .what = what,
                                           .why = why,
                                           .cure = "add one, or make one an observer"});
    snprintf(what, sizeof what, "%zu of %zu voting servers are named in the URL", totals->named,
             totals->voters);
    if (totals->named < totals->voters)
        add_finding(
            report, NULL,
            (struct stile_finding){.severity = STILE_NOTE,
                                   .id = "not-named",
                                   .what = what,
                                   .why = "while those are down nothing can be locked, though the "
                                          "other servers could serve",
                                   .cure = "name all of them in the URL"});
}

static void check_leaders(const struct report *report, const struct totals *totals)
{
    if (totals->leaders + totals->standalone > 1 ||
        (totals->standalone && totals->serving > totals->standalone))
        add_finding(report, NULL,
                    (struct stile_finding){
                        .severity = STILE_DANGER,
                        .id = "other-ensemble",
                        .what = "the servers in the URL do not belong to one ensemble",
                        .why = "two clients may use different ensembles, and both hold the "
                               "same lock",
                        .cure = "name only the servers of one ensemble"});
}

static void check_followers(const struct report *report, const struct totals *totals)
{
    char what[120];
    size_t in_sync = totals->leader && totals->leader->followers >= 0
                         ? (size_t)totals->leader->followers + 1
                         : totals->voters;
    snprintf(what, sizeof what, "%zu of %zu servers are in sync with the leader", in_sync,
             totals->voters);
    if (in_sync + (totals->named - totals->answering) <
        totals->voters) /* silent servers have findings of their own */
        add_finding(report, totals->leader->where,
                    (struct stile_finding){
                        .severity = STILE_WARNING,
                        .id = "behind",
                        .what = what,
                        .why = "nothing can be locked unless more than half of them are in "
                               "sync",
                        .cure = "check the other servers"});
}

static void check_versions(const struct report *report)
{
    const struct ensemble_facts *facts = report->facts;
    const char *first = NULL;
    char what[120];
    for (size_t i = 0; i < facts->n; i++) {
        const char *version = facts->servers[i].version;
        if (!*version)
            continue;
        first = first ? first : version;
        if (strcmp(first, version) == 0)
            continue;
        snprintf(what, sizeof what, "its version is %s, that of another server %s", version, first);
        add_finding(report, facts->servers[i].where,
                    (struct stile_finding){
                        .severity = STILE_WARNING,
                        .id = "versions",
                        .what = what,
                        .why = "mixed versions are meant only for the time of an upgrade",
                        .cure = "finish the upgrade"});
    }
}

/* ---- sessions ---- */

static void check_session(const struct report *report, const struct totals *totals)
{
    const struct ensemble_facts *facts = report->facts;
    char what[120];
    snprintf(what, sizeof what, "a session of %ld ms was requested, and one of %ld ms given",
             facts->asked_ms, facts->given_ms);
    if (facts->given_ms)
        add_finding(
            report, NULL,
            (struct stile_finding){
                .severity = facts->given_ms == facts->asked_ms ? STILE_FINE : STILE_NOTE,
                .id = "session",
                .what = what,
                .why = facts->given_ms == facts->asked_ms ? NULL : "the servers bound the TTL"});
    else if (totals->serving)
        add_finding(report, NULL,
                    (struct stile_finding){.severity = STILE_DANGER,
                                           .id = "no-session",
                                           .what = facts->error.message,
                                           .why = "without a session nothing can be locked",
                                           .cure = "look into the servers' logs"});
}

static void check_session_bounds(const struct report *report)
{
    const struct server_facts *server = report->facts->servers;
    const struct server_facts *end = server + report->facts->n;
    char what[120];
    while (server < end && !server->max_ms)
        server++;
    if (server == end)
        return;
    bool is_long = server->min_ms > SESSION_LONG;
    snprintf(what, sizeof what, "sessions last from %ld to %ld ms", server->min_ms, server->max_ms);
    add_finding(
        report, server->where,
        (struct stile_finding){
            .severity = is_long ? STILE_WARNING : STILE_FINE,
            .id = "session-bounds",
            .what = what,
            .why = is_long ? "a killed holder's lock lasts at least that long, whatever its TTL"
                           : NULL,
            .cure = is_long ? "lower minSessionTimeout in the zoo.cfg of all servers" : NULL});
}

/* More locks than fit into one session need further sessions, with a connection each. */
static void check_session_room(const struct report *report)
{
    const struct server_facts *server = report->facts->servers;
    const struct server_facts *end = server + report->facts->n;
    char what[240];
    while (server < end && server->connections < 0)
        server++;
    if (server == end || !report->facts->given_ms)
        return;
    bool few = server->connections > 0 && server->connections < SESSIONS_MAX;
    char most[40] = "any number of";
    if (server->connections > 0)
        snprintf(most, sizeof most, "%ld", server->connections);
    snprintf(
        what, sizeof what,
        "a client uses one connection for each %u kB of node paths, about 7,000 locks, so that the "
        "end of a session fits into one record of the servers' log; they accept %s connections "
        "from one address",
        SESSION_BYTES_MAX >> 10, most);
    add_finding(
        report, server->where,
        (struct stile_finding){
            .severity = few ? STILE_NOTE : STILE_FINE,
            .id = "session-room",
            .what = what,
            .why = few ? "clients on one machine could not hold very many locks" : NULL,
            .cure = few ? "set maxClientCnxns=60 or more in the zoo.cfg of all servers" : NULL});
}

void zk_doctor_judge(const struct ensemble_facts *facts, finding_fn *report_finding, void *data)
{
    const struct report report = {.facts = facts, .fn = report_finding, .data = data};
    const struct totals totals = add_up(facts);
    for (size_t i = 0; i < facts->n; i++) {
        const struct server_facts *server = &facts->servers[i];
        if (server->duplicate)
            continue;
        check_down(&report, server, &totals);
        check_state(&report, server, &totals);
        check_words(&report, server);
        check_tick_time(&report, server);
        check_version(&report, server);
    }
    check_leaders(&report, &totals);
    check_single(&report, &totals);
    check_count(&report, &totals);
    check_followers(&report, &totals);
    check_versions(&report);
    check_session(&report, &totals);
    check_session_bounds(&report);
    check_session_room(&report);
}
