/* Claims: asking, standing in line, holding, leaving. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redis/redis.h"

#define LOOK_AFTER_NS     (5 * NS_PER_MS)   /* behind the end of the key that is in the way */
#define LOOK_MIN_NS       (100 * NS_PER_MS) /* where that never ends by itself */
#define LOOK_MAX_NS       (5 * NS_PER_SEC)
#define LOOK_SELDOM_NS    (30 * NS_PER_SEC) /* not first in line: for a message that got lost */
#define SAY_AGAIN_NS      (20 * NS_PER_MS)
#define LEAVE_PATIENCE_NS (2500 * NS_PER_MS)
#define RENEWS_MAX        256

static const char mode_letters[] = {
    [STILE_EXCLUSIVE] = 'x', [STILE_SHARED] = 's', [STILE_SLOTS] = 'n'};

static void send_claim(struct redis_claim *part, bool wait, bool again);
static void leave_batch(struct redis_claim *part);

/* ---- by owner ---- */

static unsigned head_of(const char *owner)
{
    unsigned head = 0;
    for (size_t i = OWNER_LEN - 8; i < OWNER_LEN; i++)
        head = head * 31 + (unsigned char)owner[i];
    return head % OWNER_HEADS;
}

static struct redis *redis_of_part(struct redis_claim *part)
{
    return redis_of(claim_of(part)->engine);
}

static void enlist(struct redis_claim *part)
{
    struct redis_claim **head = &redis_of_part(part)->by_owner[head_of(part->owner)];
    part->next = *head;
    *head = part;
    part->listed = true;
}

static void unlist(struct redis_claim *part)
{
    struct redis_claim **at = &redis_of_part(part)->by_owner[head_of(part->owner)];
    if (!part->listed)
        return;
    while (*at != part)
        at = &(*at)->next;
    *at = part->next;
    part->listed = false;
}

static struct redis_claim *find(struct redis *redis, const char *owner)
{
    struct redis_claim *part = redis->by_owner[head_of(owner)];
    while (part && memcmp(part->owner, owner, OWNER_LEN) != 0)
        part = part->next;
    return part;
}

/* The session's digits, then 24 of its own: a new one for each claim, so that what is late of an
 * earlier one can never touch a later one. */
static int draw_owner(struct redis *redis, char owner[OWNER_LEN + 1])
{
    unsigned char random[(OWNER_LEN - SESSION_LEN) / 2];
    int rc = loop_random(redis->engine.loop, random, sizeof random);
    memcpy(owner, redis->channel + strlen("stile:"), SESSION_LEN);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(owner + SESSION_LEN + 2 * i, 3, "%02x", random[i]);
    return rc;
}

/* ---- the end of a claim ---- */

static void stop_timer(struct redis_claim *part)
{
    struct loop *loop = claim_of(part)->engine->loop;
    if (part->has_timer) {
        loop_disarm(loop, &part->timer);
        loop_unreserve(loop, 1);
    }
    part->has_timer = false;
}

static void forget(struct redis_claim *part)
{
    conn_forget(redis_of_part(part)->asks, part);
    stop_timer(part);
    unlist(part);
    part->standing = NOWHERE;
}

/* In doubt, it keeps its owner value: core's withdrawal needs it. */
static void fail(struct redis_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    forget(part);
    part->may_be_there = err->status == STILE_UNCERTAIN;
    claim->engine->events->failed(claim, err);
}

static bool is_array(const redisReply *reply, size_t n)
{
    return reply && reply->type == REDIS_REPLY_ARRAY && reply->elements >= n;
}

static long long number_at(const redisReply *reply, size_t i)
{
    const redisReply *element = reply->element[i];
    return element->type == REDIS_REPLY_INTEGER ? element->integer : 0;
}

static void fail_strange(struct redis_claim *part)
{
    struct stile_error err;
    error_set(&err, STILE_UNCERTAIN, 0, "the server's answer has an unexpected form");
    fail(part, &err);
}

/* ---- arguments ---- */

struct numbers {
    char slots[12], px[24], hold[24];
    char mode[2];
};

static uint64_t whole_ms(uint64_t ns)
{
    return (ns + NS_PER_MS - 1) / NS_PER_MS;
}

/* How long the key lives without us: the lease and lock-delay, or what is left of hold_at_least. */
static uint64_t px_of(const struct claim *claim, uint64_t held_ns)
{
    uint64_t lease = claim->ttl_ns + claim->delay_ns;
    uint64_t hold = claim->hold_ns > held_ns ? claim->hold_ns - held_ns : 0;
    return whole_ms(lease > hold ? lease : hold);
}

static void numbers_of(struct numbers *n, const struct claim *claim, uint64_t held_ns)
{
    snprintf(n->slots, sizeof n->slots, "%u", claim->slots);
    snprintf(n->px, sizeof n->px, "%llu", (unsigned long long)px_of(claim, held_ns));
    snprintf(n->hold, sizeof n->hold, "%llu", (unsigned long long)whole_ms(claim->hold_ns));
    n->mode[0] = mode_letters[claim->mode];
    n->mode[1] = '\0';
}

/* ---- granted ---- */

static void tell_granted(struct redis_claim *part)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    stop_timer(part);
    part->standing = HOLDING;
    part->granted_ns = part->sent_ns;
    redis_listen(redis, NULL); /* so that `stile break` is heard; a renewal would notice, too */
    claim->engine->events->granted(claim, part->token, part->sent_ns, claim->ttl_ns);
}

static void on_replicated(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    struct redis *redis = redis_of_part(part);
    struct stile_error few;
    if (!err && reply->type == REDIS_REPLY_INTEGER && reply->integer >= redis->wait_replicas) {
        tell_granted(part);
        return;
    }
    if (err)
        error_copy(&few, err);
    else
        error_set(&few, STILE_REFUSED, 0, "only %lld of %u replicas have it (wait_replicas)",
                  reply->integer, redis->wait_replicas);
    few.status = STILE_UNCERTAIN; /* it is there, and must go */
    fail(part, &few);
}

static void granted(struct redis_claim *part, uint64_t token)
{
    struct redis *redis = redis_of_part(part);
    struct stile_error err;
    char replicas[12], ms[12];
    part->token = token;
    if (redis->wait_replicas == 0) {
        tell_granted(part);
        return;
    }
    part->standing = REPLICATING;
    snprintf(replicas, sizeof replicas, "%u", redis->wait_replicas);
    snprintf(ms, sizeof ms, "%u", redis->wait_ms);
    struct conn_arg args[] = {CONN_TEXT("WAIT"), CONN_TEXT(replicas), CONN_TEXT(ms)};
    if (conn_send(redis->asks, args, 3, on_replicated, part, &err)) {
        err.status = STILE_UNCERTAIN;
        fail(part, &err);
    }
}

/* ---- in line ---- */

static void look(struct timer *timer)
{
    struct redis_claim *part =
        (struct redis_claim *)((char *)timer - offsetof(struct redis_claim, timer));
    if (part->standing == IN_LINE)
        send_claim(part, true, true);
}

/* First in line: when what is in the way ends. A key that never ends (a foreign one without a TTL)
 * is looked at now and then, at random. */
static void arm_look(struct redis_claim *part, long long pttl_ms, bool first)
{
    struct loop *loop = claim_of(part)->engine->loop;
    uint64_t pause = LOOK_SELDOM_NS, random = 0;
    if (first && pttl_ms >= 0) {
        pause = (uint64_t)pttl_ms * NS_PER_MS + LOOK_AFTER_NS;
    } else if (first) {
        uint64_t limit = LOOK_MIN_NS << (part->looks < 6 ? part->looks : 6);
        part->looks++;
        limit = limit < LOOK_MAX_NS ? limit : LOOK_MAX_NS;
        loop_random(loop, &random, sizeof random);
        pause = LOOK_MIN_NS / 2 + random % limit;
    }
    loop_arm(loop, &part->timer, loop_now(loop) + pause);
}

static void on_confirmed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    if (err)
        fail(part, err);
    else if (is_array(reply, 2) && number_at(reply, 0) == 1)
        granted(part, (uint64_t)number_at(reply, 1));
    else
        send_claim(part, true, true); /* it took us too long */
}

static void send_confirm(struct redis_claim *part, conn_fn *fn)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    struct stile_error err;
    struct numbers n;
    struct keys keys;
    struct conn_arg args[SCRIPT_KEYS + 3];
    numbers_of(&n, claim, 0);
    keys_of(&keys, redis, claim->name, claim->name_len);
    memcpy(args, keys.args, sizeof keys.args);
    args[SCRIPT_KEYS] = (struct conn_arg){part->owner, OWNER_LEN};
    args[SCRIPT_KEYS + 1] = CONN_TEXT(n.mode);
    args[SCRIPT_KEYS + 2] = CONN_TEXT(n.px);
    part->standing = CONFIRMING;
    part->told = false;
    part->sent_ns = loop_now(redis->engine.loop);
    if (conn_eval(redis->asks, &redis->scripts.confirm, args, SCRIPT_KEYS, SCRIPT_KEYS + 3, fn,
                  part, &err))
        fail(part, &err);
}

static void hear_granted(struct redis_claim *part)
{
    if (part->standing == IN_LINE)
        send_confirm(part, on_confirmed);
    else if (part->standing == ASKED)
        part->told = true;
}

static void hear_broken(struct redis_claim *part)
{
    struct stile_error err;
    if (part->standing != HOLDING)
        return;
    error_set(&err, STILE_LOST, 0, "taken over by `stile break`");
    part->may_be_there = false;
    claim_of(part)->engine->events->lost(claim_of(part), &err);
}

/* "g owner", "h owner pttl" or "b owner"; anybody may publish anything, so it is a hint at most. */
void claims_hear(struct redis *redis, const char *text, size_t len)
{
    if (len < 2 + OWNER_LEN || text[1] != ' ')
        return;
    struct redis_claim *part = find(redis, text + 2);
    if (!part)
        return;
    if (text[0] == 'g')
        hear_granted(part);
    else if (text[0] == 'b')
        hear_broken(part);
    else if (text[0] == 'h' && part->standing == IN_LINE)
        arm_look(part, len > 3 + OWNER_LEN ? strtoll(text + 3 + OWNER_LEN, NULL, 10) : -1, true);
}

void claims_look_again(struct redis *redis)
{
    for (size_t i = 0; i < OWNER_HEADS; i++) {
        for (struct redis_claim *part = redis->by_owner[i], *next; part; part = next) {
            next = part->next;
            if (part->standing == IN_LINE)
                send_claim(part, true, true);
        }
    }
}

/* ---- asking ---- */

static void turned_away(struct redis_claim *part, long long pttl_ms)
{
    struct claim *claim = claim_of(part);
    forget(part);
    claim->engine->events->busy(claim, pttl_ms > 0 ? (uint64_t)pttl_ms * NS_PER_MS : 0);
}

/* Nobody is put in line before it can hear: the server would take it for dead. */
static void stand_in_line(struct redis_claim *part, const redisReply *reply)
{
    struct redis *redis = redis_of_part(part);
    struct stile_error err;
    part->standing = IN_LINE;
    if (!redis->hearing && redis_listen(redis, &err)) {
        fail(part, &err);
        return;
    }
    if (part->told)
        send_confirm(part, on_confirmed);
    else
        arm_look(part, number_at(reply, 1), number_at(reply, 2) == 1 || !redis->hearing);
}

static void on_claimed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    if (err)
        fail(part, err);
    else if (is_array(reply, 2) && number_at(reply, 0) == 1)
        granted(part, (uint64_t)number_at(reply, 1));
    else if (!is_array(reply, 3))
        fail_strange(part);
    else if (claim_of(part)->wait)
        stand_in_line(part, reply);
    else
        turned_away(part, number_at(reply, 1));
}

static void send_claim(struct redis_claim *part, bool wait, bool again)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    struct stile_error err;
    struct numbers n;
    struct keys keys;
    struct conn_arg args[SCRIPT_KEYS + 7];
    numbers_of(&n, claim, 0);
    keys_of(&keys, redis, claim->name, claim->name_len);
    memcpy(args, keys.args, sizeof keys.args);
    struct conn_arg *arg = args + SCRIPT_KEYS;
    *arg++ = (struct conn_arg){part->owner, OWNER_LEN};
    *arg++ = CONN_TEXT(n.mode);
    *arg++ = CONN_TEXT(n.slots);
    *arg++ = CONN_TEXT(n.px);
    *arg++ = CONN_TEXT(redis->info);
    *arg++ = CONN_TEXT(wait && redis->hearing ? "1" : "0");
    *arg++ = CONN_TEXT(again ? "1" : "0");
    part->standing = ASKED;
    part->sent_ns = loop_now(redis->engine.loop);
    if (conn_eval(redis->asks, &redis->scripts.claim, args, SCRIPT_KEYS, (size_t)(arg - args),
                  on_claimed, part, &err))
        fail(part, &err);
}

static bool begin(struct redis_claim *part)
{
    struct claim *claim = claim_of(part);
    struct stile_error err;
    if (loop_reserve(claim->engine->loop, 1)) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        claim->engine->events->failed(claim, &err);
        return false;
    }
    part->has_timer = true;
    part->timer.fn = look;
    part->looks = 0;
    part->told = false;
    part->may_be_there = false;
    enlist(part);
    return true;
}

void claims_claim(struct engine *engine, struct claim *claim)
{
    struct redis_claim *part = part_of(claim);
    struct stile_error err;
    int rc = draw_owner(redis_of(engine), part->owner);
    if (rc) {
        error_errno(&err, STILE_REFUSED, rc, "drawing an owner value");
        engine->events->failed(claim, &err);
        return;
    }
    if (begin(part))
        send_claim(part, claim->wait, false);
}

static void on_resumed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    struct stile_error lost;
    if (err) {
        fail(part, err);
    } else if (is_array(reply, 2) && number_at(reply, 0) == 1) {
        granted(part, (uint64_t)number_at(reply, 1));
    } else {
        error_set(&lost, STILE_LOST, 0, "this owner value does not hold it (any more)");
        fail(part, &lost);
    }
}

void claims_resume(struct engine *engine, struct claim *claim)
{
    struct redis_claim *part = part_of(claim);
    struct stile_error err;
    if (strlen(claim->owner) != OWNER_LEN ||
        strspn(claim->owner, "0123456789abcdef") != OWNER_LEN) {
        error_set(&err, STILE_MISUSE, 0, "an owner value has %d lower-case hex digits", OWNER_LEN);
        engine->events->failed(claim, &err);
        return;
    }
    memcpy(part->owner, claim->owner, sizeof part->owner);
    if (begin(part))
        send_confirm(part, on_resumed);
}

void claims_detach(struct engine *engine, struct claim *claim)
{
    (void)engine;
    leave_batch(part_of(claim));
    forget(part_of(claim));
}

const char *claims_owner(struct engine *engine, struct claim *claim)
{
    (void)engine;
    return part_of(claim)->owner;
}

/* ---- leaving ---- */

static void send_release(struct redis_claim *part);

static void say_again(struct timer *timer)
{
    struct redis_claim *part =
        (struct redis_claim *)((char *)timer - offsetof(struct redis_claim, timer));
    send_release(part);
}

static void left(struct redis_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    forget(part);
    part->may_be_there = false;
    claim->engine->events->released(claim, err);
}

/* Repeated until answered or too late: the owner value makes that safe. */
static void release_unanswered(struct redis_claim *part, const struct stile_error *err)
{
    struct loop *loop = claim_of(part)->engine->loop;
    uint64_t now = loop_now(loop), at = now + (SAY_AGAIN_NS << (part->looks < 5 ? part->looks : 5));
    bool passing = err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
    part->looks++;
    if (!passing || !part->has_timer || at >= part->give_up_ns)
        left(part, err);
    else
        loop_arm(loop, &part->timer, at);
}

static void on_released(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    struct stile_error lost;
    if (err) {
        release_unanswered(part, err);
    } else if (reply->type == REDIS_REPLY_INTEGER && reply->integer == 0 && !part->may_be_there) {
        error_set(&lost, STILE_LOST, 0, "it was not ours any more");
        left(part, &lost);
    } else {
        left(part, NULL);
    }
}

static void send_release(struct redis_claim *part)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    struct stile_error err;
    struct numbers n;
    struct keys keys;
    struct conn_arg args[SCRIPT_KEYS + 5];
    numbers_of(&n, claim, 0);
    keys_of(&keys, redis, claim->name, claim->name_len);
    memcpy(args, keys.args, sizeof keys.args);
    struct conn_arg *arg = args + SCRIPT_KEYS;
    *arg++ = (struct conn_arg){part->owner, OWNER_LEN};
    *arg++ = CONN_TEXT(n.mode);
    *arg++ = CONN_TEXT(n.slots);
    *arg++ = CONN_TEXT(n.hold);
    *arg++ = CONN_TEXT(redis->info);
    if (conn_eval(redis->asks, &redis->scripts.release, args, SCRIPT_KEYS, (size_t)(arg - args),
                  on_released, part, &err))
        release_unanswered(part, &err);
}

void claims_release(struct engine *engine, struct claim *claim)
{
    struct redis_claim *part = part_of(claim);
    bool held = part->standing == HOLDING;
    leave_batch(part);
    conn_forget(redis_of(engine)->asks, part);
    if (!part->has_timer)
        part->has_timer = loop_reserve(engine->loop, 1) == 0;
    if (part->has_timer)
        loop_disarm(engine->loop, &part->timer);
    part->timer.fn = say_again;
    part->looks = 0;
    part->may_be_there = !held;
    part->standing = LEAVING;
    part->give_up_ns = loop_now(engine->loop) + LEAVE_PATIENCE_NS;
    send_release(part);
}

/* ---- renewing ---- */

/* A renewal under way. Claims that leave meanwhile are crossed out. */
struct batch {
    struct batch *next;
    struct redis *redis;
    uint64_t sent_ns;
    size_t n;
    struct redis_claim *parts[RENEWS_MAX];
};

static void leave_batch(struct redis_claim *part)
{
    struct batch *batch = part->batch;
    for (size_t i = 0; batch && i < batch->n; i++) {
        if (batch->parts[i] == part)
            batch->parts[i] = NULL;
    }
    part->batch = NULL;
}

static void answer_one(struct batch *batch, struct redis_claim *part, const redisReply *reply,
                       size_t i)
{
    const struct engine_events *events = batch->redis->engine.events;
    struct claim *claim = claim_of(part);
    struct stile_error err;
    part->batch = NULL;
    if (!is_array(reply, batch->n)) {
        events->unknown(claim);
    } else if (number_at(reply, i) == 1) {
        events->renewed(claim, batch->sent_ns, claim->ttl_ns);
    } else {
        error_set(&err, STILE_LOST, 0, "the server does not have it any more");
        events->lost(claim, &err);
    }
}

static void on_renewed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct batch *batch = data;
    struct batch **at = &batch->redis->batches;
    while (*at != batch)
        at = &(*at)->next;
    *at = batch->next;
    for (size_t i = 0; i < batch->n; i++) {
        if (batch->parts[i])
            answer_one(batch, batch->parts[i], err ? NULL : reply, i);
    }
    free(batch);
}

void claims_close(struct redis *redis)
{
    while (redis->batches) {
        struct batch *batch = redis->batches;
        redis->batches = batch->next;
        free(batch);
    }
}

struct renewal {
    struct keys keys;
    struct numbers numbers;
};

static enum stile_status send_batch(struct redis *redis, struct batch *batch,
                                    struct renewal *renewals, struct conn_arg *args)
{
    static const size_t used[] = {0, 3, 4, 5};
    size_t at = 0;
    for (size_t i = 0; i < batch->n; i++) {
        struct claim *claim = claim_of(batch->parts[i]);
        keys_of(&renewals[i].keys, redis, claim->name, claim->name_len);
        numbers_of(&renewals[i].numbers, claim, batch->sent_ns - batch->parts[i]->granted_ns);
        for (size_t k = 0; k < 4; k++)
            args[at++] = renewals[i].keys.args[used[k]];
    }
    for (size_t i = 0; i < batch->n; i++) {
        args[at++] = (struct conn_arg){batch->parts[i]->owner, OWNER_LEN};
        args[at++] = CONN_TEXT(renewals[i].numbers.mode);
        args[at++] = CONN_TEXT(renewals[i].numbers.px);
    }
    return conn_eval(redis->asks, &redis->scripts.renew, args, 4 * batch->n, at, on_renewed, batch,
                     NULL);
}

static void renew_some(struct redis *redis, struct claim *const *claims, size_t n)
{
    struct batch *batch = malloc(sizeof *batch);
    struct renewal *renewals = malloc(n * sizeof *renewals);
    struct conn_arg *args = malloc(7 * n * sizeof *args);
    bool sent = false;
    if (batch && renewals && args) {
        *batch = (struct batch){.redis = redis, .n = n, .sent_ns = loop_now(redis->engine.loop)};
        for (size_t i = 0; i < n; i++) {
            batch->parts[i] = part_of(claims[i]);
            batch->parts[i]->batch = batch;
        }
        sent = send_batch(redis, batch, renewals, args) == STILE_OK;
    }
    if (sent) {
        batch->next = redis->batches;
        redis->batches = batch;
    }
    for (size_t i = 0; !sent && i < n; i++) {
        part_of(claims[i])->batch = NULL;
        redis->engine.events->unknown(claims[i]);
    }
    if (!sent)
        free(batch);
    free(renewals);
    free(args);
}

void claims_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    for (size_t i = 0; i < n; i += RENEWS_MAX)
        renew_some(redis_of(engine), claims + i, n - i < RENEWS_MAX ? n - i : RENEWS_MAX);
}
