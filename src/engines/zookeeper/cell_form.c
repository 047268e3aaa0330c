/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a cell's node holds: one line of text, then the value.
 *
 *     stile-cell 1 live VERSION TOKEN ISSUER
 *
 * "gone" instead of "live": a tombstone, or a guard without a cell; no value follows. The issuer
 * ends the line, since it may contain spaces but no control characters.
 *
 * Versions are counted here, by one for each put: the node's own version is an int, and counts what
 * concerns the guard alone, too. The first version of a node is larger than the latest transaction
 * that was seen. Each put is a transaction, so no version is ever larger than the one that wrote
 * it. So even if somebody deletes the node by hand, no version comes back. */
#include "engines/zookeeper/cell_form.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/guard.h"

#define MAGIC       "stile-cell "
#define FORM        MAGIC "1 "
#define VERSION_MAX (UINT64_C(1) << 62) /* no server gets there: a larger one is damage */

/* ---- reading ---- */

struct text {
    const char *at, *end;
};

static bool take_word(struct text *text, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(text->end - text->at) < n || memcmp(text->at, word, n) != 0)
        return false;
    text->at += n;
    return true;
}

/* As it is written: no sign, no zeros in front, a space behind. */
static bool take_number(struct text *text, uint64_t *number, uint64_t max)
{
    const char *start = text->at;
    *number = 0;
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
        uint64_t digit = (uint64_t)(*text->at - '0');
        if (*number > (max - digit) / 10)
            return false;
        *number = *number * 10 + digit;
    }
    bool plain = text->at > start && (*start != '0' || text->at == start + 1);
    return plain && take_word(text, " ");
}

static bool take_issuer(struct text *text, char issuer[STILE_ISSUER_MAX + 1])
{
    size_t n = 0;
    for (; text->at < text->end && *text->at != '\n'; text->at++, n++) {
        if (n == STILE_ISSUER_MAX || (unsigned char)*text->at < ' ' || *text->at == 127)
            return false;
        issuer[n] = *text->at;
    }
    issuer[n] = '\0';
    return take_word(text, "\n");
}

static const char *read_form(struct zk_cell *cell, struct text *text)
{
    if (!take_word(text, MAGIC))
        return "it was not written by stile";
    if (!take_word(text, "1 "))
        return "it was written by a newer stile, or is damaged";
    cell->live = take_word(text, "live ");
    if (!cell->live && !take_word(text, "gone "))
        return "it is neither live nor gone";
    if (!take_number(text, &cell->version, VERSION_MAX) || (cell->live && cell->version == 0))
        return "its version is no version";
    if (!take_number(text, &cell->token, STILE_TOKEN_MAX))
        return "its token is no token";
    if (!take_issuer(text, cell->issuer))
        return "its issuer is no issuer";
    cell->value = text->at;
    cell->size = (size_t)(text->end - text->at);
    if (cell->size > (cell->live ? STILE_CELL_MAX : 0))
        return cell->live ? "its value is too long" : "it is gone and has a value";
    return NULL;
}

enum stile_status zk_cell_read(struct zk_cell *cell, const char *data, size_t n,
                               struct stile_error *err)
{
    struct text text = {.at = data, .end = n ? data + n : data};
    *cell = (struct zk_cell){0};
    const char *wrong = read_form(cell, &text);
    return wrong ? error_set(err, STILE_CORRUPT, 0, "%s", wrong) : STILE_OK;
}

bool zk_cell_is_ours(const char *data, size_t n)
{
    struct text text = {.at = data, .end = n ? data + n : data};
    return take_word(&text, MAGIC);
}

/* ---- writing ---- */

size_t zk_cell_write_head(char head[CELL_HEAD_MAX], const struct zk_cell *cell)
{
    return (size_t)snprintf(head, CELL_HEAD_MAX, FORM "%s %" PRIu64 " %" PRIu64 " %s\n",
                            cell->live ? "live" : "gone", cell->version, cell->token, cell->issuer);
}

/* ---- the rule ---- */

static enum stile_status judge(const struct zk_cell *now, const struct cell_request *request)
{
    struct guard_seen seen = {.token = now->token, .issuer = now->issuer};
    enum stile_status status = guard_judge(seen, request->token, request->issuer, request->strict);
    uint64_t version = now->live ? now->version : 0;
    if (status || request->verb == CELL_RAISE)
        return status;
    return request->any_version || request->if_version == version ? STILE_OK : STILE_CONFLICT;
}

static void remember(struct zk_cell *next, const struct zk_cell *now,
                     const struct cell_request *request)
{
    struct guard_seen seen = {.token = now->token, .issuer = now->issuer};
    bool reset = request->verb == CELL_RESET;
    const char *issuer =
        reset ? request->issuer : guard_issuer(seen, request->token, request->issuer);
    if (reset || request->token > 0)
        next->token = request->token;
    snprintf(next->issuer, sizeof next->issuer, "%s", issuer);
}

enum stile_status zk_cell_change(struct zk_cell *next, const struct zk_cell *now,
                                 const struct cell_request *request, uint64_t zxid)
{
    enum stile_status status = request->verb == CELL_RESET ? STILE_OK : judge(now, request);
    if (status)
        return status;
    *next = *now;
    remember(next, now, request);
    if (request->verb == CELL_PUT) {
        next->live = true;
        next->version = (now->version ? now->version : zxid) + 1;
        next->value = request->value;
        next->size = request->size;
    } else if (request->verb == CELL_REMOVE) {
        next->live = false;
        next->value = NULL;
        next->size = 0;
    }
    return STILE_OK;
}

/* A raise is always written, even if its token is the highest already: an answer that only a read
 * has confirmed may come from a leader that was replaced a moment ago. */
bool zk_cell_is_unchanged(const struct zk_cell *now, const struct cell_request *request)
{
    if (request->verb == CELL_REMOVE)
        return !now->live && request->token == 0;
    return request->verb == CELL_RESET && request->token == 0 && !*request->issuer &&
           now->token == 0 && !*now->issuer;
}
