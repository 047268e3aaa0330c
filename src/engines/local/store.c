/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The mapped file and its transactions. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/name.h"
#include "engines/local/mutex.h"
#include "engines/local/store.h"
#include "io/trap.h"

/* The whole reserve, or as much as the process's limits allow (ulimit -v, mlockall). */
static void *map_reserve(struct store *store, uint64_t at_least)
{
    uint64_t bytes = STATE_BYTES_MAX;
    void *map;
    while ((map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, store->fd,
                       0)) == MAP_FAILED &&
           (errno == ENOMEM || errno == EAGAIN) && bytes / 2 >= at_least)
        bytes /= 2;
    store->mapped_bytes = bytes;
    return map;
}

/* Mapped once, beyond the end of the file: pages become valid as it grows, and no pointer ever
 * moves. */
int local_store_map(struct store *store)
{
    struct stat st;
    if (fstat(store->fd, &st) != 0)
        return errno;
    uint64_t bytes = (uint64_t)st.st_size;
    void *map = map_reserve(store, bytes > STATE_BYTES_FIRST ? bytes : STATE_BYTES_FIRST);
    if (map == MAP_FAILED)
        return errno;
    (void)madvise(map, store->mapped_bytes, MADV_DONTFORK);
    store->cells = map;
    store->is_torn = false;
    trap_add(map, store->mapped_bytes, &store->is_torn);
    (void)trap_install(false);
    store->n_cells =
        (uint32_t)((bytes < store->mapped_bytes ? bytes : store->mapped_bytes) / CELL_BYTES);
    return 0;
}

void local_store_unmap(struct store *store)
{
    if (store->cells) {
        trap_remove(store->cells);
        munmap(store->cells, store->mapped_bytes);
    }
    store->cells = NULL;
}

/* The file never gets shorter while it is in use: if it has, it was truncated from outside. A size
 * that the kernel does not give is no reason to tell a user to remove the file: pages that are
 * missing are noticed when they are touched. */
bool local_store_is_whole(const struct store *store)
{
    struct stat st;
    return !store->is_torn && (fstat(store->fd, &st) != 0 ||
                               (uint64_t)st.st_size >= (uint64_t)store->n_cells * CELL_BYTES);
}

/* What else must agree between two programs that map the same file: the order of bytes, the layout,
 * and how names are hashed. */
uint32_t local_store_abi(void)
{
    const uint32_t order = 0x01020304;
    uint8_t first;
    memcpy(&first, &order, 1);
    return (uint32_t)name_hash("stile", 5) ^ (uint32_t)first << 24 ^ AT_FIRST << 8;
}

static void seal(struct store *store, uint32_t index, enum cell_kind kind)
{
    union cell *cell = &store->cells[index];
    cell->kind = (uint8_t)kind;
    cell->check = cell_sum(cell, index);
}

void local_store_format(struct store *store, const uint8_t boot[16], uint32_t epoch)
{
    struct header_cell *header = &store->cells[AT_HEADER].header;
    struct ledger_cell *ledger = &store->cells[AT_LEDGER].ledger;

    memcpy(header->magic, STATE_MAGIC, sizeof STATE_MAGIC);
    memcpy(header->boot, boot, sizeof header->boot);
    header->version = STATE_VERSION;
    header->abi = local_store_abi();
    ledger->floor = (uint64_t)epoch << 32;
    ledger->epoch = epoch;
    ledger->n_used = AT_FIRST;
    ledger->n_cells = store->n_cells;
    ledger->generation = 1;
    store->cells[AT_SEGMENTS].segments.n_buckets = BUCKETS;
    seal(store, AT_SEGMENTS, CELL_SEGMENTS);
    for (uint32_t i = AT_BUCKETS; i < AT_QUICK; i++)
        seal(store, i, CELL_BUCKETS);
    store->cells[AT_LOCK].lock.top = ledger->floor;
    store->cells[AT_LOCK].lock.top_check = store_top_check(ledger->floor);
    local_store_recover(store);
    seal(store, AT_LEDGER, CELL_LEDGER);
    seal(store, AT_HEADER, CELL_HEADER);
}

/* The kernel raises SIGXFSZ at this limit, and a library has no business killing its program. */
bool local_store_exceeds_limit(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           bytes > limit.rlim_cur;
}

static int write_zeros(int fd, uint64_t from, uint64_t to)
{
    static const char zeros[4096];
    while (from < to) {
        size_t n = to - from < sizeof zeros ? (size_t)(to - from) : sizeof zeros;
        ssize_t rc = pwrite(fd, zeros, n, (off_t)from);
        if (rc < 0 && errno != EINTR)
            return errno;
        from += rc > 0 ? (uint64_t)rc : 0;
    }
    return 0;
}

/* Blocks are reserved before they are mapped: a full disk is an error here, not a SIGBUS later. */
int local_store_reserve(int fd, uint64_t from, uint64_t to)
{
    int rc;
    if (local_store_exceeds_limit(to))
        return EFBIG;
    do
        rc = fallocate(fd, 0, (off_t)from, (off_t)(to - from));
    while (rc != 0 && errno == EINTR);
    if (rc == 0)
        return 0;
    return errno == EOPNOTSUPP ? write_zeros(fd, from, to) : errno;
}

/* ---- giving room back ---- */

/* Less is not worth a step. File systems count a few blocks of their own to the file. */
#define SURPLUS_MIN (UINT64_C(1) << 20)

static uint64_t end_of(uint32_t n_cells)
{
    return (uint64_t)n_cells * CELL_BYTES;
}

__attribute__((noinline, no_sanitize("thread"))) uint32_t local_store_guess(const uint32_t *field)
{
    return *(const volatile uint32_t *)field;
}

bool local_store_has_surplus(const struct store *store, uint32_t n_cells)
{
    struct stat st;
    return fstat(store->fd, &st) == 0 && (uint64_t)st.st_size > end_of(n_cells) &&
           (uint64_t)st.st_blocks * 512 >= end_of(n_cells) + SURPLUS_MIN;
}

/* The file keeps its length, so that no mapping loses a page. A step ends behind some data; blocks
 * that were reserved and never written don't count as data, and are freed quickly. */
bool local_store_give_back(const struct store *store, uint32_t n_cells)
{
    off_t from = (off_t)end_of(n_cells), size = lseek(store->fd, 0, SEEK_END);
    off_t data = lseek(store->fd, from, SEEK_DATA);
    off_t to = data < 0 ? size : data + (off_t)GIVE_BACK_STEP;
    if (size <= from)
        return false;
    return fallocate(store->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from,
                     (to < size ? to : size) - from) == 0 &&
           to < size;
}

void local_store_cut(struct store *store, uint32_t n_cells)
{
    uint64_t size = end_of(store->n_cells), to = end_of(n_cells);
    if (size > to + GIVE_BACK_STEP && local_store_has_surplus(store, n_cells))
        to = size - GIVE_BACK_STEP;
    if (to < size && ftruncate(store->fd, (off_t)to) == 0)
        store->n_cells = (uint32_t)(to / CELL_BYTES);
}

/* ---- transactions ---- */

/* A file of the first size is never trimmed. */
#define TRIM_ABOVE      (STATE_BYTES_FIRST / CELL_BYTES / 2)
#define TRIMS_PER_FREE  16
#define TRIMS_PER_TX    90
#define EDITS_FOR_TRIMS 200

static const union cell blank;

/* A kill stops a process between two instructions, so order matters to the compiler only. */
static void keep_order(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* ---- the journal's word ---- */

static uint64_t journal_word(uint32_t sequence, uint32_t n)
{
    uint32_t check = (sequence ^ n << 16 ^ n) * UINT32_C(0x9e3779b1);
    return (uint64_t)sequence << 32 | (check >> 16) << 16 | n;
}

static uint64_t *journal(const struct store *store)
{
    return &store->cells[AT_JOURNAL].journal.word;
}

static cell_word *tags(const struct store *store)
{
    return store->cells[AT_TAGS].words;
}

static void write_journal_word(const struct store *store, uint32_t sequence, uint32_t n)
{
    keep_order();
    __atomic_store_n(journal(store), journal_word(sequence, n), __ATOMIC_RELAXED);
    keep_order();
}

static bool read_journal_word(const struct store *store, uint32_t *sequence, uint32_t *n)
{
    uint64_t word = __atomic_load_n(journal(store), __ATOMIC_RELAXED);
    *sequence = (uint32_t)(word >> 32);
    *n = (uint32_t)(word & 0xffff);
    return word == journal_word(*sequence, *n) && *n <= JOURNAL_MAX;
}

/* ---- undoing ---- */

/* Another process may have made the file grow since we mapped it. */
static __attribute__((noinline)) bool learn_size(struct store *store)
{
    struct stat st;
    if (fstat(store->fd, &st) != 0)
        return false;
    uint64_t bytes = (uint64_t)st.st_size;
    store->n_cells =
        (uint32_t)((bytes < store->mapped_bytes ? bytes : store->mapped_bytes) / CELL_BYTES);
    return true;
}

static bool is_inside(struct store *store, uint32_t index)
{
    return index < store->n_cells || (learn_size(store) && index < store->n_cells);
}

/* Restores from last to first. Nothing depends on what the cells hold now, so that a rollback cut
 * off by another kill is simply done again. */
static bool roll_back(struct store *store, uint32_t sequence, uint32_t n)
{
    for (uint32_t i = n; i-- > 0;) {
        uint64_t tag = tags(store)[i];
        uint32_t index = (uint32_t)tag;
        const union cell *before = &store->cells[AT_BEFORE + i];
        if (tag >> 32 != sequence || !is_inside(store, index) ||
            before->check != cell_sum(before, index))
            return false;
        store->cells[index] = *before;
    }
    write_journal_word(store, sequence + 1, 0);
    return true;
}

bool local_store_recover(struct store *store)
{
    uint32_t sequence, n;
    uint64_t *word = journal(store);
    struct lock_cell *lock = &store->cells[AT_LOCK].lock;
    /* A process that died inside may have written one and not the other; otherwise they agree. */
    if (lock->word == 0 && lock->top_check != store_top_check(lock->top))
        return false;
    lock->top_check = store_top_check(lock->top);
    lock->word = 0;
    if (*word == 0)
        write_journal_word(store, 1, 0);
    return read_journal_word(store, &sequence, &n) && roll_back(store, sequence, n);
}

/* ---- transactions ---- */

void local_tx_fail(struct tx *tx, enum stile_status status, int native, const char *why)
{
    if (tx->status)
        return;
    tx->status = status;
    tx->native = native;
    tx->why = why;
    tx->marker = 0; /* no cell is trusted from now on */
}

bool local_tx_begin(struct tx *tx, struct store *store)
{
    uint32_t sequence, n;

    tx->store = store;
    tx->status = STILE_OK;
    tx->n_edits = tx->n_reads = tx->whole = 0;
    tx->opens = NULL;
    if (!store_is_size_fresh(store) && !local_store_is_whole(store)) {
        local_tx_fail(tx, STILE_CORRUPT, 0, "it has been truncated");
        return false;
    }
    if (!local_mutex_enter(store)) {
        local_tx_fail(tx, STILE_UNREACHABLE, (int)store->cells[AT_LOCK].lock.pid, "stuck");
        return false;
    }
    bool sound = read_journal_word(store, &sequence, &n);
    if (sound && n > 0) {
        sound = roll_back(store, sequence, n);
        sequence++;
    }
    if (!sound) {
        local_tx_fail(tx, STILE_CORRUPT, 0, "its journal is damaged");
        local_mutex_leave(store);
        return false;
    }
    tx->sequence = sequence;
    tx->marker = ~((uint64_t)sequence << 32 | sequence);
    return true;
}

void local_tx_abort(struct tx *tx)
{
    if (!roll_back(tx->store, tx->sequence, tx->n_edits))
        local_tx_fail(tx, STILE_CORRUPT, 0, "its journal is damaged");
    local_mutex_leave(tx->store);
}

bool local_tx_commit(struct tx *tx)
{
    struct store *store = tx->store;
    if (!tx_is_ok(tx)) {
        local_tx_abort(tx);
        return false;
    }
    for (uint32_t i = 0; i < tx->n_edits; i++) {
        uint32_t index = (uint32_t)tags(store)[i];
        store->cells[index].check = cell_sum(&store->cells[index], index);
    }
    write_journal_word(store, tx->sequence + 1, 0);
    /* Not before: what is taken by the word is not undone. Not after the mutex is free: another
     * transaction may have closed the name by then. */
    if (tx->opens)
        __atomic_store_n(tx->opens, tx->open_word, __ATOMIC_RELEASE);
    local_mutex_leave(store);
    if (store->is_torn) /* what was written is lost */
        local_tx_fail(tx, STILE_CORRUPT, 0, "it has been truncated");
    return tx_is_ok(tx);
}

enum stile_status local_tx_error(const struct tx *tx, struct stile_error *err)
{
    switch (tx->status) {
    case STILE_UNREACHABLE:
        return error_set(
            err, tx->status, 0,
            "process %d keeps %s/state locked (is it stopped?): let it continue or kill it",
            tx->native, tx->store->path);
    case STILE_CORRUPT:
        return error_set(
            err, tx->status, 0,
            "%s/state is damaged (%s): stop its users and remove it; tokens continue from `epoch`",
            tx->store->path, tx->why);
    default:
        return tx->native ? error_errno(err, tx->status, tx->native, "%s", tx->why)
                          : error_set(err, tx->status, 0, "%s", tx->why);
    }
}

/* ---- cells ---- */

static bool is_whole(struct tx *tx, uint32_t index)
{
    struct store *store = tx->store;
    if (++tx->n_reads > TX_READS_MAX)
        local_tx_fail(tx, STILE_CORRUPT, 0, "a list runs in a circle");
    if (!tx_is_ok(tx))
        return false;
    if (!is_inside(store, index)) {
        local_tx_fail(tx, STILE_CORRUPT, 0, "an index points beyond its end");
        return false;
    }
    const union cell *cell = &store->cells[index];
    if (index == tx->whole || cell->check == tx->marker)
        return true;
    if (cell->check != cell_sum(cell, index)) {
        local_tx_fail(tx, STILE_CORRUPT, 0, "a cell has a wrong checksum");
        return false;
    }
    tx->whole = index;
    return true;
}

static bool is_sound(struct tx *tx, uint32_t index, enum cell_kind kind)
{
    if (!is_whole(tx, index))
        return false;
    if (tx->store->cells[index].kind != kind) {
        local_tx_fail(tx, STILE_CORRUPT, 0, "an index points to a cell of another kind");
        return false;
    }
    return true;
}

const union cell *local_tx_peek(struct tx *tx, uint32_t index)
{
    return is_whole(tx, index) ? &tx->store->cells[index] : &blank;
}

const union cell *local_tx_read_first(struct tx *tx, uint32_t index, enum cell_kind kind)
{
    return is_sound(tx, index, kind) ? &tx->store->cells[index] : &blank;
}

static void write_down(struct tx *tx, union cell *cell, uint32_t index)
{
    struct store *store = tx->store;
    uint32_t i = tx->n_edits++;
    store->cells[AT_BEFORE + i] = *cell;
    tags(store)[i] = (uint64_t)tx->sequence << 32 | index;
    write_journal_word(store, tx->sequence, i + 1);
    cell->check = tx->marker;
}

union cell *local_tx_edit_first(struct tx *tx, uint32_t index, enum cell_kind kind)
{
    if (is_sound(tx, index, kind)) {
        union cell *cell = &tx->store->cells[index];
        if (tx->n_edits < JOURNAL_MAX) {
            write_down(tx, cell, index);
            return cell;
        }
        local_tx_fail(tx, STILE_CORRUPT, 0, "a change needs more room than the journal has");
    }
    tx->blank = blank;
    return &tx->blank;
}

/* ---- room ---- */

/* Why the file cannot get longer. */
struct refusal {
    int native;
    const char *why;
};

/* Makes room for n more cells, in steps that double the file. */
static bool grow(struct tx *tx, struct ledger_cell *ledger, uint32_t n, struct refusal *refusal)
{
    uint64_t from = (uint64_t)ledger->n_cells * CELL_BYTES, to = from;
    uint64_t wanted = ((uint64_t)ledger->n_used + n) * CELL_BYTES;
    while (to > 0 && to <= STATE_BYTES_MAX && to < wanted)
        to *= 2;
    if (to == from)
        return true;
    *refusal = (struct refusal){0, "the state file has reached its limit of 4 GiB"};
    if (to > STATE_BYTES_MAX)
        return false;
    *refusal = (struct refusal){ENOMEM, "the state file outgrows this process's address space"};
    if (to > tx->store->mapped_bytes)
        return false;
    int rc = local_store_reserve(tx->store->fd, from, to);
    *refusal = (struct refusal){rc, "no room for the state file to grow"};
    if (!rc)
        ledger->n_cells = (uint32_t)(to / CELL_BYTES);
    return rc == 0;
}

union cell *local_tx_unused_cell(struct tx *tx, uint32_t index)
{
    if (index >= AT_FIRST && index < tx_ledger(tx)->n_used && is_inside(tx->store, index))
        return &tx->store->cells[index];
    local_tx_fail(tx, STILE_CORRUPT, 0, "it has been truncated");
    return NULL;
}

/* Cells above n_used have never been used: they are made valid before they are journalled. */
static uint32_t take_unused(struct tx *tx, struct ledger_cell *ledger)
{
    struct refusal refusal;
    if (!grow(tx, ledger, 1, &refusal)) {
        local_tx_fail(tx, STILE_REFUSED, refusal.native, refusal.why);
        return 0;
    }
    uint32_t index = ledger->n_used++;
    union cell *cell = local_tx_unused_cell(tx, index);
    if (!cell)
        return 0;
    *cell = (union cell){.free.kind = CELL_FREE};
    cell->check = cell_sum(cell, index);
    return index;
}

uint32_t local_tx_take_run(struct tx *tx, uint32_t n)
{
    struct refusal refusal;
    struct ledger_cell *ledger = tx_edit_ledger(tx);
    if (!tx_is_ok(tx) || !grow(tx, ledger, n, &refusal))
        return 0;
    uint32_t first = ledger->n_used;
    ledger->n_used += n;
    return first;
}

static uint32_t take_free(struct tx *tx, struct ledger_cell *ledger)
{
    uint32_t index = ledger->first_free;
    ledger->first_free = tx_edit(tx, index, CELL_FREE)->free.next;
    if (ledger->first_free)
        tx_edit(tx, ledger->first_free, CELL_FREE)->free.prev = 0;
    ledger->n_free--;
    return index;
}

uint32_t local_tx_alloc(struct tx *tx, enum cell_kind kind)
{
    struct ledger_cell *ledger = tx_edit_ledger(tx);
    if (!tx_is_ok(tx))
        return 0;
    uint32_t index = ledger->first_free ? take_free(tx, ledger) : take_unused(tx, ledger);
    union cell *cell = tx_edit(tx, index, CELL_FREE);
    if (!tx_is_ok(tx))
        return 0;
    cell->free.next = cell->free.prev = 0;
    cell->kind = (uint8_t)kind;
    return index;
}

/* ---- giving room back ---- */

/* Free cells at the end leave the list and count as never used. */
static void trim(struct tx *tx, struct ledger_cell *ledger, int n)
{
    for (int i = 0; i < n && ledger->n_used > TRIM_ABOVE; i++) {
        const union cell *top = local_tx_peek(tx, ledger->n_used - 1);
        if (top->kind != CELL_FREE || tx->n_edits > EDITS_FOR_TRIMS)
            break;
        if (top->free.prev)
            tx_edit(tx, top->free.prev, CELL_FREE)->free.next = top->free.next;
        else
            ledger->first_free = top->free.next;
        if (top->free.next)
            tx_edit(tx, top->free.next, CELL_FREE)->free.prev = top->free.prev;
        ledger->n_free--;
        ledger->n_used--;
    }
    if (ledger->n_cells > STATE_BYTES_FIRST / CELL_BYTES &&
        ledger->n_used < ledger->n_cells / 8 * 3)
        ledger->n_cells /= 2;
}

void local_tx_trim(struct tx *tx)
{
    trim(tx, tx_edit_ledger(tx), TRIMS_PER_TX);
}

void local_tx_free(struct tx *tx, uint32_t index, enum cell_kind kind)
{
    union cell *cell = tx_edit(tx, index, kind);
    struct ledger_cell *ledger = tx_edit_ledger(tx);
    memset(cell->payload, 0, sizeof cell->payload);
    cell->kind = CELL_FREE;
    cell->free.next = ledger->first_free;
    if (ledger->first_free)
        tx_edit(tx, ledger->first_free, CELL_FREE)->free.prev = index;
    ledger->first_free = index;
    ledger->n_free++;
    if (ledger->n_used > TRIM_ABOVE)
        trim(tx, ledger, TRIMS_PER_FREE);
}
