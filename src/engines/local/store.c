#include "engines/local/store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/name.h"
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
int store_map(struct store *store)
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

void store_unmap(struct store *store)
{
    if (store->cells) {
        trap_remove(store->cells);
        munmap(store->cells, store->mapped_bytes);
    }
    store->cells = NULL;
}

/* The file never gets shorter while anybody uses it: if it has, it was cut off. */
bool store_is_whole(const struct store *store)
{
    struct stat st;
    return !store->is_torn && fstat(store->fd, &st) == 0 &&
           (uint64_t)st.st_size >= (uint64_t)store->n_cells * CELL_BYTES;
}

/* What else must agree between two programs that map the same file: the order of bytes, the layout,
 * and how names are hashed. */
uint32_t store_abi(void)
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

void store_format(struct store *store, const uint8_t boot[16], uint32_t epoch)
{
    struct header_cell *header = &store->cells[AT_HEADER].header;
    struct ledger_cell *ledger = &store->cells[AT_LEDGER].ledger;

    memcpy(header->magic, STATE_MAGIC, sizeof STATE_MAGIC);
    memcpy(header->boot, boot, sizeof header->boot);
    header->version = STATE_VERSION;
    header->abi = store_abi();
    ledger->floor = (uint64_t)epoch << 32;
    ledger->epoch = epoch;
    ledger->n_used = AT_FIRST;
    ledger->n_cells = store->n_cells;
    ledger->generation = 1;
    for (uint32_t i = AT_BUCKETS; i < AT_FIRST; i++)
        seal(store, i, CELL_BUCKETS);
    store->cells[AT_LOCK].lock.top = ledger->floor;
    store->cells[AT_LOCK].lock.top_check = store_top_check(ledger->floor);
    store_recover(store);
    seal(store, AT_LEDGER, CELL_LEDGER);
    seal(store, AT_HEADER, CELL_HEADER);
}

/* The kernel raises SIGXFSZ at this limit, and a library has no business killing its program. */
bool store_exceeds_limit(uint64_t bytes)
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
int store_reserve(int fd, uint64_t from, uint64_t to)
{
    int rc;
    if (store_exceeds_limit(to))
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

bool store_has_surplus(const struct store *store, uint32_t n_cells)
{
    struct stat st;
    return fstat(store->fd, &st) == 0 && (uint64_t)st.st_size > end_of(n_cells) &&
           (uint64_t)st.st_blocks * 512 >= end_of(n_cells) + SURPLUS_MIN;
}

/* The file keeps its length, so that no mapping loses a page. A step ends behind some data; blocks
 * that were reserved and never written don't count as data, and are freed quickly. */
bool store_give_back(const struct store *store, uint32_t n_cells)
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

void store_cut(struct store *store, uint32_t n_cells)
{
    uint64_t size = end_of(store->n_cells), to = end_of(n_cells);
    if (size > to + GIVE_BACK_STEP && store_has_surplus(store, n_cells))
        to = size - GIVE_BACK_STEP;
    if (to < size && ftruncate(store->fd, (off_t)to) == 0)
        store->n_cells = (uint32_t)(to / CELL_BYTES);
}
