/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The least that a lock costs on DynamoDB: two conditional writes, signed and sent by libcurl's
 * easy interface over one connection, and only their status looked at. */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define BODY_ROOM 1024
#define OWNER     "5f0c9d1e2b3a48576695a4b3c2d1e0f7" /* as long as one of stile's */
#define KEY       "'Key':{'key':{'S':'bare/%s'}}"

struct bare {
    CURL *easy;
    struct curl_slist *headers;
    char take[BODY_ROOM], give[BODY_ROOM];
};

static size_t drop(char *bytes, size_t size, size_t n, void *data)
{
    (void)bytes, (void)data;
    return size * n;
}

/* JSON with ' for ". */
static void make_body(char out[BODY_ROOM], const char *format, const char *table, const char *name)
{
    snprintf(out, BODY_ROOM, format, table, name);
    for (; *out; out++)
        *out = *out == '\'' ? '"' : *out;
}

static void make_bodies(struct bare *bare, const char *place, const char *name)
{
    char table[256] = "";
    sscanf(place, "dynamodb://%255[^?]", table);
    make_body(
        bare->take,
        "{'TableName':'%s'," KEY ",'UpdateExpression':'SET #c = :c, #e = :e ADD #t :1, #v :1',"
        "'ConditionExpression':'(attribute_not_exists(#c) OR size(#c) = :0) AND NOT "
        "contains(#g, :id)','ReturnValues':'ALL_NEW','ExpressionAttributeNames':"
        "{'#c':'claims','#t':'token','#v':'v','#g':'gone','#e':'ends'},"
        "'ExpressionAttributeValues':{':0':{'N':'0'},':1':{'N':'1'},':e':{'N':'1797627883'},"
        "':id':{'S':'" OWNER "'},"
        "':c':{'M':{'" OWNER "':{'M':{'m':{'S':'x'},'n':{'N':'0'},'r':{'N':'0'},'t':{'N':'10000'},"
        "'d':{'N':'0'},'h':{'N':'0'},'a':{'N':'1795035873'},'s':{'N':'1795035873'},"
        "'i':{'S':'4711 host bench-pair'}}}}}}}",
        table, name);
    make_body(bare->give,
              "{'TableName':'%s'," KEY ",'UpdateExpression':'REMOVE #c.#me ADD #v :1',"
              "'ConditionExpression':'attribute_exists(#c.#me)','ReturnValues':'ALL_NEW',"
              "'ExpressionAttributeNames':{'#c':'claims','#v':'v','#me':'" OWNER "'},"
              "'ExpressionAttributeValues':{':1':{'N':'1'}}}",
              table, name);
}

static void *open_bare(const char *place, const char *lock_name)
{
    struct bare *bare = calloc(1, sizeof *bare);
    const char *endpoint = strstr(place, "endpoint=");
    char url[256] = "";
    if (!bare || !endpoint || sscanf(endpoint, "endpoint=%255[^&]", url) != 1)
        bench_die("libcurl: no endpoint= in %s", place);
    make_bodies(bare, place, lock_name);
    bare->easy = curl_easy_init();
    bare->headers = curl_slist_append(NULL, "X-Amz-Target: DynamoDB_20120810.UpdateItem");
    bare->headers = curl_slist_append(bare->headers, "Content-Type: application/x-amz-json-1.0");
    curl_easy_setopt(bare->easy, CURLOPT_URL, url);
    curl_easy_setopt(bare->easy, CURLOPT_HTTPHEADER, bare->headers);
    curl_easy_setopt(bare->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(bare->easy, CURLOPT_AWS_SIGV4, "aws:amz:eu-test-1:dynamodb");
    curl_easy_setopt(bare->easy, CURLOPT_USERNAME, "AKIDTEST");
    curl_easy_setopt(bare->easy, CURLOPT_PASSWORD, "sesame");
    curl_easy_setopt(bare->easy, CURLOPT_WRITEFUNCTION, drop);
    return bare;
}

static void send_body(struct bare *bare, const char *body)
{
    long code = 0;
    curl_easy_setopt(bare->easy, CURLOPT_POSTFIELDS, body);
    CURLcode rc = curl_easy_perform(bare->easy);
    curl_easy_getinfo(bare->easy, CURLINFO_RESPONSE_CODE, &code);
    if (rc || code != 200)
        bench_die("libcurl: %s, status %ld", curl_easy_strerror(rc), code);
}

static void take(void *handle)
{
    struct bare *bare = handle;
    send_body(bare, bare->take);
}

static void give(void *handle)
{
    struct bare *bare = handle;
    send_body(bare, bare->give);
}

const struct subject subject_dynamodb = {
    .name = "dynamodb", .open = open_bare, .take = take, .give = give};
