/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "engines/dynamodb/dynamodb.h"

#define ATTEMPT_MS_MIN   200
#define BACKOFF_FIRST_NS (25 * NS_PER_MS)
#define BACKOFF_MAX_NS   NS_PER_SEC
#define TARGET           "X-Amz-Target: DynamoDB_20120810."

static void send_call(struct call *call);

/* ---- the list ---- */

static void enter(struct call *call)
{
    struct dynamo *d = call->dynamo;
    call->next = d->calls;
    call->link = &d->calls;
    if (call->next)
        call->next->link = &call->next;
    d->calls = call;
}

static void leave(struct call *call)
{
    *call->link = call->next;
    if (call->next)
        call->next->link = call->link;
    call->state = CALL_IDLE;
    ddb_json_out_free(&call->body);
}

/* ---- answering ---- */

static void answer(struct call *call, enum call_result result)
{
    call->result = result;
    leave(call);
    call->done(call);
}

static void fail(struct call *call)
{
    if (call->doubt && call->err.status == STILE_UNREACHABLE)
        call->err.status = STILE_UNCERTAIN;
    answer(call, CALL_FAILED);
}

static void pause_until(struct call *call, uint64_t at_ns)
{
    struct timer *timer = &call->dynamo->call_timer;
    call->state = CALL_PAUSED;
    call->at_ns = at_ns;
    if (!timer->place || at_ns < timer->at_ns)
        loop_arm(loop_of(call->dynamo), timer, at_ns);
}

/* The pause is random: clients that were throttled together must not come back together. */
static void try_again(struct call *call)
{
    struct loop *loop = loop_of(call->dynamo);
    uint64_t at = loop_now(loop) +
                  loop_backoff(loop, BACKOFF_FIRST_NS, BACKOFF_MAX_NS, call->tries++) + NS_PER_MS;
    if (at + ATTEMPT_MS_MIN * NS_PER_MS > call->until_ns)
        fail(call);
    else
        pause_until(call, at);
}

/* ---- errors of the service ---- */

/* What comes over the network is shown on terminals. */
static void copy_clean(char *to, size_t size, const char *from)
{
    size_t n = 0;
    for (; from && *from && n + 1 < size; from++)
        to[n++] = (unsigned char)*from < ' ' || (unsigned char)*from > '~' ? '?' : *from;
    to[n] = '\0';
}

static void read_error(struct call *call, char message[160])
{
    const char *type = ddb_json_text(ddb_json_get(call->reply, "__type"));
    const char *text = ddb_json_text(ddb_json_get(call->reply, "message"));
    const char *hash = type ? strrchr(type, '#') : NULL;
    copy_clean(call->type, sizeof call->type, hash ? hash + 1 : type);
    copy_clean(message, 160, text ? text : ddb_json_text(ddb_json_get(call->reply, "Message")));
}

static bool is_one_of(const char *type, const char *const *types)
{
    for (; *types; types++) {
        if (strcmp(type, *types) == 0)
            return true;
    }
    return false;
}

/* Another program's transaction, or a write in another region of a strongly consistent table, has
 * the item: nothing was executed, and it is over soon. */
static bool is_in_conflict(const char *type)
{
    static const char *const types[] = {"TransactionConflictException",
                                        "ReplicatedWriteConflictException", NULL};
    return is_one_of(type, types);
}

static bool is_throttled(const char *type)
{
    static const char *const types[] = {"ProvisionedThroughputExceededException",
                                        "ThrottlingException",
                                        "RequestLimitExceeded",
                                        "Throttling",
                                        "TooManyRequestsException",
                                        NULL};
    return is_one_of(type, types);
}

static bool is_stale_signature(const char *type)
{
    static const char *const types[] = {"ExpiredTokenException", "UnrecognizedClientException",
                                        "InvalidSignatureException", "ExpiredToken", NULL};
    return is_one_of(type, types);
}

static void refuse(struct call *call, const char *message)
{
    const struct dynamo *d = call->dynamo;
    if (strcmp(call->type, "ResourceNotFoundException") == 0)
        error_set(&call->err, STILE_REFUSED, 0,
                  "there is no table %s in %s, or it is not ready yet: stile setup creates it",
                  d->table, d->region);
    else if (strcmp(call->type, "AccessDeniedException") == 0)
        error_set(&call->err, STILE_REFUSED, 0, "these credentials may not call %s: %s",
                  call->operation, message);
    else if (is_stale_signature(call->type))
        error_set(&call->err, STILE_REFUSED, 0,
                  "the signature was refused (%s): %s; stile doctor compares the clocks",
                  call->type, message);
    else
        error_set(&call->err, STILE_REFUSED, 0, "%s: %s%s%s", call->operation,
                  *call->type ? call->type : "refused", *message ? ": " : "", message);
    fail(call);
}

static void wait_for_file(struct call *call)
{
    error_set(&call->err, STILE_UNREACHABLE, 0,
              "the credentials were refused (%s), and their file has none at this moment",
              call->type);
    try_again(call);
}

/* Credentials may be replaced before their time, and an earlier refusal may have replaced them
 * since this request was sent. A file that has no keys at this moment is being written. */
static bool renew_credentials(struct call *call)
{
    struct credentials *c = &call->dynamo->credentials;
    if (!is_stale_signature(call->type))
        return false;
    bool replaced = credentials_ready(c) && c->generation != call->generation;
    enum credentials_renewal renewal =
        replaced ? CREDENTIALS_RENEWED : ddb_credentials_renew(c, &call->fetched);
    if (renewal == CREDENTIALS_RENEWED)
        send_call(call);
    else if (renewal == CREDENTIALS_LATER)
        wait_for_file(call);
    return renewal != CREDENTIALS_SAME;
}

static void handle_error(struct call *call)
{
    char message[160];
    long code = call->transfer.code;
    read_error(call, message);
    if (strcmp(call->type, "ConditionalCheckFailedException") == 0) {
        answer(call, CALL_CONDITION);
    } else if (is_in_conflict(call->type)) {
        error_set(&call->err, STILE_UNREACHABLE, (int)code, "another write is under way: %s",
                  *message ? message : call->type);
        try_again(call);
    } else if (code == 429 || is_throttled(call->type)) {
        error_set(&call->err, STILE_UNREACHABLE, (int)code, "throttled: %s",
                  *message ? message : "too many requests for the table's capacity");
        try_again(call);
    } else if (code >= 500) {
        call->doubt = true;
        error_set(&call->err, STILE_UNREACHABLE, (int)code, "the service answers %ld %s", code,
                  call->type);
        try_again(call);
    } else if (!renew_credentials(call)) {
        refuse(call, message);
    }
}

static void handle_reply(struct call *call)
{
    if (call->transfer.code == 200 && call->reply) {
        answer(call, CALL_OK);
    } else if (call->transfer.code == 200 || (!call->reply && call->transfer.code < 500)) {
        call->doubt = true;
        error_set(&call->err, STILE_UNREACHABLE, (int)call->transfer.code,
                  "the answer is not DynamoDB's: is the endpoint right?");
        try_again(call);
    } else {
        handle_error(call);
    }
}

void ddb_reply_free(struct reply *reply)
{
    free(reply->root);
    buffer_free(&reply->text);
    reply->root = NULL;
}

/* Only of an answer that is DynamoDB's: a proxy's own pages have the time of the proxy. */
static void note_date(struct dynamo *d, int64_t date)
{
    if (date)
        d->date_offset_s = date - (int64_t)(loop_now(loop_of(d)) / NS_PER_SEC);
}

static void on_answer(struct transfer *t, const struct stile_error *err)
{
    struct call *call = container_of(t, struct call, transfer);
    struct reply reply = {.text = t->reply};
    t->reply = (struct buffer){0};
    call->date = t->date;
    call->doubt |= t->times > 1 || (err && t->times);
    if (err) {
        error_set(&call->err, STILE_UNREACHABLE, err->native, "%s", err->message);
        if (t->times)
            try_again(call);
        else
            fail(call);
    } else {
        if (!buffer_put(&reply.text, "", 1))
            reply.root =
                ddb_json_parse(reply.text.bytes + reply.text.head, buffer_len(&reply.text) - 1);
        if (reply.root)
            note_date(call->dynamo, t->date);
        call->whole = &reply;
        call->reply = reply.root;
        handle_reply(call);
    }
    ddb_reply_free(&reply); /* the call may be gone */
}

/* ---- sending ---- */

static uint64_t attempt_ms(const struct call *call, uint64_t now)
{
    uint64_t left = call->until_ns > now ? (call->until_ns - now) / NS_PER_MS : 0;
    return left < ATTEMPT_MS_MIN ? ATTEMPT_MS_MIN : left;
}

/* Answered from the timer: an answer may close the client. */
static void doom(struct call *call)
{
    call->doomed = true;
    pause_until(call, loop_now(loop_of(call->dynamo)));
}

/* They are being fetched, or there are none. */
static void wait_for_credentials(struct call *call)
{
    const struct stile_error *why = ddb_credentials_error(&call->dynamo->credentials);
    if (why)
        call->err = *why;
    else
        error_set(&call->err, STILE_UNREACHABLE, 0, "the credentials do not arrive");
    call->doomed = true;
    pause_until(call, why ? loop_now(loop_of(call->dynamo)) : call->until_ns);
    call->state = CALL_UNSIGNED;
}

/* No "Expect:" among the headers: libcurl would sign it, and not send it. */
static void send_call(struct call *call)
{
    struct dynamo *d = call->dynamo;
    struct credentials *c = &d->credentials;
    uint64_t now = loop_now(loop_of(d));
    if (!credentials_ready(c)) {
        wait_for_credentials(call);
        return;
    }
    call->state = CALL_SENT;
    call->doomed = false;
    call->sent_ns = now;
    call->generation = c->generation;
    if (!call->first_ns)
        call->first_ns = now;
    snprintf(call->target, sizeof call->target, TARGET "%s", call->operation);
    call->transfer.url = d->url;
    call->transfer.headers[0] = call->target;
    call->transfer.headers[1] = "Content-Type: application/x-amz-json-1.0";
    call->transfer.headers[2] = *c->token_header ? c->token_header : NULL;
    call->transfer.body = buffer_at(&call->body.buffer);
    call->transfer.body_len = strlen(call->transfer.body);
    call->transfer.scope = d->scope;
    call->transfer.key_id = c->key_id;
    call->transfer.secret = c->secret;
    call->transfer.timeout_ms = attempt_ms(call, now);
    call->transfer.direct = strncmp(d->url, "http:", 5) == 0;
    call->transfer.done = on_answer;
    ddb_http_start(d->http, &call->transfer);
}

void ddb_call_start(struct dynamo *d, struct call *call, const char *operation,
                    uint64_t patience_ns, call_done *done)
{
    uint64_t now = loop_now(loop_of(d));
    call->dynamo = d;
    call->operation = operation;
    call->done = done;
    call->until_ns = now + patience_ns;
    call->tries = 0;
    call->fetched = call->doubt = call->doomed = false;
    call->first_ns = call->sent_ns = 0;
    call->reply = NULL;
    call->type[0] = '\0';
    call->err = (struct stile_error){0};
    enter(call);
    if (ddb_json_end(&call->body)) {
        send_call(call);
        return;
    }
    error_set(&call->err, STILE_NOMEM, 0, "out of memory");
    doom(call);
}

bool ddb_call_cancel(struct call *call)
{
    if (call->state == CALL_IDLE)
        return call->doubt;
    bool doubt = call->doubt || (call->state == CALL_SENT && call->transfer.times);
    ddb_http_cancel(&call->transfer);
    leave(call);
    return doubt;
}

/* Answering may change the list. */
static struct call *first_due(const struct dynamo *d, uint64_t now)
{
    struct call *call = d->calls;
    while (call && (call->state == CALL_SENT || call->at_ns > now))
        call = call->next;
    return call;
}

static uint64_t next_due(const struct dynamo *d)
{
    uint64_t at = NEVER;
    for (const struct call *call = d->calls; call; call = call->next) {
        if (call->state != CALL_SENT && call->at_ns < at)
            at = call->at_ns;
    }
    return at;
}

void ddb_calls_on_time(struct timer *timer)
{
    struct dynamo *d = container_of(timer, struct dynamo, call_timer);
    struct call *call = first_due(d, loop_now(loop_of(d)));
    bool doomed = call && call->doomed; /* sending it may find that there are no credentials now */
    if (doomed)
        call->state = CALL_SENT;
    else if (call)
        send_call(call);
    uint64_t at = next_due(d);
    if (at != NEVER)
        loop_arm(loop_of(d), timer, at);
    if (doomed)
        fail(call);
}

void ddb_calls_go_on(struct dynamo *d)
{
    for (struct call *call = d->calls; call; call = call->next) {
        if (call->state == CALL_UNSIGNED)
            send_call(call);
    }
}
