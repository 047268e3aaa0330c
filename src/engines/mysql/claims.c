/* Being granted: one try on the shared session, then a wait inside the server on another. */
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/my.h"
#include "engines/mysql/sql.h"

/* `stile break` on another client may end a hold, and tells nobody. */
#define SIT_MAX_MS 500

/* Who waited for longer than a statement takes was not alone. */
#define CROWDED_NS (NS_PER_MS / 4)

static void confirm(struct part *part);

/* ---- hearing it ---- */

enum verdict { TAKEN, GRANTED, KEPT_BACK };

/* The last statement is the row's, or without a schema the lock's own. */
static enum verdict read_verdict(const struct my *my, const struct answer *a, uint64_t *token)
{
    const struct outcome *last = answer_last(a);
    const char *text = outcome_text(last, 0);
    *token = 0;
    if (my->bare)
        return text && strcmp(text, "1") == 0 ? GRANTED : TAKEN;
    if (last->affected == 0)
        return TAKEN;
    *token = last->insert_id;
    return *token ? GRANTED : KEPT_BACK;
}

/* ---- kept back ---- */

static uint64_t kept_ms(const struct answer *a)
{
    const char *text = a->err ? NULL : outcome_text(answer_last(a), 0);
    uint64_t ms = text ? strtoull(text, NULL, 10) : 0;
    return ms ? ms : 1;
}

static enum stile_status ask_how_long(struct part *part, answer_fn *fn, struct stile_error *err)
{
    part->standing = WEIGHING;
    return session_send(part->session, sql_kept(part), fn, part, err);
}

/* ---- on a session of its own ---- */

static void look_again(struct timer *timer)
{
    struct part *part = part_of_timer(timer);
    if (part->standing == SITTING)
        confirm(part);
}

/* It is ours in the server, and kept back from everybody. */
static void on_weighed(void *data, const struct answer *a)
{
    struct part *part = data;
    struct loop *loop = claim_of(part)->engine->loop;
    uint64_t ms = kept_ms(a);
    if (a->err) {
        part_give_up(part, a->err);
    } else if (part->withdrawn) {
        release_go_on(part, true);
    } else {
        part->standing = SITTING;
        part->timer.fn = look_again;
        ms = ms < SIT_MAX_MS ? ms + 1 : SIT_MAX_MS;
        loop_arm(loop, &part->timer, loop_now(loop) + ms * NS_PER_MS);
    }
}

static void on_confirmed(void *data, const struct answer *a)
{
    struct part *part = data;
    struct stile_error err;
    uint64_t token = 0;
    enum verdict verdict = a->err ? TAKEN : read_verdict(my_of_part(part), a, &token);
    if (a->err) {
        part_give_up(part, a->err);
    } else if (verdict == TAKEN) {
        error_set(&err, STILE_UNREACHABLE, 0, "what the server had granted is another's");
        part_give_up(part, &err);
    } else if (part->withdrawn) {
        part->token = token;
        release_go_on(part, true);
    } else if (verdict == GRANTED) {
        part_grant(part, token, a->sent_ns);
    } else if (ask_how_long(part, on_weighed, &err)) {
        part_give_up(part, &err);
    }
}

/* After a hold is over. It proves that the lock is still this session's. */
static void confirm(struct part *part)
{
    struct stile_error err;
    part->standing = CONFIRMING;
    if (session_send(part->session, sql_grant(part), on_confirmed, part, &err))
        part_give_up(part, &err);
}

static void on_alive(void *data, const struct answer *a)
{
    struct stile_error err;
    if (!a->err && ttl_check_proof(a, &err))
        part_confirmed(data, a->sent_ns, &err);
    else
        part_confirmed(data, a->sent_ns, a->err);
}

/* The lease counts from a time that is known to be before the session's last sign of life. After a
 * long wait that is too long ago, and another word is exchanged. */
static void grant_after_wait(struct part *part, uint64_t token, uint64_t sent_ns)
{
    struct session *session = part->session;
    uint64_t waited_ns = loop_now(session->loop) - sent_ns;
    struct stile_error err;
    part->token = token;
    mine(part)->crowded = waited_ns > CROWDED_NS;
    if (waited_ns < session->seat.ttl_told_ns / 8) {
        part_grant(part, token, sent_ns);
        return;
    }
    part->standing = CONFIRMING;
    if (session_send(session, sql_prove(session, session->seat.ttl_told_ns), on_alive, part, &err))
        part_give_up(part, &err);
}

static void on_locked(void *data, const struct answer *a)
{
    struct part *part = data;
    struct stile_error err;
    uint64_t token = 0;
    enum verdict verdict = a->err ? TAKEN : read_verdict(my_of_part(part), a, &token);
    if (part->session)
        part->session->seat.waits = false;
    if (part->withdrawn && part->session && part->session->state == UP) {
        release_go_on(part, true); /* killed, and perhaps granted all the same */
    } else if (a->err || verdict == TAKEN) {
        error_set(&err, STILE_UNREACHABLE, 0, "the wait for it was ended in the server");
        part_give_up(part, a->err ? a->err : &err);
    } else if (verdict == GRANTED) {
        grant_after_wait(part, token, a->sent_ns);
    } else if (ask_how_long(part, on_weighed, &err)) {
        part_give_up(part, &err);
    }
}

void claims_stand_in_line(struct part *part)
{
    struct my *my = my_of_part(part);
    struct session *session;
    struct stile_error err;
    part_leave(part);
    if (pool_take(&session, &my->pool, &err)) {
        part_fail(part, &err);
        return;
    }
    part_join(part, session);
    part->standing = IN_LINE;
    mine(part)->crowded = true;
    session->seat.waits = true;
    claim_of(part)->engine->events->queued(claim_of(part));
    if (session_send(session, sql_lock(part, ttl_to_tell(session)), on_locked, part, &err))
        part_give_up(part, &err);
}

/* ---- on the shared session ---- */

static void on_stepped_back(void *data, const struct answer *a)
{
    (void)a; /* an error here is the session's end */
    part_stepped(data);
}

/* What the try may have taken is given back; the server knows whose it is (LESSONS 20: an error is
 * no proof that nothing was granted). */
static void step_back(struct part *part, uint64_t hint_ms)
{
    struct session *session = part->session;
    part->standing = STEPPING;
    part->token = hint_ms;
    if (!session || session->state != UP ||
        session_send(session, sql_unlock(part), on_stepped_back, part, NULL))
        part_stepped(part);
}

static void on_weighed_trying(void *data, const struct answer *a)
{
    step_back(data, kept_ms(a));
}

static void on_tried(void *data, const struct answer *a)
{
    struct part *part = data;
    uint64_t token = 0;
    if (a->err) {
        part->why = *a->err;
        step_back(part, 0);
        return;
    }
    switch (read_verdict(my_of_part(part), a, &token)) {
    case TAKEN:
        part_stepped(part);
        break;
    case KEPT_BACK:
        if (part->withdrawn || ask_how_long(part, on_weighed_trying, NULL))
            step_back(part, 1);
        break;
    case GRANTED:
        part->token = token;
        if (part->withdrawn)
            release_go_on(part, true);
        else
            part_grant(part, token, a->sent_ns);
        break;
    }
}

bool claims_begin(struct part *part)
{
    struct claim *claim = claim_of(part);
    char key[KEY_MAX + 1];
    mine(part)->plainly = false;
    if (!*part->stored) {
        name_hex(part->stored, claim->name, claim->name_len);
        name_key(key, my_of_part(part)->mariadb, claim->name, claim->name_len);
        name_hex(mine(part)->key, key, strlen(key));
    }
    return part_begin(part);
}

void claims_claim(struct engine *engine, struct claim *claim)
{
    struct part *part = part_of(claim);
    struct session *shared;
    struct stile_error err;
    if (!claims_begin(part))
        return;
    if (claim->wait && mine(part)->crowded && pool_has_idle(pool_of(engine))) {
        claims_stand_in_line(part); /* it would most likely be in vain */
        return;
    }
    mine(part)->crowded = false;
    if (my_shared(&shared, my_of(engine), &err)) {
        part_fail(part, &err);
        return;
    }
    part_join(part, shared);
    part->standing = ASKED;
    if (session_send(shared, sql_try(part, ttl_to_tell(shared)), on_tried, part, &err))
        part_fail(part, &err);
}

/* ---- broken ---- */

static bool is_it(struct part *part, const char *stored)
{
    return part->standing == HOLDING && !part->told && strcmp(part->stored, stored) == 0;
}

static bool break_in(struct session *session, const char *stored)
{
    struct stile_error err;
    struct part *part = session->seat.claims;
    while (part && !is_it(part, stored))
        part = part->next;
    if (!part)
        return false;
    error_set(&err, STILE_LOST, 0, "taken over by `stile break`");
    part_lose(part, &err);
    return true;
}

bool claims_break(struct my *my, uint64_t backend, const char *stored)
{
    if (my->pool.shared && my->pool.shared->seat.backend == backend)
        return break_in(my->pool.shared, stored);
    for (struct session *session = my->pool.sessions; session; session = session->seat.next) {
        if (session->seat.backend == backend)
            return break_in(session, stored);
    }
    return false;
}
