/* Subscriptions, and what comes from them. */
#include <stdlib.h>
#include <string.h>

#include "engines/redis/conn_inner.h"
#include "engines/redis/fault.h"
#include "engines/redis/reply.h"

/* ---- what comes ---- */

/* An array of three: what, channel, payload or count. */
static bool is_push(const redisReply *reply)
{
    return length_of(reply) == 3 && text_at(reply, 0) && text_at(reply, 1);
}

void conn_take_push(struct conn *c, const redisReply *reply)
{
    const redisReply *kind = element_at(reply, 0), *channel = element_at(reply, 1);
    const redisReply *payload = element_at(reply, 2);

    if (!is_push(reply)) {
        if (!fault_explain(reply, &c->why))
            error_set(&c->why, STILE_REFUSED, 0, "the server sent an answer nobody asked for");
        conn_go_down(c);
    } else if (is_text(kind, "message") && text_of(payload)) {
        c->events->message(c, channel->str, channel->len, payload->str, payload->len);
    } else if (is_text(kind, "subscribe") && c->events->subscribed) {
        c->events->subscribed(c, channel->str, channel->len);
    }
}

/* ---- what is wanted ---- */

void conn_put_channel(struct conn *c, const char *verb, const struct conn_channel *channel)
{
    const struct conn_arg args[] = {CONN_TEXT(verb), {channel->name, channel->len}};
    struct request *r = request_new(args, 2);

    if (r) {
        conn_write(c, r);
    } else {
        error_set(&c->why, STILE_NOMEM, 0, "subscribing: out of memory");
        conn_break_soon(c);
    }
    request_free(r);
}

enum stile_status conn_subscribe(struct conn *c, const char *channel, size_t len,
                                 struct stile_error *err)
{
    struct conn_channel *added = malloc(sizeof *added + len);

    if (!added)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    *added = (struct conn_channel){.next = c->channels, .len = len};
    memcpy(added->name, channel, len);
    c->channels = added;
    c->pushes = true;
    if (c->state == UP)
        conn_put_channel(c, "SUBSCRIBE", added);
    return STILE_OK;
}

void conn_unsubscribe(struct conn *c, const char *channel, size_t len)
{
    struct conn_channel **at = &c->channels;

    while (*at && ((*at)->len != len || memcmp((*at)->name, channel, len) != 0))
        at = &(*at)->next;
    struct conn_channel *gone = *at;
    if (!gone)
        return;
    *at = gone->next;
    if (c->state == UP)
        conn_put_channel(c, "UNSUBSCRIBE", gone);
    free(gone);
}
