/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the whole file, for a process that is alone in it. Every cell must have the right checksum
 * and be reached exactly once, and every queue must follow the rule: damage is reported before
 * anything is granted. */
#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "engines/local/env.h"
#include "engines/local/table.h"

struct check {
    struct store *store;
    const struct ledger_cell *ledger;
    uint8_t *seen; /* one bit a cell */
    uint32_t n_buckets;
    uint32_t n_seen, n_names, n_observers, n_watched, n_kept;
    bool in_use; /* there are claims, sessions or observers */
    const char *wrong;
};

static const union cell blank;

static bool wrong(struct check *check, const char *what)
{
    if (!check->wrong)
        check->wrong = what;
    return false;
}

/* The cell, if it is intact, of that kind, and reached for the first time. */
static const union cell *visit(struct check *check, uint32_t index, enum cell_kind kind)
{
    if (!check->wrong && (index < AT_FIRST || index >= check->ledger->n_used))
        wrong(check, "an index points outside the table");
    if (check->wrong)
        return &blank;
    const union cell *cell = &check->store->cells[index];
    if (check->seen[index / 8] & 1 << index % 8)
        wrong(check, "a cell is in two places");
    else if (cell->check != cell_sum(cell, index))
        wrong(check, "a cell has a wrong checksum");
    else if (cell->kind != kind)
        wrong(check, "a cell is of another kind");
    if (check->wrong)
        return &blank;
    check->seen[index / 8] |= (uint8_t)(1 << index % 8);
    check->n_seen++;
    return cell;
}

/* ---- names and their queues ---- */

static bool visit_text(struct check *check, uint32_t index, size_t len, char *out)
{
    size_t at = 0;
    while (at < len && !check->wrong) {
        const struct text_cell *text = &visit(check, index, CELL_TEXT)->text;
        size_t n = len - at < TEXT_BYTES ? len - at : TEXT_BYTES;
        memcpy(out + at, text->bytes, n);
        at += n;
        index = text->next;
    }
    return index == 0 || wrong(check, "a text is longer than its length");
}

/* Whole cells up to the end of the chain; the length without the NULs at the end. */
static size_t visit_name_text(struct check *check, uint32_t index, char out[NAME_TEXT_MAX])
{
    size_t len = 0;
    while (index && !check->wrong && len + TEXT_BYTES <= NAME_TEXT_MAX) {
        const struct text_cell *text = &visit(check, index, CELL_TEXT)->text;
        memcpy(out + len, text->bytes, TEXT_BYTES);
        len += TEXT_BYTES;
        index = text->next;
    }
    size_t cells = len / TEXT_BYTES;
    while (len > 0 && out[len - 1] == '\0')
        len--;
    if (index || (len + TEXT_BYTES - 1) / TEXT_BYTES != cells)
        wrong(check, "a name takes more cells than it needs");
    return len;
}

static bool is_plausible(const struct claim_cell *claim)
{
    if (claim->mode > STILE_SLOTS || (claim->mode == STILE_SLOTS) != (claim->slots > 0))
        return false;
    return claim->state >= CLAIM_WAITING && claim->state <= CLAIM_GHOST &&
           (claim->state == CLAIM_WAITING) == (claim->token == 0);
}

struct tally {
    uint32_t held, waiting, ghosts, held_last, last;
    uint8_t held_mode;
};

static bool count_claim(struct check *check, const struct name_cell *name,
                        const struct claim_cell *claim, uint32_t index, struct tally *tally)
{
    bool first_held = tally->held == 0;
    if (!is_plausible(claim) || claim->prev != tally->last || claim->token > name->token)
        return wrong(check, "a claim is impossible");
    if (claim_is_held(claim)) {
        bool alone = claim->mode == STILE_EXCLUSIVE && !first_held;
        bool full = claim->mode == STILE_SLOTS && tally->held >= claim->slots;
        bool mixed = !first_held && claim->mode != tally->held_mode;
        if (tally->waiting || alone || full || mixed)
            return wrong(check, "two claims are granted that exclude each other");
        tally->held++;
        tally->held_last = index;
        tally->held_mode = claim->mode;
        tally->ghosts += claim->state == CLAIM_GHOST;
    } else {
        tally->waiting++;
    }
    tally->last = index;
    return true;
}

static bool check_queue(struct check *check, const struct name_cell *name, uint32_t name_index)
{
    struct tally tally = {0};
    for (uint32_t i = name->first; i && !check->wrong;) {
        const struct claim_cell *claim = &visit(check, i, CELL_CLAIM)->claim;
        if (check->wrong || claim->name != name_index)
            return wrong(check, "a claim stands in another name's queue");
        count_claim(check, name, claim, i, &tally);
        check->n_kept += claim->hold_ms || claim->delay_ms;
        i = claim->next;
    }
    if (tally.held != name->n_held || tally.waiting != name->n_waiting ||
        tally.ghosts != name->n_ghosts || tally.last != name->last ||
        tally.held_last != name->held_last)
        return wrong(check, "a queue does not match the counts of its name");
    check->in_use |= tally.held > 0 || tally.waiting > 0;
    return true;
}

/* An open name has no claims but the one of its word. */
static bool check_word(struct check *check, const struct name_cell *name, uint32_t index)
{
    if (!name->is_quick)
        return true;
    uint64_t word = quick_slot(check->store, index)->word;
    uint64_t known = name->token >> 32 << 32;
    bool held = (word & QUICK_STATE) == QUICK_HELD;
    uint64_t token = held ? known | (uint32_t)(word >> 8) : word >> 8;
    if (!local_quick_is_marked(check->store, index) || name->first || name->n_watched ||
        !quick_is_sound(word) || token < name->token || !quick_same_block(token, name->token))
        return wrong(check, "the word of a name is damaged");
    check->in_use |= held;
    return true;
}

static bool check_name(struct check *check, const struct name_cell *name, uint32_t index)
{
    char text[NAME_TEXT_MAX];
    size_t len = visit_name_text(check, name->text, text);
    if (check->wrong)
        return false;
    if (name_check(text, len, NULL) != STILE_OK || name_hash(text, len) != name->hash)
        return wrong(check, "a name does not match its hash");
    if (name->token >> 32 > check->ledger->epoch)
        return wrong(check, "a token belongs to an epoch that has not begun");
    if (name->spare && visit(check, name->spare, CELL_CLAIM)->claim.state != CLAIM_SPARE)
        return wrong(check, "a spare cell is in use");
    check->n_names++;
    check->n_watched += name->n_watched;
    return check_word(check, name, index) && check_queue(check, name, index);
}

static bool check_session(struct check *check, const struct session_cell *session)
{
    char text[SESSION_HOST_MAX + SESSION_COMMAND_MAX];
    if (session->host_len > SESSION_HOST_MAX || session->command_len > SESSION_COMMAND_MAX)
        return wrong(check, "a session's text is too long");
    check->in_use = true;
    return visit_text(check, session->text, (size_t)session->host_len + session->command_len, text);
}

/* ---- everything else ---- */

static void check_chain(struct check *check, uint32_t bucket, uint32_t next)
{
    while (next && !check->wrong) {
        bool is_name = next < check->ledger->n_used && check->store->cells[next].kind == CELL_NAME;
        const union cell *cell = visit(check, next, is_name ? CELL_NAME : CELL_SESSION);
        if (check->wrong)
            return;
        uint64_t key = local_chain_key(&cell->chained);
        if (local_chain_bucket_among(check->n_buckets, key) != bucket)
            wrong(check, "a cell hangs in the wrong hash chain");
        else if (is_name)
            check_name(check, &cell->name, next);
        else
            check_session(check, &cell->session);
        next = cell->chained.chain;
    }
}

/* Most are, and this is done whenever a process opens the directory alone. */
static bool is_empty(const struct buckets_cell *buckets)
{
    uint32_t any = 0;
    for (uint32_t j = 0; j < BUCKETS_PER_CELL; j++)
        any |= buckets->first[j];
    return any == 0;
}

static void check_buckets_cell(struct check *check, uint32_t index, uint32_t bucket, uint32_t end)
{
    const union cell *cell = &check->store->cells[index];
    if (cell->check != cell_sum(cell, index) || cell->kind != CELL_BUCKETS)
        wrong(check, "a bucket has a wrong checksum");
    if (cell->buckets.generation != check->ledger->generation || is_empty(&cell->buckets))
        return;
    for (uint32_t i = 0; i < BUCKETS_PER_CELL && bucket + i < end; i++)
        check_chain(check, bucket + i, cell->buckets.first[i]);
}

static void check_buckets(struct check *check)
{
    for (uint32_t i = 0; i < BUCKET_CELLS && !check->wrong; i++)
        check_buckets_cell(check, AT_BUCKETS + i, i * BUCKETS_PER_CELL, BUCKETS);
}

/* All cells of a segment belong to it, those included that no bucket has needed yet. */
static bool take_segment(struct check *check, uint32_t first, uint32_t n)
{
    if (first < AT_FIRST || first > check->ledger->n_used || n > check->ledger->n_used - first)
        return wrong(check, "a segment lies outside the table");
    for (uint32_t i = first; i < first + n; i++) {
        if (check->seen[i / 8] & 1 << i % 8)
            return wrong(check, "a cell is in two places");
        check->seen[i / 8] |= (uint8_t)(1 << i % 8);
    }
    check->n_seen += n;
    return true;
}

static void check_segment(struct check *check, unsigned segment, uint32_t first)
{
    uint32_t bucket = (uint32_t)BUCKETS << segment;
    uint32_t end = check->n_buckets < 2 * bucket ? check->n_buckets : 2 * bucket;
    if (!first && end > bucket)
        wrong(check, "a segment is missing");
    if (!first || !take_segment(check, first, local_chain_segment_cells(segment)))
        return;
    for (uint32_t index = first; bucket < end && !check->wrong; bucket += BUCKETS_PER_CELL)
        check_buckets_cell(check, index++, bucket, end);
}

static void check_segments(struct check *check)
{
    const union cell *cell = &check->store->cells[AT_SEGMENTS];
    check->n_buckets = cell->segments.n_buckets;
    if (cell->check != cell_sum(cell, AT_SEGMENTS) || cell->kind != CELL_SEGMENTS ||
        check->n_buckets < BUCKETS || check->n_buckets > BUCKETS_MAX)
        wrong(check, "the list of segments is damaged");
    for (unsigned i = 0; i < SEGMENTS_MAX && !check->wrong; i++)
        check_segment(check, i, cell->segments.first[i]);
}

static bool is_watched(const struct check *check, uint32_t index)
{
    const union cell *cell = &check->store->cells[index];
    return index >= AT_FIRST && index < check->ledger->n_used && cell->kind == CELL_NAME &&
           cell->name.n_watched > 0;
}

static void check_observers(struct check *check)
{
    uint32_t before = 0;
    for (uint32_t i = check->ledger->first_observer; i && !check->wrong;) {
        const struct observer_cell *observer = &visit(check, i, CELL_OBSERVER)->observer;
        if (!check->wrong && (observer->prev != before || !is_watched(check, observer->name)))
            wrong(check, "the list of observers is broken");
        before = i;
        i = observer->next;
        check->n_observers++;
        check->in_use = true;
    }
}

static void check_free(struct check *check)
{
    uint32_t n = 0, before = 0;
    for (uint32_t i = check->ledger->first_free; i && !check->wrong; n++) {
        const struct free_cell *cell = &visit(check, i, CELL_FREE)->free;
        if (cell->prev != before)
            wrong(check, "the list of free cells is broken");
        before = i;
        i = cell->next;
    }
    if (n != check->ledger->n_free)
        wrong(check, "the list of free cells is broken");
}

static bool check_ledger(struct check *check)
{
    const union cell *cell = &check->store->cells[AT_LEDGER];
    const struct ledger_cell *ledger = check->ledger;
    if (cell->check != cell_sum(cell, AT_LEDGER) || cell->kind != CELL_LEDGER)
        return wrong(check, "the ledger has a wrong checksum");
    if (ledger->n_used < AT_FIRST || ledger->n_used > ledger->n_cells ||
        ledger->n_cells > check->store->n_cells || ledger->floor >> 32 > ledger->epoch)
        return wrong(check, "the ledger is impossible");
    return true;
}

static void check_everything(struct check *check)
{
    check_segments(check);
    check_buckets(check);
    check_observers(check);
    check_free(check);
    const struct ledger_cell *ledger = check->ledger;
    if (check->n_names != ledger->n_names || check->n_observers != ledger->n_observers ||
        check->n_kept != ledger->n_kept || check->n_observers != check->n_watched ||
        check->n_seen != ledger->n_used - AT_FIRST)
        wrong(check, "cells are missing");
}

enum stile_status local_check_all(struct store *store, bool *in_use, struct stile_error *err)
{
    struct check check = {.store = store, .ledger = &store->cells[AT_LEDGER].ledger};
    if (check_ledger(&check)) {
        check.seen = calloc(check.ledger->n_used / 8 + 1, 1);
        if (!check.seen)
            return error_set(err, STILE_NOMEM, 0, "out of memory");
        check_everything(&check);
        free(check.seen);
    }
    *in_use = check.in_use;
    if (check.wrong)
        return error_set(err, STILE_CORRUPT, 0,
                         "`state` is damaged (%s): remove it; tokens continue from `epoch`",
                         check.wrong);
    return STILE_OK;
}
