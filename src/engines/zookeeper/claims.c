/* Claims: asking, and what all parts of their lives share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"

#define TRIES_MAX 6
#define AGAIN_NS  (50 * NS_PER_MS)

static void send_claim(struct zoo_claim *part);

/* ---- small parts ---- */

static void attach(struct zoo_claim *part, struct session *session)
{
    part->session = session;
    part->next = session->claims;
    part->link = &session->claims;
    if (part->next)
        part->next->link = &part->next;
    session->claims = part;
    session->bytes += part->bytes;
    claim_of(part)->session = session;
    if (!part->next)
        told_claimed(session);
}

static void detach(struct zoo_claim *part)
{
    if (!part->link)
        return;
    *part->link = part->next;
    if (part->next)
        part->next->link = part->link;
    part->link = NULL;
    part->session->bytes -= part->bytes;
}

void claim_unwatch(struct zoo_claim *part)
{
    holding_unfresh(part);
    watcher_leave(&part->watcher);
    if (part->has_timer)
        loop_disarm(claim_of(part)->engine->loop, &part->timer);
}

static void drop_node(struct zoo_claim *part)
{
    free(part->node);
    part->node = NULL;
}

void claim_forget(struct zoo_claim *part)
{
    asker_forget(&part->asker);
    claim_unwatch(part);
    if (part->has_timer)
        loop_unreserve(claim_of(part)->engine->loop, 1);
    part->has_timer = false;
    part->in_flight = 0;
    drop_node(part);
    ghosts_forget(part);
    detach(part);
    part->standing = NOWHERE;
}

/* Something of it may be in the line: core withdraws it then. */
void claim_fail(struct zoo_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct stile_error why = *err;
    if (part->node || part->created_maybe || part->recorded)
        why.status = STILE_UNCERTAIN;
    if (why.status == STILE_UNCERTAIN) {
        claim_unwatch(part);
        part->standing = LEAVING;
    } else {
        claim_forget(part);
    }
    claim->engine->events->failed(claim, &why);
}

void claim_fail_by(struct zoo_claim *part, int rc, bool maybe)
{
    struct stile_error err;
    fault_set(&err, rc, maybe);
    claim_fail(part, &err);
}

void claim_again_later(struct zoo_claim *part, void (*fn)(struct timer *timer))
{
    struct loop *loop = claim_of(part)->engine->loop;
    part->timer.fn = fn;
    loop_arm(loop, &part->timer,
             loop_now(loop) + (AGAIN_NS << (part->tries < 5 ? part->tries : 5)));
    part->tries++;
}

bool claim_is_over(struct zoo_claim *part)
{
    part->in_flight--;
    if (part->session->ending)
        return true;
    if (part->leaving && part->in_flight == 0)
        release_answered(part);
    return part->leaving || part->standing == LEAVING;
}

void claim_start_over(struct zoo_claim *part)
{
    struct stile_error err;
    claim_unwatch(part);
    drop_node(part);
    legacy_drop(part);
    part->created_maybe = false;
    if (part->tries++ < TRIES_MAX) {
        send_claim(part);
        return;
    }
    error_set(&err, STILE_UNREACHABLE, 0, "our node goes as soon as it is made");
    claim_fail(part, &err);
}

/* ---- asking ---- */

void claim_set_clock(struct zoo_claim *part, int64_t server_ms)
{
    part->clock_ms = server_ms;
    part->clock_ns = loop_now(claim_of(part)->engine->loop);
}

static void on_created(struct asker *asker, const struct answer *answer)
{
    struct zoo_claim *part = part_of_asker(asker);
    part->created = answer->rc;
    part->created_maybe = answer->maybe;
    if (answer->rc == ZOK) {
        part->node = strdup(answer->path);
        part->created_maybe = !part->node;
        part->czxid = answer->stat->czxid;
        part->owner = answer->stat->ephemeral_owner;
        claim_set_clock(part, answer->stat->ctime);
    }
    claim_is_over(part);
}

static void on_listed(struct asker *asker, const struct answer *answer)
{
    struct zoo_claim *part = part_of_asker(asker);
    if (claim_is_over(part))
        return;
    if (part->created == ZNONODE && part->tries++ < TRIES_MAX) {
        part->parents = true;
        send_claim(part);
    } else if (part->created != ZOK || !part->node) {
        claim_fail_by(part, part->created ? part->created : ZNOMEMORY, part->created_maybe);
    } else if (node_is_near_the_last(zoo_of_part(part), claim_of(part), part->guid, part->node)) {
        part->refusal = NUMBERS_USED_UP;
        claim_withdraw(part);
    } else if (answer->rc == ZOK) {
        standing_weigh(part, answer);
    } else if (fault_may_pass(answer->rc) && claim_of(part)->wait) {
        part->standing = IN_LINE;
        claim_again_later(part, standing_look_again);
        claim_of(part)->engine->events->queued(claim_of(part));
    } else {
        claim_fail_by(part, answer->rc, true);
    }
}

static void on_parent(struct asker *asker, const struct answer *answer)
{
    (void)answer; /* if it isn't there after all, the next request says so */
    claim_is_over(part_of_asker(asker));
}

/* Containers: the server removes them when they have become empty. */
static bool ask_parents(struct zoo_claim *part, char path[PATH_ROOM])
{
    bool asked = true;
    for (char *slash = strchr(path + 1, '/'); asked && slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        asked = ask_create(part->session, &part->asker, path, JUTE_CONTAINER, NULL, on_parent);
        part->in_flight += asked;
        *slash = '/';
    }
    return asked;
}

/* For people; the timeout tells them how long it stays when nobody hears from us. */
void claim_introduce(char data[INFO_MAX], struct zoo_claim *part)
{
    const struct zoo *zoo = zoo_of_part(part);
    snprintf(data, INFO_MAX, "%ld %s %d/%u %s", zoo->pid, zoo->host, part->session->timeout_ms,
             (unsigned)claim_of(part)->slots, zoo->command);
}

/* All in one go, and executed in this order: who is alone waits for one round trip. */
static void send_claim(struct zoo_claim *part)
{
    struct claim *claim = claim_of(part);
    struct zoo *zoo = zoo_of_part(part);
    struct stile_error err;
    char path[PATH_ROOM], data[INFO_MAX];
    uint8_t random[16];
    part->standing = ASKED;
    part->generation = part->session->generation;
    int error = loop_random(claim->engine->loop, random, sizeof random);
    if (error) {
        error_errno(&err, STILE_REFUSED, error, "no random numbers");
        claim_fail(part, &err);
        return;
    }
    guid_write(part->guid, zoo->dialect, random);
    path_of_claim(path, zoo, claim, part->guid);
    claim_introduce(data, part);
    bool asked = !part->parents || ask_parents(part, path);
    bool created = asked && ask_create(part->session, &part->asker, path, JUTE_EPHEMERAL_SEQUENTIAL,
                                       data, on_created);
    part->in_flight += created;
    if (created && standing_list(part, false, on_listed))
        return;
    part->created_maybe = created;
    asker_forget(&part->asker);
    part->in_flight = 0;
    claim_fail_by(part, ZNOMEMORY, created);
}

void claims_claim(struct engine *engine, struct claim *claim)
{
    struct zoo_claim *part = part_of(claim);
    struct stile_error err;
    size_t bytes = bytes_of_claim(zoo_of(engine), claim);
    struct session *session = session_for(zoo_of(engine), claim->ttl_ns, bytes, &err);
    *part = (struct zoo_claim){.standing = ASKED, .bytes = bytes};
    part->has_timer = session && loop_reserve(engine->loop, 1) == 0;
    if (!part->has_timer) {
        if (session)
            error_set(&err, STILE_NOMEM, 0, "out of memory");
        part->standing = NOWHERE;
        engine->events->failed(claim, &err);
        return;
    }
    attach(part, session);
    send_claim(part);
}

/* ---- the end of a session: with it all nodes are gone, and no request of it is under way ---- */

static void session_ends(struct zoo_claim *part)
{
    part->generation = part->session->generation;
    part->in_flight = 0;
    asker_forget(&part->asker);
    ghosts_forget(part);
    if (part->leaving || part->standing == WITHDRAWING || part->standing == LEAVING) {
        release_session_ended(part);
    } else if (part->standing == HOLDING) {
        claim_unwatch(part);
        part->gone = true;
    } else {
        part->tries = 0;
        claim_start_over(part);
    }
}

void claims_session_ends(struct session *session)
{
    struct zoo_claim *part;
    do {
        part = session->claims;
        while (part && part->generation == session->generation)
            part = part->next;
        if (part)
            session_ends(part);
    } while (part);
}
