/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/local/cell_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engines/local/cell_turn.h"
#include "io/trap.h"

#define FIRST_BYTES (UINT64_C(1) << 20)
#define STEP_MAX    (UINT64_C(64) << 20)

/* No lock of LMDB's own (cell_turn.h), and no file but this one. */
#define LMDB_HOW (MDB_NOSUBDIR | MDB_NOLOCK)

static const char format[] = "stile cells 1";

struct cell_file {
    const struct lmdb *lmdb;
    int fd; /* -1: there is none yet */
    MDB_env *lmdb_env;
    MDB_dbi dbi;
    void *map; /* our own, for the checks */
    size_t bytes;
    const void *lmdb_map;
    volatile bool is_torn;
};

/* ---- errors ---- */

enum stile_status local_cells_damaged(const char *fault, struct stile_error *err)
{
    return error_set(err, STILE_CORRUPT, 0,
                     "`cells` in the state directory is damaged (%s): restore it from a backup, or "
                     "stop its users and remove it, which forgets all cells and guards",
                     fault);
}

static enum stile_status explain(const struct lmdb *lmdb, int rc, struct stile_error *err)
{
    if (rc == ENOMEM)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    if (rc == EIO)
        return error_errno(err, STILE_REFUSED, rc,
                           "writing `cells` in the state directory (is the disk full?)");
    if (rc > 0)
        return error_errno(err, local_dir_status(rc), rc, "using `cells` in the state directory");
    return local_cells_damaged(lmdb->strerror(rc), err);
}

enum stile_status local_cells_lmdb_error(struct cell_tx *tx, int rc, struct stile_error *err)
{
    tx->is_full = rc == MDB_MAP_FULL;
    return explain(tx->lmdb, rc, err);
}

/* ---- opening ---- */

/* Not by fstat(2), as in local_dir_has(). 0: that cannot be told. */
static size_t file_size(int fd)
{
    off_t end = lseek(fd, 0, SEEK_END);
    return end < 0 ? 0 : (size_t)end;
}

static int open_lmdb(const struct lmdb *lmdb, MDB_env **env, int fd, size_t bytes)
{
    /* Through its descriptor: the file that was checked, whatever has its name by now. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int rc = lmdb->env_create(env);
    if (rc) {
        *env = NULL;
        return rc;
    }
    rc = lmdb->env_set_mapsize(*env, bytes);
    if (!rc)
        rc = lmdb->env_open(*env, path, LMDB_HOW, 0600);
    if (rc) {
        lmdb->env_close(*env);
        *env = NULL;
        return rc;
    }
    int lmdb_fd;
    if (lmdb->env_get_fd(*env, &lmdb_fd) == 0)
        (void)fcntl(lmdb_fd, F_SETFD, FD_CLOEXEC); /* LMDB 0.9 forgets it */
    return 0;
}

static void unmap(struct cell_file *file)
{
    if (file->lmdb_map)
        trap_remove(file->lmdb_map);
    file->lmdb_map = NULL;
    if (file->lmdb_env)
        file->lmdb->env_close(file->lmdb_env);
    file->lmdb_env = NULL;
    if (file->map) {
        trap_remove(file->map);
        munmap(file->map, file->bytes);
    }
    file->map = NULL;
    file->bytes = 0;
}

static int map_own(struct cell_file *file, size_t bytes)
{
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file->fd, 0);
    if (map == MAP_FAILED)
        return errno;
    (void)madvise(map, bytes, MADV_DONTFORK);
    file->map = map;
    file->bytes = bytes;
    file->is_torn = false;
    trap_add(map, bytes, &file->is_torn);
    (void)trap_install(false);
    return 0;
}

/* LMDB does not say where its map is. The same record in both tells. */
static enum stile_status check_format(struct cell_file *file, MDB_txn *txn, const void *own,
                                      struct stile_error *err)
{
    MDB_val key = {sizeof CELLS_FORMAT - 1, (void *)CELLS_FORMAT}, value;
    if (file->lmdb->dbi_open(txn, NULL, 0, &file->dbi) != 0 ||
        file->lmdb->get(txn, file->dbi, &key, &value) != 0 || value.mv_size != sizeof format ||
        memcmp(value.mv_data, format, sizeof format) != 0)
        return local_cells_damaged("it is of another format", err);
    file->lmdb_map = (char *)value.mv_data - ((const char *)own - (const char *)file->map);
    trap_add((void *)file->lmdb_map, file->bytes, &file->is_torn);
    return STILE_OK;
}

static enum stile_status enter_format(struct cell_file *file, const struct pages *pages,
                                      struct stile_error *err)
{
    const void *own;
    MDB_txn *txn;
    const char *fault =
        local_pages_check_key(&own, pages, CELLS_FORMAT, sizeof CELLS_FORMAT - 1, NULL);
    if (fault || !own)
        return local_cells_damaged(fault ? fault : "it is of another format", err);
    int rc = file->lmdb->txn_begin(file->lmdb_env, NULL, MDB_RDONLY, &txn);
    if (rc)
        return explain(file->lmdb, rc, err);
    enum stile_status status = check_format(file, txn, own, err);
    file->lmdb->txn_abort(txn);
    return status;
}

static enum stile_status map_and_check(struct cell_file *file, size_t bytes,
                                       struct stile_error *err)
{
    struct pages pages;
    if (bytes == 0)
        return local_cells_damaged("it has been truncated", err);
    int rc = map_own(file, bytes);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "mapping `cells`, %zu bytes", bytes);
    const char *fault = local_pages_begin(&pages, file->map, file->bytes);
    if (fault)
        return local_cells_damaged(fault, err);
    rc = open_lmdb(file->lmdb, &file->lmdb_env, file->fd, bytes);
    return rc ? explain(file->lmdb, rc, err) : enter_format(file, &pages, err);
}

/* The whole file: at first, after it has grown, and after an error. */
static enum stile_status map_all(struct cell_file *file, size_t bytes, struct stile_error *err)
{
    unmap(file);
    enum stile_status status = map_and_check(file, bytes, err);
    if (status)
        unmap(file);
    return status;
}

/* ---- a new file ---- */

static int write_format(const struct lmdb *lmdb, MDB_env *env)
{
    MDB_val key = {sizeof CELLS_FORMAT - 1, (void *)CELLS_FORMAT};
    MDB_val value = {sizeof format, (void *)format};
    MDB_txn *txn;
    MDB_dbi dbi;
    int rc = lmdb->txn_begin(env, NULL, 0, &txn);
    if (rc)
        return rc;
    rc = lmdb->dbi_open(txn, NULL, 0, &dbi);
    if (!rc)
        rc = lmdb->put(txn, dbi, &key, &value, 0);
    if (!rc)
        return lmdb->txn_commit(txn);
    lmdb->txn_abort(txn);
    return rc;
}

static enum stile_status fill_new(const struct lmdb *lmdb, int fd, struct stile_error *err)
{
    MDB_env *env;
    int rc = local_store_exceeds_limit(FIRST_BYTES) ? EFBIG : 0;
    /* In one place of the disk, if that can be had. LMDB wants a file of no length. */
    if (!rc)
        (void)fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, FIRST_BYTES);
    if (!rc)
        rc = open_lmdb(lmdb, &env, fd, FIRST_BYTES);
    if (!rc) {
        rc = write_format(lmdb, env);
        lmdb->env_close(env);
    }
    if (!rc)
        rc = local_store_reserve(fd, file_size(fd), FIRST_BYTES);
    if (!rc && fsync(fd) != 0)
        rc = errno;
    return rc ? explain(lmdb, rc, err) : STILE_OK;
}

/* It gets its name when it is complete, so `cells` is never seen half-made. */
static enum stile_status make_file(const struct lmdb *lmdb, const struct dir *dir,
                                   struct stile_error *err)
{
    int fd;
    (void)unlinkat(dir->fd, "cells.new", 0);
    enum stile_status status = local_dir_open_file(&fd, dir, "cells.new", O_CREAT | O_EXCL, err);
    if (status)
        return status;
    status = fill_new(lmdb, fd, err);
    close(fd);
    if (!status && renameat(dir->fd, "cells.new", dir->fd, "cells") != 0)
        status = error_errno(err, local_dir_status(errno), errno, "renaming the new `cells`");
    if (!status && fsync(dir->fd) != 0)
        status = error_errno(err, STILE_UNREACHABLE, errno, "syncing the state directory");
    if (status)
        (void)unlinkat(dir->fd, "cells.new", 0);
    return status;
}

/* fd stays -1 if there is no file and nothing to be written. */
static enum stile_status open_file(struct cell_file *file, const struct dir *dir, bool to_write,
                                   struct stile_error *err)
{
    struct stile_error why = {0};
    enum stile_status status = local_dir_open_file(&file->fd, dir, "cells", 0, &why);
    if (status && why.native == ENOENT) {
        if (!to_write)
            return STILE_OK;
        status = make_file(file->lmdb, dir, &why);
        if (!status)
            status = local_dir_open_file(&file->fd, dir, "cells", 0, &why);
    }
    if (status && err)
        *err = why;
    return status;
}

/* ---- the file as it is now ---- */

static enum stile_status check_room(size_t bytes, struct stile_error *err)
{
    if (!local_store_exceeds_limit(bytes))
        return STILE_OK;
    return error_errno(err, STILE_REFUSED, EFBIG,
                       "`cells` is larger than this process may write (ulimit -f)");
}

/* Other processes may have made it grow. What was removed or replaced is not what others use. */
static enum stile_status look_at_file(struct cell_file *file, const struct dir *dir, bool to_write,
                                      struct stile_error *err)
{
    if (file->fd < 0) {
        enum stile_status status = open_file(file, dir, to_write, err);
        if (status || file->fd < 0)
            return status;
    }
    if (!local_dir_has(dir, "cells", file->fd))
        return error_set(err, STILE_CORRUPT, 0,
                         "`cells` in the state directory was removed or replaced while in use: "
                         "open the directory again");
    size_t bytes = file_size(file->fd);
    if (bytes < file->bytes)
        return local_cells_damaged("it has been truncated", err);
    enum stile_status status = to_write ? check_room(bytes, err) : STILE_OK;
    if (status || (bytes == file->bytes && file->lmdb_env))
        return status;
    return map_all(file, bytes, err);
}

static enum stile_status grow(const struct cell_file *file, struct stile_error *err)
{
    uint64_t from = file_size(file->fd), step = from < STEP_MAX ? from : STEP_MAX;
    int rc = from + step > SIZE_MAX / 2 ? EFBIG : local_store_reserve(file->fd, from, from + step);
    return rc ? error_errno(err, local_dir_status(rc), rc, "no room for `cells` to grow")
              : STILE_OK;
}

/* ---- transactions ---- */

/* If it fails, the file's start tells whether it has happened. */
static enum stile_status commit(struct cell_file *file, struct cell_tx *tx, struct stile_error *err)
{
    struct pages now;
    int rc = file->lmdb->txn_commit(tx->txn);
    if (rc == 0)
        return STILE_OK;
    enum stile_status status = local_cells_lmdb_error(tx, rc, err);
    const char *fault = local_pages_begin(&now, file->map, file->bytes);
    if (fault || now.transaction != tx->pages.transaction)
        status = error_set(err, STILE_UNCERTAIN, rc,
                           "the disk failed while `cells` was written: read the cell again");
    unmap(file); /* LMDB may refuse to go on with it */
    return status;
}

static enum stile_status run_tx(struct cell_file *file, struct cell_tx *tx, bool to_write,
                                cell_tx_fn *fn, void *data, struct stile_error *err)
{
    int rc = file->lmdb->txn_begin(file->lmdb_env, NULL, to_write ? 0 : MDB_RDONLY, &tx->txn);
    if (rc)
        return explain(file->lmdb, rc, err);
    enum stile_status status = fn(tx, data, err);
    if (file->is_torn)
        status = local_cells_damaged("it has been truncated", err);
    if (!status && to_write && !tx->is_idle)
        return commit(file, tx, err);
    file->lmdb->txn_abort(tx->txn);
    return status;
}

static enum stile_status attempt(struct cell_file *file, const struct dir *dir, struct cell_tx *tx,
                                 bool to_write, cell_tx_fn *fn, void *data, struct stile_error *err)
{
    enum stile_status status = look_at_file(file, dir, to_write, err);
    if (status)
        return status;
    *tx = (struct cell_tx){.lmdb = file->lmdb, .dbi = file->dbi};
    if (file->fd < 0)
        return fn(tx, data, err);
    const char *fault = local_pages_begin(&tx->pages, file->map, file->bytes);
    if (!fault && to_write)
        fault = local_pages_check_free(&tx->pages);
    status = fault ? local_cells_damaged(fault, err) : run_tx(file, tx, to_write, fn, data, err);
    if (status == STILE_CORRUPT)
        unmap(file);
    return status;
}

enum stile_status local_cells_store(struct cell_tx *tx, const void *key, size_t len,
                                    const void *data, size_t size, struct stile_error *err)
{
    const void *own;
    const char *fault = local_pages_check_key(&own, &tx->pages, key, len, NULL);
    if (fault)
        return local_cells_damaged(fault, err);
    MDB_val place = {len, (void *)key}, value = {size, (void *)data};
    int rc = tx->lmdb->put(tx->txn, tx->dbi, &place, &value, 0);
    return rc ? local_cells_lmdb_error(tx, rc, err) : STILE_OK;
}

enum stile_status local_cells_delete(struct cell_tx *tx, const void *key, size_t len,
                                     struct stile_error *err)
{
    const char *fault = local_pages_check_around(&tx->pages, key, len);
    if (fault)
        return local_cells_damaged(fault, err);
    MDB_val place = {len, (void *)key};
    int rc = tx->lmdb->del(tx->txn, tx->dbi, &place, NULL);
    return rc && rc != MDB_NOTFOUND ? local_cells_lmdb_error(tx, rc, err) : STILE_OK;
}

/* A value takes few pages, so a file that has grown this often has room for it. */
#define GROWTHS_MAX 3

static enum stile_status run_in_turn(struct cell_file *file, const struct dir *dir, bool to_write,
                                     cell_tx_fn *fn, void *data, struct stile_error *err)
{
    struct cell_tx tx = {.is_full = false};
    enum stile_status status = attempt(file, dir, &tx, to_write, fn, data, err);
    for (int i = 0; tx.is_full && i < GROWTHS_MAX; i++) {
        tx.is_full = false;
        status = grow(file, err);
        if (!status)
            status = attempt(file, dir, &tx, to_write, fn, data, err);
    }
    return status;
}

static enum stile_status find_file(struct env *env, struct stile_error *err)
{
    const struct lmdb *lmdb;
    if (env->cells)
        return STILE_OK;
    enum stile_status status = local_lmdb_load(&lmdb, err);
    if (status)
        return status;
    env->cells = malloc(sizeof *env->cells);
    if (!env->cells)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    *env->cells = (struct cell_file){.lmdb = lmdb, .fd = -1};
    return STILE_OK;
}

static enum stile_status run(struct env *env, bool to_write, cell_tx_fn *fn, void *data,
                             struct stile_error *err)
{
    int live_fd = env->store.live_fd;
    pthread_mutex_lock(&env->cells_mutex);
    enum stile_status status = find_file(env, err);
    if (!status)
        status = local_turn_take(live_fd, env->cells->fd, to_write, err);
    if (!status) {
        status = run_in_turn(env->cells, &env->dir, to_write, fn, data, err);
        local_turn_end(live_fd);
    }
    pthread_mutex_unlock(&env->cells_mutex);
    return status;
}

enum stile_status local_cells_read(struct env *env, cell_tx_fn *fn, void *data,
                                   struct stile_error *err)
{
    return run(env, false, fn, data, err);
}

enum stile_status local_cells_write(struct env *env, cell_tx_fn *fn, void *data,
                                    struct stile_error *err)
{
    return run(env, true, fn, data, err);
}

/* ---- the end ---- */

/* Also in a forked child: LMDB without locks has memory, maps and descriptors to give back, and
 * nothing else. */
void local_cells_close(struct env *env)
{
    struct cell_file *file = env->cells;
    if (!file)
        return;
    unmap(file);
    if (file->fd >= 0)
        close(file->fd);
    free(file);
    env->cells = NULL;
}
