/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/redis_server.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <openssl/sha.h>

#include "sim/redis_replica.h"
#include "sim/redis_text.h"

#define EPOCH_US  INT64_C(1700000000000000) /* what its wall clock shows at the beginning */
#define ARGS_MAX  4096
#define SHA1_HEX  40
#define STEPS_MAX 10000000 /* of a script */

struct subscription {
    struct subscription *next;
    struct bytes channel;
};

/* ---- scripts ---- */

/* One interpreter for all: scripts have no state of their own. */
static struct interpreter {
    lua_State *lua;
    const struct redis_call *call; /* of the script that runs */
    size_t failures;
} interpreter;

static void push_reply(lua_State *lua, const char **at);

static void push_array(lua_State *lua, const char **at, long n)
{
    lua_createtable(lua, (int)n, 0);
    for (long i = 1; i <= n; i++) {
        push_reply(lua, at);
        lua_rawseti(lua, -2, (int)i);
    }
}

static void push_named(lua_State *lua, const char *name, const char *text, size_t n)
{
    lua_createtable(lua, 0, 1);
    lua_pushlstring(lua, text, n);
    lua_setfield(lua, -2, name);
}

/* From RESP to what Redis gives a script. */
static void push_reply(lua_State *lua, const char **at)
{
    char kind = **at;
    const char *line = *at + 1, *end = strstr(line, "\r\n");
    long number = strtol(line, NULL, 10);
    *at = end + 2;
    if (kind == '+' || kind == '-') {
        push_named(lua, kind == '+' ? "ok" : "err", line, (size_t)(end - line));
    } else if (kind == ':') {
        lua_pushnumber(lua, (lua_Number)strtoll(line, NULL, 10));
    } else if (number < 0) {
        lua_pushboolean(lua, 0);
    } else if (kind == '*') {
        push_array(lua, at, number);
    } else {
        lua_pushlstring(lua, *at, (size_t)number);
        *at += number + 2;
    }
}

static struct bytes argument(lua_State *lua, int i)
{
    struct bytes bytes = {.at = NULL};
    if (lua_type(lua, i) == LUA_TNUMBER) {
        char text[40];
        int n = snprintf(text, sizeof text, "%.17g", lua_tonumber(lua, i));
        lua_pushlstring(lua, text, (size_t)n);
        lua_replace(lua, i);
    }
    bytes.at = lua_tolstring(lua, i, &bytes.n);
    return bytes;
}

static int call_redis(lua_State *lua, bool raises)
{
    struct bytes args[ARGS_MAX];
    struct buffer out = {0};
    struct redis_call call = *interpreter.call;
    int n = lua_gettop(lua);
    for (int i = 0; i < n && i < ARGS_MAX; i++) {
        args[i] = argument(lua, i + 1);
        if (args[i].at == NULL)
            return luaL_error(lua, "arguments of redis.call() must be strings or integers");
    }
    call.args = args;
    call.n_args = (size_t)n;
    call.out = &out;
    redis_store_run(&call);
    buffer_put(&out, "", 1);
    const char *at = buffer_at(&out);
    bool failed = *at == '-';
    push_reply(lua, &at);
    buffer_free(&out);
    if (failed && raises) {
        lua_getfield(lua, -1, "err");
        return lua_error(lua);
    }
    return 1;
}

static int redis_dot_call(lua_State *lua)
{
    return call_redis(lua, true);
}

static int redis_dot_pcall(lua_State *lua)
{
    return call_redis(lua, false);
}

static int redis_dot_error_reply(lua_State *lua)
{
    size_t n;
    const char *text = luaL_checklstring(lua, 1, &n);
    push_named(lua, "err", text, n);
    return 1;
}

static int redis_dot_status_reply(lua_State *lua)
{
    size_t n;
    const char *text = luaL_checklstring(lua, 1, &n);
    push_named(lua, "ok", text, n);
    return 1;
}

/* Registry["scripts"][sha1] is the compiled script. */
static lua_State *lua(void)
{
    static const luaL_Reg functions[] = {{"call", redis_dot_call},
                                         {"pcall", redis_dot_pcall},
                                         {"error_reply", redis_dot_error_reply},
                                         {"status_reply", redis_dot_status_reply},
                                         {NULL, NULL}};
    if (interpreter.lua != NULL)
        return interpreter.lua;
    interpreter.lua = luaL_newstate();
    luaL_openlibs(interpreter.lua);
    luaL_register(interpreter.lua, "redis", functions);
    lua_pop(interpreter.lua, 1);
    lua_newtable(interpreter.lua);
    lua_setfield(interpreter.lua, LUA_REGISTRYINDEX, "scripts");
    return interpreter.lua;
}

size_t sim_redis_failures(void)
{
    size_t n = interpreter.failures;
    interpreter.failures = 0;
    return n;
}

void sim_redis_finish(void)
{
    if (interpreter.lua != NULL)
        lua_close(interpreter.lua);
    interpreter.lua = NULL;
}

static void put_lua(struct buffer *out, lua_State *state);

static bool put_named(struct buffer *out, lua_State *state, const char *name)
{
    lua_getfield(state, -1, name);
    const char *text = lua_tostring(state, -1);
    if (text != NULL && name[0] == 'e')
        resp_error(out, text);
    else if (text != NULL)
        resp_status(out, text);
    lua_pop(state, 1);
    return text != NULL;
}

static void put_table(struct buffer *out, lua_State *state)
{
    int n = 0;
    if (put_named(out, state, "err") || put_named(out, state, "ok"))
        return;
    for (bool more = true; more; lua_pop(state, 1)) {
        lua_rawgeti(state, -1, n + 1);
        more = !lua_isnil(state, -1);
        n += more;
    }
    resp_array(out, (size_t)n);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(state, -1, i);
        put_lua(out, state);
        lua_pop(state, 1);
    }
}

/* From the value on top of the stack to RESP. */
static void put_lua(struct buffer *out, lua_State *state)
{
    size_t n;
    const char *text;
    switch (lua_type(state, -1)) {
    case LUA_TNUMBER:
        resp_number(out, (long long)lua_tonumber(state, -1));
        break;
    case LUA_TSTRING:
        text = lua_tolstring(state, -1, &n);
        resp_bulk(out, text, n);
        break;
    case LUA_TBOOLEAN:
        if (lua_toboolean(state, -1))
            resp_number(out, 1);
        else
            resp_nil(out);
        break;
    case LUA_TTABLE:
        put_table(out, state);
        break;
    default:
        resp_nil(out);
    }
}

static void set_arguments(lua_State *state, const char *name, const struct bytes *args, size_t n)
{
    lua_createtable(state, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        lua_pushlstring(state, args[i].at, args[i].n);
        lua_rawseti(state, -2, (int)i + 1);
    }
    lua_setglobal(state, name);
}

/* A server whose script does not end no longer answers. */
static void give_up(lua_State *state, lua_Debug *debug)
{
    (void)debug;
    luaL_error(state, "the script does not end");
}

/* The error of a command that a script has called is passed on as it is. */
static void put_failure(struct buffer *out, const char *why)
{
    char text[300];
    bool by_command = why[0] >= 'A' && why[0] <= 'Z' && why[1] >= 'A' && why[1] <= 'Z';
    snprintf(text, sizeof text, "%s%.250s", by_command ? "" : "ERR Error running script: ", why);
    resp_error(out, text);
    world_trace("script failed: %s", text);
}

/* The compiled script is on top of the stack. */
static void run_script(const struct redis_call *call)
{
    lua_State *state = lua();
    size_t n_keys = (size_t)strtoul(call->args[2].at, NULL, 10);
    set_arguments(state, "KEYS", call->args + 3, n_keys);
    set_arguments(state, "ARGV", call->args + 3 + n_keys, call->n_args - 3 - n_keys);
    interpreter.call = call;
    lua_sethook(state, give_up, LUA_MASKCOUNT, STEPS_MAX);
    if (lua_pcall(state, 0, 1, 0) != 0) {
        const char *why = lua_tostring(state, -1);
        put_failure(call->out, why);
        interpreter.failures += strncmp(why, "READONLY ", 9) != 0;
    } else {
        put_lua(call->out, state);
    }
    lua_settop(state, 0);
}

static void sha1_hex(char hex[SHA1_HEX + 1], struct bytes source)
{
    unsigned char sum[SHA_DIGEST_LENGTH];
    SHA1((const unsigned char *)source.at, source.n, sum);
    for (size_t i = 0; i < sizeof sum; i++)
        snprintf(hex + 2 * i, 3, "%02x", sum[i]);
}

/* A server knows a script once it was sent; the interpreter keeps it for all. */
static char *known_by(const struct redis_node *node, const char *sha1)
{
    static char name[80];
    snprintf(name, sizeof name, "%s.%u.%u.%s", node->server->host, node->incarnation, node->flushes,
             sha1);
    return name;
}

static bool load_script(const struct redis_call *call, struct bytes source)
{
    lua_State *state = lua();
    char sha1[SHA1_HEX + 1];
    sha1_hex(sha1, source);
    lua_getfield(state, LUA_REGISTRYINDEX, "scripts");
    lua_getfield(state, -1, sha1);
    if (lua_isnil(state, -1)) {
        lua_pop(state, 1);
        if (luaL_loadbuffer(state, source.at, source.n, "@user_script") != 0) {
            resp_error(call->out, "ERR Error compiling script");
            lua_settop(state, 0);
            return false;
        }
        lua_pushvalue(state, -1);
        lua_setfield(state, -3, sha1);
    }
    lua_pushboolean(state, 1);
    lua_setfield(state, -3, known_by(call->data, sha1));
    lua_remove(state, -2);
    return true;
}

static bool find_script(const struct redis_call *call, struct bytes sha1)
{
    lua_State *state = lua();
    char hex[SHA1_HEX + 1] = "";
    memcpy(hex, sha1.at, sha1.n < SHA1_HEX ? sha1.n : SHA1_HEX);
    lua_getfield(state, LUA_REGISTRYINDEX, "scripts");
    lua_getfield(state, -1, known_by(call->data, hex));
    bool known = lua_toboolean(state, -1);
    lua_pop(state, 1);
    if (!known) {
        resp_error(call->out, "NOSCRIPT No matching script. Please use EVAL.");
        lua_settop(state, 0);
        return false;
    }
    lua_getfield(state, -1, hex);
    lua_remove(state, -2);
    return true;
}

/* The memory of one run's servers must not be remembered in the next. */
static void forget_servers(void)
{
    lua_State *state = lua();
    lua_getfield(state, LUA_REGISTRYINDEX, "scripts");
    lua_pushnil(state);
    while (lua_next(state, -2) != 0) {
        bool mark = lua_isboolean(state, -1);
        lua_pop(state, 1);
        if (mark) {
            lua_pushvalue(state, -1);
            lua_pushnil(state);
            lua_settable(state, -4);
        }
    }
    lua_settop(state, 0);
}

/* ---- messages ---- */

static void send_message(struct connection *connection, struct bytes channel, struct bytes message)
{
    struct buffer out = {0};
    resp_array(&out, 3);
    resp_bulk(&out, "message", 7);
    resp_bulk(&out, channel.at, channel.n);
    resp_bulk(&out, message.at, message.n);
    connection_reply(connection, buffer_at(&out), buffer_len(&out));
    buffer_free(&out);
}

static bool listens(const struct connection *connection, struct bytes channel)
{
    const struct session *session = connection->data;
    for (const struct subscription *each = session->subscriptions; each != NULL;
         each = each->next) {
        if (each->channel.n == channel.n && memcmp(each->channel.at, channel.at, channel.n) == 0)
            return true;
    }
    return false;
}

long long sim_redis_deliver(struct server *server, struct bytes channel, struct bytes message)
{
    long long n = 0;
    for (struct connection *each = server->connections; each != NULL; each = each->next) {
        if (each->ended || !listens(each, channel))
            continue;
        send_message(each, channel, message);
        n++;
    }
    return n;
}

static long long publish(void *data, struct bytes channel, struct bytes message)
{
    struct redis_node *node = data;
    long long n = sim_redis_deliver(node->server, channel, message);
    world_trace("%s publishes %.*s to %lld", node->server->host, (int)message.n, message.at, n);
    if (node->mode != NULL && node->mode->published != NULL)
        node->mode->published(node, channel, message);
    return n;
}

/* SUBSCRIBE and UNSUBSCRIBE of one channel each. */
static void change_subscription(struct connection *connection, const struct redis_call *call,
                                bool on)
{
    struct session *session = connection->data;
    struct bytes channel = call->args[1];
    struct subscription **at = &session->subscriptions;
    while (*at != NULL &&
           ((*at)->channel.n != channel.n || memcmp((*at)->channel.at, channel.at, channel.n) != 0))
        at = &(*at)->next;
    if (on && *at == NULL) {
        struct subscription *made = world_alloc(sizeof *made + channel.n);
        memcpy(made + 1, channel.at, channel.n);
        made->channel = (struct bytes){(const char *)(made + 1), channel.n};
        *at = made;
    } else if (!on && *at != NULL) {
        *at = (*at)->next;
    }
    long long n = 0;
    for (const struct subscription *each = session->subscriptions; each != NULL; each = each->next)
        n++;
    resp_array(call->out, 3);
    resp_bulk(call->out, on ? "subscribe" : "unsubscribe", on ? 9 : 11);
    resp_bulk(call->out, channel.at, channel.n);
    resp_number(call->out, n);
}

/* ---- commands of a connection ---- */

static void put_info(const struct redis_node *node, struct buffer *out)
{
    static const char alone[] = "redis_mode:standalone\r\ncluster_enabled:0\r\n";
    char text[600];
    int n = snprintf(text, sizeof text,
                     "# Server\r\nredis_version:7.0.15\r\n%s"
                     "run_id:%036u%04u\r\n# Persistence\r\nloading:0\r\naof_enabled:1\r\n"
                     "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"
                     "# Cluster\r\n# Replication\r\n",
                     node->mode != NULL ? node->mode->info : alone, node->server->number + 1,
                     node->incarnation);
    n += redis_replica_info(node, text + n, sizeof text - (size_t)n);
    resp_bulk(out, text, (size_t)n);
}

static bool is(struct bytes bytes, const char *word)
{
    return bytes.n == strlen(word) && strncasecmp(bytes.at, word, bytes.n) == 0;
}

/* connection: for subscriptions; NULL: there is none. */
static void execute(const struct server *server, struct connection *connection,
                    const struct redis_call *call)
{
    struct redis_node *node = server->data;
    struct session *session = connection != NULL ? connection->data : NULL;
    struct bytes verb = call->args[0];
    if ((node->mode != NULL && node->mode->command(node, session, call)) ||
        redis_replica_command(node, session, call)) {
        return;
    } else if (is(verb, "EVAL") && call->n_args >= 3) {
        if (load_script(call, call->args[1]))
            run_script(call);
    } else if (is(verb, "EVALSHA") && call->n_args >= 3) {
        if (find_script(call, call->args[1]))
            run_script(call);
    } else if (is(verb, "SUBSCRIBE") && call->n_args == 2 && connection != NULL) {
        change_subscription(connection, call, true);
    } else if (is(verb, "UNSUBSCRIBE") && call->n_args == 2 && connection != NULL) {
        change_subscription(connection, call, false);
    } else if (is(verb, "INFO")) {
        put_info(node, call->out);
    } else if (is(verb, "PING")) {
        resp_status(call->out, "PONG");
    } else if (is(verb, "CONFIG") && call->n_args == 3) {
        resp_array(call->out, 0);
    } else if (is(verb, "PUBSUB")) {
        resp_array(call->out, 0);
    } else if (is(verb, "CLUSTER")) {
        resp_error(call->out, "ERR This instance has cluster support disabled");
    } else if (is(verb, "CLIENT") || is(verb, "SELECT") || is(verb, "AUTH")) {
        resp_status(call->out, "OK");
    } else {
        redis_store_run(call);
    }
}

static void trace_command(const struct connection *connection, const struct redis_call *call)
{
    char line[300];
    size_t used = 0;
    bool script = is(call->args[0], "EVAL") || is(call->args[0], "EVALSHA");
    bool identity = is(call->args[0], "SET") && call->n_args == 5; /* has the host's name in it */
    for (size_t i = script ? 3 : 0; i < (identity ? 2 : call->n_args) && used < sizeof line - 1;
         i++)
        used += (size_t)snprintf(line + used, sizeof line - used, " %.*s", (int)call->args[i].n,
                                 call->args[i].at);
    world_trace("%s from %s:%s%.200s -> %.*s", connection->server->host, connection->process->name,
                script ? " script" : "", line, (int)strcspn(buffer_at(call->out), "\r"),
                buffer_at(call->out));
}

static int64_t clock_us(const struct server *server)
{
    return EPOCH_US + (int64_t)(world_now() / 1000) + server->clock_us;
}

static struct redis_call call_of(struct server *server, const struct bytes *args, size_t n,
                                 struct buffer *out)
{
    struct redis_node *node = server->data;
    return (struct redis_call){.store = &node->store,
                               .now_us = clock_us(server),
                               .args = args,
                               .n_args = n,
                               .out = out,
                               .read_only = node->replication.primary != NULL,
                               .publish = publish,
                               .data = node};
}

void sim_redis_publish(struct server *server, struct bytes channel, struct bytes message)
{
    publish(server->data, channel, message);
}

static void commit(struct redis_node *node, struct session *session)
{
    if (node->store.noting)
        redis_replica_commit(node, session);
}

void sim_redis_execute(struct server *server, const struct bytes *args, size_t n,
                       struct buffer *out)
{
    const struct redis_call call = call_of(server, args, n, out);
    execute(server, NULL, &call);
    commit(server->data, NULL);
}

static void serve(struct connection *connection, const struct bytes *args, size_t n)
{
    struct buffer out = {0};
    const struct redis_call call = call_of(connection->server, args, n, &out);
    execute(connection->server, connection, &call);
    commit(connection->server->data, connection->data);
    buffer_put(&out, "", 1);
    trace_command(connection, &call);
    connection_reply(connection, buffer_at(&out), buffer_len(&out) - 1);
    buffer_free(&out);
}

/* The next request in the buffer, whose arguments point into it; 0: it is not all there yet. */
static size_t read_request(struct bytes args[ARGS_MAX], size_t *n, const struct buffer *in)
{
    const char *at = buffer_at(in), *end = at + buffer_len(in);
    const char *line = memchr(at, '\n', (size_t)(end - at));
    if (line == NULL)
        return 0;
    *n = strtoul(at + 1, NULL, 10);
    at = line + 1;
    for (size_t i = 0; i < *n && i < ARGS_MAX; i++) {
        line = memchr(at, '\n', (size_t)(end - at));
        if (line == NULL)
            return 0;
        args[i] = (struct bytes){line + 1, strtoul(at + 1, NULL, 10)};
        at = line + 1 + args[i].n + 2;
        if (at > end)
            return 0;
    }
    return (size_t)(at - buffer_at(in));
}

static void on_accepted(struct connection *connection)
{
    struct session *session = world_alloc(sizeof *session);
    session->connection = connection;
    connection->data = session;
}

static void on_data(struct connection *connection)
{
    static struct bytes args[ARGS_MAX];
    const struct session *session = connection->data;
    size_t n, used;
    while (!connection->ended && session->wait == NULL &&
           (used = read_request(args, &n, &connection->received)) > 0) {
        serve(connection, args, n);
        buffer_drop(&connection->received, used);
    }
}

static void on_closed(struct connection *connection)
{
    ((struct session *)connection->data)->subscriptions = NULL;
}

/* ---- for a reader of the run ---- */

static uint64_t world_ns_of(const struct server *server, int64_t clock_ms)
{
    if (clock_ms == INT64_MAX)
        return UINT64_MAX;
    int64_t us = clock_ms * 1000 - EPOCH_US - server->clock_us;
    return us > 0 ? (uint64_t)us * US : 0;
}

static bool peek(struct bytes *value, uint64_t *until_ns, const struct server *server,
                 const char *key)
{
    int64_t ends_ms;
    if (!redis_store_peek(value, &ends_ms, &redis_node_of(server)->store,
                          (struct bytes){key, strlen(key)}, clock_us(server)))
        return false;
    *until_ns = world_ns_of(server, ends_ms);
    return true;
}

/* Keys have the names that the scripts give them (engines/redis/scripts.h). */
static bool stored(struct stored *stored, const struct server *server, const char *name)
{
    char key[80];
    struct bytes value;
    uint64_t until_ns;
    snprintf(key, sizeof key, "lock:%.60s", name);
    if (peek(&value, &stored->until_ns, server, key))
        snprintf(stored->holder, sizeof stored->holder, "%.*s", (int)value.n, value.at);
    snprintf(key, sizeof key, "{lock:%.60s}\037fence", name);
    if (peek(&value, &until_ns, server, key))
        stored->fence = strtoull(value.at, NULL, 10);
    return stored->holder[0] != '\0' || stored->fence != 0;
}

static const struct server_class redis_class = {
    .accepted = on_accepted,
    .data = on_data,
    .closed = on_closed,
    .describe = redis_describe,
    .stored = stored,
};

/* ---- its life ---- */

struct server *sim_redis_new(const char *host)
{
    struct server *server = world_alloc(sizeof *server);
    struct redis_node *node = world_alloc(sizeof *node);
    *server = (struct server){.class = &redis_class, .host = host, .port = 6379, .data = node};
    node->server = server;
    return server;
}

void sim_redis_dispose(struct server *server)
{
    server_dispose(server);
    forget_servers();
}

void sim_redis_save(struct server *server)
{
    struct redis_node *node = server->data;
    redis_store_copy(&node->saved, &node->store);
}

void sim_redis_crash(struct server *server)
{
    world_trace("%s crashes", server->host);
    server->down = true;
    server_cut(server);
}

void sim_redis_restart(struct server *server, enum redis_left left)
{
    static const char *const texts[] = {"all of its data", "older data", "no data"};
    struct redis_node *node = server->data;
    world_trace("%s restarts with %s", server->host, texts[left]);
    node->incarnation++;
    server->down = false;
    if (left == LEFT_NONE)
        redis_store_clear(&node->store);
    else if (left == LEFT_OLD)
        redis_store_copy(&node->store, &node->saved);
    if (node->store.noting)
        redis_replica_restarted(node);
}

void sim_redis_flush(struct server *server)
{
    world_trace("%s is flushed", server->host);
    redis_store_clear(&redis_node_of(server)->store);
    commit(server->data, NULL);
}

void sim_redis_drop_key(struct server *server, size_t n)
{
    world_trace("%s loses a key", server->host);
    redis_store_drop(&redis_node_of(server)->store, n);
    commit(server->data, NULL);
}

void sim_redis_flush_scripts(struct server *server)
{
    world_trace("%s forgets its scripts", server->host);
    redis_node_of(server)->flushes++;
}
