/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/local_place_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

char dir[64];

int place_make(void **state)
{
    (void)state;
    kit_make_dir(dir);
    return 0;
}

int place_remove(void **state)
{
    (void)state;
    kit_remove_dir(dir);
    return 0;
}

void place_path(char path[128], const char *name)
{
    snprintf(path, 128, "%s/%s", dir, name);
}

void place_expect_refused(const char *path, enum stile_status expected, const char *word)
{
    struct party party;
    struct stile_error err = {0};
    enum stile_status status = kit_try_open(&party, path, &err);
    assert_string_equal(stile_status_name(status), stile_status_name(expected));
    if (!strstr(err.message, word))
        fail_msg("no '%s' in: %s", word, err.message);
}

/* In a process of its own, for what can't be undone. Its exit code, or 128 + signal. */
int child_run(int (*act)(void))
{
    int status;
    fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(act());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void child_expect(int (*act)(void), enum stile_status expected)
{
    int code = child_run(act);
    if (code != (int)expected)
        fail_msg("ended with %d instead of %s", code, stile_status_name(expected));
}

void *child_shared(size_t size)
{
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    return map;
}

int place_open(void)
{
    struct party party;
    return (int)kit_try_open(&party, dir, NULL);
}

/* ---- little room ---- */

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return done;
}

/* A test that isn't root becomes root in a user namespace. */
bool place_may_mount(void)
{
    char uids[32], gids[32];
    snprintf(uids, sizeof uids, "0 %u 1", (unsigned)geteuid());
    snprintf(gids, sizeof gids, "0 %u 1", (unsigned)getegid());
    if (geteuid() == 0)
        return unshare(CLONE_NEWNS) == 0;
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_text("/proc/self/uid_map", uids) &&
           write_text("/proc/self/setgroups", "deny") && write_text("/proc/self/gid_map", gids);
}

/* Where nothing can be mounted, a limit on file sizes has to do. */
int place_shrink(unsigned mib)
{
    char options[32];
    struct rlimit limit = {.rlim_cur = (rlim_t)mib << 20, .rlim_max = (rlim_t)mib << 20};
    snprintf(options, sizeof options, "size=%um,mode=0700", mib);
    if (!place_may_mount())
        return setrlimit(RLIMIT_FSIZE, &limit);
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", dir, "tmpfs", 0, options) != 0)
        return errno;
    return 0;
}
