/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the state file: it must have been written by stile, be intact, and be of this boot. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "engines/local/env.h"
#include "engines/local/liveness.h"
#include "engines/local/table.h"

#define WITNESS_PATIENCE_MS 5000
#define WITNESS_NAP_MS      50

#define TIDY_BUCKETS  100 /* bucket cells */
#define EDITS_AT_OPEN 8   /* each may be to a page that has to be mapped first */
#define OPENS_PER_CUT 64

/* ---- this boot ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static size_t parse_hex(uint8_t *out, size_t size, const char *text)
{
    size_t n = 0;
    for (; *text && n < 2 * size; text++) {
        int digit = hex_digit(*text);
        if (digit < 0)
            continue;
        out[n / 2] = (uint8_t)(n % 2 ? out[n / 2] | digit : digit << 4);
        n++;
    }
    return n / 2;
}

static enum stile_status read_boot_id(uint8_t boot[16], struct stile_error *err)
{
    char text[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? errno : 0;
    ssize_t n = -1;
    if (fd >= 0) {
        do
            n = read(fd, text, sizeof text - 1);
        while (n < 0 && errno == EINTR);
        close(fd);
    }
    if (rc == EMFILE || rc == ENFILE)
        return error_errno(err, STILE_UNREACHABLE, rc, "opening the state directory");
    if (n < 0 || parse_hex(boot, 16, text) != 16)
        return error_set(err, STILE_REFUSED, rc,
                         "cannot distinguish this boot from the last: "
                         "/proc/sys/kernel/random/boot_id cannot be read (is /proc mounted?)");
    return STILE_OK;
}

/* ---- a fresh file ---- */

/* A process whose directory or `live` was removed notices within a second and reports its locks as
 * lost. Until then nothing may be granted in the new directory. */
static enum stile_status outwait_witnesses(struct witness *witness, const struct dir *dir,
                                           struct stile_error *err)
{
    struct timespec nap = {.tv_nsec = WITNESS_NAP_MS * 1000000};
    for (int waited_ms = 0; local_witness_find(witness, dir); waited_ms += WITNESS_NAP_MS) {
        if (waited_ms >= WITNESS_PATIENCE_MS)
            return error_set(
                err, STILE_UNREACHABLE, 0,
                "the directory or its files were removed while process %d used them, and the "
                "process has not noticed yet (is it stopped?): let it continue or kill it",
                witness->pid);
        (void)nanosleep(&nap, NULL);
    }
    return STILE_OK;
}

static enum stile_status new_epoch(uint32_t *epoch, const struct dir *dir, struct stile_error *err)
{
    bool found;
    struct witness seen = {.epoch = 0};
    enum stile_status status = local_epoch_read(epoch, &found, dir, err);
    bool used = !status && local_witness_find(&seen, dir);
    if (used)
        status = outwait_witnesses(&seen, dir, err);
    if (status)
        return status;
    if (used && *epoch < seen.epoch)
        *epoch = seen.epoch;
    if ((found || used) && *epoch == UINT32_MAX)
        return error_set(err, STILE_REFUSED, 0, "all 4294967295 token epochs have been used");
    *epoch += found || used;
    return local_epoch_write(dir, *epoch, err);
}

/* Where files are copied on write (btrfs), a write to reserved blocks can still find the disk full
 * and raise SIGBUS. Elsewhere this fails, and is not needed. */
static void write_in_place(int fd)
{
    int flags;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0) {
        flags |= FS_NOCOW_FL;
        (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
    }
}

static enum stile_status fill_fresh(struct store *store, uint32_t epoch, struct stile_error *err)
{
    uint8_t boot[16];
    enum stile_status status = read_boot_id(boot, err);
    if (status)
        return status;
    write_in_place(store->fd);
    int rc = local_store_reserve(store->fd, 0, STATE_BYTES_FIRST);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "no room for the state file (4 MiB)");
    rc = local_store_map(store);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "mapping the state file");
    local_store_format(store, boot, epoch);
    /* After a power cut the file must be recognised as one of an earlier boot, not as a damaged
     * one. */
    if (fsync(store->fd) != 0)
        return error_errno(err, STILE_REFUSED, errno, "writing the state file");
    return STILE_OK;
}

static enum stile_status make_fresh(struct env *env, struct stile_error *err)
{
    uint32_t epoch;
    enum stile_status status = new_epoch(&epoch, &env->dir, err);
    if (status)
        return status;
    (void)unlinkat(env->dir.fd, "state.new", 0);
    status = local_dir_open_file(&env->store.fd, &env->dir, "state.new", O_CREAT | O_EXCL, err);
    if (status)
        return status;
    status = fill_fresh(&env->store, epoch, err);
    if (!status && renameat(env->dir.fd, "state.new", env->dir.fd, "state") != 0)
        status = error_errno(err, STILE_REFUSED, errno, "renaming the new state file");
    if (status)
        (void)unlinkat(env->dir.fd, "state.new", 0);
    return status;
}

/* ---- the file that is there ---- */

/* What made the file. */
struct origin {
    bool other_boot, older_format;
};

static enum stile_status check_header(const struct store *store, struct origin *origin,
                                      struct stile_error *err)
{
    const union cell *cell = &store->cells[AT_HEADER];
    const struct header_cell *header = &cell->header;
    uint8_t boot[16];
    enum stile_status status = read_boot_id(boot, err);
    if (status)
        return status;
    if (store->n_cells < AT_FIRST)
        return error_set(err, STILE_CORRUPT, 0,
                         "`state` has been truncated: stop its users and remove it; tokens "
                         "continue from `epoch`");
    if (memcmp(header->magic, STATE_MAGIC, sizeof STATE_MAGIC) != 0)
        return error_set(err, STILE_CORRUPT, 0,
                         "`state` was not written by stile, or its start is damaged: remove it if "
                         "it is not in use");
    origin->older_format = header->version > 0 && header->version < STATE_VERSION;
    if (origin->older_format)
        return STILE_OK;
    if (header->version != STATE_VERSION || header->abi != local_store_abi())
        return error_set(err, STILE_CORRUPT, 0,
                         "`state` was written by another version of stile (format %u, ours is %d): "
                         "stop its users and remove it",
                         (unsigned)header->version, STATE_VERSION);
    if (cell->check != cell_sum(cell, AT_HEADER) || cell->kind != CELL_HEADER)
        return error_set(err, STILE_CORRUPT, 0,
                         "the start of `state` is damaged: stop its users and remove it; tokens "
                         "continue from `epoch`");
    origin->other_boot = memcmp(header->boot, boot, sizeof boot) != 0;
    return STILE_OK;
}

static enum stile_status check_epoch(const struct env *env, struct stile_error *err)
{
    uint32_t epoch;
    bool found;
    enum stile_status status = local_epoch_read(&epoch, &found, &env->dir, err);
    if (status)
        return status;
    if (!found || epoch < env->store.cells[AT_LEDGER].ledger.epoch)
        return error_set(
            err, STILE_CORRUPT, 0,
            "`epoch` is %s, so tokens could be granted again after the next boot: restore it, or "
            "if no guard has seen a token yet, remove the directory's files",
            found ? "older than `state`" : "missing");
    return STILE_OK;
}

static enum stile_status check_size(const struct store *store, struct stile_error *err)
{
    const struct ledger_cell *ledger = &store->cells[AT_LEDGER].ledger;
    if (ledger->n_cells > store->n_cells || ledger->n_used > ledger->n_cells)
        return error_set(err, STILE_CORRUPT, 0,
                         "`state` has been truncated: stop its users and remove it; tokens "
                         "continue from `epoch`");
    return STILE_OK;
}

static enum stile_status check_ledger(const struct store *store, struct stile_error *err)
{
    const union cell *cell = &store->cells[AT_LEDGER];
    if (cell->check == cell_sum(cell, AT_LEDGER) && cell->kind == CELL_LEDGER &&
        cell->ledger.n_used >= AT_FIRST)
        return STILE_OK;
    return error_set(err, STILE_CORRUPT, 0,
                     "`state` is damaged (its ledger): remove it; tokens continue from `epoch`");
}

static void remove_sockets(const struct dir *dir)
{
    int fd = dup(dir->sockets_fd);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (!listing) {
        if (fd >= 0)
            close(fd);
        return;
    }
    rewinddir(listing);
    for (struct dirent *entry; (entry = readdir(listing));)
        if (entry->d_name[0] != '.')
            (void)unlinkat(dir->sockets_fd, entry->d_name, 0);
    closedir(listing);
}

static void unlink_sockets(const struct dir *dir, const struct swept *swept)
{
    char name[32];
    for (uint32_t i = 0; i < swept->n; i++)
        for (const char *kind = "lwn"; *kind; kind++) {
            snprintf(name, sizeof name, "%016" PRIx64 ".%c", swept->sessions[i], *kind);
            (void)unlinkat(dir->sockets_fd, name, 0);
        }
}

enum stile_status local_load_tidy(struct env *env, bool *found, uint32_t edits, uint64_t now_ns,
                                  struct stile_error *err)
{
    struct tx tx;
    struct swept swept = {.n = 0};
    if (!local_tx_begin(&tx, &env->store))
        return local_tx_error(&tx, err);
    local_names_sweep(&tx, TIDY_BUCKETS, edits, now_ns, &swept);
    *found = tx.n_edits > 1; /* the ledger is always edited */
    if (!local_tx_commit(&tx))
        return local_tx_error(&tx, err);
    unlink_sockets(&env->dir, &swept);
    return STILE_OK;
}

/* Processes that live for a second give back the room that earlier ones have left. Where none lives
 * that long, one in OPENS_PER_CUT gives some back. */
static void shorten(struct store *store)
{
    const struct ledger_cell *ledger = &store->cells[AT_LEDGER].ledger;
    if (store->n_cells > ledger->n_cells && (ledger->generation % OPENS_PER_CUT == 0 ||
                                             !local_store_has_surplus(store, ledger->n_cells)))
        local_store_cut(store, ledger->n_cells);
}

/* Nothing in the table is needed but the highest token. */
static enum stile_status start_over(struct env *env, struct stile_error *err)
{
    struct store *store = &env->store;
    bool is_fresh = store->cells[AT_LEDGER].ledger.n_used == AT_FIRST;
    enum stile_status status = is_fresh ? STILE_OK : local_table_reset(store, err);
    if (!status)
        shorten(store);
    return status;
}

/* Claims kept by holds and delays stay; the rest of the dead claims goes. */
static enum stile_status clear_away(struct env *env, uint64_t now_ns, struct stile_error *err)
{
    bool in_use = false, found;
    enum stile_status status;
    if (env->store.cells[AT_LEDGER].ledger.n_used <= CHECKED_CELLS_MAX)
        status = local_check_all(&env->store, &in_use, err);
    else
        status = local_table_remove_observers(&env->store, err);
    if (!status && in_use)
        status = local_table_end_all(&env->store, now_ns, err);
    return status ? status : local_load_tidy(env, &found, EDITS_AT_OPEN, now_ns, err);
}

/* No other process has the directory open, so all sessions in the table are dead. */
static enum stile_status take_over(struct env *env, uint64_t now_ns, struct stile_error *err)
{
    if (!local_store_recover(&env->store))
        return error_set(
            err, STILE_CORRUPT, 0,
            "the journal of `state` is damaged: remove `state`; tokens continue from `epoch`");
    enum stile_status status = check_size(&env->store, err);
    if (!status)
        status = check_ledger(&env->store, err);
    if (!status && env->store.cells[AT_LEDGER].ledger.n_kept)
        status = clear_away(env, now_ns, err);
    else if (!status)
        status = start_over(env, err);
    if (!status)
        remove_sockets(&env->dir);
    return status;
}

static enum stile_status join(struct env *env, uint64_t now_ns, struct stile_error *err)
{
    struct tx tx;
    bool found;
    if (!local_tx_begin(&tx, &env->store))
        return local_tx_error(&tx, err);
    (void)tx_ledger(&tx);
    enum stile_status status = tx_is_ok(&tx) ? check_size(&env->store, err) : STILE_OK;
    if (!local_tx_commit(&tx))
        return local_tx_error(&tx, err);
    return status ? status : local_load_tidy(env, &found, EDITS_AT_OPEN, now_ns, err);
}

/* The sessions in the table are dead, unless `live` was removed or replaced: then living ones look
 * dead. */
static enum stile_status outwait_hidden(const struct env *env, struct stile_error *err)
{
    struct witness seen = {.epoch = 0};
    if (env->store.cells[AT_LEDGER].ledger.n_sessions == 0)
        return STILE_OK;
    return outwait_witnesses(&seen, &env->dir, err);
}

/* If others have the directory open, a different boot id belongs to a container that has its own:
 * they are alive, so they run in this boot, because file systems shared between machines are
 * refused. */
static enum stile_status reopen(struct env *env, bool alone, bool *is_old, uint64_t now_ns,
                                struct stile_error *err)
{
    int rc = local_store_map(&env->store);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "mapping the state file");
    struct origin origin = {0};
    enum stile_status status = check_header(&env->store, &origin, err);
    *is_old = alone && (origin.other_boot || origin.older_format);
    if (status || *is_old)
        return status;
    if (origin.older_format)
        return error_set(err, STILE_CORRUPT, 0,
                         "`state` is in use by an older version of stile: stop its users first");
    if (alone)
        status = outwait_hidden(env, err);
    if (!status)
        status = alone ? take_over(env, now_ns, err) : join(env, now_ns, err);
    return status ? status : check_epoch(env, err);
}

void local_load_drop(struct env *env)
{
    local_store_unmap(&env->store);
    if (env->store.fd >= 0)
        close(env->store.fd);
    env->store.fd = -1;
}

enum stile_status local_load_state(struct env *env, bool alone, uint64_t now_ns,
                                   struct stile_error *err)
{
    struct stile_error why = {0};
    bool is_old = false;
    enum stile_status status = local_dir_open_file(&env->store.fd, &env->dir, "state", 0, &why);
    if (status && why.native != ENOENT) {
        error_copy(err, &why);
        return status;
    }
    if (status && !alone)
        return error_set(err, STILE_CORRUPT, ENOENT,
                         "`state` was removed while others use it: stop them, then start again");
    if (status)
        return make_fresh(env, err);
    status = reopen(env, alone, &is_old, now_ns, err);
    if (status || !is_old)
        return status;
    local_load_drop(env);
    return make_fresh(env, err);
}
