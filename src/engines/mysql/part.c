/* Where a claim is: on which session, and how it ends there. */
#include "engines/mysql/my.h"

void part_join(struct my_claim *part, struct session *session)
{
    part->session = session;
    claim_of(part)->session = session;
    part->next = session->claims;
    part->link = &session->claims;
    if (part->next)
        part->next->link = &part->next;
    session->claims = part;
}

void part_leave(struct my_claim *part)
{
    if (!part->session)
        return;
    *part->link = part->next;
    if (part->next)
        part->next->link = part->link;
    part->session = NULL;
    claim_of(part)->session = NULL;
}

void part_retire(struct my_claim *part)
{
    struct my *my = my_of_part(part);
    part_leave(part);
    if (my->shared && part->standing == COUNTING)
        session_forget(my->shared, part); /* its own session has ended meanwhile */
    if (part->has_timer) {
        loop_disarm(my->engine.loop, &part->timer);
        loop_unreserve(my->engine.loop, 1);
        part->has_timer = false;
    }
    part->standing = NOWHERE;
    if (part->active) {
        part->active = false;
        if (--my->n_active == 0)
            pool_sweep_later(my);
    }
}

/* Nothing is left of it in the server. */
void part_fail(struct my_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct stile_error why = *err;
    part_retire(part);
    claim->engine->events->failed(claim, &why);
}

void part_turn_away(struct my_claim *part, uint64_t hint_ns)
{
    struct claim *claim = claim_of(part);
    part_retire(part);
    claim->engine->events->busy(claim, hint_ns);
}

void part_grant(struct my_claim *part, uint64_t token, uint64_t sent_ns)
{
    struct claim *claim = claim_of(part);
    part->standing = HOLDING;
    part->token = token;
    claim->engine->events->granted(claim, token, sent_ns, part->session->ttl_told_ns);
}

/* A session that holds nothing but a claim that failed is given back clean, or not at all. */
void part_give_up(struct my_claim *part, const struct stile_error *err)
{
    struct session *session = part->session;
    struct stile_error why = *err;
    part_leave(part);
    if (session && session->state != DOWN)
        pool_close(session);
    if (part->withdrawn)
        release_go_on(part, false);
    else
        part_fail(part, &why);
}

bool part_begin(struct my_claim *part)
{
    struct claim *claim = claim_of(part);
    struct my *my = my_of_part(part);
    struct stile_error err;
    char key[KEY_MAX + 1];
    part->withdrawn = part->told = part->plainly = false;
    part->token = 0;
    part->why.status = STILE_OK;
    part->active = true;
    my->n_active++;
    if (my->ttl_ns < claim->ttl_ns)
        my->ttl_ns = claim->ttl_ns;
    if (!*part->stored) {
        name_hex(part->stored, claim->name, claim->name_len);
        name_key(key, my->mariadb, claim->name, claim->name_len);
        name_hex(part->key, key, strlen(key));
    }
    part->has_timer = loop_reserve(my->engine.loop, 1) == 0;
    if (part->has_timer)
        return true;
    error_set(&err, STILE_NOMEM, 0, "out of memory");
    part_fail(part, &err);
    return false;
}

void part_lose(struct my_claim *part, const struct stile_error *why)
{
    struct stile_error err = *why;
    struct claim *claim = claim_of(part);
    err.status = STILE_LOST;
    part->told = true;
    claim->engine->events->lost(claim, &err);
}
