/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/script.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "sim/script_faults.h"
#include "sim/script_hand.h"
#include "sim/session_server.h"
#include "sim/story.h"

#define CLIENTS_MAX 8
#define NAMES_MAX   4
#define WORDS_MAX   10
#define LINE_MAX    300
#define LINES_MAX   500
#define END_MAX_S   120
#define TRIES_MAX   64

/* What a client has to do with one name. */
struct user {
    struct client *client;
    unsigned name;
    struct stile_lock *lock;
    struct hand *hand; /* NULL: it has not locked by hand */
    bool waits, holds, granted;
    uint32_t claim;
    uint64_t token, deadline_ns, seen;
};

struct client {
    const char *name;
    struct process *process;
    struct user users[NAMES_MAX];
    struct action *later; /* while it is paused */
};

struct store {
    const char *lock, *resource;
    uint64_t highest, value, last_value;
};

/* One line "at". */
struct action {
    struct action *next;
    char *words[WORDS_MAX];
    unsigned n;
    char *rest; /* of the line, behind the first two words */
};

struct write {
    struct user *user;
    uint32_t process;
    uint64_t token, seen, sent_ns;
};

static struct {
    const struct sim_engine_class *engine;
    unsigned nodes, rules;
    const char *option, *url;
    struct session_options sessions;
    bool unguarded, unraised, unrenewed, by_hand, begun;
    uint64_t seed, end_ns;
    struct client clients[CLIENTS_MAX];
    unsigned n_clients, n_stores, next_number;
    struct store stores[NAMES_MAX];
    struct process *processes[64];
    unsigned n_processes;
    char *error;
    unsigned line;
} script;

static bool refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Keeps the first. */
static bool refuse(const char *format, ...)
{
    char text[SCRIPT_ERROR_MAX / 2];
    va_list args;
    if (script.error[0] != '\0')
        return false;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(script.error, SCRIPT_ERROR_MAX, "line %u: %s", script.line, text);
    return false;
}

/* Its engine runs in libpq, so clients have no library there. */
static bool without_library(void)
{
    return script.engine == &sim_sessions_class;
}

/* ---- clients ---- */

static void tell_status(const struct user *user, enum event_kind kind, enum stile_status status)
{
    world_trace("%s %s %s", user->client->name, history_kind_text(kind),
                script.stores[user->name].lock);
    history_add(world_history(), &(struct event){.ns = world_now(),
                                                 .kind = kind,
                                                 .client = user->client->process->number,
                                                 .claim = user->claim,
                                                 .token = user->token,
                                                 .deadline_ns = user->deadline_ns,
                                                 .status = status});
}

static void tell(const struct user *user, enum event_kind kind)
{
    tell_status(user, kind, STILE_OK);
}

static uint64_t deadline_of(const struct user *user)
{
    int64_t left_ms = stile_lock_remaining_ms(user->lock);
    return left_ms == STILE_NO_DEADLINE ? UINT64_MAX : world_now() + (uint64_t)left_ms * MS;
}

static void on_lost(struct stile_lock *lock, void *data)
{
    struct user *user = data;
    (void)lock;
    if (!user->holds)
        return;
    user->holds = false;
    tell(user, EVENT_LOST);
}

/* A new holder raises the guard before it reads. */
static void raise_and_read(struct user *user)
{
    struct store *store = &script.stores[user->name];
    if (!script.unguarded && !script.unraised && user->token > store->highest)
        store->highest = user->token;
    user->seen = store->value;
}

static void on_acquired(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    struct user *user = data;
    (void)lock, (void)err;
    user->waits = false;
    if (status != STILE_OK) {
        tell_status(user, EVENT_ANSWERED, status);
        return;
    }
    user->holds = user->granted = true;
    if (stile_lock_token(user->lock, &user->token))
        user->token = 0;
    if (script.unrenewed)
        process_stop_renewal(user->lock);
    user->deadline_ns = deadline_of(user);
    tell(user, EVENT_GRANTED);
    raise_and_read(user);
}

static void on_released(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    (void)lock, (void)err;
    tell_status(data, EVENT_ENDED, status);
}

/* Renewals are noticed by the deadline that has moved. */
static void look_at_deadlines(struct process *process)
{
    struct client *client = process->data;
    for (unsigned i = 0; i < script.n_stores; i++) {
        struct user *user = &client->users[i];
        if (!user->holds || !stile_lock_held(user->lock))
            continue;
        uint64_t deadline_ns = deadline_of(user);
        if (deadline_ns <= user->deadline_ns + 2 * MS)
            continue;
        user->deadline_ns = deadline_ns;
        tell(user, EVENT_RENEWED);
    }
}

static void start_client(struct client *client)
{
    struct process *process = world_alloc(sizeof *process);
    memset(client->users, 0, sizeof client->users);
    *process = (struct process){.name = client->name,
                                .number = script.next_number++,
                                .ran = look_at_deadlines,
                                .data = client};
    client->process = process;
    client->later = NULL;
    if (script.n_processes < sizeof script.processes / sizeof *script.processes)
        script.processes[script.n_processes++] = process;
    if (without_library())
        process_start_without_library(process);
    else
        process_start(process, script.url);
    story_meet(process);
}

/* ---- locks of the library ---- */

static unsigned name_number(const char *name)
{
    for (unsigned i = 0; i < script.n_stores; i++) {
        if (strcmp(script.stores[i].lock, name) == 0)
            return i;
    }
    if (script.n_stores == NAMES_MAX)
        return NAMES_MAX;
    script.stores[script.n_stores].lock = name;
    script.stores[script.n_stores].resource = world_print("store of %s", name);
    return script.n_stores++;
}

/* "ends" is followed by a client. */
static const char *name_in(const struct action *action)
{
    return action->n > 2 && strcmp(action->words[1], "ends") != 0 ? action->words[2] : "x";
}

static struct user *user_of(struct client *client, const char *name)
{
    unsigned number = name_number(name);
    struct user *user = &client->users[number];
    user->client = client;
    user->name = number;
    return user;
}

/* The number behind a word, in seconds; or the default. */
static double number_behind(const struct action *action, const char *word, double otherwise)
{
    for (unsigned i = 3; i + 1 < action->n; i++) {
        if (strcmp(action->words[i], word) == 0)
            return strtod(action->words[i + 1], NULL);
    }
    return otherwise;
}

static void ask(struct user *user, const struct action *action)
{
    double ttl_s = number_behind(action, "ttl", 3), wait_s = number_behind(action, "wait", -1);
    int64_t wait_ms = wait_s < 0 ? -1 : (int64_t)(wait_s * 1000);
    struct stile_lock_options options = stile_lock_options_init();
    if (user->waits || user->holds)
        return;
    options.ttl_ms = (int64_t)(ttl_s * 1000);
    options.on_lost = on_lost;
    options.data = user;
    const char *name = script.stores[user->name].lock;
    struct stile_error err;
    if (user->lock == NULL &&
        stile_lock_new(&user->lock, user->client->process->client, name, &options, &err)) {
        story_say(err.message);
        return;
    }
    if (stile_lock_acquire_async(user->lock, wait_ms, on_acquired, user))
        return; /* its last release has not been answered */
    user->waits = true;
    user->claim = history_ask_more(
        world_history(),
        &(struct event){.ns = world_now(),
                        .client = user->client->process->number,
                        .until_ns = wait_ms < 0 ? UINT64_MAX : world_now() + (uint64_t)wait_ms * MS,
                        .lease_ns = (uint64_t)options.ttl_ms * MS},
        name);
    world_trace("%s asks for %s", user->client->name, name);
}

/* A holder whose deadline has passed is told of its loss, in its next turn. */
static void release(struct user *user)
{
    if (!user->holds || !stile_lock_held(user->lock))
        return;
    user->holds = false;
    tell(user, EVENT_RELEASED);
    stile_lock_release_async(user->lock, on_released, user);
}

/* ---- locks by hand ---- */

static void granted_by_hand(void *data, uint64_t token)
{
    struct user *user = data;
    user->granted = true;
    user->token = token;
    raise_and_read(user);
}

static bool has_word(const struct action *action, const char *word)
{
    for (unsigned i = 3; i < action->n; i++) {
        if (strcmp(action->words[i], word) == 0)
            return true;
    }
    return false;
}

static uint64_t ns_behind(const struct action *action, const char *word)
{
    double seconds = number_behind(action, word, 0);
    return seconds > 0 ? (uint64_t)(seconds * (double)SEC) : 0;
}

static void act_by_hand(struct user *user, const struct action *action)
{
    const char *engine = script.engine->name, *name = script.stores[user->name].lock;
    if (user->hand == NULL)
        user->hand = hand_new(user->client->process, engine, name, granted_by_hand, user);
    if (user->hand != NULL)
        hand_act(user->hand, &(struct hand_act){.verb = action->words[1],
                                                .whom = action->words[2],
                                                .ttl_ns = ns_behind(action, "ttl"),
                                                .every_ns = ns_behind(action, "every"),
                                                .jitter = has_word(action, "jitter")});
}

/* ---- what a client does ---- */

static void check(struct user *user)
{
    if (user->holds && stile_lock_held(user->lock))
        tell(user, EVENT_ACTED);
}

static void write_arrives(void *data)
{
    const struct write *write = data;
    struct store *store = &script.stores[write->user->name];
    bool passes = script.unguarded || write->token >= store->highest;
    uint64_t value = store->last_value + 1;
    history_add(world_history(),
                &(struct event){.ns = world_now(),
                                .kind = EVENT_WROTE,
                                .client = write->process,
                                .name = history_name(world_history(), store->resource),
                                .token = write->token,
                                .guarded = !script.unguarded,
                                .sent_ns = write->sent_ns,
                                .seen = write->seen,
                                .value = value,
                                .outcome = passes ? WRITE_ACCEPTED : WRITE_REFUSED});
    world_trace("store of %s: token %llu is %s", store->lock, (unsigned long long)write->token,
                passes ? "accepted" : "refused");
    if (!passes)
        return;
    if (write->token > store->highest)
        store->highest = write->token;
    store->value = store->last_value = value;
    if (write->user->client->process->number == write->process)
        write->user->seen = value; /* it knows what it has written */
}

static void send_write(struct user *user)
{
    struct write *write = world_alloc(sizeof *write);
    if (!user->granted)
        return; /* it would have nothing to write */
    *write =
        (struct write){user, user->client->process->number, user->token, user->seen, world_now()};
    world_at(world_now() + 300 * US, write_arrives, write);
}

static void wake(struct client *client);

static void die(struct client *client)
{
    struct process *process = client->process;
    process_kill(process);
    process_cut(process, false);
    history_add(world_history(),
                &(struct event){.ns = world_now(), .kind = EVENT_DIED, .client = process->number});
}

static void pause_client(struct client *client)
{
    history_add(world_history(), &(struct event){.ns = world_now(),
                                                 .kind = EVENT_EXCUSED,
                                                 .client = client->process->number});
    story_note_fault("a client is paused", client->name, NULL, true);
    process_pause(client->process);
}

static void client_acts(struct client *client, struct action *action)
{
    const char *verb = action->words[1], *name = name_in(action);
    if (name_number(name) == NAMES_MAX) /* it was never asked for */
        return;
    if (strcmp(verb, "asks") == 0)
        ask(user_of(client, name), action);
    else if (strcmp(verb, "releases") == 0)
        release(user_of(client, name));
    else if (strcmp(verb, "checks") == 0 && !without_library())
        check(user_of(client, name));
    else if (strcmp(verb, "writes") == 0)
        send_write(user_of(client, name));
    else if (strcmp(verb, "pauses") == 0)
        pause_client(client);
    else if (strcmp(verb, "dies") == 0)
        die(client);
    else
        act_by_hand(user_of(client, name), action);
    process_touch(client->process);
}

/* What a paused client was to do, it does when it is awake, before the library has had a turn. */
static void wake(struct client *client)
{
    if (!client->process->paused)
        return;
    story_note_fault("a client is paused", client->name, NULL, false);
    while (client->later != NULL) {
        struct action *action = client->later;
        client->later = action->next;
        client_acts(client, action);
    }
    process_resume(client->process);
}

static void put_off(struct client *client, struct action *action)
{
    struct action **at = &client->later;
    while (*at != NULL)
        at = &(*at)->next;
    action->next = NULL;
    *at = action;
}

/* ---- lines ---- */

static struct client *client_named(const char *name)
{
    for (unsigned i = 0; i < script.n_clients; i++) {
        if (strcmp(script.clients[i].name, name) == 0)
            return &script.clients[i];
    }
    return NULL;
}

static struct server *server_named(const char *name)
{
    for (size_t i = 0; i < net_count(); i++) {
        if (strcmp(net_server(i)->host, name) == 0)
            return net_server(i);
    }
    return NULL;
}

/* The word of this number; by how much clocks jump otherwise. */
static double seconds_in(const struct action *action, unsigned word)
{
    return action->n > word ? strtod(action->words[word], NULL) : 20;
}

static void happen(void *data)
{
    struct action *action = data;
    struct client *client = client_named(action->words[0]);
    struct server *server = server_named(action->words[0]);
    const char *verb = action->words[1];
    if (strcmp(action->words[0], "say") == 0)
        story_say(action->rest);
    else if (strcmp(action->words[0], "message") == 0)
        script_break_message(strtoull(verb, NULL, 10), action->words[2], seconds_in(action, 3));
    else if (server != NULL)
        script.rules &= ~script_break_server(script.engine, server, verb, seconds_in(action, 2));
    else if (client != NULL && server_named(verb) != NULL)
        script_break_path(client->process, server_named(verb), action->words[2]);
    else if (strcmp(verb, "resumes") == 0)
        wake(client);
    else if (strcmp(verb, "starts") == 0 && client->process->dead)
        start_client(client);
    else if (client->process->paused && strcmp(verb, "dies") != 0)
        put_off(client, action);
    else if (!client->process->dead && client->process->opened)
        client_acts(client, action);
}

static bool is_verb_of_clients(const char *verb)
{
    static const char *const verbs[] = {"asks",   "checks",  "writes", "releases",
                                        "pauses", "resumes", "dies",   "starts"};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(verb, verbs[i]) == 0)
            return true;
    }
    return hand_engine(verb) != NULL;
}

static bool is_possible(const struct action *action)
{
    const char *verb = action->words[1], *needed = hand_engine(verb);
    script.by_hand |= needed != NULL;
    if (needed != NULL && strcmp(script.engine->name, needed) != 0)
        return refuse("\"%.20s\" needs the engine %s", verb, needed);
    if (without_library() && (strcmp(verb, "asks") == 0 || strcmp(verb, "releases") == 0))
        return refuse("\"%.20s\" needs the library; here a client locks and unlocks", verb);
    if (strcmp(verb, "ends") == 0 && (action->n < 3 || client_named(action->words[2]) == NULL))
        return refuse("\"ends\" is followed by a client");
    return true;
}

static bool names_a_lock(const char *verb)
{
    return strcmp(verb, "asks") == 0 || strcmp(verb, "sets") == 0 || strcmp(verb, "locks") == 0 ||
           strcmp(verb, "tries") == 0 || strcmp(verb, "ends") == 0;
}

/* Whether it can be understood, before anything runs: names are known by then. */
static bool is_sensible(const struct action *action)
{
    const char *subject = action->words[0], *verb = action->n > 1 ? action->words[1] : "";
    const char *third = action->n > 2 ? action->words[2] : "";
    bool client = client_named(subject) != NULL;
    if (client && names_a_lock(verb) && name_number(name_in(action)) == NAMES_MAX)
        return refuse("%d names at most", NAMES_MAX);
    if (strcmp(subject, "say") == 0)
        return true;
    if (client && is_verb_of_clients(verb))
        return is_possible(action);
    if (strcmp(subject, "message") == 0)
        return script_message_fate(third) || refuse("a message cannot be \"%.20s\"", third);
    if (client && server_named(verb) != NULL)
        return script_path_state(third) || refuse("a path cannot be \"%.20s\"", third);
    if (server_named(subject) != NULL && script_server_verb(verb))
        return true;
    return refuse(client || server_named(subject) != NULL ? "%.20s cannot do this"
                                                          : "there is no %.20s",
                  subject);
}

static void split(struct action *action, char *line)
{
    char *kept = NULL;
    action->n = 0;
    for (char *word = strtok_r(line, " \t", &kept); word != NULL && action->n < WORDS_MAX;
         word = strtok_r(NULL, " \t", &kept))
        action->words[action->n++] = word;
}

static bool set_engine(const char *name)
{
    for (size_t i = 0; sim_engines[i] != NULL; i++) {
        if (strcmp(sim_engines[i]->name, name) == 0)
            script.engine = sim_engines[i];
    }
    if (strcmp(name, sim_sessions_class.name) == 0)
        script.engine = &sim_sessions_class;
    return script.engine != NULL || refuse("no engine %.20s", name);
}

static bool set_clients(const struct action *action)
{
    if (action->n < 2 || action->n > CLIENTS_MAX + 1)
        return refuse("one to %d clients", CLIENTS_MAX);
    script.n_clients = action->n - 1;
    for (unsigned i = 1; i < action->n; i++)
        script.clients[i - 1].name = world_print("%s", action->words[i]);
    return true;
}

static bool set_end(double seconds)
{
    if (!(seconds > 0 && seconds <= END_MAX_S))
        return refuse("\"end\" is at most %d", END_MAX_S);
    script.end_ns = (uint64_t)(seconds * (double)SEC);
    return true;
}

/* A URL that is refused would end the program. */
static bool set_option(const char *text)
{
    static const char idle[] = "idle_session_timeout=";
    double seconds;
    if (strcmp(text, "fence=off") == 0) {
        script.option = "fence=off";
    } else if (strcmp(text, "pooler=transaction") == 0) {
        script.sessions.pooled = true;
    } else if (strncmp(text, idle, strlen(idle)) == 0) {
        seconds = strtod(text + strlen(idle), NULL);
        if (!(seconds > 0 && seconds <= END_MAX_S))
            return refuse("idle_session_timeout is at most %d", END_MAX_S);
        script.sessions.idle_timeout_ns = (uint64_t)(seconds * (double)SEC);
    } else {
        return refuse("no option %.40s", text);
    }
    return true;
}

static bool options_suit(void)
{
    bool of_sessions = script.sessions.pooled || script.sessions.idle_timeout_ns != 0;
    if (script.option != NULL && strcmp(script.engine->name, "redlock") != 0)
        return refuse("fence=off is an option of redlock");
    return !of_sessions || without_library() || refuse("this is an option of sessions");
}

static bool set(const struct action *action)
{
    const char *name = action->words[0], *value = action->n > 1 ? action->words[1] : "";
    if (strcmp(name, "engine") == 0)
        return set_engine(value);
    if (strcmp(name, "clients") == 0)
        return set_clients(action);
    if (strcmp(name, "nodes") == 0)
        script.nodes = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(name, "option") == 0)
        return set_option(value);
    else if (strcmp(name, "guard") == 0)
        script.unguarded = strcmp(value, "off") == 0;
    else if (strcmp(name, "raise") == 0)
        script.unraised = strcmp(value, "off") == 0;
    else if (strcmp(name, "renewal") == 0)
        script.unrenewed = strcmp(value, "off") == 0;
    else if (strcmp(name, "end") == 0)
        return set_end(strtod(value, NULL));
    else
        return strcmp(name, "title") == 0 || strcmp(name, "about") == 0 ||
               strcmp(name, "seed") == 0 || refuse("\"%.20s\" is not a setting", name);
    return true;
}

static unsigned nodes_of(const char *url)
{
    unsigned nodes = 1;
    for (const char *at = url; (at = strchr(at, ',')) != NULL; at++)
        nodes++;
    return nodes;
}

/* The number of nodes and, for ZooKeeper, a root and a dialect are choices of the engine's random
 * stream. A story has the plain ones. */
static bool suits(const char *url)
{
    const char *hosts = strstr(url, "//") + 2;
    return (script.nodes == 0 || script.nodes == nodes_of(url)) && strpbrk(hosts, "/?") == NULL;
}

static bool begin_engine(void)
{
    if (script.engine == NULL || script.n_clients == 0)
        return refuse("a story names its engine and clients first");
    if (!options_suit())
        return false;
    sim_sessions_configure(&script.sessions);
    for (unsigned label = 0;; label++) {
        struct random random = random_stream(script.seed, 100 + label);
        if (label == TRIES_MAX)
            return refuse("this engine has no group of %u nodes", script.nodes);
        net_begin();
        script.url = script.engine->begin(&random);
        if (suits(script.url))
            break;
        script.engine->dispose();
    }
    script.begun = true;
    if (script.option != NULL)
        script.url = world_print("%s?%s", script.url, script.option);
    return true;
}

static bool take_line(char *line)
{
    struct action *action = world_alloc(sizeof *action);
    char *at = line + strspn(line, " \t");
    if (*at == '\0' || *at == '#')
        return true;
    if (strncmp(at, "at ", 3) != 0) {
        split(action, at);
        return script.begun ? refuse("settings come before the first \"at\"") : set(action);
    }
    char *end;
    double seconds = strtod(at + 3, &end);
    if (end == at + 3 || seconds < 0 || seconds > 1e6)
        return refuse("\"at\" is followed by a number of seconds");
    if (!script.begun && !begin_engine())
        return false;
    at = end + strspn(end, " \t");
    if (strncmp(at, "say ", 4) == 0)
        action->rest = world_print("%s", at + 4);
    split(action, at);
    if (action->n == 0 || !is_sensible(action))
        return action->n > 0 ? false : refuse("nothing happens");
    world_at((uint64_t)(seconds * (double)SEC), happen, action);
    return true;
}

/* There is nothing that a store could compare. */
static bool without_tokens(void)
{
    return script.option != NULL || (script.by_hand && !without_library());
}

static bool take_lines(const char *text)
{
    for (const char *at = text; *at != '\0' && script.line < LINES_MAX;) {
        size_t n = strcspn(at, "\n");
        char *line = world_alloc(n + 1);
        memcpy(line, at, n);
        script.line++;
        if (n >= LINE_MAX)
            return refuse("is longer than %d characters", LINE_MAX);
        if (!take_line(line))
            return false;
        at += n + (at[n] == '\n');
    }
    if (!script.begun && !begin_engine())
        return false;
    if (without_tokens())
        script.unguarded = true;
    return true;
}

/* ---- the run ---- */

static void start_clients(void)
{
    for (unsigned i = 0; i < script.n_clients; i++)
        start_client(&script.clients[i]);
}

static void judge(struct run_result *result)
{
    if (script.engine->also_broken != NULL)
        script.rules &= ~script.engine->also_broken();
    if (!(script.rules & BIT(OVERLAP)))
        script.rules &= ~(BIT(FALSE_LOSS) | BIT(KEPT));
    if (without_tokens())
        script.rules &= ~TOKENS;
    const struct promises promises = {
        .rules = script.rules & ~(BIT(STARVED) | BIT(LATE) | BIT(JUMPED) | BIT(BUSY))};
    script.rules = promises.rules;
    check_history(&result->verdict, world_history(), &promises);
    result->trace_sum = world_trace_end();
}

static void play(struct run_result *result, FILE *page)
{
    story_begin(page);
    start_clients();
    world_run(script.end_ns);
    judge(result);
    story_end(&(struct story_run){.engine = script.engine->name,
                                  .url = script.url,
                                  .seed = script.seed,
                                  .users = script.n_clients,
                                  .rules = script.rules,
                                  .verdict = &result->verdict});
    hand_end();
    for (unsigned i = 0; i < script.n_processes; i++)
        process_dispose(script.processes[i]);
}

/* Everything that is left to chance follows from it, before anything else. */
static uint64_t seed_of(const char *text)
{
    const char *at = strncmp(text, "seed ", 5) == 0 ? text : strstr(text, "\nseed ");
    return at != NULL ? strtoull(strchr(at, ' '), NULL, 10) : 1;
}

bool script_run(struct run_result *result, const char *text, FILE *page,
                char error[SCRIPT_ERROR_MAX])
{
    memset(&script, 0, sizeof script);
    *result = (struct run_result){.rules = ALL_RULES};
    error[0] = '\0';
    script.error = error;
    script.rules = ALL_RULES;
    script.seed = seed_of(text);
    script.end_ns = 15 * SEC;
    world_begin(script.seed, NULL);
    net_begin();
    script_faults_begin();
    hand_begin();
    bool fine = take_lines(text);
    if (fine)
        play(result, page);
    if (script.begun)
        script.engine->dispose();
    world_end();
    return fine;
}
