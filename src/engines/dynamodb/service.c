/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The table, the region and the endpoint of a URL, and the way there. */
#include <stdio.h>

#include "base/self.h"
#include "base/url.h"
#include "engines/dynamodb/amazon.h"
#include "engines/dynamodb/dynamodb.h"

#define POLL_MS     1400 /* with the random pauses of core, less than one look per second */
#define POLL_MAX_MS 60000

/* ---- the URL ---- */

static bool is_made_of(const char *text, const char *set, size_t min, size_t max)
{
    size_t len = strlen(text);
    return len >= min && len <= max && strspn(text, set) == len;
}

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

static enum stile_status read_table(struct dynamo *d, const struct url *url,
                                    struct stile_error *err)
{
    const char *table = url->n_hosts == 1 ? url->hosts[0].host : "";
    if (url->n_hosts != 1 || url->hosts[0].port || url->user || *url->path ||
        !is_made_of(table, LETTERS "_.", 3, TABLE_MAX))
        return error_set(err, STILE_MISUSE, 0,
                         "a URL of this engine is dynamodb://TABLE?region=REGION; a table's name "
                         "has 3 to 255 letters, digits, - _ and .");
    strcpy(d->table, table);
    return STILE_OK;
}

static enum stile_status read_region(struct dynamo *d, const struct url *url,
                                     struct stile_error *err)
{
    const char *region = url_param(url, "region");
    ddb_credentials_region(d->region, sizeof d->region);
    if (region && strlen(region) < sizeof d->region)
        strcpy(d->region, region);
    if (!is_made_of(d->region, LETTERS, 1, REGION_MAX) || (region && strcmp(region, d->region)))
        return error_set(err, STILE_MISUSE, 0,
                         "which region? Write dynamodb://%s?region=eu-west-1, or set AWS_REGION",
                         d->table);
    snprintf(d->scope, sizeof d->scope, "aws:amz:%s:dynamodb", d->region);
    return STILE_OK;
}

static enum stile_status read_endpoint(struct dynamo *d, const struct url *url,
                                       struct stile_error *err)
{
    const char *endpoint = url_param(url, "endpoint");
    const char *domain = strncmp(d->region, "cn-", 3) == 0 ? "amazonaws.com.cn" : "amazonaws.com";
    if (!endpoint)
        snprintf(d->url, sizeof d->url, "https://dynamodb.%s.%s/", d->region, domain);
    else if ((strncmp(endpoint, "https://", 8) == 0 || strncmp(endpoint, "http://", 7) == 0) &&
             !strpbrk(endpoint, " @?#"))
        snprintf(d->url, sizeof d->url, "%s%s", endpoint,
                 endpoint[strlen(endpoint) - 1] == '/' ? "" : "/");
    else
        return error_set(err, STILE_MISUSE, 0,
                         "endpoint= is a URL like https://dynamodb.example:8000, without a user");
    return STILE_OK;
}

static enum stile_status read_dialect(struct dynamo *d, const struct url *url,
                                      struct stile_error *err)
{
    const char *dialect = url_param(url, "dialect"), *key = url_param(url, "key");
    bool amazon = dialect && strcmp(dialect, "amazon") == 0;
    if (dialect && !amazon)
        return error_set(err, STILE_MISUSE, 0, "dialect= can only be amazon");
    if (key && (!amazon || !is_made_of(key, LETTERS "_.", 1, TABLE_MAX)))
        return error_set(err, STILE_MISUSE, 0,
                         "key= names the partition key of a table with dialect=amazon");
    d->dialect = amazon ? &ddb_amazon : &ddb_own;
    strcpy(d->key, key ? key : "key");
    return STILE_OK;
}

static enum stile_status read_allow(struct dynamo *d, const struct url *url,
                                    struct stile_error *err)
{
    const char *allow = url_param(url, "allow");
    if (allow && strcmp(allow, "global") != 0)
        return error_set(err, STILE_MISUSE, 0, "allow= can only be global");
    d->allow_global = allow != NULL;
    return STILE_OK;
}

static enum stile_status read_url(struct dynamo *d, const struct url *url, struct stile_error *err)
{
    enum stile_status status = read_table(d, url, err);
    d->poll_ms = POLL_MS;
    if (!status)
        status = read_dialect(d, url, err);
    if (!status)
        status = read_allow(d, url, err);
    if (!status)
        status = read_region(d, url, err);
    if (!status)
        status = read_endpoint(d, url, err);
    return status ? status : url_param_number(&d->poll_ms, url, "poll", 20, POLL_MAX_MS, err);
}

static void on_credentials(struct credentials *credentials)
{
    ddb_calls_go_on(container_of(credentials, struct dynamo, credentials));
}

static void introduce(struct dynamo *d)
{
    char host[SELF_HOST_MAX + 1], command[INFO_MAX / 2];
    self_host(host);
    self_command(command, sizeof command, d->engine.label);
    snprintf(d->info, sizeof d->info, "%lld %s %s", (long long)d->engine.pid, host, command);
}

enum stile_status ddb_configure(struct dynamo *d, const struct url *url, struct stile_error *err)
{
    struct loop *loop = loop_of(d);
    enum stile_status status = read_url(d, url, err);
    if (!status)
        status = ddb_http_open(&d->http, loop, url_param(url, "ca"), err);
    if (status)
        return status;
    d->call_timer.fn = ddb_calls_on_time;
    if (loop_reserve(loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    d->reserved = true;
    if (ddb_credentials_open(&d->credentials, loop, d->http, on_credentials))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    introduce(d);
    return STILE_OK;
}

void ddb_dispose(struct dynamo *d)
{
    while (d->calls)
        ddb_call_cancel(d->calls);
    ddb_credentials_close(&d->credentials);
    ddb_http_free(d->http);
    d->http = NULL;
    loop_disarm(loop_of(d), &d->call_timer);
    if (d->reserved)
        loop_unreserve(loop_of(d), 1);
    d->reserved = false;
    ddb_observed_free(&d->observed);
}
