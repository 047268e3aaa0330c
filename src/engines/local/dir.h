/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of a local engine, its files, and the epoch.
 *
 *     state   the mapped table: names, claims, sessions
 *     live    empty; byte locks on it are the proof of life
 *     epoch   the upper half of tokens, durable: no token is granted again after a reboot
 *     history the records of last holders
 *     cells   small values with versions and guards, an LMDB file; durable
 *     s/      the sockets of sessions
 */
#ifndef STILE_LOCAL_DIR_H
#define STILE_LOCAL_DIR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/error.h"

#define DIR_PATH_MAX 4096
#define DIR_TYPE_MAX 64

struct dir {
    int fd, sockets_fd;
    bool shared; /* its group may write: new files are given to the group */
    uid_t uid;
    gid_t gid;
    dev_t dev;
    ino_t ino;
    char *path;
};

/* path "": the default directory, with its parents made as needed; refused while another place that
 * used to be the default is in use. Opens it, or makes it, and checks that its promises can be kept
 * there. sockets_fd is -1. */
enum stile_status local_dir_open(struct dir *dir, const char *path, bool allow_fuse,
                                 struct stile_error *err);
void local_dir_close(struct dir *dir);

/* Whether the open files are still the ones in the directory, and the directory is still in its
 * place. If they were removed or replaced, newcomers use other files and do not see this process.
 */
bool local_dir_is_intact(const struct dir *dir, int state_fd, int live_fd);

/* Whether the file of this name is the open one. */
bool local_dir_has(const struct dir *dir, const char *name, int fd);

/* The status for an errno value. REFUSED: an administrator has to change something. UNREACHABLE: it
 * may pass by itself. */
enum stile_status local_dir_status(int number);

/* The default directory: one for each user, independent of the environment. */
enum stile_status local_dir_default(char path[DIR_PATH_MAX], struct stile_error *err);

/* Whether a file system (statfs's f_type) may be shared between machines. */
bool local_dir_is_network(uint64_t filesystem);

/* The type of the file system mounted from a device, from the text of mountinfo; "" if it is not
 * listed. */
void local_dir_mount_type(char type[DIR_TYPE_MAX], FILE *mountinfo, dev_t device);
/* Whether this type of FUSE is certainly local to this machine. */
bool local_dir_is_local_fuse(const char *type);

/* flags: O_CREAT, O_EXCL. Without O_CREAT, a missing file is UNREACHABLE with native ENOENT. The
 * file must be a regular one that no other user could have planted. */
enum stile_status local_dir_open_file(int *fd, const struct dir *dir, const char *name, int flags,
                                      struct stile_error *err);

/* s/, made if missing. */
enum stile_status local_dir_open_sockets(struct dir *dir, struct stile_error *err);

/* Gives a new file or socket to the directory's group, if the directory is shared. 0 or an errno
 * value. */
int local_dir_hand_over(const struct dir *dir, int at_fd, const char *name);

/* found: false if there is none yet. */
enum stile_status local_epoch_read(uint32_t *epoch, bool *found, const struct dir *dir,
                                   struct stile_error *err);
/* Durable when it returns OK. */
enum stile_status local_epoch_write(const struct dir *dir, uint32_t epoch, struct stile_error *err);

#endif
