/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The table of names and sessions: texts, names, sessions and observers. Chains are in chains.c,
 * queues in queue.c, sweeping in names.c. */
#include <string.h>
#include <unistd.h>

#include "base/name.h"
#include "engines/local/liveness.h"
#include "engines/local/table.h"

/* ---- texts ---- */

uint32_t local_text_store(struct tx *tx, const char *bytes, size_t len)
{
    uint32_t first = 0;
    size_t n_cells = (len + TEXT_BYTES - 1) / TEXT_BYTES;
    while (n_cells-- > 0) {
        uint32_t index = local_tx_alloc(tx, CELL_TEXT);
        struct text_cell *text = &tx_edit(tx, index, CELL_TEXT)->text;
        size_t from = n_cells * TEXT_BYTES, n = len - from < TEXT_BYTES ? len - from : TEXT_BYTES;
        memcpy(text->bytes, bytes + from, n);
        text->next = first;
        first = index;
    }
    return first;
}

void local_text_load(struct tx *tx, uint32_t index, char *bytes, size_t len)
{
    while (len > 0) {
        const struct text_cell *text = &tx_read(tx, index, CELL_TEXT)->text;
        size_t n = len < TEXT_BYTES ? len : TEXT_BYTES;
        memcpy(bytes, text->bytes, n);
        bytes += n;
        len -= n;
        index = text->next;
    }
}

void local_text_free(struct tx *tx, uint32_t index)
{
    while (index) {
        uint32_t next = tx_read(tx, index, CELL_TEXT)->text.next;
        local_tx_free(tx, index, CELL_TEXT);
        index = next;
    }
}

/* Exactly these bytes, followed by a NUL or nothing. */
static bool text_equals(struct tx *tx, uint32_t index, const char *bytes, size_t len)
{
    while (index) {
        const struct text_cell *text = &tx_read(tx, index, CELL_TEXT)->text;
        size_t n = len < TEXT_BYTES ? len : TEXT_BYTES;
        if (memcmp(bytes, text->bytes, n) != 0)
            return false;
        if (n < TEXT_BYTES)
            return text->bytes[n] == '\0';
        bytes += n;
        len -= n;
        index = text->next;
    }
    return len == 0;
}

/* ---- names ---- */

/* The hash only finds candidates; the bytes decide. */
static bool is_named(struct tx *tx, const struct chained_cell *cell, uint64_t hash,
                     const char *text, size_t len)
{
    const struct name_cell *name = (const struct name_cell *)cell;
    if (cell->kind != CELL_NAME || name->hash != hash)
        return false;
    return text_equals(tx, name->text, text, len);
}

uint32_t local_names_find(struct tx *tx, uint64_t hash, const char *text, size_t len)
{
    uint32_t next = local_chain_first(tx, local_chain_bucket(tx, hash));
    while (next) {
        const struct chained_cell *cell = local_chain_at(tx, next);
        if (is_named(tx, cell, hash, text, len))
            return next;
        next = cell->chain;
    }
    return 0;
}

void local_names_text(struct tx *tx, char *text, const struct name_cell *name)
{
    size_t len = 0;
    for (uint32_t index = name->text; index && len + TEXT_BYTES <= NAME_TEXT_MAX;) {
        const struct text_cell *cell = &tx_read(tx, index, CELL_TEXT)->text;
        memcpy(text + len, cell->bytes, TEXT_BYTES);
        len += TEXT_BYTES;
        index = cell->next;
    }
    text[len] = '\0';
}

void local_names_forget(struct tx *tx, uint32_t index)
{
    struct name_cell name = *tx_name(tx, index);
    struct ledger_cell *ledger = tx_edit_ledger(tx);
    if (ledger->floor < name.token)
        ledger->floor = name.token;
    ledger->n_names--;
    if (name.spare)
        local_tx_free(tx, name.spare, CELL_CLAIM);
    local_chain_remove(tx, name.hash, index);
    local_text_free(tx, name.text);
    local_tx_free(tx, index, CELL_NAME);
}

static bool is_idle(const struct name_cell *name)
{
    return name->kind == CELL_NAME && !name->first && !name->n_watched && !name->is_quick;
}

bool local_names_is_far_up(uint32_t index, const struct name_cell *name)
{
    return index > KEPT_CELLS || name->text > KEPT_CELLS || name->spare > KEPT_CELLS;
}

bool local_names_is_to_go(uint32_t index, const struct chained_cell *cell, uint32_t now_s)
{
    const struct name_cell *name = (const struct name_cell *)cell;
    return is_idle(name) &&
           (local_names_is_far_up(index, name) || name->touched_s + FORGET_AFTER_S < now_s);
}

void local_names_drop_if_idle(struct tx *tx, uint32_t index)
{
    const struct name_cell *name = tx_name(tx, index);
    if (local_names_is_far_up(index, name) && is_idle(name))
        local_names_forget(tx, index);
}

bool local_names_is_still(struct tx *tx, uint32_t index, uint32_t born, uint64_t hash)
{
    if (!tx_has_cell(tx, index) || index >= tx->store->n_cells)
        return false;
    const union cell *cell = &tx->store->cells[index];
    return cell->kind == CELL_NAME && cell->name.born == born && cell->name.hash == hash;
}

#define OBSERVERS_PER_NAME 32
#define OBSERVERS_MAX      1024

/* ---- sessions ---- */

/* They are in the chains by what a word has of them (quick.h). */
static uint32_t find_session(struct tx *tx, uint64_t id, uint64_t mask)
{
    uint32_t next = local_chain_first(tx, local_chain_bucket(tx, id & QUICK_TAG_MASK));
    while (next) {
        const union cell *cell = local_tx_peek(tx, next);
        if (cell->kind == CELL_SESSION && ((cell->session.id ^ id) & mask) == 0 &&
            (mask == UINT64_MAX || cell->session.has_tag))
            return next;
        next = local_chain_at(tx, next)->chain;
    }
    return 0;
}

uint64_t local_sessions_by_tag(struct tx *tx, uint64_t tag)
{
    uint32_t index = find_session(tx, tag, QUICK_TAG_MASK);
    return index ? tx_read(tx, index, CELL_SESSION)->session.id : 0;
}

bool local_sessions_add(struct tx *tx, uint64_t id, int64_t pid, uint64_t now_ns, const char *host,
                        const char *command)
{
    bool has_tag = local_sessions_by_tag(tx, id & QUICK_TAG_MASK) == 0;
    char text[SESSION_HOST_MAX + SESSION_COMMAND_MAX];
    size_t host_len = strnlen(host, SESSION_HOST_MAX);
    size_t command_len = strnlen(command, SESSION_COMMAND_MAX);
    memcpy(text, host, host_len);
    memcpy(text + host_len, command, command_len);

    uint32_t index = local_tx_alloc(tx, CELL_SESSION);
    uint32_t stored = local_text_store(tx, text, host_len + command_len);
    struct session_cell *session = &tx_edit(tx, index, CELL_SESSION)->session;
    session->id = id;
    session->since_ns = now_ns;
    session->pid = (uint32_t)pid;
    session->uid = (uint32_t)geteuid();
    session->text = stored;
    session->host_len = (uint16_t)host_len;
    session->command_len = (uint16_t)command_len;
    session->has_tag = has_tag;
    local_chain_insert(tx, id & QUICK_TAG_MASK, index, CELL_SESSION);
    struct ledger_cell *ledger = tx_edit_ledger(tx);
    ledger->n_sessions += ledger->n_sessions < UINT16_MAX;
    return has_tag;
}

uint32_t local_sessions_find(struct tx *tx, uint64_t id)
{
    return find_session(tx, id, UINT64_MAX);
}

void local_sessions_drop(struct tx *tx, uint64_t id)
{
    uint32_t index = local_sessions_find(tx, id);
    if (!index)
        return;
    uint32_t text = tx_read(tx, index, CELL_SESSION)->session.text;
    local_chain_remove(tx, id & QUICK_TAG_MASK, index);
    local_text_free(tx, text);
    local_tx_free(tx, index, CELL_SESSION);
    struct ledger_cell *ledger = tx_edit_ledger(tx);
    if (ledger->n_sessions && ledger->n_sessions < UINT16_MAX)
        ledger->n_sessions--;
}

/* ---- observers ---- */

static const struct observer_cell *observer_at(struct tx *tx, uint32_t index)
{
    return &tx_read(tx, index, CELL_OBSERVER)->observer;
}

uint32_t local_observers_add(struct tx *tx, uint64_t session, uint32_t id, uint32_t name)
{
    if (tx_ledger(tx)->n_observers >= OBSERVERS_MAX ||
        tx_name(tx, name)->n_watched >= OBSERVERS_PER_NAME) {
        local_tx_fail(tx, STILE_REFUSED, 0,
                      "too many observers already (32 per name, 1024 in all)");
        return 0;
    }
    uint32_t index = local_tx_alloc(tx, CELL_OBSERVER);
    struct observer_cell *observer = &tx_edit(tx, index, CELL_OBSERVER)->observer;
    struct ledger_cell *ledger = tx_edit_ledger(tx);
    observer->session = session;
    observer->id = id;
    observer->name = name;
    observer->next = ledger->first_observer;
    if (ledger->first_observer)
        tx_edit(tx, ledger->first_observer, CELL_OBSERVER)->observer.prev = index;
    ledger->first_observer = index;
    ledger->n_observers++;
    tx_edit_name(tx, name)->n_watched++;
    return index;
}

void local_observers_remove(struct tx *tx, uint32_t index)
{
    struct observer_cell gone = *observer_at(tx, index);
    struct ledger_cell *ledger = tx_edit_ledger(tx);
    if (gone.prev)
        tx_edit(tx, gone.prev, CELL_OBSERVER)->observer.next = gone.next;
    else
        ledger->first_observer = gone.next;
    if (gone.next)
        tx_edit(tx, gone.next, CELL_OBSERVER)->observer.prev = gone.prev;
    ledger->n_observers--;
    tx_edit_name(tx, gone.name)->n_watched--;
    local_tx_free(tx, index, CELL_OBSERVER);
}

void local_observers_drop(struct tx *tx, uint32_t index, uint64_t session, uint32_t id)
{
    if (!tx_has_cell(tx, index))
        return;
    const union cell *cell = local_tx_peek(tx, index);
    if (cell->kind == CELL_OBSERVER && cell->observer.session == session && cell->observer.id == id)
        local_observers_remove(tx, index);
}

void local_observers_wake(struct tx *tx, uint32_t name, struct wakeups *wakeups)
{
    if (!tx_name(tx, name)->n_watched)
        return;
    for (uint32_t i = tx_ledger(tx)->first_observer; i; i = observer_at(tx, i)->next) {
        const struct observer_cell *observer = observer_at(tx, i);
        if (observer->name == name && wakeups->tail - wakeups->head < WAKEUPS_MAX)
            wakeups->ring[wakeups->tail++ % WAKEUPS_MAX] = (struct wakeup){
                .session = observer->session, .id = observer->id, .cell = i, .kind = WAKE_QUERY};
    }
}
