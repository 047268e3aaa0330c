/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* LMDB, loaded by the first request for a cell: a command that only locks does not pay for it, and
 * runs where it is not installed. */
#ifndef STILE_LOCAL_LMDB_LIBRARY_H
#define STILE_LOCAL_LMDB_LIBRARY_H

#include <lmdb.h>

#include "base/error.h"

#define LMDB_FUNCTIONS(F)                                                                          \
    F(env_create)                                                                                  \
    F(env_open)                                                                                    \
    F(env_close)                                                                                   \
    F(env_set_mapsize)                                                                             \
    F(env_get_fd)                                                                                  \
    F(txn_begin)                                                                                   \
    F(txn_commit)                                                                                  \
    F(txn_abort)                                                                                   \
    F(dbi_open)                                                                                    \
    F(get)                                                                                         \
    F(put)                                                                                         \
    F(del)                                                                                         \
    F(cursor_open)                                                                                 \
    F(cursor_get)                                                                                  \
    F(cursor_close)                                                                                \
    F(strerror)

struct lmdb {
#define LMDB_MEMBER(name) __typeof__(&mdb_##name) name;
    LMDB_FUNCTIONS(LMDB_MEMBER)
#undef LMDB_MEMBER
};

/* UNSUPPORTED, with what to install, if it is not there. */
enum stile_status local_lmdb_load(const struct lmdb **lmdb, struct stile_error *err);

#endif
