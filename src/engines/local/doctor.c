/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* examine(): whether the directory can keep what the engine promises. */
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "engines/local/local.h"

/* With less, the state file may fail to grow by its next step, or the epoch may not be written. */
#define LITTLE_SPACE (UINT64_C(16) << 20)
#define WHAT_MAX     256

/* Not in linux/magic.h. */
#define XFS_MAGIC 0x58465342
#define ZFS_MAGIC 0x2fc12fc1

static const char *filesystem_name(uint64_t type)
{
    static const struct {
        uint32_t type;
        const char *name;
    } known[] = {
        {EXT4_SUPER_MAGIC, "ext4"}, {XFS_MAGIC, "xfs"},     {BTRFS_SUPER_MAGIC, "btrfs"},
        {F2FS_SUPER_MAGIC, "f2fs"}, {ZFS_MAGIC, "zfs"},     {OVERLAYFS_SUPER_MAGIC, "overlay"},
        {TMPFS_MAGIC, "tmpfs"},     {RAMFS_MAGIC, "ramfs"}, {FUSE_SUPER_MAGIC, "fuse"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if ((uint32_t)type == known[i].type)
            return known[i].name;
    return "another file system";
}

static void report(struct query *query, struct stile_finding finding, const char *what)
{
    finding.where = local_of(query->engine)->env->dir.path;
    finding.what = what;
    query->engine->events->finding(query, &finding);
}

static void check_filesystem(struct query *query, const struct statfs *fs)
{
    bool volatile_ = fs->f_type == TMPFS_MAGIC || fs->f_type == RAMFS_MAGIC;
    uint64_t left = (uint64_t)fs->f_bavail * (uint64_t)fs->f_bsize;
    char what[WHAT_MAX];
    if (volatile_)
        report(query,
               (struct stile_finding){
                   .severity = STILE_WARNING,
                   .id = "volatile",
                   .why =
                       "A reboot ends all locks anyway, but in memory the tokens start again from "
                       "1 after it: a guard that has seen larger ones refuses every new holder. "
                       "Cells are lost.",
                   .cure = "Name a directory on a disk: local:/path."},
               "the directory is in memory and will be lost at the next reboot");
    if (fs->f_type == OVERLAYFS_SUPER_MAGIC)
        report(query,
               (struct stile_finding){
                   .severity = STILE_NOTE,
                   .id = "container",
                   .why = "Processes in other containers use directories of their own and are not "
                          "excluded; and when the container is removed, tokens start again from 1.",
                   .cure = "To share locks, mount one directory of the host into all containers."},
               "the directory seems to be inside a container (overlay)");
    if (left >= LITTLE_SPACE || volatile_)
        return;
    snprintf(what, sizeof what, "only %u MB are free", (unsigned)(left >> 20));
    report(query,
           (struct stile_finding){.severity = STILE_WARNING,
                                  .id = "space",
                                  .why = "Once the state file cannot grow, new names are refused.",
                                  .cure = "Free some space."},
           what);
}

static void check_owner(struct query *query, const struct dir *dir)
{
    char what[WHAT_MAX];
    if (!dir->shared)
        return;
    snprintf(what, sizeof what, "the directory is shared with group %u", (unsigned)dir->gid);
    report(query,
           (struct stile_finding){.severity = STILE_NOTE,
                                  .id = "shared",
                                  .why = "Every member of that group can break any lock in it."},
           what);
}

void local_examine(struct engine *engine, struct query *query)
{
    const struct dir *dir = &local_of(engine)->env->dir;
    struct stile_error err;
    struct statfs fs;
    char what[WHAT_MAX];
    if (local_session_check(local_of(engine), &err)) {
        engine->events->done(query, &err);
        return;
    }
    if (fstatfs(dir->fd, &fs) != 0) {
        error_errno(&err, STILE_UNREACHABLE, errno, "%s", dir->path);
        engine->events->done(query, &err);
        return;
    }
    check_filesystem(query, &fs);
    check_owner(query, dir);
    snprintf(what, sizeof what, "on %s, with %u MB free; its files are in place",
             filesystem_name((uint64_t)fs.f_type),
             (unsigned)((uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize >> 20));
    report(query, (struct stile_finding){.severity = STILE_FINE, .id = "directory"}, what);
    engine->events->done(query, NULL);
}
