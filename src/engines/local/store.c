#include "engines/local/store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/name.h"

/* The whole reserve is mapped once, beyond the end of the file: pages become valid as it grows, and
 * no pointer ever moves. */
int store_map(struct store *store)
{
    struct stat st;
    if (fstat(store->fd, &st) != 0)
        return errno;
    void *map = mmap(NULL, STATE_BYTES_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                     store->fd, 0);
    if (map == MAP_FAILED)
        return errno;
    (void)madvise(map, STATE_BYTES_MAX, MADV_DONTFORK);
    store->cells = map;
    uint64_t bytes = (uint64_t)st.st_size;
    store->n_cells = (uint32_t)((bytes < STATE_BYTES_MAX ? bytes : STATE_BYTES_MAX) / CELL_BYTES);
    return 0;
}

void store_unmap(struct store *store)
{
    if (store->cells)
        munmap(store->cells, STATE_BYTES_MAX);
    store->cells = NULL;
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

    memset(store->cells, 0, AT_FIRST * CELL_BYTES);
    memcpy(header->magic, STATE_MAGIC, sizeof STATE_MAGIC);
    memcpy(header->boot, boot, sizeof header->boot);
    header->version = STATE_VERSION;
    header->abi = store_abi();
    ledger->floor = (uint64_t)epoch << 32;
    ledger->epoch = epoch;
    ledger->n_used = AT_FIRST;
    ledger->n_cells = store->n_cells;
    for (uint32_t i = AT_BUCKETS; i < AT_FIRST; i++)
        seal(store, i, CELL_BUCKETS);
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
