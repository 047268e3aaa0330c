/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/local/lmdb_library.h"

#ifdef STILE_LMDB_INSIDE /* -Ddefault_library=static: linked like any other library */

enum stile_status local_lmdb_load(const struct lmdb **lmdb, struct stile_error *err)
{
#define LMDB_ADDRESS(name) .name = mdb_##name,
    static const struct lmdb linked = {LMDB_FUNCTIONS(LMDB_ADDRESS)};
    (void)err;
    *lmdb = &linked;
    return STILE_OK;
}

#else

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#define LMDB_FILE "liblmdb.so.0"

static struct lmdb loaded;
static bool is_loaded;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static bool resolve(void *handle)
{
    bool complete = true;
#define LMDB_RESOLVE(name)                                                                         \
    loaded.name = (__typeof__(loaded.name))dlsym(handle, "mdb_" #name);                            \
    complete = complete && loaded.name;
    LMDB_FUNCTIONS(LMDB_RESOLVE)
    return complete;
}

static enum stile_status load(struct stile_error *err)
{
    /* It stays loaded, as the modules do. */
    void *handle = dlopen(LMDB_FILE, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle)
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "cells in local: need LMDB (Debian: liblmdb0): %s", dlerror());
    if (!resolve(handle))
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "cells in local: need LMDB 0.9 (Debian: liblmdb0); this " LMDB_FILE
                         " is something else");
    is_loaded = true;
    return STILE_OK;
}

enum stile_status local_lmdb_load(const struct lmdb **lmdb, struct stile_error *err)
{
    pthread_mutex_lock(&mutex);
    enum stile_status status = is_loaded ? STILE_OK : load(err);
    pthread_mutex_unlock(&mutex);
    *lmdb = &loaded;
    return status;
}

#endif
