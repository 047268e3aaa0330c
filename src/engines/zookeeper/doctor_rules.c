#include "engines/zookeeper/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MAX_MS  2000  /* what liveness.c counts on */
#define SESSION_LONG 10000 /* the TTL of who asks for none */

const char *const zk_doctor_words[WORDS] = {
    [WORD_RUOK] = "ruok", [WORD_SRVR] = "srvr", [WORD_CONF] = "conf", [WORD_MNTR] = "mntr"};

/* ---- what they say ---- */

/* What is behind a word at the start of a line; NULL: no line has it. */
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

/* ---- telling ---- */

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
    size_t named, reply, serve, lead, alone, voters;
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
        totals.reply += server->answered;
        totals.serve += serves(server);
        totals.alone += is(server, "standalone");
        totals.lead += is(server, "leader");
        totals.leader = is(server, "leader") ? server : totals.leader;
        totals.voters = server->voters > totals.voters ? server->voters : totals.voters;
    }
    if (!totals.serve && facts->given_ms)
        totals.serve = 1; /* one of those that tell nothing */
    if (!totals.voters)
        totals.voters = totals.alone ? 1 : totals.named;
    return totals;
}

/* ---- each by itself ---- */

static void check_down(const struct report *report, const struct server_facts *server,
                       const struct totals *totals)
{
    char what[200], why[160];
    if (server->answered)
        return;
    snprintf(what, sizeof what, "it does not answer (%s)", server->error);
    snprintf(why, sizeof why,
             "%zu of the %zu servers named here serve; more than half of %zu are "
             "needed for anything to be locked",
             totals->serve, totals->named, totals->voters);
    add_finding(report, server->where,
                (struct stile_finding){.severity = totals->serve ? STILE_WARNING : STILE_DANGER,
                                       .id = "down",
                                       .what = what,
                                       .why = why,
                                       .cure = "start it, or take it out of the URL"});
}

static void check_state(const struct report *report, const struct server_facts *server,
                        const struct totals *totals)
{
    enum stile_severity severity = totals->serve ? STILE_WARNING : STILE_DANGER;
    if (is(server, "read-only"))
        add_finding(
            report, server->where,
            (struct stile_finding){.severity = severity,
                                   .id = "read-only",
                                   .what = "it is cut off from the others, and read-only",
                                   .why = "it gives no sessions to who wants to write, so nothing "
                                          "can be locked through it",
                                   .cure = "see why it does not reach the other servers"});
    else if (server->not_serving)
        add_finding(
            report, server->where,
            (struct stile_finding){.severity = severity,
                                   .id = "no-quorum",
                                   .what = "it runs, and serves nobody: it follows no leader",
                                   .why = "nothing can be locked through it",
                                   .cure = "see whether more than half of the servers are up and "
                                           "reach each other"});
}

static void check_words(const struct report *report, const struct server_facts *server)
{
    char what[80] = "it does not answer to";
    bool any = false;
    for (int i = 0; i < WORDS; i++) {
        if (server->closed[i])
            strcat(strcat(what, any ? ", " : " "), zk_doctor_words[i]);
        any = any || server->closed[i];
    }
    if (!any)
        return;
    add_finding(
        report, server->where,
        (struct stile_finding){.severity = STILE_NOTE,
                               .id = "closed-words",
                               .what = what,
                               .why = "how many servers there are, who leads, and the bounds of "
                                      "sessions can't be looked at in full",
                               .cure = "set 4lw.commands.whitelist=ruok,srvr,conf,mntr in its "
                                       "zoo.cfg, and restart it"});
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
                               .why = "servers tell their leader of sessions every half tick; with "
                                      "more than 2 s, one that dies may take so much of a session "
                                      "with it that the lock is given on before its holder knows",
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
                                       .why = "it has no container nodes, which locks are made in",
                                       .cure = "upgrade it to 3.5 or later"});
}

/* ---- all of them ---- */

static void check_single(const struct report *report, const struct totals *totals)
{
    if (totals->voters == 1 && totals->serve)
        add_finding(
            report, report->facts->servers[0].where,
            (struct stile_finding){.severity = STILE_WARNING,
                                   .id = "one-server",
                                   .what = "there is one server only",
                                   .why = "while it is down nothing can be locked, and if its disk "
                                          "is lost, tokens begin again from the start",
                                   .cure = "run three, on machines of their own"});
}

static void check_count(const struct report *report, const struct totals *totals)
{
    char what[120], why[120];
    snprintf(what, sizeof what, "%zu voting servers, %zu of them answer here%s%s", totals->voters,
             totals->reply, totals->leader ? "; the leader is " : "",
             totals->leader ? totals->leader->where : "");
    if (totals->voters > 1 && totals->serve)
        add_finding(report, NULL,
                    (struct stile_finding){.severity = STILE_FINE, .id = "servers", .what = what});
    snprintf(what, sizeof what, "the number of voting servers, %zu, is even", totals->voters);
    snprintf(why, sizeof why, "%zu of them may fail, as of %zu", (totals->voters - 1) / 2,
             totals->voters - 1);
    if (totals->voters % 2 == 0)
        add_finding(report, NULL,
                    (struct stile_finding){.severity = STILE_NOTE,
                                           .id = "even",
                                           .what = what,
                                           .why = why,
                                           .cure = "add one, or let one be an observer"});
    snprintf(what, sizeof what, "%zu of %zu voting servers are named in the URL", totals->named,
             totals->voters);
    if (totals->named < totals->voters)
        add_finding(
            report, NULL,
            (struct stile_finding){.severity = STILE_NOTE,
                                   .id = "not-named",
                                   .what = what,
                                   .why = "where those are down nothing can be locked, though the "
                                          "others would do",
                                   .cure = "name them all"});
}

static void check_leaders(const struct report *report, const struct totals *totals)
{
    if (totals->lead + totals->alone > 1 || (totals->alone && totals->serve > totals->alone))
        add_finding(
            report, NULL,
            (struct stile_finding){.severity = STILE_DANGER,
                                   .id = "other-ensemble",
                                   .what = "the servers of this URL are not of one ensemble",
                                   .why = "two clients may find different ones, and both hold",
                                   .cure = "name the servers of one ensemble only"});
}

static void check_followers(const struct report *report, const struct totals *totals)
{
    char what[120];
    size_t in_step = totals->leader && totals->leader->followers >= 0
                         ? (size_t)totals->leader->followers + 1
                         : totals->voters;
    snprintf(what, sizeof what, "%zu of %zu servers are in step with the leader", in_step,
             totals->voters);
    if (in_step + (totals->named - totals->reply) <
        totals->voters) /* those are told of by themselves */
        add_finding(
            report, totals->leader->where,
            (struct stile_finding){.severity = STILE_WARNING,
                                   .id = "behind",
                                   .what = what,
                                   .why = "if so few are left that they are not more than half, "
                                          "nothing can be locked",
                                   .cure = "see what the others are doing"});
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
        snprintf(what, sizeof what, "its version is %s, another's %s", version, first);
        add_finding(
            report, facts->servers[i].where,
            (struct stile_finding){.severity = STILE_WARNING,
                                   .id = "versions",
                                   .what = what,
                                   .why = "that is meant for the time of an upgrade, not for good",
                                   .cure = "finish the upgrade"});
    }
}

/* ---- our session ---- */

static void check_session(const struct report *report, const struct totals *totals)
{
    const struct ensemble_facts *facts = report->facts;
    char what[120];
    snprintf(what, sizeof what, "a session of %ld ms was asked for, and %ld ms given",
             facts->asked_ms, facts->given_ms);
    if (facts->given_ms)
        add_finding(report, NULL,
                    (struct stile_finding){
                        .severity = facts->given_ms == facts->asked_ms ? STILE_FINE : STILE_NOTE,
                        .id = "session",
                        .what = what,
                        .why = facts->given_ms == facts->asked_ms
                                   ? NULL
                                   : "a TTL is what the servers make of it"});
    else if (totals->serve)
        add_finding(report, NULL,
                    (struct stile_finding){.severity = STILE_DANGER,
                                           .id = "no-session",
                                           .what = facts->error.message,
                                           .why = "without a session nothing can be locked",
                                           .cure = "see the log of the servers"});
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
    snprintf(what, sizeof what, "sessions last from %ld to %ld ms here", server->min_ms,
             server->max_ms);
    add_finding(
        report, server->where,
        (struct stile_finding){
            .severity = is_long ? STILE_WARNING : STILE_FINE,
            .id = "session-bounds",
            .what = what,
            .why = is_long ? "what a killed holder had is free after that time, not after its TTL"
                           : NULL,
            .cure = is_long ? "set minSessionTimeout in the zoo.cfg of all servers" : NULL});
}

/* More locks than one session has room for need more of them, and a connection each. */
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
        "a client has a connection for each %u kB of node paths, some 7,000 locks, so that the "
        "end of a session fits into a record of the servers' log; they take %s connections "
        "from one address",
        SESSION_BYTES_MAX >> 10, most);
    add_finding(
        report, server->where,
        (struct stile_finding){
            .severity = few ? STILE_NOTE : STILE_FINE,
            .id = "session-room",
            .what = what,
            .why = few ? "clients on one machine with very many locks could not get all of them"
                       : NULL,
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
