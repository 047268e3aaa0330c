/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/local_table_kit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/name.h"
#include "engines/local/liveness.h"

static enum stile_status next_epoch(struct store *store, uint32_t epoch)
{
    struct user *user = (struct user *)store;
    (void)epoch;
    user->epoch_calls++;
    return user->epoch_fails ? STILE_REFUSED : STILE_OK;
}

/* A description of its own on the same file: byte locks belong to descriptions. */
static int open_again(int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR | O_CLOEXEC);
    assert_true(again >= 0);
    return again;
}

static void begin_life(struct user *user)
{
    static uint64_t last_id;
    user->store.path = "(test)";
    user->store.id = ++last_id;
    user->store.pid = (uint32_t)getpid();
    user->store.next_epoch = next_epoch;
    assert_int_equal(local_liveness_lock(user->store.live_fd, LIVE_IDS + user->store.id, true), 0);
}

static void make_file(struct user *user, uint64_t bytes)
{
    memset(user, 0, sizeof *user);
    user->store.fd = memfd_create("state", MFD_CLOEXEC);
    user->store.live_fd = memfd_create("live", MFD_CLOEXEC);
    assert_true(user->store.fd >= 0 && user->store.live_fd >= 0);
    assert_int_equal(local_store_reserve(user->store.fd, 0, bytes), 0);
    assert_int_equal(local_store_map(&user->store), 0);
}

void user_copy(struct user *user, const struct user *other)
{
    const struct ledger_cell *ledger = &other->store.cells[AT_LEDGER].ledger;
    make_file(user, (uint64_t)ledger->n_cells * CELL_BYTES);
    memcpy(user->store.cells, other->store.cells, (size_t)ledger->n_used * CELL_BYTES);
    begin_life(user);
}

void user_make(struct user *user)
{
    static const uint8_t boot[16] = "a boot, for now";
    make_file(user, STATE_BYTES_FIRST);
    local_store_format(&user->store, boot, 0);
    begin_life(user);
}

void user_join(struct user *user, const struct user *other)
{
    memset(user, 0, sizeof *user);
    user->store.fd = open_again(other->store.fd);
    user->store.live_fd = open_again(other->store.live_fd);
    assert_int_equal(local_store_map(&user->store), 0);
    begin_life(user);
}

void user_die(struct user *user)
{
    close(user->store.live_fd);
    user->store.live_fd = -1;
}

void user_close(struct user *user)
{
    if (user->store.live_fd >= 0)
        close(user->store.live_fd);
    local_store_unmap(&user->store);
    close(user->store.fd);
}

union cell *table_copy(const struct store *store)
{
    uint32_t n = store->cells[AT_LEDGER].ledger.n_used;
    union cell *copy = malloc((size_t)n * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, store->cells, (size_t)n * sizeof *copy);
    return copy;
}

void table_expect_same(const struct store *store, const union cell *copy)
{
    uint32_t n = copy[AT_LEDGER].ledger.n_used;
    assert_memory_equal(store->cells, copy, (AT_LEDGER + 1) * CELL_BYTES);
    for (uint32_t i = AT_BUCKETS; i < n; i++)
        if (memcmp(&store->cells[i], &copy[i], CELL_BYTES) != 0)
            fail_msg("cell %u has changed", i);
}

void user_begin(struct tx *tx, struct user *user)
{
    if (!local_tx_begin(tx, &user->store)) {
        struct stile_error err = {0};
        local_tx_error(tx, &err);
        fail_msg("%s", err.message);
    }
}

void user_commit(struct tx *tx)
{
    struct stile_error err = {0};
    if (!local_tx_commit(tx)) {
        local_tx_error(tx, &err);
        fail_msg("%s", err.message);
    }
}

uint32_t user_open_name(struct tx *tx, const char *name)
{
    return local_names_open(tx, name_hash(name, strlen(name)), name, strlen(name), NS_PER_SEC);
}

void user_fill(struct user *user)
{
    struct tx tx;
    struct wakeups wakeups;
    wakeups_init(&wakeups);
    user_begin(&tx, user);
    for (uint32_t i = 0; i < 5; i++) {
        char name[80];
        snprintf(name, sizeof name, "a name that is longer than a cell of text can be, number %u",
                 i);
        struct claim_request request = {.session = 7, .id = i + 1};
        local_queue_enter(&tx, user_open_name(&tx, name), &request, NS_PER_SEC, &wakeups);
    }
    local_sessions_add(&tx, 7, 1, 1, "host", "a command");
    user_commit(&tx);
}
