/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Where the local engine's files are, which users may use them, and what is refused: links, other
 * users' directories, disks of other machines. */
#include "fault/local_place_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOME_USER  54321
#define OTHER_USER 54322
#define SOME_GROUP 54323

/* ---- the directory ---- */

static void test_it_is_made_but_not_its_parents(void **state)
{
    char path[128];
    struct party party;
    struct stat st;
    (void)state;
    place_path(path, "new");
    kit_open(&party, path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    kit_close(&party);
    place_path(path, "no/such");
    place_expect_refused(path, STILE_UNREACHABLE, "no/such");
}

static void test_its_files_are_ours_alone(void **state)
{
    const char *names[] = {"state", "live", "epoch"};
    char path[128];
    struct party party;
    struct stat st;
    (void)state;
    mode_t kept = umask(0);
    kit_open(&party, dir);
    umask(kept);
    for (int i = 0; i < 3; i++) {
        place_path(path, names[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
    }
    kit_close(&party);
}

static void test_a_symbolic_link_is_not_followed(void **state)
{
    char link[128], state_path[144], target[128];
    struct party party;
    (void)state;
    place_path(target, "target");
    place_path(link, "link");
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(symlink(target, link), 0);
    place_expect_refused(link, STILE_REFUSED, "symbolic");
    kit_open(&party, target);
    kit_close(&party);
    snprintf(state_path, sizeof state_path, "%s/state", target);
    place_path(link, "elsewhere");
    assert_int_equal(rename(state_path, link), 0);
    assert_int_equal(symlink(link, state_path), 0);
    place_expect_refused(target, STILE_REFUSED, "state");
}

static void test_only_a_plain_file_with_one_name_is_used(void **state)
{
    char path[128], other[128];
    struct party party;
    (void)state;
    kit_open(&party, dir);
    kit_close(&party);
    place_path(path, "state");
    place_path(other, "other");
    assert_int_equal(link(path, other), 0);
    place_expect_refused(dir, STILE_REFUSED, "regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    place_expect_refused(dir, STILE_REFUSED, "regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(chmod(path, 0666), 0);
    place_expect_refused(dir, STILE_REFUSED, "changed by others");
}

static void test_a_directory_for_everybody_is_refused(void **state)
{
    (void)state;
    assert_int_equal(chmod(dir, 01777), 0);
    place_expect_refused(dir, STILE_REFUSED, "all users");
    assert_int_equal(chmod(dir, 0702), 0);
    place_expect_refused(dir, STILE_REFUSED, "all users");
}

static void test_a_file_is_no_directory(void **state)
{
    (void)state;
    char path[128];
    place_path(path, "file");
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
    place_expect_refused(path, STILE_REFUSED, "not a directory");
}

/* sun_path has room for 108 bytes; the directory may have more. */
static void test_a_long_path(void **state)
{
    char path[DIR_PATH_MAX];
    struct party a, b;
    (void)state;
    size_t n = (size_t)snprintf(path, sizeof path, "%s", dir);
    for (int i = 0; i < 5; i++) {
        n += (size_t)snprintf(path + n, sizeof path - n, "/%0100d", i);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    kit_open(&a, path);
    kit_open(&b, path);
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    kit_take(one);
    kit_wait(two);
    kit_release(one);
    kit_until(two, SAID_GRANTED);
    kit_release(two);
    kit_bid_free(one);
    kit_bid_free(two);
    kit_close(&a);
    kit_close(&b);
}

static void test_network_file_systems_are_known(void **state)
{
    (void)state;
    const uint64_t networks[] = {0x6969,     0x517b,     0xff534d42, 0xfe534d42,
                                 0x01021997, 0x0bd00bd0, 0x00c36400};
    const uint64_t local[] = {0xef53, 0x01021994, 0x58465342, 0x9123683e, 0x65735546, 0x794c7630};
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        assert_true(local_dir_is_network(networks[i]));
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        assert_false(local_dir_is_network(local[i]));
}

static void expect_mount_type(const char *line, dev_t device, const char *expected)
{
    char type[DIR_TYPE_MAX];
    FILE *file = fmemopen((void *)(uintptr_t)line, strlen(line), "r");
    assert_non_null(file);
    local_dir_mount_type(type, file, device);
    fclose(file);
    assert_string_equal(type, expected);
}

/* All kinds of FUSE look alike to statfs(2); what they are is in the list of mounts. */
static void test_kinds_of_fuse(void **state)
{
    const char *mounts = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
                         "40 22 0:45 / /mnt/a\\040b rw,nosuid shared:9 master:3 - fuse.sshfs "
                         "me@host:/ rw,user_id=0\n"
                         "41 22 0:46 / /mnt/v rw - virtiofs tag rw\n"
                         "42 22 8:17 / /mnt/n rw - fuseblk /dev/sdb1 rw\n"
                         "43 22 0:47 / /mnt/o rw - fuse.fuse-overlayfs fuse-overlayfs rw\n";
    (void)state;
    expect_mount_type(mounts, makedev(0, 45), "fuse.sshfs");
    expect_mount_type(mounts, makedev(0, 46), "virtiofs");
    expect_mount_type(mounts, makedev(8, 17), "fuseblk");
    expect_mount_type(mounts, makedev(0, 99), "");
    expect_mount_type("rubbish\n1 2 - x\n", makedev(0, 45), "");
    assert_true(local_dir_is_local_fuse("fuseblk") &&
                local_dir_is_local_fuse("fuse.fuse-overlayfs"));
    const char *others[] = {"", "fuse", "fuse.sshfs", "virtiofs", "fuse.glusterfs", "fuse.s3fs"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(local_dir_is_local_fuse(others[i]));
}

/* ---- the default ---- */

static void expect_default(const char *expected)
{
    static const char *const places[] = {NULL, "/some/state", "relative", "/"};
    char path[DIR_PATH_MAX];
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++) {
            places[i] ? setenv("XDG_STATE_HOME", places[i], 1) : unsetenv("XDG_STATE_HOME");
            places[j] ? setenv("HOME", places[j], 1) : unsetenv("HOME");
            enum stile_status status = local_dir_default(path, NULL);
            assert_status(status, OK);
            assert_string_equal(path, expected);
        }
}

/* The same for a login, cron and a service, whose environments differ. */
static void test_the_default_directory(void **state)
{
    char path[DIR_PATH_MAX], expected[DIR_PATH_MAX];
    (void)state;
    if (geteuid() == 0) {
        expect_default("/var/lib/stile");
        if (seteuid(SOME_USER) != 0)
            fail_msg("seteuid: %s", strerror(errno));
        setenv("HOME", dir, 1);
        assert_status(local_dir_default(path, NULL), REFUSED); /* no such user */
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(seteuid(1), 0);
    }
    const struct passwd *user = getpwuid(geteuid());
    assert_non_null(user);
    snprintf(expected, sizeof expected, "%s/.local/state/stile", user->pw_dir);
    expect_default(expected);
    if (getuid() == 0)
        assert_int_equal(seteuid(0), 0);
}

/* Another user database, in which SOME_USER lives in `home` of our directory. 100: we can't. */
static int become_a_user_with_a_home(void)
{
    char path[128];
    if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return 100;
    place_path(path, "passwd");
    FILE *file = fopen(path, "w");
    if (!file)
        return 100;
    fprintf(file, "root:x:0:0::/root:/bin/sh\nsome:x:%d:%d::%s/home:/bin/sh\n", SOME_USER,
            SOME_GROUP, dir);
    if (fclose(file) != 0 || chmod(path, 0644) != 0 ||
        mount(path, "/etc/passwd", NULL, MS_BIND, NULL) != 0)
        return 100;
    return chown(dir, SOME_USER, SOME_GROUP) != 0 || setgid(SOME_GROUP) != 0 ||
                   setuid(SOME_USER) != 0
               ? 100
               : 0;
}

static int open_default(void)
{
    struct party party;
    int rc = become_a_user_with_a_home();
    return rc ? rc : (int)kit_try_open(&party, "", NULL);
}

static void test_the_default_directory_is_made_with_its_parents(void **state)
{
    struct stat st;
    char path[128];
    (void)state;
    if (geteuid() != 0)
        return; /* nobody can have another home then */
    child_expect(open_default, STILE_OK);
    place_path(path, "home/.local/state/stile/state");
    assert_int_equal(stat(path, &st), 0);
    place_path(path, "home/.local");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
}

/* The directory of an earlier version, found by the environment: holders there are not overlooked.
 */
static int open_beside_the_earlier_default(void)
{
    struct party earlier, party;
    struct stile_error err;
    char path[128];
    int rc = become_a_user_with_a_home();
    if (rc)
        return rc;
    place_path(path, "xdg");
    if (mkdir(path, 0700) != 0)
        return 101;
    setenv("XDG_STATE_HOME", path, 1);
    strcat(path, "/stile");
    kit_open(&earlier, path);
    if (kit_try_open(&party, "", &err) != STILE_REFUSED || !strstr(err.message, path))
        return 102;
    kit_close(&earlier);
    return (int)kit_try_open(&party, "", NULL);
}

static void test_the_earlier_default_is_in_use(void **state)
{
    (void)state;
    if (geteuid() != 0)
        return;
    child_expect(open_beside_the_earlier_default, STILE_OK);
}

/* ---- other users ---- */

static int become(uid_t uid)
{
    gid_t group = SOME_GROUP;
    return setgroups(1, &group) == 0 && setgid(SOME_GROUP) == 0 && setuid(uid) == 0 ? 0 : 100;
}

static int open_as_some_user(void)
{
    return become(SOME_USER) ? 100 : place_open();
}

static int open_as_other_user(void)
{
    return become(OTHER_USER) ? 100 : place_open();
}

static void test_a_directory_of_another_user_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        place_expect_refused("/proc/1/fd", STILE_REFUSED, "/proc/1/fd");
        return;
    }
    child_expect(open_as_some_user, STILE_REFUSED); /* root's, and not for the group */
    assert_int_equal(chown(dir, SOME_USER, SOME_GROUP), 0);
    child_expect(open_as_some_user, STILE_OK);
    child_expect(open_as_other_user, STILE_REFUSED);
    place_expect_refused(dir, STILE_REFUSED, "54321"); /* root doesn't trust it either */
}

/* One holds, the other must wait; both ends of it in their own processes. */
static int take_as(uid_t uid, int ready, int go)
{
    struct party party;
    char byte;
    if (become(uid))
        return 100;
    kit_be_child(); /* a change of user forgets it */
    if (kit_try_open(&party, dir, NULL) != STILE_OK)
        return 100;
    struct bid *bid = kit_bid(&party, "n");
    if (kit_wait(bid) == SAID_NOTHING && ready >= 0)
        return 101;
    if (ready >= 0 && (write(ready, "r", 1) != 1 || read(go, &byte, 1) != 1))
        return 102;
    kit_until(bid, SAID_GRANTED);
    kit_release(bid);
    kit_close(&party);
    return 0;
}

static void test_a_group_can_share_a_directory(void **state)
{
    int ready[2], go[2], status;
    char byte, path[128];
    struct stat st;
    (void)state;
    if (geteuid() != 0)
        return; /* nobody can become another user then */
    assert_int_equal(chown(dir, 0, SOME_GROUP), 0);
    assert_int_equal(chmod(dir, 0770), 0);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t first = fork();
    if (first == 0)
        _exit(take_as(SOME_USER, ready[1], go[0]));
    assert_int_equal(read(ready[0], &byte, 1), 1);
    place_path(path, "state");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
    assert_int_equal(st.st_gid, SOME_GROUP);
    pid_t second = fork();
    if (second == 0)
        _exit(take_as(OTHER_USER, -1, -1));
    assert_int_equal(write(go[1], "g", 1), 1);
    assert_int_equal(waitpid(first, &status, 0), first);
    assert_int_equal(status, 0);
    assert_int_equal(waitpid(second, &status, 0), second);
    assert_int_equal(status, 0);
}

/* Traced up to its first change of a file's mode, and killed there. */
static void kill_before_chmod(uid_t uid)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (become(uid) || ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(100);
        raise(SIGSTOP);
        _exit(place_open());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(
        ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD), 0);
    for (;;) {
        struct __ptrace_syscall_info info;
        assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFSTOPPED(status))
            fail_msg("it ended with %x before it changed any mode", (unsigned)status);
        assert_true(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) > 0);
        if (info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_fchmodat)
            break;
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* The process that makes the files of a group's directory may be killed at the worst moment. */
static void test_a_group_whose_first_user_was_killed(void **state)
{
    (void)state;
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(dir, 0, SOME_GROUP), 0);
    assert_int_equal(chmod(dir, 0770), 0);
    kill_before_chmod(SOME_USER);
    child_expect(open_as_other_user, STILE_OK);
}

/* What an earlier version has left so is repaired by its owner, or by root. */
static void test_a_group_whose_files_are_half_made(void **state)
{
    char path[128];
    (void)state;
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(dir, 0, SOME_GROUP), 0);
    assert_int_equal(chmod(dir, 0770), 0);
    place_path(path, "live");
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0 && fchown(fd, SOME_USER, SOME_GROUP) == 0);
    close(fd);
    child_expect(open_as_other_user, STILE_REFUSED);
    child_expect(open_as_some_user, STILE_OK);
    child_expect(open_as_other_user, STILE_OK);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_it_is_made_but_not_its_parents),
        TEST(test_its_files_are_ours_alone),
        TEST(test_a_symbolic_link_is_not_followed),
        TEST(test_only_a_plain_file_with_one_name_is_used),
        TEST(test_a_directory_for_everybody_is_refused),
        TEST(test_a_file_is_no_directory),
        TEST(test_a_long_path),
        TEST(test_network_file_systems_are_known),
        TEST(test_the_default_directory),
        TEST(test_kinds_of_fuse),
        TEST(test_the_default_directory_is_made_with_its_parents),
        TEST(test_the_earlier_default_is_in_use),
        TEST(test_a_directory_of_another_user_is_refused),
        TEST(test_a_group_can_share_a_directory),
        TEST(test_a_group_whose_first_user_was_killed),
        TEST(test_a_group_whose_files_are_half_made),
    };
    return cmocka_run_group_tests_name("local_place", tests, NULL, NULL);
}
