/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/modules.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- where modules are ---- */

/* The file that contains this code: the program or the shared library. */
static bool own_path(char *path, size_t size)
{
    struct link_map *map;
    Dl_info unused;
    if (!dladdr1((void *)own_path, &unused, (void **)&map, RTLD_DL_LINKMAP))
        return false;
    if (map->l_name[0])
        return map->l_name[0] == '/' && snprintf(path, size, "%s", map->l_name) < (int)size;
    ssize_t n = readlink("/proc/self/exe", path, size - 1); /* the linker has no name for it */
    if (n > 0)
        path[n] = '\0';
    return n > 0;
}

static bool cut_last(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    return slash != NULL;
}

/* Only the owner of our own file can have put anything there. */
static bool is_trusted(const char *directory, uid_t owner)
{
    struct stat st;
    return lstat(directory, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == owner &&
           !(st.st_mode & S_IWOTH);
}

/* What runs from a build tree (build/cli/stile, build/src/libstile.so) uses the modules of that
 * tree. An installed file has no meson-private beside its directory. A copy in /tmp may get one
 * from another user, so the modules must belong to the owner of our file; and a program that has
 * more rights than its user may be found under a path of that user's choice (a hard link). */
static bool find_build_tree(char directory[MODULE_PATH_MAX])
{
    char path[MODULE_PATH_MAX], marker[MODULE_PATH_MAX + 32];
    struct stat own;
    if (getauxval(AT_SECURE) || !own_path(path, sizeof path) || stat(path, &own) != 0 ||
        !cut_last(path) || !cut_last(path))
        return false;
    snprintf(marker, sizeof marker, "%s/meson-private/coredata.dat", path);
    int n = snprintf(directory, MODULE_PATH_MAX, "%s/src", path);
    return access(marker, F_OK) == 0 && n < MODULE_PATH_MAX && is_trusted(directory, own.st_uid);
}

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
    if (find_build_tree(d->build_tree))
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
