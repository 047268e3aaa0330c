/* Where the local engine keeps its files, and what it refuses: other people's directories, links,
 * network file systems, no room, no file descriptors. */
#include "unit/local_kit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOME_USER  54321
#define OTHER_USER 54322
#define SOME_GROUP 54323

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    kit_make_dir(dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    kit_remove_dir(dir);
    return 0;
}

static void path_of(char path[128], const char *name)
{
    snprintf(path, 128, "%s/%s", dir, name);
}

static void expect_refused(const char *path, enum stile_status expected, const char *word)
{
    struct party party;
    struct stile_error err = {0};
    enum stile_status status = kit_try_open(&party, path, &err);
    assert_string_equal(stile_status_name(status), stile_status_name(expected));
    if (!strstr(err.message, word))
        fail_msg("no '%s' in: %s", word, err.message);
}

/* In a process of its own, for what can't be undone. Its exit code, or 128 + signal. */
static int in_a_child(int (*act)(void))
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

static void expect_in_a_child(int (*act)(void), enum stile_status expected)
{
    int code = in_a_child(act);
    if (code != (int)expected)
        fail_msg("ended with %d instead of %s", code, stile_status_name(expected));
}

static int open_dir(void)
{
    struct party party;
    return (int)kit_try_open(&party, dir, NULL);
}

/* ---- the directory ---- */

static void test_it_is_made_but_not_its_parents(void **state)
{
    char path[128];
    struct party party;
    struct stat st;
    (void)state;
    path_of(path, "new");
    kit_open(&party, path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    kit_close(&party);
    path_of(path, "no/such");
    expect_refused(path, STILE_UNREACHABLE, "no/such");
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
        path_of(path, names[i]);
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
    path_of(target, "target");
    path_of(link, "link");
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(symlink(target, link), 0);
    expect_refused(link, STILE_REFUSED, "symbolic");
    kit_open(&party, target);
    kit_close(&party);
    snprintf(state_path, sizeof state_path, "%s/state", target);
    path_of(link, "elsewhere");
    assert_int_equal(rename(state_path, link), 0);
    assert_int_equal(symlink(link, state_path), 0);
    expect_refused(target, STILE_REFUSED, "state");
}

static void test_only_a_plain_file_with_one_name_is_used(void **state)
{
    char path[128], other[128];
    struct party party;
    (void)state;
    kit_open(&party, dir);
    kit_close(&party);
    path_of(path, "state");
    path_of(other, "other");
    assert_int_equal(link(path, other), 0);
    expect_refused(dir, STILE_REFUSED, "plain file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(dir, STILE_REFUSED, "plain file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(chmod(path, 0666), 0);
    expect_refused(dir, STILE_REFUSED, "changed by others");
}

static void test_a_directory_for_everybody_is_refused(void **state)
{
    (void)state;
    assert_int_equal(chmod(dir, 01777), 0);
    expect_refused(dir, STILE_REFUSED, "everybody");
    assert_int_equal(chmod(dir, 0702), 0);
    expect_refused(dir, STILE_REFUSED, "everybody");
}

static void test_a_file_is_no_directory(void **state)
{
    (void)state;
    char path[128];
    path_of(path, "file");
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
    expect_refused(path, STILE_REFUSED, "not a directory");
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
        assert_true(dir_is_network(networks[i]));
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        assert_false(dir_is_network(local[i]));
}

/* ---- the default ---- */

static void test_the_default_directory(void **state)
{
    char path[DIR_PATH_MAX], home[128];
    (void)state;
    if (geteuid() == 0) {
        assert_status(dir_default(path, NULL), OK);
        assert_string_equal(path, "/var/lib/stile");
        if (seteuid(SOME_USER) != 0)
            fail_msg("seteuid: %s", strerror(errno));
    }
    setenv("XDG_STATE_HOME", "/some/state", 1);
    assert_status(dir_default(path, NULL), OK);
    assert_string_equal(path, "/some/state/stile");
    setenv("XDG_STATE_HOME", "relative", 1); /* as the specification says: ignored */
    path_of(home, "home");
    setenv("HOME", home, 1);
    assert_status(dir_default(path, NULL), OK);
    strcat(home, "/.local/state/stile");
    assert_string_equal(path, home);
    unsetenv("XDG_STATE_HOME");
    if (geteuid() == SOME_USER) {
        unsetenv("HOME");
        assert_status(dir_default(path, NULL), REFUSED); /* no such user */
        assert_int_equal(seteuid(0), 0);
    }
}

static int open_default(void)
{
    struct party party;
    char home[128];
    path_of(home, "home");
    setenv("HOME", home, 1);
    unsetenv("XDG_STATE_HOME");
    if (geteuid() == 0 && (chown(dir, SOME_USER, SOME_GROUP) != 0 || setgid(SOME_GROUP) != 0 ||
                           setuid(SOME_USER) != 0))
        return 100;
    return (int)kit_try_open(&party, "", NULL);
}

static void test_the_default_directory_is_made_with_its_parents(void **state)
{
    struct stat st;
    char path[128];
    (void)state;
    expect_in_a_child(open_default, STILE_OK);
    path_of(path, "home/.local/state/stile/state");
    assert_int_equal(stat(path, &st), 0);
    path_of(path, "home/.local");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
}

/* ---- other users ---- */

static int become(uid_t uid)
{
    gid_t group = SOME_GROUP;
    return setgroups(1, &group) == 0 && setgid(SOME_GROUP) == 0 && setuid(uid) == 0 ? 0 : 100;
}

static int open_as_some_user(void)
{
    return become(SOME_USER) ? 100 : open_dir();
}

static int open_as_other_user(void)
{
    return become(OTHER_USER) ? 100 : open_dir();
}

static void test_a_directory_of_another_user_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        expect_refused("/proc/1/fd", STILE_REFUSED, "/proc/1/fd");
        return;
    }
    expect_in_a_child(open_as_some_user, STILE_REFUSED); /* root's, and not for the group */
    assert_int_equal(chown(dir, SOME_USER, SOME_GROUP), 0);
    expect_in_a_child(open_as_some_user, STILE_OK);
    expect_in_a_child(open_as_other_user, STILE_REFUSED);
    expect_refused(dir, STILE_REFUSED, "54321"); /* root doesn't trust it either */
}

/* One holds, the other must wait; both ends of it in their own processes. */
static int take_as(uid_t uid, int ready, int go)
{
    struct party party;
    char byte;
    if (become(uid))
        return 100;
    kit_die_with_parent(); /* a change of user forgets it */
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
    path_of(path, "state");
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

/* ---- no room ---- */

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return done;
}

/* Whoever isn't root becomes it in a namespace of their own. */
static bool may_mount(void)
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
static int small_disk(unsigned mib)
{
    char options[32];
    struct rlimit limit = {.rlim_cur = (rlim_t)mib << 20, .rlim_max = (rlim_t)mib << 20};
    snprintf(options, sizeof options, "size=%um,mode=0700", mib);
    if (!may_mount())
        return setrlimit(RLIMIT_FSIZE, &limit);
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", dir, "tmpfs", 0, options) != 0)
        return errno;
    return 0;
}

static int open_on_a_tiny_disk(void)
{
    struct stat st;
    char path[128];
    if (small_disk(1))
        return 100;
    int status = open_dir();
    path_of(path, "state");
    return stat(path, &st) == 0 ? 101 : status; /* nothing half-made is left */
}

/* Names until the disk is full; what is there goes on working. */
static int fill_a_small_disk(void)
{
    struct party party;
    char name[32];
    if (small_disk(3))
        return 100;
    kit_open(&party, dir);
    struct bid *held = kit_bid(&party, "held"), *bid = held;
    kit_take(held);
    for (int i = 0; bid->said != SAID_FAILED; i++) {
        if (i > 100000)
            return 101;
        snprintf(name, sizeof name, "name %d", i);
        bid = kit_bid(&party, name);
        kit_try(bid);
    }
    if (bid->error.status != STILE_REFUSED)
        return 102;
    kit_release(held);
    kit_take(held);
    kit_check(kit_store(&party));
    return 0;
}

static void test_a_full_disk(void **state)
{
    (void)state;
    expect_in_a_child(open_on_a_tiny_disk, STILE_REFUSED);
    expect_in_a_child(fill_a_small_disk, STILE_OK);
}

static int open_with_small_files(void)
{
    struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    return setrlimit(RLIMIT_FSIZE, &limit) ? 100 : open_dir();
}

static int open_with_no_files(void)
{
    struct rlimit limit = {0};
    return setrlimit(RLIMIT_FSIZE, &limit) ? 100 : open_dir();
}

/* The signal that comes with this limit would end the process. */
static void test_a_limit_on_file_sizes(void **state)
{
    (void)state;
    expect_in_a_child(open_with_small_files, STILE_REFUSED);
    expect_in_a_child(open_with_no_files, STILE_REFUSED);
}

static int open_without_memory(void)
{
    struct rlimit limit = {.rlim_cur = 128 << 20, .rlim_max = 128 << 20};
    return setrlimit(RLIMIT_AS, &limit) ? 100 : open_dir();
}

static void test_a_limit_on_memory(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("# a sanitizer needs more memory than the limit would leave\n");
    (void)open_without_memory;
#else
    expect_in_a_child(open_without_memory, STILE_NOMEM);
#endif
}

/* ---- file descriptors ---- */

static int count_fds(void)
{
    int n = 0;
    DIR *listing = opendir("/proc/self/fd");
    while (readdir(listing))
        n++;
    closedir(listing);
    return n;
}

static int lowest_free_fd(void)
{
    int fd = dup(0);
    close(fd);
    return fd;
}

/* One more each time: each failure is clear and leaves nothing open. */
static void test_too_few_file_descriptors(void **state)
{
    struct rlimit kept, tight;
    struct party party;
    struct stile_error err;
    enum stile_status status = STILE_UNREACHABLE;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &kept), 0);
    int before = count_fds();
    rlim_t first = (rlim_t)lowest_free_fd() + 3; /* the loop's own */
    for (tight = kept, tight.rlim_cur = first; status; tight.rlim_cur++) {
        assert_true(tight.rlim_cur < first + 30);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        status = kit_try_open(&party, dir, &err);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &kept), 0);
        if (!status)
            break;
        assert_true(status == STILE_UNREACHABLE || status == STILE_REFUSED);
        assert_int_equal(count_fds(), before);
    }
    assert_true(tight.rlim_cur > first + 5);
    kit_close(&party);
    assert_int_equal(count_fds(), before);
}

/* No descriptor is left to watch the holder with: its death is noticed all the same. */
static void test_a_death_without_file_descriptors(void **state)
{
    struct rlimit kept, tight;
    struct party party;
    int ready[2];
    char byte;
    (void)state;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct party other;
        kit_die_with_parent();
        kit_open(&other, dir);
        kit_take(kit_bid(&other, "n"));
        if (write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kit_open(&party, dir);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &kept), 0);
    tight = kept;
    tight.rlim_cur = (rlim_t)lowest_free_fd();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    struct bid *bid = kit_bid(&party, "n");
    assert_int_equal(kit_wait(bid), SAID_NOTHING);
    kit_settle();
    kill(pid, SIGKILL);
    kit_until(bid, SAID_GRANTED);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &kept), 0);
    kit_release(bid);
    kit_bid_free(bid);
    kit_close(&party);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ready[0]);
    close(ready[1]);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

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
        TEST(test_the_default_directory_is_made_with_its_parents),
        TEST(test_a_directory_of_another_user_is_refused),
        TEST(test_a_group_can_share_a_directory),
        TEST(test_a_full_disk),
        TEST(test_a_limit_on_file_sizes),
        TEST(test_a_limit_on_memory),
        TEST(test_too_few_file_descriptors),
        TEST(test_a_death_without_file_descriptors),
    };
    return cmocka_run_group_tests_name("local_place", tests, NULL, NULL);
}
