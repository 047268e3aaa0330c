/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/mysql/tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/statements.h"

/* For how long a session goes by an epoch that it has read. stile_begin_epoch() waits for longer
 * before the next one can be read. */
#define EPOCH_LEASE_NS (100 * NS_PER_MS)
/* So long before its end, the packet that draws reads the epoch as well. */
#define EPOCH_SPARE_NS (20 * NS_PER_MS)

/* A server that starts has lost its rows of stile_life; one that is not the server that began the
 * epoch has another number. */
#define EPOCH                                                                                      \
    "SELECT e.base,e.bound,e.holds,l.first FROM stile_epoch e JOIN stile_life l ON "               \
    "l.base=e.base AND l.server=@@GLOBAL.server_id WHERE e.one=1 AND NOT @@GLOBAL.read_only"
/* Of a session that has read all of it before: its server and that server's life stay the same. A
 * replica may not have received yet what its primary has begun; when it is promoted within 100 ms
 * of such a reading, its numbers would be drawn from an epoch that is over. */
#define SAME_EPOCH "SELECT base,bound,holds FROM stile_epoch WHERE one=1 AND NOT @@GLOBAL.read_only"
/* After a wait the answer of a second statement would delay the grant. The key of the row depends
 * on the draw, so that it is read after that; with LIMIT the draw is made once. */
#define IN_ONE      "SELECT x.t,e.base,e.bound,e.holds FROM ("
#define IN_ONE_THEN " AS t LIMIT 1) x STRAIGHT_JOIN stile_epoch e ON e.one=x.t-x.t+1"
#define HOLD_OF     ";SELECT 1 FROM stile_lock WHERE name=X'"
#define IS_HELD     "' AND (delay_ms IS NOT NULL OR hold_until>UTC_TIMESTAMP(6))"

static uint64_t number(const char *text)
{
    return text ? strtoull(text, NULL, 10) : 0;
}

/* ---- drawing ---- */

/* A wait is expected to take as long as the one before. Read before it, the epoch is current at its
 * end, if that is soon; else the draw is made once more. Behind it, the reading would delay the
 * grant. */
static void plan(struct sql_claim *c, bool waits)
{
    const struct token_epoch *epoch = &c->session->epoch;
    struct my_claim *mine = my_claim_of(c);
    uint64_t age_ns = loop_now(c->session->base.loop) - epoch->read_ns;
    uint64_t wait_ns = waits ? mine->waited_ns + mine->waited_ns / 4 : 0;
    bool brief = !waits || (wait_ns > 0 && wait_ns < EPOCH_LEASE_NS - EPOCH_SPARE_NS);
    mine->asked_hold = !epoch->known || epoch->holds > 0;
    if (!epoch->known)
        mine->asked_epoch = ASK_BEHIND;
    else if (brief && age_ns + wait_ns < EPOCH_LEASE_NS - EPOCH_SPARE_NS)
        mine->asked_epoch = ASK_NOTHING;
    else
        mine->asked_epoch = !waits ? ASK_BEHIND : brief ? ASK_BEFORE : ASK_IN_ONE;
}

/* The server may have become read-only during a wait, so that is asked after it as well.
 *
 * On the path of every pair: printf() would be a third of the client's work. */
static char *draw(struct sql_claim *c, const char *before, const char *ahead, const char *behind,
                  bool waits)
{
    const struct my_claim *mine = my_claim_of(c);
    plan(c, waits);
    const char *parts[] = {before,
                           mine->asked_epoch == ASK_BEFORE   ? SAME_EPOCH ";"
                           : mine->asked_epoch == ASK_IN_ONE ? IN_ONE
                                                             : "",
                           "SELECT IF(@@GLOBAL.read_only,0,IF(",
                           ahead,
                           mine->key,
                           behind,
                           waits ? ",IF(@@GLOBAL.read_only,0,UUID_SHORT()),0))"
                                 : ",UUID_SHORT(),0))",
                           mine->asked_epoch == ASK_IN_ONE   ? IN_ONE_THEN
                           : mine->asked_epoch != ASK_BEHIND ? ""
                           : c->session->epoch.known         ? ";" SAME_EPOCH
                                                             : ";" EPOCH,
                           mine->asked_hold ? HOLD_OF : "",
                           mine->asked_hold ? c->stored : "",
                           mine->asked_hold ? IS_HELD : ""};
    size_t len = 1;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        len += strlen(parts[i]);
    char *text = malloc(len), *end = text;
    for (size_t i = 0; text && i < sizeof parts / sizeof *parts; i++)
        end = stpcpy(end, parts[i]);
    return text;
}

char *maria_draw_try(struct sql_claim *c, uint64_t ttl_ns)
{
    char before[LEASE_MAX];
    return draw(c, maria_sql_lease(before, ttl_ns), "GET_LOCK(X'", "',0)", false);
}

char *maria_draw_wait(struct sql_claim *c, uint64_t ttl_ns)
{
    char before[LEASE_MAX], behind[32 + SQL_IDENTITY_MAX], identity[SQL_IDENTITY_MAX];
    maria_sql_identity(identity, c);
    snprintf(behind, sizeof behind, "',%d)%s", SQL_YEAR_S, identity);
    return draw(c, maria_sql_lease(before, ttl_ns), "GET_LOCK(X'", behind, true);
}

char *maria_draw_again(struct sql_claim *c, bool begin)
{
    struct my_claim *mine = my_claim_of(c);
    bool known = c->session->epoch.known && !begin;
    mine->asked_epoch = ASK_BEHIND;
    mine->asked_hold = true;
    mine->began = begin;
    c->session->epoch.known = known;
    return maria_sql_written("%sSELECT IF(@@GLOBAL.read_only=0 AND IS_USED_LOCK(X'%s')<=>"
                             "CONNECTION_ID(),UUID_SHORT(),0);%s" HOLD_OF "%s" IS_HELD,
                             begin ? "CALL stile_begin_epoch();" : "", mine->key,
                             known ? SAME_EPOCH : EPOCH, c->stored);
}

char *maria_draw_undo(struct sql_claim *c)
{
    char mark[GRANT_MARK_MAX];
    return maria_sql_written("ROLLBACK;DO RELEASE_LOCK(CONCAT('stile epoch ',MD5(DATABASE())));"
                             "SELECT RELEASE_LOCK(X'%s'),RELEASE_LOCK(%s)",
                             my_claim_of(c)->key, maria_sql_grant_mark(mark, c));
}

/* ---- what was drawn ---- */

/* Of an epoch that is known only its end may have moved. */
static void read_epoch(struct token_epoch *epoch, const struct outcome *outcome, unsigned column,
                       uint64_t sent_ns)
{
    const char *base = maria_outcome_text(outcome, column);
    if (!epoch->known) {
        epoch->base = number(base);
        epoch->first = number(maria_outcome_text(outcome, 3));
    }
    epoch->known = base && number(base) == epoch->base && epoch->first;
    epoch->bound = number(maria_outcome_text(outcome, column + 1));
    epoch->holds = (int)number(maria_outcome_text(outcome, column + 2));
    epoch->read_ns = sent_ns;
}

/* An epoch that is read after the draw was there before it, or the number is smaller than its
 * first. One that was read before the draw may be over after a while. */
static bool is_current(struct session *session, bool read_after)
{
    return read_after || loop_now(session->base.loop) - session->epoch.read_ns < EPOCH_LEASE_NS;
}

static enum draw judge(const struct my_claim *mine, struct session *session, uint64_t drawn)
{
    const struct token_epoch *epoch = &session->epoch;
    if (!epoch->known ||
        (drawn >= epoch->first && drawn - epoch->first > epoch->bound - epoch->base))
        return DRAW_BEGIN;
    if (drawn < epoch->first || !is_current(session, mine->asked_epoch >= ASK_IN_ONE) ||
        (epoch->holds && !mine->asked_hold))
        return DRAW_AGAIN;
    return DRAW_GRANTED;
}

enum draw maria_draw_read(struct sql_claim *c, const struct answer *a, uint64_t *token)
{
    const struct my_claim *mine = my_claim_of(c);
    struct token_epoch *epoch = &c->session->epoch;
    size_t behind = (mine->asked_epoch == ASK_BEHIND) + (size_t)mine->asked_hold;
    if (a->n <= behind + (mine->asked_epoch == ASK_BEFORE))
        return DRAW_TAKEN;
    const struct outcome *first = &a->outcomes[a->n - 1 - behind];
    uint64_t drawn = number(maria_outcome_text(first, 0));
    if (mine->asked_epoch == ASK_IN_ONE)
        read_epoch(epoch, first, 1, a->sent_ns);
    else if (mine->asked_epoch)
        read_epoch(epoch, mine->asked_epoch == ASK_BEFORE ? first - 1 : first + 1, 0, a->sent_ns);
    if (!drawn)
        return DRAW_TAKEN;
    enum draw result = judge(mine, c->session, drawn);
    if (result != DRAW_GRANTED)
        return result;
    *token = epoch->base + (drawn - epoch->first);
    bool held = mine->asked_hold && maria_outcome_text(answer_last(a), 0);
    return held ? DRAW_HELD_BACK : DRAW_GRANTED;
}
