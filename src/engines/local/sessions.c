#include <string.h>
#include <unistd.h>

#include "engines/local/table.h"

#define OBSERVERS_PER_NAME 32
#define OBSERVERS_MAX      1024
#define EDITS_FOR_BURIALS  200

/* ---- sessions ---- */

void sessions_add(struct tx *tx, uint64_t id, int64_t pid, uint64_t now_ns, const char *host,
                  const char *command)
{
    char text[SESSION_HOST_MAX + SESSION_COMMAND_MAX];
    size_t host_len = strnlen(host, SESSION_HOST_MAX);
    size_t command_len = strnlen(command, SESSION_COMMAND_MAX);
    memcpy(text, host, host_len);
    memcpy(text + host_len, command, command_len);

    uint32_t index = tx_alloc(tx, CELL_SESSION);
    uint32_t stored = text_store(tx, text, host_len + command_len);
    struct session_cell *session = &tx_edit(tx, index, CELL_SESSION)->session;
    session->id = id;
    session->since_ns = now_ns;
    session->pid = (uint32_t)pid;
    session->uid = (uint32_t)geteuid();
    session->text = stored;
    session->host_len = (uint16_t)host_len;
    session->command_len = (uint16_t)command_len;
    chain_insert(tx, id, index, CELL_SESSION);
    struct ledger_cell *ledger = tx_edit_ledger(tx);
    ledger->n_sessions += ledger->n_sessions < UINT16_MAX;
}

uint32_t sessions_find(struct tx *tx, uint64_t id)
{
    return chain_find(tx, id, CELL_SESSION);
}

void sessions_drop(struct tx *tx, uint64_t id)
{
    uint32_t index = sessions_find(tx, id);
    if (!index)
        return;
    uint32_t text = tx_read(tx, index, CELL_SESSION)->session.text;
    chain_remove(tx, id, index);
    text_free(tx, text);
    tx_free(tx, index, CELL_SESSION);
    struct ledger_cell *ledger = tx_edit_ledger(tx);
    if (ledger->n_sessions && ledger->n_sessions < UINT16_MAX)
        ledger->n_sessions--;
}

/* ---- observers ---- */

static const struct observer_cell *observer_at(struct tx *tx, uint32_t index)
{
    return &tx_read(tx, index, CELL_OBSERVER)->observer;
}

uint32_t observers_add(struct tx *tx, uint64_t session, uint32_t id, uint32_t name)
{
    if (tx_ledger(tx)->n_observers >= OBSERVERS_MAX ||
        tx_name(tx, name)->n_watched >= OBSERVERS_PER_NAME) {
        tx_fail(tx, STILE_REFUSED, 0, "too many watch it already (32 a name, 1024 in all)");
        return 0;
    }
    uint32_t index = tx_alloc(tx, CELL_OBSERVER);
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

static void drop_observer(struct tx *tx, uint32_t index)
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
    tx_free(tx, index, CELL_OBSERVER);
}

void observers_drop(struct tx *tx, uint32_t index, uint64_t session, uint32_t id)
{
    const union cell *cell = tx_peek(tx, index);
    if (cell->kind == CELL_OBSERVER && cell->observer.session == session && cell->observer.id == id)
        drop_observer(tx, index);
}

void observers_tell(struct tx *tx, uint32_t name, struct pokes *pokes)
{
    if (!tx_name(tx, name)->n_watched)
        return;
    for (uint32_t i = tx_ledger(tx)->first_observer; i; i = observer_at(tx, i)->next) {
        const struct observer_cell *observer = observer_at(tx, i);
        if (observer->name == name && pokes->tail - pokes->head < POKES_MAX)
            pokes->ring[pokes->tail++ % POKES_MAX] = (struct poke){
                .session = observer->session, .id = observer->id, .cell = i, .kind = POKE_QUERY};
    }
}

/* ---- the end of everybody ---- */

static void bury_bucket(struct tx *tx, uint32_t bucket, uint64_t now_ns)
{
    uint32_t next = names_bucket(tx, bucket);
    while (next && tx->n_edits < EDITS_FOR_BURIALS && tx_is_ok(tx)) {
        const union cell *cell = tx_peek(tx, next);
        uint32_t index = next;
        next = cell->chained.chain;
        if (cell->kind == CELL_SESSION)
            sessions_drop(tx, cell->session.id);
        else if (cell->kind == CELL_NAME)
            queue_bury(tx, index, now_ns);
    }
}

static void bury_observers(struct tx *tx)
{
    uint32_t first;
    while ((first = tx_ledger(tx)->first_observer) && tx->n_edits < EDITS_FOR_BURIALS)
        drop_observer(tx, first);
}

/* Each bucket until there is nothing left to change in it. */
static void bury_some(struct tx *tx, uint32_t *bucket, uint64_t now_ns)
{
    bury_observers(tx);
    while (*bucket < BUCKETS && tx->n_edits == 0 && tx->n_reads < TX_READS_STEP && tx_is_ok(tx)) {
        *bucket = names_next_bucket(tx, *bucket);
        if (*bucket == BUCKETS || tx->n_reads >= TX_READS_STEP)
            break;
        bury_bucket(tx, *bucket, now_ns);
        *bucket += tx->n_edits == 0;
    }
}

enum stile_status table_bury_observers(struct store *store, struct stile_error *err)
{
    while (store->cells[AT_LEDGER].ledger.first_observer) {
        struct tx tx;
        if (!tx_begin(&tx, store))
            return tx_error(&tx, err);
        bury_observers(&tx);
        if (!tx_commit(&tx))
            return tx_error(&tx, err);
    }
    return STILE_OK;
}

/* All are gone, also where there were more than could be counted. */
static enum stile_status forget_sessions(struct store *store, struct stile_error *err)
{
    struct tx tx;
    if (!tx_begin(&tx, store))
        return tx_error(&tx, err);
    tx_edit_ledger(&tx)->n_sessions = 0;
    return tx_commit(&tx) ? STILE_OK : tx_error(&tx, err);
}

enum stile_status table_bury_all(struct store *store, uint64_t now_ns, struct stile_error *err)
{
    uint32_t bucket = 0;
    while (bucket < BUCKETS) {
        struct tx tx;
        if (!tx_begin(&tx, store))
            return tx_error(&tx, err);
        bury_some(&tx, &bucket, now_ns);
        if (!tx_commit(&tx))
            return tx_error(&tx, err);
    }
    return forget_sessions(store, err);
}

/* ---- room ---- */

/* Looked at without a check first: usually there is nothing to do. */
bool table_trim(struct store *store)
{
    struct tx tx;
    uint32_t n_used = store_is_whole(store) ? store->cells[AT_LEDGER].ledger.n_used : 0;
    if (n_used <= KEPT_CELLS || n_used > store->n_cells ||
        store->cells[n_used - 1].kind != CELL_FREE || !tx_begin(&tx, store))
        return false;
    tx_trim(&tx);
    return tx_commit(&tx);
}

bool table_give_back(struct store *store)
{
    struct tx tx;
    if (!store_is_whole(store) ||
        !store_has_surplus(store, store->cells[AT_LEDGER].ledger.n_cells) || !tx_begin(&tx, store))
        return false;
    uint32_t n_cells = tx_ledger(&tx)->n_cells;
    bool more = tx_is_ok(&tx) && store_give_back(store, n_cells);
    return tx_commit(&tx) && more;
}

/* ---- a table of which nothing is needed ---- */

enum stile_status table_reset(struct store *store, struct stile_error *err)
{
    struct tx tx;
    if (!tx_begin(&tx, store))
        return tx_error(&tx, err);
    struct ledger_cell *ledger = tx_edit_ledger(&tx);
    uint64_t top = store->cells[AT_LOCK].lock.top;
    if (top >> 32 > ledger->epoch || ledger->generation == UINT32_MAX)
        tx_fail(&tx, STILE_CORRUPT, 0, "the note of the highest token can't be as it is");
    ledger->floor = ledger->floor < top ? top : ledger->floor;
    ledger->generation++;
    ledger->first_free = ledger->n_free = ledger->n_names = ledger->n_kept = 0;
    ledger->first_observer = ledger->n_observers = ledger->n_sessions = ledger->sweep = 0;
    ledger->n_used = AT_FIRST;
    ledger->n_cells = STATE_BYTES_FIRST / CELL_BYTES;
    return tx_commit(&tx) ? STILE_OK : tx_error(&tx, err);
}
