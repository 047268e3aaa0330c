#include "engines/zookeeper/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MAX_MS  2000  /* what told.c counts on */
#define SESSION_LONG 10000 /* the TTL of who asks for none */

const char *const word_texts[WORDS] = {
    [WORD_RUOK] = "ruok", [WORD_SRVR] = "srvr", [WORD_CONF] = "conf", [WORD_MNTR] = "mntr"};

/* ---- what they say ---- */

/* What is behind a word at the start of a line; NULL: no line has it. */
static const char *behind(const char *text, const char *word)
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
    const char *found = behind(text, word);
    return found ? strtol(found, NULL, 10) : otherwise;
}

static size_t count_voters(const char *text)
{
    size_t n = 0;
    for (const char *at = behind(text, "server."); at; at = behind(at, "server.")) {
        size_t len = strcspn(at, ";\n");
        n += len < 8 || memcmp(at + len - 8, "observer", 8) != 0;
    }
    return n;
}

static void read_conf(struct seen_server *server, const char *text)
{
    server->tick_ms = number(text, "tickTime=", 0);
    server->min_ms = number(text, "minSessionTimeout=", 0);
    server->max_ms = number(text, "maxSessionTimeout=", 0);
    server->connections = number(text, "maxClientCnxns=", -1);
    size_t voters = count_voters(text);
    server->voters = voters ? voters : server->voters;
}

void seen_read(struct seen_server *server, enum word word, const char *text)
{
    server->answered = true;
    if (strstr(text, "not in the whitelist")) {
        server->closed[word] = true;
    } else if (strstr(text, "not currently serving")) {
        server->idle = true;
    } else if (word == WORD_SRVR) {
        copy_word(server->version, sizeof server->version, behind(text, "Zookeeper version: "));
        server->version[strcspn(server->version, "-")] = '\0';
        copy_word(server->mode, sizeof server->mode, behind(text, "Mode: "));
    } else if (word == WORD_CONF) {
        read_conf(server, text);
    } else if (word == WORD_MNTR) {
        server->followers = number(text, "zk_synced_followers\t", -1);
        if (!*server->mode)
            copy_word(server->mode, sizeof server->mode, behind(text, "zk_server_state\t"));
        if (!server->voters)
            server->voters = (size_t)number(text, "zk_quorum_size\t", 0);
    }
}

/* ---- telling ---- */

struct telling {
    const struct seen *seen;
    tell_fn *fn;
    void *data;
};

static void say(const struct telling *t, const char *where, struct stile_finding finding)
{
    finding.where = where;
    t->fn(t->data, &finding);
}

static bool is(const struct seen_server *server, const char *mode)
{
    return strcmp(server->mode, mode) == 0;
}

static bool serves(const struct seen_server *server)
{
    return *server->mode && !is(server, "read-only");
}

struct sum {
    size_t named, answer, serve, lead, alone, voters;
    const struct seen_server *leader;
};

static struct sum sum_up(const struct seen *seen)
{
    struct sum sum = {0};
    for (size_t i = 0; i < seen->n; i++) {
        const struct seen_server *server = &seen->servers[i];
        if (server->again)
            continue;
        sum.named++;
        sum.answer += server->answered;
        sum.serve += serves(server);
        sum.alone += is(server, "standalone");
        sum.lead += is(server, "leader");
        sum.leader = is(server, "leader") ? server : sum.leader;
        sum.voters = server->voters > sum.voters ? server->voters : sum.voters;
    }
    if (!sum.serve && seen->given_ms)
        sum.serve = 1; /* one of those that tell nothing */
    if (!sum.voters)
        sum.voters = sum.alone ? 1 : sum.named;
    return sum;
}

/* ---- each by itself ---- */

static void look_at_absence(const struct telling *t, const struct seen_server *server,
                            const struct sum *sum)
{
    char what[200], why[160];
    if (server->answered)
        return;
    snprintf(what, sizeof what, "it does not answer (%s)", server->error);
    snprintf(why, sizeof why,
             "%zu of the %zu servers named here serve; more than half of %zu are "
             "needed for anything to be locked",
             sum->serve, sum->named, sum->voters);
    say(t, server->where,
        (struct stile_finding){.severity = sum->serve ? STILE_WARNING : STILE_DANGER,
                               .id = "down",
                               .what = what,
                               .why = why,
                               .cure = "start it, or take it out of the URL"});
}

static void look_at_state(const struct telling *t, const struct seen_server *server,
                          const struct sum *sum)
{
    enum stile_severity severity = sum->serve ? STILE_WARNING : STILE_DANGER;
    if (is(server, "read-only"))
        say(t, server->where,
            (struct stile_finding){.severity = severity,
                                   .id = "read-only",
                                   .what = "it is cut off from the others, and read-only",
                                   .why = "it gives no sessions to who wants to write, so nothing "
                                          "can be locked through it",
                                   .cure = "see why it does not reach the other servers"});
    else if (server->idle)
        say(t, server->where,
            (struct stile_finding){.severity = severity,
                                   .id = "no-quorum",
                                   .what = "it runs, and serves nobody: it follows no leader",
                                   .why = "nothing can be locked through it",
                                   .cure = "see whether more than half of the servers are up and "
                                           "reach each other"});
}

static void look_at_words(const struct telling *t, const struct seen_server *server)
{
    char what[80] = "it does not answer to";
    bool any = false;
    for (int i = 0; i < WORDS; i++) {
        if (server->closed[i])
            strcat(strcat(what, any ? ", " : " "), word_texts[i]);
        any = any || server->closed[i];
    }
    if (!any)
        return;
    say(t, server->where,
        (struct stile_finding){.severity = STILE_NOTE,
                               .id = "closed-words",
                               .what = what,
                               .why = "how many servers there are, who leads, and the bounds of "
                                      "sessions can't be looked at in full",
                               .cure = "set 4lw.commands.whitelist=ruok,srvr,conf,mntr in its "
                                       "zoo.cfg, and restart it"});
}

static void look_at_ticks(const struct telling *t, const struct seen_server *server)
{
    char what[80];
    if (server->tick_ms <= TICK_MAX_MS)
        return;
    snprintf(what, sizeof what, "its tickTime is %ld ms", server->tick_ms);
    say(t, server->where,
        (struct stile_finding){.severity = STILE_DANGER,
                               .id = "tick-time",
                               .what = what,
                               .why = "servers tell their leader of sessions every half tick; with "
                                      "more than 2 s, one that dies may take so much of a session "
                                      "with it that the lock is given on before its holder knows",
                               .cure = "set tickTime=2000 or less in the zoo.cfg of all servers"});
}

static void look_at_version(const struct telling *t, const struct seen_server *server)
{
    char what[80];
    int major = 0, minor = 0;
    if (sscanf(server->version, "%d.%d", &major, &minor) != 2 || major > 3 || minor >= 5)
        return;
    snprintf(what, sizeof what, "its version is %s", server->version);
    say(t, server->where,
        (struct stile_finding){.severity = STILE_DANGER,
                               .id = "version",
                               .what = what,
                               .why = "it has no container nodes, which locks are made in",
                               .cure = "upgrade it to 3.5 or later"});
}

/* ---- all of them ---- */

static void look_at_one(const struct telling *t, const struct sum *sum)
{
    if (sum->voters == 1 && sum->serve)
        say(t, t->seen->servers[0].where,
            (struct stile_finding){.severity = STILE_WARNING,
                                   .id = "one-server",
                                   .what = "there is one server only",
                                   .why = "while it is down nothing can be locked, and if its disk "
                                          "is lost, tokens begin again from the start",
                                   .cure = "run three, on machines of their own"});
}

static void look_at_count(const struct telling *t, const struct sum *sum)
{
    char what[120], why[120];
    snprintf(what, sizeof what, "%zu voting servers, %zu of them answer here%s%s", sum->voters,
             sum->answer, sum->leader ? "; the leader is " : "",
             sum->leader ? sum->leader->where : "");
    if (sum->voters > 1 && sum->serve)
        say(t, NULL, (struct stile_finding){.severity = STILE_FINE, .id = "servers", .what = what});
    snprintf(what, sizeof what, "the number of voting servers, %zu, is even", sum->voters);
    snprintf(why, sizeof why, "%zu of them may fail, as of %zu", (sum->voters - 1) / 2,
             sum->voters - 1);
    if (sum->voters % 2 == 0)
        say(t, NULL,
            (struct stile_finding){.severity = STILE_NOTE,
                                   .id = "even",
                                   .what = what,
                                   .why = why,
                                   .cure = "add one, or let one be an observer"});
    snprintf(what, sizeof what, "%zu of %zu voting servers are named in the URL", sum->named,
             sum->voters);
    if (sum->named < sum->voters)
        say(t, NULL,
            (struct stile_finding){.severity = STILE_NOTE,
                                   .id = "not-named",
                                   .what = what,
                                   .why = "where those are down nothing can be locked, though the "
                                          "others would do",
                                   .cure = "name them all"});
}

static void look_at_leaders(const struct telling *t, const struct sum *sum)
{
    if (sum->lead + sum->alone > 1 || (sum->alone && sum->serve > sum->alone))
        say(t, NULL,
            (struct stile_finding){.severity = STILE_DANGER,
                                   .id = "other-ensemble",
                                   .what = "the servers of this URL are not of one ensemble",
                                   .why = "two clients may find different ones, and both hold",
                                   .cure = "name the servers of one ensemble only"});
}

static void look_at_followers(const struct telling *t, const struct sum *sum)
{
    char what[120];
    size_t in_step = sum->leader && sum->leader->followers >= 0 ? (size_t)sum->leader->followers + 1
                                                                : sum->voters;
    snprintf(what, sizeof what, "%zu of %zu servers are in step with the leader", in_step,
             sum->voters);
    if (in_step + (sum->named - sum->answer) < sum->voters) /* those are told of by themselves */
        say(t, sum->leader->where,
            (struct stile_finding){.severity = STILE_WARNING,
                                   .id = "behind",
                                   .what = what,
                                   .why = "if so few are left that they are not more than half, "
                                          "nothing can be locked",
                                   .cure = "see what the others are doing"});
}

static void look_at_versions(const struct telling *t)
{
    const struct seen *seen = t->seen;
    const char *first = NULL;
    char what[120];
    for (size_t i = 0; i < seen->n; i++) {
        const char *version = seen->servers[i].version;
        if (!*version)
            continue;
        first = first ? first : version;
        if (strcmp(first, version) == 0)
            continue;
        snprintf(what, sizeof what, "its version is %s, another's %s", version, first);
        say(t, seen->servers[i].where,
            (struct stile_finding){.severity = STILE_WARNING,
                                   .id = "versions",
                                   .what = what,
                                   .why = "that is meant for the time of an upgrade, not for good",
                                   .cure = "finish the upgrade"});
    }
}

/* ---- our session ---- */

static void look_at_session(const struct telling *t, const struct sum *sum)
{
    const struct seen *seen = t->seen;
    char what[120];
    snprintf(what, sizeof what, "a session of %ld ms was asked for, and %ld ms given",
             seen->asked_ms, seen->given_ms);
    if (seen->given_ms)
        say(t, NULL,
            (struct stile_finding){
                .severity = seen->given_ms == seen->asked_ms ? STILE_FINE : STILE_NOTE,
                .id = "session",
                .what = what,
                .why = seen->given_ms == seen->asked_ms ? NULL
                                                        : "a TTL is what the servers make of it"});
    else if (sum->serve)
        say(t, NULL,
            (struct stile_finding){.severity = STILE_DANGER,
                                   .id = "no-session",
                                   .what = seen->error.message,
                                   .why = "without a session nothing can be locked",
                                   .cure = "see the log of the servers"});
}

static void look_at_bounds(const struct telling *t)
{
    const struct seen_server *server = t->seen->servers;
    const struct seen_server *end = server + t->seen->n;
    char what[120];
    while (server < end && !server->max_ms)
        server++;
    if (server == end)
        return;
    bool is_long = server->min_ms > SESSION_LONG;
    snprintf(what, sizeof what, "sessions last from %ld to %ld ms here", server->min_ms,
             server->max_ms);
    say(t, server->where,
        (struct stile_finding){
            .severity = is_long ? STILE_WARNING : STILE_FINE,
            .id = "session-bounds",
            .what = what,
            .why = is_long ? "what a killed holder had is free after that time, not after its TTL"
                           : NULL,
            .cure = is_long ? "set minSessionTimeout in the zoo.cfg of all servers" : NULL});
}

/* More locks than one session has room for need more of them, and a connection each. */
static void look_at_room(const struct telling *t)
{
    const struct seen_server *server = t->seen->servers;
    const struct seen_server *end = server + t->seen->n;
    char what[240];
    while (server < end && server->connections < 0)
        server++;
    if (server == end || !t->seen->given_ms)
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
    say(t, server->where,
        (struct stile_finding){
            .severity = few ? STILE_NOTE : STILE_FINE,
            .id = "session-room",
            .what = what,
            .why = few ? "clients on one machine with very many locks could not get all of them"
                       : NULL,
            .cure = few ? "set maxClientCnxns=60 or more in the zoo.cfg of all servers" : NULL});
}

void diagnose(const struct seen *seen, tell_fn *tell, void *data)
{
    const struct telling t = {.seen = seen, .fn = tell, .data = data};
    const struct sum sum = sum_up(seen);
    for (size_t i = 0; i < seen->n; i++) {
        const struct seen_server *server = &seen->servers[i];
        if (server->again)
            continue;
        look_at_absence(&t, server, &sum);
        look_at_state(&t, server, &sum);
        look_at_words(&t, server);
        look_at_ticks(&t, server);
        look_at_version(&t, server);
    }
    look_at_leaders(&t, &sum);
    look_at_one(&t, &sum);
    look_at_count(&t, &sum);
    look_at_followers(&t, &sum);
    look_at_versions(&t);
    look_at_session(&t, &sum);
    look_at_bounds(&t);
    look_at_room(&t);
}
