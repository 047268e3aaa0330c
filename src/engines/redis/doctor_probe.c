/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/redis/doctor_probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/container.h"
#include "engines/redis/address.h"
#include "engines/redis/errors.h"
#include "engines/redis/keys.h"
#include "engines/redis/reply.h"
#include "engines/redis/scripts.h"

/* ---- its address, and commands for redis-cli ---- */

char *redis_probe_where(const struct conn_options *o)
{
    char *where = NULL;
    int n = o->target.path ? asprintf(&where, "%s", o->target.path)
            : strchr(o->target.host, ':')
                ? asprintf(&where, "[%s]:%u", o->target.host, o->target.port)
                : asprintf(&where, "%s:%u", o->target.host, o->target.port);
    return n < 0 ? NULL : where;
}

/* A word for a shell: what is not plain goes between quotes. */
static void put_word(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:@%+=,";
    putc(' ', out);
    if (*word && strspn(word, plain) == strlen(word)) {
        fputs(word, out);
        return;
    }
    putc('\'', out);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", out);
        else
            putc(*word, out);
    putc('\'', out);
}

static void put_option(FILE *out, const char *option, const char *value)
{
    if (!value)
        return;
    put_word(out, option);
    put_word(out, value);
}

char *redis_probe_flags(const struct conn_options *o, const struct url *url)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    bool insecure = false;
    if (!out)
        return NULL;
    url_param_bool(&insecure, url, "insecure", NULL);
    if (o->target.tls) {
        fputs(" --tls", out);
        put_option(out, "--cacert", url_param(url, "ca"));
        put_option(out, "--cert", url_param(url, "cert"));
        put_option(out, "--key", url_param(url, "key"));
        put_option(out, "--sni", url_param(url, "server_name"));
        fputs(insecure ? " --insecure" : "", out);
    }
    /* A user for locks can't configure the server: the reader has to name one that can. */
    fputs(o->user ? " --user ADMIN" : "", out);
    fputs(o->password ? " --askpass" : "", out);
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}

char *redis_probe_cli(const struct conn_options *o, const char *flags)
{
    char *text = NULL, port[8];
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    snprintf(port, sizeof port, "%u", o->target.port);
    fputs("redis-cli", out);
    put_option(out, "-s", o->target.path);
    put_option(out, "-h", o->target.host);
    put_option(out, "-p", o->target.host ? port : NULL);
    fputs(flags ? flags : "", out);
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- commands that scripts call ---- */

/* DEL comes first: it clears up behind the others. */
#define RIGHTS_MAX 32
#define CHANNEL    "stile:0000000000000000"
static const char *const rights_of_server[] = {
    "del", "exists", "get", "hdel", "hget", "hset", "incr", "pexpire", "psetex", "pttl", "publish",
    "scan", "set", "time", "zadd", "zcard", "zpopmin", "zrange", "zrangebyscore", "zrank", "zrem",
    "zrevrange", "zscore",
    /* for cells */
    "hincrby", "hmget", "persist", "pexpireat", "strlen", NULL};
static const char *const rights_of_cells[] = {"hincrby",   "hmget",  "persist",
                                              "pexpireat", "strlen", NULL};
static const char *const rights_of_node[] = {
    "del",     "exists", "get",   "hdel",   "hget", "hmget",   "hset",   "lindex",
    "lpop",    "lpos",   "lpush", "lrange", "lrem", "pexpire", "psetex", "pttl",
    "publish", "rpush",  "scan",  "set",    "time", NULL};

/* ---- answers ---- */

static void take_info(const struct probe_question *q, const redisReply *reply,
                      const struct stile_error *err)
{
    struct probe *v = q->probe;
    error_copy(&v->info_error, err);
    if (err)
        return;
    if (!text_of(reply))
        error_set(&v->info_error, STILE_CORRUPT, 0, "the answer to INFO has an unexpected form");
    else if (!(v->info = strdup(text_of(reply))))
        error_set(&v->info_error, STILE_NOMEM, 0, "out of memory");
}

static void take_success(const struct probe_question *q, const redisReply *reply,
                         const struct stile_error *err)
{
    (void)reply;
    q->word->known = !err;
    error_copy(&q->word->error, err);
}

/* Of a script that does not exist: any other error is as it should be. */
static void take_denial(const struct probe_question *q, const redisReply *reply,
                        const struct stile_error *err)
{
    if (redis_error_is_denial(err))
        take_success(q, reply, err);
}

/* Of CONFIG GET: its name and the value. */
static void take_config(const struct probe_question *q, const redisReply *reply,
                        const struct stile_error *err)
{
    const char *text = err ? NULL : text_at(reply, 1);
    error_copy(&q->word->error, err);
    q->word->known = text;
    snprintf(q->word->text, sizeof q->word->text, "%s", text ? text : "");
}

static bool is_for_cells(const struct probe *v, const char *right, size_t len)
{
    const char *const *at = rights_of_cells;
    while (*at && (strlen(*at) != len || strncmp(*at, right, len) != 0))
        at++;
    return v->role == PROBE_SERVER && *at;
}

/* Words with a space between them; the last ones are left out if there is no room. */
static void add_word(char *words, const char *word, size_t len)
{
    size_t used = strlen(words);
    if (used + 1 + len < PROBE_DENIED_SIZE)
        snprintf(words + used, PROBE_DENIED_SIZE - used, "%s%.*s", used ? " " : "", (int)len, word);
}

static void take_rights(const struct probe_question *q, const redisReply *reply,
                        const struct stile_error *err)
{
    struct probe *v = q->probe;
    take_success(q, reply, err);
    const char *word = err ? NULL : text_of(reply);
    while (word && *word) {
        size_t len = strcspn(word, " ");
        add_word(is_for_cells(v, word, len) ? v->denied_to_cells : v->denied, word, len);
        word += len + strspn(word + len, " ");
    }
}

static void take_lease(const struct probe_question *q, const redisReply *reply,
                       const struct stile_error *err)
{
    if (!err && is_number(reply))
        q->probe->lease_ms = reply->integer;
}

static void take_sentinels(const struct probe_question *q, const redisReply *reply,
                           const struct stile_error *err)
{
    if (!err)
        q->probe->sentinels = (long long)count_at(reply, 1);
}

static void take_cluster(const struct probe_question *q, const redisReply *reply,
                         const struct stile_error *err)
{
    const char *text = err ? NULL : text_of(reply);
    q->probe->cluster_is_down = text && strstr(text, "cluster_state:fail");
}

/* The loop has no wall clock; only the comparison of clocks needs it. */
static long long wall_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static struct loop *loop_of(const struct probe *v)
{
    return v->visit->query->engine->loop;
}

/* Compared in the middle of the round trip. */
static void take_time(const struct probe_question *q, const redisReply *reply,
                      const struct stile_error *err)
{
    struct probe *v = q->probe;
    unsigned seconds, microseconds;
    if (err || !text_at(reply, 0) || !text_at(reply, 1) ||
        !url_read_number(&seconds, text_at(reply, 0), UINT_MAX) ||
        !url_read_number(&microseconds, text_at(reply, 1), 999999))
        return;
    long long theirs_ms = seconds * 1000LL + microseconds / 1000;
    long long half_ms = (long long)((loop_now(loop_of(v)) - v->sent_ns) / (2 * NS_PER_MS));
    v->clock.known = true;
    v->ahead_ms = theirs_ms - (wall_clock_ms() - half_ms);
}

/* ---- questions ---- */

static void on_answer(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct probe_question *q = data;
    q->fn(q, reply, err);
    doctor_answered(q->probe->visit);
}

static void send(struct probe *v, probe_fn *fn, struct probe_word *word,
                 const struct conn_arg *args, size_t n)
{
    struct probe_question *q = &v->questions[v->n_questions++];
    struct stile_error err;
    *q = (struct probe_question){.probe = v, .fn = fn, .word = word};
    doctor_asked(v->visit);
    if (redis_conn_send(v->conn, args, n, on_answer, q, &err))
        on_answer(q, NULL, &err);
}

#define SEND(v, fn, word, ...)                                                                     \
    send(v, fn, word, (const struct conn_arg[]){__VA_ARGS__},                                      \
         sizeof((const struct conn_arg[]){__VA_ARGS__}) / sizeof(struct conn_arg))

static void ask_config(struct probe *v, struct probe_word *word, const char *name)
{
    SEND(v, take_config, word, CONN_TEXT("CONFIG"), CONN_TEXT("GET"), CONN_TEXT(name));
}

/* The keys of a name as claims use them: an ACL may allow K but not the keys with braces. */
static void ask_rights(struct probe *v)
{
    static const char *const suffixes[] = {"", ":doctor"};
    static const char name[] = "doctor";
    char room[KEYS_ROOM(2, PREFIX_MAX, sizeof name)];
    struct conn_arg args[6 + RIGHTS_MAX] = {CONN_TEXT("EVAL"),
                                            CONN_TEXT(redis_script_doctor_rights.source),
                                            CONN_TEXT(v->shares_counter ? "3" : "2")};
    const char *const *right = v->role == PROBE_SERVER ? rights_of_server : rights_of_node;
    size_t n = 5;
    redis_keys_of_name(args + 3, room, suffixes, 2, v->prefix, name, sizeof name - 1);
    if (v->shares_counter)
        args[n++] = CONN_TEXT("stile:" KEY_MARK "token");
    for (; *right; right++)
        args[n++] = CONN_TEXT(*right);
    send(v, take_rights, &v->own_keys, args, n);
}

static void ask_lease(struct probe *v)
{
    char pattern[2 * PREFIX_MAX + 2], *at = pattern;
    for (const char *c = v->prefix; *c; c++) {
        if (strchr("*?[]\\", *c))
            *at++ = '\\';
        *at++ = *c;
    }
    *at++ = '*';
    SEND(v, take_lease, NULL, CONN_TEXT("EVAL"), CONN_TEXT(redis_script_doctor_lease.source),
         CONN_TEXT("0"), {pattern, (size_t)(at - pattern)});
}

/* ---- the subscription ---- */

/* It needs a connection of its own: a subscribed one takes no other requests. */
static void stop_listening(struct probe *v)
{
    if (v->listens)
        redis_conn_free(v->listens);
    v->listens = NULL;
}

static void heard(struct probe *v, const struct stile_error *err)
{
    stop_listening(v);
    error_copy(&v->listening.error, err);
    doctor_answered(v->visit);
}

static void listens_up(struct conn *conn)
{
    (void)conn;
}

static void listens_down(struct conn *conn, const struct stile_error *why)
{
    heard(redis_conn_owner(conn), why);
}

static void listens_subscribed(struct conn *conn, const char *channel, size_t len)
{
    (void)channel, (void)len;
    heard(redis_conn_owner(conn), NULL);
}

static void listens_message(struct conn *conn, const char *channel, size_t channel_len,
                            const char *bytes, size_t n)
{
    (void)conn, (void)channel, (void)channel_len, (void)bytes, (void)n;
}

static void ask_listening(struct probe *v)
{
    static const struct conn_events events = {.up = listens_up,
                                              .down = listens_down,
                                              .subscribed = listens_subscribed,
                                              .message = listens_message};
    struct stile_error err;
    doctor_asked(v->visit);
    if (redis_conn_new(&v->listens, loop_of(v), redis_conn_options(v->conn), &events, v, &err) ||
        redis_conn_subscribe(v->listens, CHANNEL, sizeof CHANNEL - 1, &err))
        heard(v, &err);
}

/* ---- rounds ---- */

static void ask_first(struct probe *v)
{
    error_set(&v->info_error, STILE_UNREACHABLE, 0, "%s: no answer in time", v->where);
    SEND(v, take_info, NULL, CONN_TEXT("INFO"));
    ask_config(v, &v->appendfsync, "appendfsync");
    ask_config(v, &v->save, "save");
    ask_config(v, &v->no_fsync_on_rewrite, "no-appendfsync-on-rewrite");
    ask_config(v, &v->active_replica, "active-replica");
    SEND(v, take_success, &v->scripts, CONN_TEXT("EVAL"), CONN_TEXT("return 1"), CONN_TEXT("0"));
    SEND(v, take_denial, &v->scripts, CONN_TEXT("EVALSHA"),
         CONN_TEXT("0000000000000000000000000000000000000000"), CONN_TEXT("0"));
    ask_rights(v);
    if (v->wait_replicas)
        SEND(v, take_success, &v->waits, CONN_TEXT("WAIT"), CONN_TEXT("0"), CONN_TEXT("1"));
    ask_lease(v);
    SEND(v, take_success, &v->messages, CONN_TEXT("PUBLISH"), CONN_TEXT(CHANNEL),
         CONN_TEXT("doctor"));
    SEND(v, take_sentinels, NULL, CONN_TEXT("PUBSUB"), CONN_TEXT("NUMSUB"),
         CONN_TEXT("__sentinel__:hello"));
    SEND(v, take_cluster, NULL, CONN_TEXT("CLUSTER"), CONN_TEXT("INFO"));
}

/* The clock is asked for alone: a reply delayed by others can't be compared. */
static void ask_last(struct probe *v)
{
    if (!redis_probe_is_up(v))
        return;
    v->sent_ns = loop_now(loop_of(v));
    SEND(v, take_time, NULL, CONN_TEXT("TIME"));
    ask_listening(v);
}

void redis_probe_ask(struct probe *v, unsigned round)
{
    if (round == 0)
        ask_first(v);
    else if (round == 1)
        ask_last(v);
}

void redis_probe_free(struct probe *v)
{
    for (size_t i = 0; i < v->n_questions; i++)
        redis_conn_forget(v->conn, &v->questions[i]);
    stop_listening(v);
    free(v->info);
}

void redis_probe_forked(struct probe *v)
{
    if (v->listens)
        redis_conn_forked(v->listens);
}

/* ---- reading INFO ---- */

bool redis_probe_is_up(const struct probe *v)
{
    return v->info || redis_error_is_denial(&v->info_error);
}

size_t redis_probe_field(const char **value, const struct probe *v, const char *name)
{
    size_t len = strlen(name);
    for (const char *line = v->info; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) == 0 && line[len] == ':') {
            *value = line + len + 1;
            return strcspn(*value, "\r\n");
        }
    }
    *value = "";
    return 0;
}

bool redis_probe_is(const struct probe *v, const char *name, const char *value)
{
    const char *found;
    size_t len = redis_probe_field(&found, v, name);
    return len == strlen(value) && memcmp(found, value, len) == 0;
}

long long redis_probe_number(const struct probe *v, const char *name)
{
    const char *found;
    return redis_probe_field(&found, v, name) ? atoll(found) : -1;
}

long long redis_probe_now_ms(const struct probe *v)
{
    return wall_clock_ms() + v->ahead_ms;
}

bool redis_probe_is_durable(const struct probe *v)
{
    return redis_probe_is(v, "aof_enabled", "1") && strcmp(v->appendfsync.text, "always") == 0;
}
