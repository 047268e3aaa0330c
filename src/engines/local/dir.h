/* The directory of a local engine, its files, and the epoch.
 *
 *     state   the mapped table: names, claims, sessions
 *     live    empty; byte locks on it are the proof of life
 *     epoch   the upper half of tokens, durable: what keeps them from coming back after a reboot
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
    bool shared; /* its group may write: files are made for the group */
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

/* Whether the files that are open still are the ones in the directory, and that is where it was.
 * Whoever removed or replaced them has let in newcomers who know nothing of us. */
bool local_dir_is_intact(const struct dir *dir, int state_fd, int live_fd);

/* Where the default is: one place for each user, whatever the environment says. */
enum stile_status local_dir_default(char path[DIR_PATH_MAX], struct stile_error *err);

/* Whether locks in such a file system belong to one machine's kernel only (statfs's f_type). */
bool local_dir_is_network(uint64_t filesystem);

/* The type of what is mounted on a device, from the text of mountinfo; "" if it isn't there. */
void local_dir_mount_type(char type[DIR_TYPE_MAX], FILE *mountinfo, dev_t device);
/* Of FUSE's many, those which are this machine's for certain. */
bool local_dir_is_local_fuse(const char *type);

/* flags: O_CREAT, O_EXCL. With O_CREAT missing, ENOENT comes back as UNREACHABLE and native ENOENT.
 * The file is checked to be a plain one that nobody else could have slipped in. */
enum stile_status local_dir_open_file(int *fd, const struct dir *dir, const char *name, int flags,
                                      struct stile_error *err);

/* s/, made if missing. */
enum stile_status local_dir_open_sockets(struct dir *dir, struct stile_error *err);

/* Gives a new file or socket to the directory's group, where it is shared by one. 0 or errno. */
int local_dir_hand_over(const struct dir *dir, int at_fd, const char *name);

/* found false: there is none yet. */
enum stile_status local_epoch_read(uint32_t *epoch, bool *found, const struct dir *dir,
                                   struct stile_error *err);
/* Durable when it returns OK. */
enum stile_status local_epoch_write(const struct dir *dir, uint32_t epoch, struct stile_error *err);

#endif
