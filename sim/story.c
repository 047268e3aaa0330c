/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/story.h"

#include <inttypes.h>
#include <string.h>

#include "base/container.h"

#define PROCESSES_MAX 256
#define NAMES_MAX     4

/* What was last written about each of them: only changes are. */
struct process_seen {
    const struct process *process;
    const char *state;
};

struct server_seen {
    const char *state;
    int64_t clock_us;
    struct stored stored[NAMES_MAX];
};

static struct {
    FILE *out; /* NULL: no story */
    size_t n_rows;
    size_t history; /* events written */
    struct process_seen processes[PROCESSES_MAX];
    size_t n_processes;
    struct server_seen servers[SERVERS_MAX];
} story;

/* ---- JSON ---- */

static void put_text(const char *text, size_t n)
{
    putc('"', story.out);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(story.out, "\\%c", c);
        else if (c < ' ' || c > '~' || c == '<') /* "</script>" would end the page's */
            fprintf(story.out, "\\u%04x", c);
        else
            putc(c, story.out);
    }
    putc('"', story.out);
}

static void put_string(const char *text)
{
    if (text == NULL)
        fputs("null", story.out);
    else
        put_text(text, strlen(text));
}

static void put_time(uint64_t ns)
{
    if (ns == UINT64_MAX)
        fputs("null", story.out);
    else
        fprintf(story.out, "%" PRIu64, ns);
}

static void begin_row(const char *kind)
{
    fprintf(story.out, "%s[\"%s\",%" PRIu64, story.n_rows++ > 0 ? ",\n" : "", kind, world_now());
}

static void next(void)
{
    putc(',', story.out);
}

static void end_row(void)
{
    putc(']', story.out);
}

/* ---- the history ---- */

static void put_field(const char *name, const char *text)
{
    fprintf(story.out, ",\"%s\":", name);
    put_string(text);
}

static void put_number(const char *name, uint64_t number)
{
    fprintf(story.out, ",\"%s\":", name);
    put_time(number);
}

static void put_token(const struct event *event)
{
    fprintf(story.out, ",\"token\":\"%" PRIu64 "\"", event->token);
}

static void put_asked(const struct event *event)
{
    static const char *const modes[] = {"exclusive", "shared", "slots"};
    put_field("mode", modes[event->mode]);
    put_number("slots", event->slots);
    put_number("until", event->until_ns);
    put_number("lease", event->lease_ns);
    put_number("hold", event->hold_ns);
    put_number("delay", event->delay_ns);
}

static void put_write(const struct event *event)
{
    static const char *const outcomes[] = {"accepted", "refused", "unknown"};
    put_token(event);
    put_number("sent", event->sent_ns);
    put_number("seen", event->seen);
    put_number("value", event->value);
    put_field("outcome", outcomes[event->outcome]);
}

static void put_details(const struct event *event)
{
    if (event->kind == EVENT_ASKED)
        put_asked(event);
    if (event->kind == EVENT_GRANTED)
        put_token(event);
    if (event->kind == EVENT_GRANTED || event->kind == EVENT_RENEWED)
        put_number("deadline", event->deadline_ns);
    if (event->kind == EVENT_ANSWERED || event->kind == EVENT_ENDED || event->kind == EVENT_BROKE)
        put_field("status", stile_status_name(event->status));
    if (event->kind == EVENT_WROTE)
        put_write(event);
}

static const char *client_name(uint32_t number)
{
    for (size_t i = 0; i < story.n_processes; i++) {
        if (story.processes[i].process->number == number)
            return story.processes[i].process->name;
    }
    return world_print("c%" PRIu32, number);
}

static void put_event(size_t number)
{
    const struct history *history = world_history();
    const struct event *event = &history->events[number];
    bool named = event->kind == EVENT_ASKED || event->kind == EVENT_WROTE ||
                 event->kind == EVENT_BREAKS || event->kind == EVENT_BROKE;
    begin_row("told");
    fprintf(story.out, ",%zu,{\"kind\":\"%s\"", number, history_kind_text(event->kind));
    if (event->kind < EVENT_FAULT || event->kind == EVENT_WROTE)
        put_field("client", client_name(event->client));
    if (event->kind <= EVENT_BROKEN)
        put_number("claim", event->claim);
    if (named)
        put_field("name", history->names[event->name]);
    put_details(event);
    putc('}', story.out);
    end_row();
}

/* ---- clients and servers ---- */

static const char *process_state(const struct process *process)
{
    if (process->dead || process->over)
        return "dead";
    if (process->paused)
        return "paused";
    return process->opened ? "running" : "opening";
}

static void look_at_process(struct process_seen *seen)
{
    const char *state = process_state(seen->process);
    if (state == seen->state)
        return;
    seen->state = state;
    begin_row("client");
    next();
    put_string(seen->process->name);
    next();
    put_string(state);
    fprintf(story.out, ",%" PRIu32, seen->process->number);
    end_row();
}

void story_meet(const struct process *process)
{
    if (story.out == NULL)
        return;
    for (size_t i = 0; i < story.n_processes; i++) {
        if (story.processes[i].process == process)
            return;
    }
    if (story.n_processes == PROCESSES_MAX)
        return;
    story.processes[story.n_processes].process = process;
    look_at_process(&story.processes[story.n_processes++]);
}

static const char *server_state(const struct server *server)
{
    if (server->down)
        return "down";
    return server->stopped ? "stopped" : "running";
}

static void look_at_stored(struct stored *seen, const struct server *server, const char *name)
{
    struct stored stored = {0};
    if (server->class->stored == NULL || !server->class->stored(&stored, server, name))
        stored = (struct stored){0};
    if (strcmp(stored.holder, seen->holder) == 0 && stored.until_ns == seen->until_ns &&
        stored.fence == seen->fence)
        return;
    *seen = stored;
    begin_row("stored");
    next();
    put_string(server->host);
    next();
    put_string(name);
    next();
    put_string(stored.holder[0] != '\0' ? stored.holder : NULL);
    next();
    put_time(stored.until_ns);
    fprintf(story.out, ",\"%" PRIu64 "\"", stored.fence);
    end_row();
}

static void look_at_server(struct server_seen *seen, const struct server *server)
{
    const struct history *history = world_history();
    const char *state = server_state(server);
    if (state != seen->state || server->clock_us != seen->clock_us) {
        seen->state = state;
        seen->clock_us = server->clock_us;
        begin_row("server");
        next();
        put_string(server->host);
        next();
        put_string(state);
        fprintf(story.out, ",%" PRId64, server->clock_us);
        end_row();
    }
    for (size_t i = 0; i < history->n_names && i < NAMES_MAX; i++)
        look_at_stored(&seen->stored[i], server, history->names[i]);
}

/* What has changed since the last row. */
static void catch_up(void)
{
    while (story.history < world_history()->n)
        put_event(story.history++);
    for (size_t i = 0; i < story.n_processes; i++)
        look_at_process(&story.processes[i]);
    for (size_t i = 0; i < net_count(); i++)
        look_at_server(&story.servers[i], net_server(i));
}

/* ---- what the world and the network report ---- */

static void traced(const char *line)
{
    catch_up();
    begin_row("line");
    next();
    put_string(line);
    end_row();
}

static const struct world_observer of_world = {.traced = traced, .stepped = catch_up};

static void sent(uint64_t piece, const struct connection *connection, enum direction way,
                 const void *bytes, size_t n)
{
    const char *client = connection->process->name, *server = connection->server->host;
    struct buffer text = {0};
    story_meet(connection->process);
    catch_up();
    begin_row("sent");
    fprintf(story.out, ",%" PRIu64 ",%" PRIu64 ",", piece, connection->number);
    put_string(way == TO_SERVER ? client : server);
    next();
    put_string(way == TO_SERVER ? server : client);
    next();
    if (n == 0)
        buffer_put(&text, "closes", 6);
    else if (connection->server->class->describe != NULL)
        connection->server->class->describe(&text, way, bytes, n);
    put_text(buffer_at(&text), buffer_len(&text));
    end_row();
    buffer_free(&text);
}

static void put_fate(const char *kind, uint64_t piece)
{
    catch_up();
    begin_row(kind);
    fprintf(story.out, ",%" PRIu64, piece);
    end_row();
}

static void held_up(uint64_t piece)
{
    put_fate("late", piece);
}

static void arrived(uint64_t piece)
{
    put_fate("came", piece);
}

static void lost(uint64_t piece)
{
    put_fate("lost", piece);
}

static const struct net_observer of_net = {
    .sent = sent, .held_up = held_up, .arrived = arrived, .lost = lost};

/* ---- the story ---- */

void story_begin(FILE *out)
{
    memset(&story, 0, sizeof story);
    story.out = out;
    fputs("{\"rows\":[\n", out);
    world_observe(&of_world);
    net_observe(&of_net);
}

void story_note_fault(const char *text, const char *client, const char *server, bool strikes)
{
    if (story.out == NULL)
        return;
    catch_up();
    begin_row(strikes ? "fault" : "healed");
    next();
    put_string(text);
    next();
    put_string(client);
    next();
    put_string(server);
    end_row();
}

void story_fault(const struct fault *fault, bool strikes)
{
    if (story.out == NULL)
        return;
    const char *text = fault->class->text;
    bool of_server = fault->class->aim == AT_SERVER ||
                     (fault->class->aim == IN_ORDER && strncmp(text, "a server", 8) == 0);
    story_note_fault(text, of_server ? NULL : workload_process(fault->user)->name,
                     of_server || fault->path != NULL ? fault->server->host : NULL, strikes);
}

void story_say(const char *text)
{
    if (story.out == NULL)
        return;
    catch_up();
    begin_row("say");
    next();
    put_string(text);
    end_row();
}

static void put_rules(const char *name, unsigned rules)
{
    bool some = false;
    fprintf(story.out, ",\n\"%s\":[", name);
    for (unsigned i = 0; i < RULES; i++) {
        if (!(rules & (1u << i)))
            continue;
        fprintf(story.out, "%s\"%s\"", some ? "," : "", check_rule_text((enum rule)i));
        some = true;
    }
    putc(']', story.out);
}

static void put_verdict(const struct verdict *verdict)
{
    const struct violation *violation = &verdict->violation;
    fprintf(story.out,
            ",\n\"verdict\":{\"holds\":%s,\"grants\":%zu,\"losses\":%zu,\"accepted\":%zu,"
            "\"refused\":%zu,\"updates_lost\":%zu",
            verdict->holds ? "true" : "false", verdict->grants, verdict->losses,
            verdict->writes_accepted, verdict->writes_refused, verdict->updates_lost);
    if (!verdict->holds) {
        put_field("rule", check_rule_text(violation->rule));
        put_field("sentence", violation->sentence);
        fputs(",\"events\":[", story.out);
        for (size_t i = 0; i < violation->n_events; i++)
            fprintf(story.out, "%s%zu", i > 0 ? "," : "", violation->events[i]);
        putc(']', story.out);
    }
    putc('}', story.out);
}

void story_end(const struct story_run *run)
{
    catch_up();
    fprintf(story.out, "\n],\n\"engine\":\"%s\",\"seed\":\"%" PRIu64 "\",\"users\":%u", run->engine,
            run->seed, run->users);
    put_field("url", run->url);
    put_number("end", world_now());
    fprintf(story.out, ",\"trace\":\"%016" PRIx64 "\"", world_trace_sum());
    put_rules("rules", run->rules);
    put_verdict(run->verdict);
    fputs("}\n", story.out);
    world_observe(NULL);
    net_observe(NULL);
    story.out = NULL;
}
