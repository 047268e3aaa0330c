/* Where the local engine's files are, who may use them, and what is refused: links, other users'
 * directories, disks of other machines. */
#include "fault/local_place_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
    place_expect_refused(dir, STILE_REFUSED, "plain file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    place_expect_refused(dir, STILE_REFUSED, "plain file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(chmod(path, 0666), 0);
    place_expect_refused(dir, STILE_REFUSED, "changed by others");
}

static void test_a_directory_for_everybody_is_refused(void **state)
{
    (void)state;
    assert_int_equal(chmod(dir, 01777), 0);
    place_expect_refused(dir, STILE_REFUSED, "everybody");
    assert_int_equal(chmod(dir, 0702), 0);
    place_expect_refused(dir, STILE_REFUSED, "everybody");
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
    place_path(home, "home");
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
    place_path(home, "home");
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
    child_expect(open_default, STILE_OK);
    place_path(path, "home/.local/state/stile/state");
    assert_int_equal(stat(path, &st), 0);
    place_path(path, "home/.local");
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
        TEST(test_the_default_directory_is_made_with_its_parents),
        TEST(test_a_directory_of_another_user_is_refused),
        TEST(test_a_group_can_share_a_directory),
    };
    return cmocka_run_group_tests_name("local_place", tests, NULL, NULL);
}
