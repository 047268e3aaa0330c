/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/modules.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/build_tree.h"

/* ---- where modules are ---- */

#define DIRECTORIES_MAX 2

struct directories {
    const char *at[DIRECTORIES_MAX];
    size_t n;
    char build_tree[MODULE_PATH_MAX];
};

static void directories_list(struct directories *d)
{
    const char *given = secure_getenv("STILE_MODULES");
    d->n = 0;
    if (given && *given) {
        d->at[d->n++] = given;
        return;
    }
    if (build_tree_find(d->build_tree, sizeof d->build_tree, "src"))
        d->at[d->n++] = d->build_tree;
    d->at[d->n++] = STILE_MODULE_DIR;
}

static bool search(char path[MODULE_PATH_MAX], const struct directories *d, const char *name)
{
    for (size_t i = 0; i < d->n; i++) {
        int n = snprintf(path, MODULE_PATH_MAX, "%s/%s.so", d->at[i], name);
        if (n > 0 && n < MODULE_PATH_MAX && access(path, F_OK) == 0)
            return true;
    }
    return false;
}

bool module_find(char path[MODULE_PATH_MAX], const char *name)
{
    struct directories d;
    directories_list(&d);
    return search(path, &d, name);
}

/* ---- loading ---- */

static enum stile_status check(const struct engine_module *module, const char *path,
                               struct stile_error *err)
{
    if (!module)
        return error_set(err, STILE_UNSUPPORTED, 0, "%s is not a module of stile", path);
    if (module->abi != ENGINE_ABI || strcmp(module->version, STILE_VERSION) != 0)
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "%s is of another build than this library (" STILE_VERSION
                         "): install both together",
                         path);
    return STILE_OK;
}

enum stile_status module_load(const struct engine_module **module, const char *name,
                              const char *engine, struct stile_error *err)
{
    char path[MODULE_PATH_MAX];
    struct directories d;
    directories_list(&d);
    if (!search(path, &d, name))
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "%s engine not found; looked in %s%s%s (see stile --engines)", engine,
                         d.at[0], d.n > 1 ? " and " : "", d.n > 1 ? d.at[1] : "");
    /* It stays loaded: its threads, exit handlers and open clients may outlive any reference count.
     */
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle)
        return error_set(err, STILE_UNSUPPORTED, 0, "loading the engine: %s", dlerror());
    *module = dlsym(handle, ENGINE_MODULE_SYMBOL);
    return check(*module, path, err);
}
