/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the facts about the servers mean for locks: findings, without any I/O. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/doctor.h"

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

/* ---- the facts ---- */

struct doctor_facts {
    const struct ensemble_facts *ensemble;
    const struct server_facts *server; /* which a rule is applied to, if it is not the ensemble */
    size_t named, answering, serving, leaders, standalone, voters;
    const struct server_facts *leader;
};

static bool is(const struct server_facts *server, const char *mode)
{
    return strcmp(server->mode, mode) == 0;
}

static bool serves(const struct server_facts *server)
{
    return *server->mode && !is(server, "read-only");
}

static struct doctor_facts add_up(const struct ensemble_facts *ensemble)
{
    struct doctor_facts facts = {.ensemble = ensemble};
    for (size_t i = 0; i < ensemble->n; i++) {
        const struct server_facts *server = &ensemble->servers[i];
        if (server->duplicate)
            continue;
        facts.named++;
        facts.answering += server->answered;
        facts.serving += serves(server);
        facts.standalone += is(server, "standalone");
        facts.leaders += is(server, "leader");
        facts.leader = is(server, "leader") ? server : facts.leader;
        facts.voters = server->voters > facts.voters ? server->voters : facts.voters;
    }
    if (!facts.serving && ensemble->given_ms)
        facts.serving = 1; /* a server that answers no word gave it */
    if (!facts.voters)
        facts.voters = facts.standalone ? 1 : facts.named;
    return facts;
}

/* ---- each server ---- */

/* While others serve, a server that does not is no danger. */
static void be_milder(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    if (facts->serving)
        draft->severity = STILE_WARNING;
}

static bool is_down(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    be_milder(draft, facts);
    doctor_put(draft, "%s", facts->server->error);
    doctor_put(draft, "%zu", facts->serving);
    doctor_put(draft, "%zu", facts->named);
    doctor_put(draft, "%zu", facts->voters);
    return !facts->server->answered;
}

static bool is_read_only(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    be_milder(draft, facts);
    return is(facts->server, "read-only");
}

static bool is_without_leader(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    be_milder(draft, facts);
    return facts->server->not_serving;
}

static bool has_closed_words(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    char list[40] = "";
    for (int i = 0; i < WORDS; i++) {
        if (facts->server->closed[i])
            strcat(strcat(list, *list ? ", " : ""), zk_doctor_words[i]);
    }
    doctor_put(draft, "%s", list);
    return *list;
}

static bool ticks_slowly(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%ld", facts->server->tick_ms);
    return facts->server->tick_ms > TICK_MAX_MS;
}

static bool is_too_old(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    int major = 0, minor = 0;
    doctor_put(draft, "%s", facts->server->version);
    return sscanf(facts->server->version, "%d.%d", &major, &minor) == 2 && major <= 3 && minor < 5;
}

/* Another version than the first server that reports one. */
static bool has_other_version(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct server_facts *first = facts->ensemble->servers;
    while (first < facts->server && !*first->version)
        first++;
    doctor_put(draft, "%s", facts->server->version);
    doctor_put(draft, "%s", first->version);
    return *facts->server->version && strcmp(first->version, facts->server->version) != 0;
}

static const struct doctor_rule server_rules[] = {
    {"down", STILE_DANGER, is_down, .what = "it does not answer ($1)",
     .why = "$2 of the $3 servers in the URL serve clients; locking needs more than half of $4",
     .cure = "start it, or remove it from the URL"},
    {"read-only", STILE_DANGER, is_read_only,
     .what = "it is cut off from the other servers and read-only",
     .why = "it accepts no sessions that write, so nothing can be locked through it",
     .cure = "find out why it cannot reach the other servers"},
    {"no-quorum", STILE_DANGER, is_without_leader, .unless = is_read_only,
     .what = "it runs without a leader, and serves no clients",
     .why = "nothing can be locked through it",
     .cure = "check that more than half of the servers are up and can reach each other"},
    {"closed-words", STILE_NOTE, has_closed_words, .what = "it does not answer the commands $1",
     .why = "the number of servers, the leader and the limits of sessions cannot be checked "
            "completely",
     .cure = "set 4lw.commands.whitelist=ruok,srvr,conf,mntr in its zoo.cfg and restart it"},
    {"tick-time", STILE_DANGER, ticks_slowly, .what = "its tickTime is $1 ms",
     .why = "servers report sessions to the leader every half tick; with more than 2 s, a server's "
            "crash may cost a session so much time that its lock passes on before its holder knows",
     .cure = "set tickTime=2000 or less in the zoo.cfg of all servers"},
    {"version", STILE_DANGER, is_too_old, .what = "its version is $1",
     .why = "it has no container nodes, which locks need", .cure = "upgrade it to 3.5 or later"},
    {"versions", STILE_WARNING, has_other_version,
     .what = "its version is $1, that of another server $2",
     .why = "mixed versions are meant only for the time of an upgrade",
     .cure = "finish the upgrade"},
    {0},
};

/* ---- the ensemble ---- */

DOCTOR_WHEN(is_of_several, facts->leaders + facts->standalone > 1 ||
                               (facts->standalone && facts->serving > facts->standalone))

static bool has_one_server(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    draft->where = facts->ensemble->servers[0].where;
    return facts->voters == 1 && facts->serving;
}

static bool has_servers(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%zu", facts->voters);
    doctor_put(draft, "%zu", facts->answering);
    doctor_put(draft, "%s%s", facts->leader ? "; the leader is " : "",
               facts->leader ? facts->leader->where : "");
    return facts->voters > 1 && facts->serving;
}

static bool is_even(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%zu", facts->voters);
    doctor_put(draft, "%zu", (facts->voters - 1) / 2);
    doctor_put(draft, "%zu", facts->voters - 1);
    return facts->voters % 2 == 0;
}

static bool has_unnamed(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%zu", facts->named);
    doctor_put(draft, "%zu", facts->voters);
    return facts->named < facts->voters;
}

/* Silent servers have findings of their own. */
static bool is_behind(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    if (!facts->leader || facts->leader->followers < 0)
        return false;
    size_t in_sync = (size_t)facts->leader->followers + 1;
    draft->where = facts->leader->where;
    doctor_put(draft, "%zu", in_sync);
    doctor_put(draft, "%zu", facts->voters);
    return in_sync + (facts->named - facts->answering) < facts->voters;
}

/* ---- sessions ---- */

static bool has_session(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%ld", facts->ensemble->asked_ms);
    doctor_put(draft, "%ld", facts->ensemble->given_ms);
    return facts->ensemble->given_ms > 0;
}

DOCTOR_WHEN(has_bounded_session,
            has_session(draft, facts) && facts->ensemble->given_ms != facts->ensemble->asked_ms)

static bool has_no_session(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%s", facts->ensemble->error.message);
    return !facts->ensemble->given_ms && facts->serving;
}

static bool has_bounds(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct server_facts *server = facts->ensemble->servers;
    const struct server_facts *end = server + facts->ensemble->n;
    while (server < end && !server->max_ms)
        server++;
    if (server == end)
        return false;
    bool is_long = server->min_ms > SESSION_LONG;
    draft->where = server->where;
    doctor_put(draft, "%ld", server->min_ms);
    doctor_put(draft, "%ld", server->max_ms);
    return is_long == (draft->rule->severity == STILE_WARNING);
}

/* More locks than fit into one session need further sessions, with a connection each. */
static bool has_room(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct server_facts *server = facts->ensemble->servers;
    const struct server_facts *end = server + facts->ensemble->n;
    while (server < end && server->connections < 0)
        server++;
    if (server == end || !facts->ensemble->given_ms)
        return false;
    bool few = server->connections > 0 && server->connections < SESSIONS_MAX;
    draft->where = server->where;
    doctor_put(draft, "%u", SESSION_BYTES_MAX >> 10);
    if (server->connections > 0)
        doctor_put(draft, "%ld", server->connections);
    else
        doctor_put(draft, "any number of");
    return few == (draft->rule->severity == STILE_NOTE);
}

#define GIVEN "a session of $1 ms was requested, and one of $2 ms given"
#define ROOM                                                                                       \
    "a client uses one connection for each $1 kB of node paths, about 7,000 locks, so that the "   \
    "end "                                                                                         \
    "of a session fits into one record of the servers' log; they accept $2 connections from one "  \
    "address"

static const struct doctor_rule ensemble_rules[] = {
    {"other-ensemble", STILE_DANGER, is_of_several,
     .what = "the servers in the URL do not belong to one ensemble",
     .why = "two clients may use different ensembles, and both hold the same lock",
     .cure = "name only the servers of one ensemble"},
    {"one-server", STILE_WARNING, has_one_server, .what = "there is only one server",
     .why = "nothing can be locked while it is down, and tokens start again from the beginning if "
            "its disk is lost",
     .cure = "run three, on separate machines"},
    {"servers", STILE_FINE, has_servers, .what = "$1 voting servers, $2 of them answered$3"},
    {"even", STILE_NOTE, is_even, .what = "the number of voting servers, $1, is even",
     .why = "it tolerates $2 failures, as many as $3 servers would",
     .cure = "add one, or make one an observer"},
    {"not-named", STILE_NOTE, has_unnamed, .what = "$1 of $2 voting servers are named in the URL",
     .why = "while those are down nothing can be locked, though the other servers could serve",
     .cure = "name all of them in the URL"},
    {"behind", STILE_WARNING, is_behind, .what = "$1 of $2 servers are in sync with the leader",
     .why = "nothing can be locked unless more than half of them are in sync",
     .cure = "check the other servers"},
    {"session", STILE_FINE, has_session, .unless = has_bounded_session, .what = GIVEN},
    {"session", STILE_NOTE, has_bounded_session, .what = GIVEN, .why = "the servers bound the TTL"},
    {"no-session", STILE_DANGER, has_no_session, .what = "$1",
     .why = "without a session nothing can be locked", .cure = "look at the servers' logs"},
    {"session-bounds", STILE_FINE, has_bounds, .what = "sessions last from $1 to $2 ms"},
    {"session-bounds", STILE_WARNING, has_bounds, .what = "sessions last from $1 to $2 ms",
     .why = "a killed holder's lock lasts at least that long, whatever its TTL",
     .cure = "lower minSessionTimeout in the zoo.cfg of all servers"},
    {"session-room", STILE_FINE, has_room, .what = ROOM},
    {"session-room", STILE_NOTE, has_room, .what = ROOM,
     .why = "clients on one machine could not hold very many locks",
     .cure = "set maxClientCnxns=60 or more in the zoo.cfg of all servers"},
    {0},
};

void zk_doctor_judge(const struct ensemble_facts *ensemble, doctor_report *report, void *data)
{
    struct doctor_facts facts = add_up(ensemble);
    for (size_t i = 0; i < ensemble->n; i++) {
        facts.server = &ensemble->servers[i];
        if (!facts.server->duplicate)
            doctor_apply(server_rules, &facts, facts.server->where, report, data);
    }
    doctor_apply(ensemble_rules, &facts, NULL, report, data);
}
