/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/script_faults.h"

#include <string.h>

#include "sim/story.h"

/* ---- servers ---- */

/* The engine's own table of faults has the rules that each takes back. Engines call one thing by
 * different words. */
static const struct {
    const char *verb, *texts[2];
    bool heals;
} server_verbs[] = {
    {"stops", {"a server is stopped", "a member is stopped"}, false},
    {"continues", {"a server is stopped", "a member is stopped"}, true},
    {"crashes", {"a server crashes and keeps its data", "a member crashes"}, false},
    {"restarts", {"a server crashes and keeps its data", "a member crashes"}, true},
    {"forgets", {"a server crashes and loses its data", "a member loses its disk"}, false},
    {"flushes", {"FLUSHALL"}, false},
    {"isolates", {"a member is cut off from the others"}, false},
    {"rejoins", {"a member is cut off from the others"}, true},
};

/* A server that has lost its data restarts without them. */
static const char *const loses_data[2] = {"a server crashes and loses its data",
                                          "a member loses its disk"};
static bool forgetful[SERVERS_MAX];

void script_faults_begin(void)
{
    memset(forgetful, 0, sizeof forgetful);
}

bool script_server_verb(const char *verb)
{
    for (size_t i = 0; i < sizeof server_verbs / sizeof *server_verbs; i++) {
        if (strcmp(verb, server_verbs[i].verb) == 0)
            return true;
    }
    return strcmp(verb, "jumps") == 0;
}

static const struct fault_class *class_of(const struct sim_engine_class *engine,
                                          const char *const texts[2])
{
    for (const struct fault_class *class = engine->faults; class->text != NULL; class ++) {
        for (unsigned i = 0; i < 2 && texts[i] != NULL; i++) {
            if (strcmp(class->text, texts[i]) == 0)
                return class;
        }
    }
    return NULL;
}

static unsigned strike(const struct fault_class *class, struct server *server, unsigned number,
                       bool heals)
{
    struct fault *fault = world_alloc(sizeof *fault);
    *fault = (struct fault){.class = class, .server = server, .number = number};
    if (class == NULL || (!heals && !server_runs(server)))
        return 0;
    if (heals && class->heal != NULL)
        class->heal(fault);
    else if (!heals)
        class->strike(fault);
    story_note_fault(class->text, NULL, server->host, !heals);
    history_add(world_history(),
                &(struct event){.ns = world_now(), .kind = heals ? EVENT_HEALED : EVENT_FAULT});
    return heals ? 0 : class->breaks;
}

static unsigned jump(const struct sim_engine_class *engine, struct server *server, double seconds)
{
    static const char *const forward[2] = {"a server's clock jumps forward",
                                           "a member's clock jumps forward"};
    static const char *const back[2] = {"a server's clock jumps back",
                                        "a member's clock jumps back"};
    unsigned us = (unsigned)((seconds < 0 ? -seconds : seconds) * 1e6);
    return strike(class_of(engine, seconds < 0 ? back : forward), server, us, false);
}

unsigned script_break_server(const struct sim_engine_class *engine, struct server *server,
                             const char *verb, double seconds)
{
    unsigned broken = 0;
    bool *forgets = &forgetful[server->number], restarts = strcmp(verb, "restarts") == 0;
    if (strcmp(verb, "jumps") == 0)
        return jump(engine, server, seconds);
    if (restarts && !server->down)
        return 0;
    for (size_t i = 0; i < sizeof server_verbs / sizeof *server_verbs; i++) {
        if (strcmp(verb, server_verbs[i].verb) != 0)
            continue;
        const char *const *texts = restarts && *forgets ? loses_data : server_verbs[i].texts;
        broken |= strike(class_of(engine, texts), server, 0, server_verbs[i].heals);
    }
    if (server_runs(server) || strcmp(verb, "forgets") == 0 || strcmp(verb, "crashes") == 0)
        *forgets = strcmp(verb, "forgets") == 0;
    return broken;
}

/* ---- paths ---- */

static const struct {
    const char *how, *text;
    bool to_server, to_client;
    uint64_t delay_ns;
} path_states[] = {
    {"cut", "nothing passes between them", true, true, 0},
    {"mute", "requests do not arrive", true, false, 0},
    {"deaf", "answers do not arrive", false, true, 0},
    {"slow", "a path is slow", false, false, 700 * MS},
};

bool script_path_state(const char *how)
{
    for (size_t i = 0; i < sizeof path_states / sizeof *path_states; i++) {
        if (strcmp(how, path_states[i].how) == 0)
            return true;
    }
    return strcmp(how, "open") == 0;
}

void script_break_path(const struct process *process, const struct server *server, const char *how)
{
    struct path *path = net_path(process, server);
    if (strcmp(how, "open") == 0) {
        net_unblock(path);
        story_note_fault("a path is broken", process->name, server->host, false);
        return;
    }
    for (size_t i = 0; i < sizeof path_states / sizeof *path_states; i++) {
        if (strcmp(how, path_states[i].how) != 0)
            continue;
        path->blocked[TO_SERVER] |= path_states[i].to_server;
        path->blocked[TO_CLIENT] |= path_states[i].to_client;
        if (path_states[i].delay_ns != 0)
            path->delay_ns = path_states[i].delay_ns;
        story_note_fault(path_states[i].text, process->name, server->host, true);
    }
}

/* ---- messages ---- */

static const struct {
    const char *fate, *text;
} fates[] = {
    {"held", "a message is held up"},
    {"freed", "a message is held up"},
    {"late", "a message takes longer"},
    {"lost", "a message is lost, and its connection breaks"},
};

bool script_message_fate(const char *fate)
{
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++) {
        if (strcmp(fate, fates[i].fate) == 0)
            return true;
    }
    return false;
}

static void note_fate(const struct connection *connection, const char *fate)
{
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++) {
        if (strcmp(fate, fates[i].fate) == 0)
            story_note_fault(fates[i].text, connection->process->name, connection->server->host,
                             strcmp(fate, "freed") != 0);
    }
}

void script_break_message(uint64_t piece, const char *fate, double seconds)
{
    const struct connection *connection = net_connection_of(piece);
    if (connection == NULL)
        return;
    note_fate(connection, fate);
    if (strcmp(fate, "held") == 0)
        net_hold(piece);
    else if (strcmp(fate, "freed") == 0)
        net_let_go(piece);
    else if (strcmp(fate, "late") == 0)
        net_delay(piece, (uint64_t)(seconds * (double)SEC));
    else
        net_lose(piece);
}
