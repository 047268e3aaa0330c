/* mode=table: asking, waiting, holding. The functions of the schema do the work, each in one
 * transaction; who is next is told through NOTIFY, and looks by itself when what is in its way must
 * have ended, or where nothing can be heard. */
#include "engines/postgres/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/sql.h"
#include "mutant.h"

#define LOOK_AFTER_NS (5 * NS_PER_MS)
#define DEAF_MIN_NS   (20 * NS_PER_MS)
#define DEAF_DOUBLES  3 /* a quarter of a second at most: who was granted it has one */
#define AGAIN_NS      (50 * NS_PER_MS)

static void ask(struct row_claim *row);

/* ---- by owner ---- */

static unsigned head_of(const char *owner)
{
    unsigned head = 0;
    for (size_t i = 0; i < 8; i++)
        head = head * 31 + (unsigned char)owner[i];
    return head % BY_KEY_HEADS;
}

static struct row_claim *find(struct pg *pg, const char *owner)
{
    struct row_claim *row = pg->by_owner[head_of(owner)];
    while (row && strcmp(row->owner, owner) != 0)
        row = row->next;
    return row;
}

static void enlist(struct row_claim *row)
{
    struct row_claim **head = &pg_of_row(row)->by_owner[head_of(row->owner)];
    row->next = *head;
    *head = row;
    row->listed = true;
}

void table_forget(struct row_claim *row)
{
    struct pg *pg = pg_of_row(row);
    struct row_claim **at = &pg->by_owner[head_of(row->owner)];
    if (pg->shared)
        session_forget(pg->shared, row);
    while (row->listed && *at != row)
        at = &(*at)->next;
    if (row->listed)
        *at = row->next;
    row->listed = false;
    if (row->has_timer) {
        loop_disarm(pg->engine.loop, &row->timer);
        loop_unreserve(pg->engine.loop, 1);
    }
    row->has_timer = false;
    row->place = OUT;
}

/* In doubt, it keeps its owner value: core's withdrawal needs it. */
static void fail(struct row_claim *row, const struct stile_error *err)
{
    struct claim *claim = claim_of_row(row);
    struct stile_error why = *err;
    table_forget(row);
    claim->engine->events->failed(claim, &why);
}

/* ---- waiting ---- */

static void look(struct timer *timer)
{
    struct row_claim *row = (struct row_claim *)((char *)timer - offsetof(struct row_claim, timer));
    if (row->place == IN_QUEUE)
        ask(row);
}

/* No later than a third of its TTL: that is also the sign of life of who waits. */
static void arm_look(struct row_claim *row, uint64_t ms)
{
    struct pg *pg = pg_of_row(row);
    struct loop *loop = pg->engine.loop;
    uint64_t pause = ms * NS_PER_MS + LOOK_AFTER_NS, most = claim_of_row(row)->ttl_ns / 3;
    uint64_t deaf = DEAF_MIN_NS << (row->tries < DEAF_DOUBLES ? row->tries : DEAF_DOUBLES);
    uint64_t random = 0;
    row->tries++;
    if (!pg->hearing) {
        loop_random(loop, &random, sizeof random);
        deaf = deaf / 2 + random % deaf;
        pause = deaf < pause ? deaf : pause;
    }
    loop_arm(loop, &row->timer, loop_now(loop) + (pause < most ? pause : most));
}

/* No answer to who waits already: its row is kept for its TTL, and it asks again. */
static void unanswered(struct row_claim *row, const struct stile_error *err, bool sent)
{
    struct stile_error doubt = *err;
    struct loop *loop = claim_of_row(row)->engine->loop;
    bool passing = err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
    if (row->has_waited && passing) {
        row->place = IN_QUEUE;
        loop_arm(loop, &row->timer, loop_now(loop) + AGAIN_NS);
        return;
    }
    if (passing && sent)
        doubt.status = STILE_UNCERTAIN;
    fail(row, &doubt);
}

static void on_claimed(void *data, const struct answer *a)
{
    struct row_claim *row = data;
    struct claim *claim = claim_of_row(row);
    struct stile_error strange;
    const char *text = a->err || PQntuples(a->result) != 1 ? "" : PQgetvalue(a->result, 0, 0);
    uint64_t number = *text ? strtoull(text + 1, NULL, 10) : 0;
    if (a->err) {
        unanswered(row, a->err, a->sent_ns != 0);
    } else if (*text == 'g') {
        row->place = OWNING;
        claim->engine->events->granted(claim, number, a->sent_ns, claim->ttl_ns);
    } else if (*text != 'b') {
        error_set(&strange, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        fail(row, &strange);
    } else if (!claim->wait) {
        table_forget(row);
        claim->engine->events->busy(claim, number * NS_PER_MS);
    } else {
        row->has_waited = true;
        row->place = IN_QUEUE;
        if (row->told)
            ask(row);
        else
            arm_look(row, number);
    }
}

static const char *number_or_null(char out[24], uint64_t ns)
{
    snprintf(out, 24, "%" PRIu64, (ns + NS_PER_MS - 1) / NS_PER_MS);
    return ns ? out : NULL;
}

static void ask(struct row_claim *row)
{
    static const char *const modes[] = {
        [STILE_EXCLUSIVE] = "exclusive", [STILE_SHARED] = "shared", [STILE_SLOTS] = "slots"};
    struct claim *claim = claim_of_row(row);
    struct pg *pg = pg_of_row(row);
    struct session *shared;
    struct stile_error err;
    char slots[12], ttl[24], hold[24], delay[24];
    snprintf(slots, sizeof slots, "%u", claim->slots);
    row->place = ASKING;
    row->told = false;
    enum stile_status status = pg_shared(&shared, pg, &err);
    const char *values[] = {row->stored,
                            row->owner,
                            modes[claim->mode],
                            slots,
                            number_or_null(ttl, claim->ttl_ns),
                            number_or_null(hold, claim->hold_ns),
                            number_or_null(delay, claim->delay_ns),
                            claim->wait ? "t" : "f",
                            pg->hearing ? pg->channel : NULL,
                            pg->who.host,
                            pg->who.pid,
                            pg->who.command};
    if (!status)
        status = session_send(shared, &sql_table_claim, values, 12, on_claimed, row, &err);
    if (status)
        unanswered(row, &err, false);
}

/* ---- beginning ---- */

static bool begin(struct row_claim *row)
{
    struct claim *claim = claim_of_row(row);
    struct stile_error err;
    if (loop_reserve(claim->engine->loop, 1)) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        claim->engine->events->failed(claim, &err);
        return false;
    }
    row->has_timer = true;
    row->timer.fn = look;
    row->tries = 0;
    row->told = row->has_waited = row->may_be_there = false;
    name_store(row->stored, claim->name, claim->name_len);
    enlist(row);
    return true;
}

void table_claim(struct engine *engine, struct claim *claim)
{
    struct row_claim *row = row_of(claim);
    struct stile_error err;
    unsigned char random[TABLE_OWNER_LEN / 2];
    int rc = loop_random(engine->loop, random, sizeof random);
    if (rc) {
        error_errno(&err, STILE_REFUSED, rc, "drawing an owner value");
        engine->events->failed(claim, &err);
        return;
    }
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(row->owner + 2 * i, 3, "%02x", random[i]);
    if (begin(row))
        ask(row);
}

/* ---- without its process ---- */

/* Never in doubt: core would withdraw what its owner has and wants to keep. */
static void on_resumed(void *data, const struct answer *a)
{
    struct row_claim *row = data;
    struct claim *claim = claim_of_row(row);
    struct stile_error err;
    if (a->err) {
        err = *a->err;
        fail(row, &err);
    } else if (PQntuples(a->result) != 1 || PQgetisnull(a->result, 0, 0)) {
        error_set(&err, STILE_LOST, 0, "this owner value does not hold it (any more)");
        fail(row, &err);
    } else {
        row->place = OWNING;
        claim->engine->events->granted(claim, strtoull(PQgetvalue(a->result, 0, 0), NULL, 10),
                                       a->sent_ns, claim->ttl_ns);
    }
}

void table_resume(struct engine *engine, struct claim *claim)
{
    struct row_claim *row = row_of(claim);
    struct session *shared;
    struct stile_error err;
    char ttl[24];
    if (strlen(claim->owner) != TABLE_OWNER_LEN ||
        strspn(claim->owner, "0123456789abcdef") != TABLE_OWNER_LEN) {
        error_set(&err, STILE_MISUSE, 0, "an owner value has %d lower-case hex digits",
                  TABLE_OWNER_LEN);
        engine->events->failed(claim, &err);
        return;
    }
    memcpy(row->owner, claim->owner, sizeof row->owner);
    if (!begin(row))
        return;
    row->place = ASKING;
    const char *values[] = {row->stored, row->owner, number_or_null(ttl, claim->ttl_ns)};
    enum stile_status status = pg_shared(&shared, pg_of(engine), &err);
    if (!status)
        status = session_send(shared, &sql_table_resume, values, 3, on_resumed, row, &err);
    if (status)
        fail(row, &err);
}

void table_detach(struct engine *engine, struct claim *claim)
{
    (void)engine;
    table_leave_batch(row_of(claim));
    table_forget(row_of(claim));
}

const char *table_owner(struct engine *engine, struct claim *claim)
{
    (void)engine;
    return row_of(claim)->owner;
}

/* ---- hearing ---- */

static void look_all_again(struct pg *pg)
{
    for (size_t i = 0; i < BY_KEY_HEADS; i++) {
        for (struct row_claim *row = pg->by_owner[i], *next; row; row = next) {
            next = row->next;
            if (row->place == IN_QUEUE)
                ask(row);
        }
    }
}

static void hear_broken(struct row_claim *row)
{
    struct stile_error err;
    error_set(&err, STILE_LOST, 0, "taken over by `stile break`");
    claim_of_row(row)->engine->events->lost(claim_of_row(row), &err);
}

/* "t", "g owner" or "b owner"; anybody may say anything, so "g" is a hint, and "b" is no worse than
 * what who may say it could do as well. */
static void on_notified(struct session *session, const char *payload)
{
    struct pg *pg = session->pg;
    if (strcmp(payload, "t") == 0 && !pg->hearing) {
        pg->hearing = true;
        look_all_again(pg); /* they have not said where they listen */
        return;
    }
    struct row_claim *row = payload[0] && payload[1] == ' ' ? find(pg, payload + 2) : NULL;
    if (row && payload[0] == 'g' && row->place == IN_QUEUE)
        ask(row);
    else if (row && payload[0] == 'g' && row->place == ASKING)
        row->told = true;
    else if (row && payload[0] == 'b' && row->place == OWNING)
        hear_broken(row);
}

static void ignore(void *data, const struct answer *a)
{
    (void)data, (void)a;
}

/* Behind a pooler nothing is set, and nothing can be heard. */
static void on_up(struct session *session)
{
    struct pg *pg = session->pg;
    const char *channel[] = {pg->channel};
    if (!pg->pooled) {
        session_send(session, &sql_table_settings, NULL, 0, ignore, NULL, NULL);
        session_send(session, &pg->listen, NULL, 0, ignore, NULL, NULL);
        session_send(session, &sql_table_test, channel, 1, ignore, NULL, NULL);
    }
    pg_opened(session, NULL);
}

static void on_down(struct session *session)
{
    session->pg->shared = NULL;
    session->pg->hearing = false;
}

/* What is held stays so until its deadline, and is renewed over the next connection. Who waits may
 * have been told meanwhile, and has a second to say so. */
static void on_ended(struct session *session, const struct stile_error *why)
{
    struct pg *pg = session->pg;
    uint64_t at = loop_now(pg->engine.loop) + AGAIN_NS;
    pg_opened(session, why);
    for (size_t i = 0; i < BY_KEY_HEADS; i++) {
        for (struct row_claim *row = pg->by_owner[i]; row; row = row->next) {
            if (row->place == IN_QUEUE && row->timer.at_ns > at)
                loop_arm(pg->engine.loop, &row->timer, at);
        }
    }
}

const struct session_events table_events = {
    .up = on_up, .down = on_down, .ended = on_ended, .notified = on_notified};
