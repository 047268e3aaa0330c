/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/dynamodb/credentials.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/container.h"
#include "engines/dynamodb/json.h"
#include "engines/dynamodb/profile.h"

#define CONTAINER_HOST "http://169.254.170.2"
#define INSTANCE_HOST  "http://169.254.169.254"
#define INSTANCE_PATH  "/latest/meta-data/iam/security-credentials/"
#define TOKEN_LIFE     "X-aws-ec2-metadata-token-ttl-seconds: 21600"
#define TOKEN_NAME     "X-aws-ec2-metadata-token: "
#define TOKEN_HEADER   "X-Amz-Security-Token: "
#define FETCH_MS       1500
#define EARLY_NS       (300 * NS_PER_SEC) /* before they end; half of what is left, if that is less */
#define USUAL_LIFE_S   3600
#define AGAIN_FIRST_NS (200 * NS_PER_MS)
#define AGAIN_MAX_NS   (30 * NS_PER_SEC)
#define MISSED_MAX_NS  NS_PER_SEC /* where requests wait for them */
#define FAILURES_MAX   2          /* that are waited out where there are no credentials yet */

static void fetch(struct credentials *c);

static const char *env(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

static bool is_same(const struct credentials *c, const char *id, const char *secret,
                    const char *token)
{
    const char *header = c->token_header;
    return strcmp(c->key_id, id) == 0 && strcmp(c->secret, secret) == 0 &&
           strcmp(*header ? header + strlen(TOKEN_HEADER) : "", token) == 0;
}

/* False: one of them is too long, or could break out of its header. */
static bool take(struct credentials *c, const char *id, const char *secret, const char *token)
{
    if (!id || !secret || !*id || !*secret || strlen(id) > KEY_ID_MAX ||
        strlen(secret) > SECRET_MAX)
        return false;
    if (token && (strlen(token) > TOKEN_MAX || strpbrk(token, "\r\n")))
        return false;
    c->generation += !is_same(c, id, secret, token ? token : "");
    strcpy(c->key_id, id);
    strcpy(c->secret, secret);
    c->token_header[0] = '\0';
    if (token && *token)
        snprintf(c->token_header, sizeof c->token_header, TOKEN_HEADER "%s", token);
    c->ready = true;
    c->failures = 0;
    c->err = (struct stile_error){0};
    return true;
}

/* ---- environment and files ---- */

static bool read_environment(struct credentials *c)
{
    return take(c, env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY"),
                env("AWS_SESSION_TOKEN"));
}

static bool read_files(struct credentials *c)
{
    char id[KEY_ID_MAX + 1], secret[SECRET_MAX + 1], token[TOKEN_MAX + 1];
    const struct profile_key keys[] = {{"aws_access_key_id", id, sizeof id},
                                       {"aws_secret_access_key", secret, sizeof secret},
                                       {"aws_session_token", token, sizeof token},
                                       {NULL, NULL, 0}};
    bool good = ddb_profile_read(keys) && take(c, id, secret, token);
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(token, sizeof token);
    return good;
}

void ddb_credentials_region(char *region, size_t size)
{
    const char *given = env("AWS_REGION") ? env("AWS_REGION") : env("AWS_DEFAULT_REGION");
    const struct profile_key keys[] = {{"region", region, size}, {NULL, NULL, 0}};
    *region = '\0';
    if (!given)
        ddb_profile_read(keys);
    else if (strlen(given) < size)
        strcpy(region, given);
}

/* ---- the container and the instance ---- */

/* A token must not go to any host that a variable names in clear text: what looks like a port may
 * be the password of a user. */
static bool may_be_asked(const char *url)
{
    static const char *const hosts[] = {"http://127.0.0.1",      "http://localhost",
                                        "http://[::1]",          "http://169.254.170.2",
                                        "http://169.254.170.23", "http://[fd00:ec2::23]"};
    if (strncmp(url, "https://", 8) == 0)
        return true;
    for (size_t i = 0; !strchr(url, '@') && i < sizeof hosts / sizeof *hosts; i++) {
        size_t len = strlen(hosts[i]);
        if (strncmp(url, hosts[i], len) == 0 && strchr(":/", url[len]))
            return true;
    }
    return false;
}

static void read_token_file(char *to, size_t size)
{
    int fd = open(env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, to, size - 1);
    if (fd >= 0)
        close(fd);
    to[n > 0 ? n : 0] = '\0';
    to[strcspn(to, "\r\n")] = '\0';
}

static void authorize(struct credentials *c)
{
    static const char name[] = "Authorization: ";
    const char *token = env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    char *value = c->authorization + strlen(name);
    size_t size = sizeof c->authorization - strlen(name);
    strcpy(c->authorization, name);
    if (env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"))
        read_token_file(value, size);
    else if (token && strlen(token) < size && !strpbrk(token, "\r\n"))
        strcpy(value, token);
    if (!*value)
        c->authorization[0] = '\0';
}

static bool use_container(struct credentials *c)
{
    const char *path = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *url = env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (!path && !url)
        return false;
    int len = path ? snprintf(c->url, sizeof c->url, CONTAINER_HOST "%s", path)
                   : snprintf(c->url, sizeof c->url, "%s", url);
    if (len < 0 || (size_t)len >= sizeof c->url || !may_be_asked(c->url))
        return false;
    c->source = SOURCE_CONTAINER;
    return true;
}

static bool use_instance(struct credentials *c)
{
    const char *disabled = env("AWS_EC2_METADATA_DISABLED");
    if (disabled && strcasecmp(disabled, "true") == 0)
        return false;
    c->source = SOURCE_INSTANCE_TOKEN;
    return true;
}

static void instance_url(struct credentials *c, const char *path, const char *more)
{
    const char *host = env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    size_t len = strlen(host ? host : INSTANCE_HOST);
    bool slash = len && (host ? host : INSTANCE_HOST)[len - 1] == '/';
    snprintf(c->url, sizeof c->url, "%.*s%s%s", (int)(len - slash), host ? host : INSTANCE_HOST,
             path, more);
}

/* ---- fetching ---- */

/* Where there have been some before, there will be again. */
static void fail(struct credentials *c, const char *why)
{
    uint64_t most = c->ready ? AGAIN_MAX_NS : MISSED_MAX_NS;
    uint64_t pause = loop_backoff(c->loop, AGAIN_FIRST_NS, most, c->failures++);
    if (c->source == SOURCE_INSTANCE_ROLE || c->source == SOURCE_INSTANCE)
        c->source = SOURCE_INSTANCE_TOKEN;
    loop_arm(c->loop, &c->timer, loop_now(c->loop) + pause);
    if (c->ready || c->failures <= FAILURES_MAX)
        return;
    if (c->generation)
        error_set(&c->err, STILE_UNREACHABLE, 0,
                  "the credentials were refused, and the metadata service %s", why);
    else
        error_set(&c->err, STILE_REFUSED, 0,
                  "no credentials: neither the environment nor the profile %.64s has any, and the "
                  "metadata service %s",
                  ddb_profile_name(), why);
    c->changed(c);
}

/* "2030-01-02T03:04:05Z" */
static int64_t seconds_left(const struct json *reply, int64_t now)
{
    struct tm tm = {0};
    const char *text = ddb_json_text(ddb_json_get(reply, "Expiration"));
    if (!text || !strptime(text, "%Y-%m-%dT%H:%M:%S", &tm))
        return USUAL_LIFE_S;
    int64_t left = (int64_t)timegm(&tm) - now;
    return left > 1 ? left : 1;
}

static void plan_next(struct credentials *c, int64_t left_s)
{
    uint64_t left_ns = (uint64_t)left_s * NS_PER_SEC;
    uint64_t early_ns = left_ns / 2 < EARLY_NS ? left_ns / 2 : EARLY_NS;
    loop_arm(c->loop, &c->timer, loop_now(c->loop) + left_ns - early_ns);
    if (c->source == SOURCE_INSTANCE)
        c->source = SOURCE_INSTANCE_TOKEN;
}

static void take_reply(struct credentials *c, struct buffer *text, int64_t date)
{
    struct json *reply = ddb_json_parse(text->bytes + text->head, buffer_len(text) - 1);
    bool good = take(c, ddb_json_text(ddb_json_get(reply, "AccessKeyId")),
                     ddb_json_text(ddb_json_get(reply, "SecretAccessKey")),
                     ddb_json_text(ddb_json_get(reply, "Token")));
    int64_t left = good ? seconds_left(reply, date ? date : (int64_t)time(NULL)) : 0;
    free(reply);
    if (!good) {
        fail(c, "gives an answer without keys");
        return;
    }
    plan_next(c, left);
    c->changed(c);
}

/* One word: a token, or the name of a role. */
static bool is_word(const char *text)
{
    return *text && !strpbrk(text, " \t\r\n\"'<>?#%");
}

static void take_word(struct credentials *c, struct buffer *text)
{
    char *word = text->bytes + text->head;
    word[strcspn(word, "\r\n")] = '\0';
    if (!is_word(word) || strlen(word) > 1024) {
        fail(c, "gives an answer that cannot be read");
        return;
    }
    if (c->source == SOURCE_INSTANCE_TOKEN) {
        snprintf(c->authorization, sizeof c->authorization, TOKEN_NAME "%s", word);
        c->source = SOURCE_INSTANCE_ROLE;
    } else {
        instance_url(c, INSTANCE_PATH, word);
        c->source = SOURCE_INSTANCE;
    }
    fetch(c);
}

static void on_fetched(struct transfer *t, const struct stile_error *err)
{
    struct credentials *c = container_of(t, struct credentials, transfer);
    struct buffer text = t->reply;
    t->reply = (struct buffer){0};
    if (err || t->code != 200)
        fail(c, err ? "does not answer" : "refuses to give any");
    else if (buffer_put(&text, "", 1))
        fail(c, "is asked without memory");
    else if (c->source == SOURCE_CONTAINER || c->source == SOURCE_INSTANCE)
        take_reply(c, &text, t->date);
    else
        take_word(c, &text);
    buffer_free(&text);
}

static void fetch(struct credentials *c)
{
    struct transfer *t = &c->transfer;
    t->method = c->source == SOURCE_INSTANCE_TOKEN ? "PUT" : "GET";
    if (c->source == SOURCE_INSTANCE_TOKEN)
        instance_url(c, "/latest/api/token", "");
    else if (c->source == SOURCE_INSTANCE_ROLE)
        instance_url(c, INSTANCE_PATH, "");
    else if (c->source == SOURCE_CONTAINER)
        authorize(c);
    t->url = c->url;
    t->headers[0] = c->source == SOURCE_INSTANCE_TOKEN ? TOKEN_LIFE
                    : *c->authorization                ? c->authorization
                                                       : NULL;
    t->timeout_ms = FETCH_MS;
    t->direct = true;
    t->done = on_fetched;
    ddb_http_start(c->http, t);
}

static void on_time(struct timer *timer)
{
    struct credentials *c = container_of(timer, struct credentials, timer);
    if (!c->transfer.http)
        fetch(c);
}

/* ---- the beginning and the end ---- */

const struct stile_error *ddb_credentials_error(const struct credentials *c)
{
    return !c->ready && c->err.status ? &c->err : NULL;
}

int ddb_credentials_open(struct credentials *c, struct loop *loop, struct http *http,
                         void (*changed)(struct credentials *))
{
    if (loop_reserve(loop, 1))
        return ENOMEM;
    c->loop = loop;
    c->http = http;
    c->changed = changed;
    c->timer.fn = on_time;
    if (read_environment(c))
        c->source = SOURCE_ENVIRONMENT;
    else if (read_files(c))
        c->source = SOURCE_FILE;
    else if (use_container(c) || use_instance(c))
        fetch(c);
    else
        error_set(&c->err, STILE_REFUSED, 0,
                  "no credentials: neither the environment nor the profile %.64s has any",
                  ddb_profile_name());
    return 0;
}

static enum credentials_renewal read_again(struct credentials *c)
{
    unsigned before = c->generation;
    if (!read_files(c))
        return CREDENTIALS_LATER;
    return c->generation == before ? CREDENTIALS_SAME : CREDENTIALS_RENEWED;
}

enum credentials_renewal ddb_credentials_renew(struct credentials *c, bool *fetched)
{
    if (c->source == SOURCE_FILE)
        return read_again(c);
    if (c->source < SOURCE_CONTAINER || *fetched)
        return CREDENTIALS_SAME;
    *fetched = true;
    c->ready = false;
    c->failures = 0;
    if (!c->transfer.http)
        fetch(c);
    return CREDENTIALS_RENEWED;
}

void ddb_credentials_close(struct credentials *c)
{
    if (!c->loop)
        return;
    ddb_http_cancel(&c->transfer);
    loop_disarm(c->loop, &c->timer);
    loop_unreserve(c->loop, 1);
    explicit_bzero(c->secret, sizeof c->secret);
    explicit_bzero(c->token_header, sizeof c->token_header);
    explicit_bzero(c->authorization, sizeof c->authorization);
}
