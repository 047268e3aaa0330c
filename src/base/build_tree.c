/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/build_tree.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_ROOM 4096

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

/* An installed file has no meson-private beside its directory. A copy in /tmp may get one from
 * another user, so the directory must belong to the owner of our file; and a program that has more
 * rights than its user may be found under a path of that user's choice (a hard link). */
bool build_tree_find(char *directory, size_t size, const char *part)
{
    char path[PATH_ROOM], marker[PATH_ROOM + 32];
    struct stat own;
    if (getauxval(AT_SECURE) || !own_path(path, sizeof path) || stat(path, &own) != 0 ||
        !cut_last(path) || !cut_last(path))
        return false;
    snprintf(marker, sizeof marker, "%s/meson-private/coredata.dat", path);
    int n = snprintf(directory, size, "%s/%s", path, part);
    return access(marker, F_OK) == 0 && n < (int)size && is_trusted(directory, own.st_uid);
}
