/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/script_hand.h"

#include <string.h>

#include "sim/plain.h"
#include "sim/session_client.h"

#define HANDS_MAX 64

struct hand {
    struct plain *plain;            /* one of the two */
    struct session_client *session; /* is NULL */
    void (*granted)(void *data, uint64_t token);
    void *data;
};

static struct {
    struct hand *all[HANDS_MAX];
    unsigned n;
} hands;

static const struct {
    const char *verb, *engine;
} verbs[] = {
    {"sets", "redis"},     {"expires", "redis"},    {"deletes", "redis"}, {"locks", "sessions"},
    {"tries", "sessions"}, {"unlocks", "sessions"}, {"ends", "sessions"},
};

void hand_begin(void)
{
    memset(&hands, 0, sizeof hands);
}

const char *hand_engine(const char *verb)
{
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(verb, verbs[i].verb) == 0)
            return verbs[i].engine;
    }
    return NULL;
}

static void granted_without_token(void *data)
{
    struct hand *hand = data;
    hand->granted(hand->data, 0);
}

struct hand *hand_new(struct process *process, const char *engine, const char *name,
                      void (*granted)(void *data, uint64_t token), void *data)
{
    if (hands.n == HANDS_MAX)
        return NULL;
    struct hand *hand = hands.all[hands.n++] = world_alloc(sizeof *hand);
    hand->granted = granted;
    hand->data = data;
    if (strcmp(engine, "sessions") == 0)
        hand->session = session_client_new(process, net_server(0), name, granted, data);
    else
        hand->plain = plain_new(process, net_server(0), name, granted_without_token, hand);
    return hand;
}

static void act_with_redis(struct plain *plain, const struct hand_act *act)
{
    if (strcmp(act->verb, "sets") == 0)
        plain_set(plain, act->ttl_ns, act->every_ns, act->jitter);
    else if (strcmp(act->verb, "expires") == 0)
        plain_expire(plain, act->ttl_ns);
    else if (strcmp(act->verb, "deletes") == 0)
        plain_delete(plain);
}

static void act_with_sql(struct session_client *session, const struct hand_act *act)
{
    if (strcmp(act->verb, "locks") == 0 || strcmp(act->verb, "tries") == 0)
        session_client_lock(session, act->verb[0] == 'l');
    else if (strcmp(act->verb, "unlocks") == 0)
        session_client_unlock(session);
    else if (strcmp(act->verb, "checks") == 0)
        session_client_check(session);
    else
        session_client_end(session, act->whom);
}

void hand_act(struct hand *hand, const struct hand_act *act)
{
    if (hand->session != NULL)
        act_with_sql(hand->session, act);
    else
        act_with_redis(hand->plain, act);
}

void hand_end(void)
{
    for (unsigned i = 0; i < hands.n; i++) {
        if (hands.all[i]->session != NULL)
            session_client_close(hands.all[i]->session);
        else
            plain_close(hands.all[i]->plain);
    }
}
