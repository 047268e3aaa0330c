/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Guarded files: the rule of a guard, what may be at the path, and a guard that is damaged.
 *
 * LESSONS rows 44, 45: raise before reading; a removal leaves its highest token behind. */
#include "guard/file_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOT 4096

static enum stile_status put_as(const char *text, uint64_t token, const char *as)
{
    return stile_file_replace("x", text, strlen(text), token, STILE_FILE_OPTIONS(.issuer = as),
                              NULL);
}

/* ---- the rule ---- */

static void a_smaller_token_is_refused(void **state)
{
    struct stile_error err = {0};
    uint64_t seen = 0;
    (void)state;
    must_put("x", "late", 34);
    assert_int_equal(
        stile_file_replace("x", "early", 5, 33, STILE_FILE_OPTIONS(.highest = &seen), &err),
        STILE_STALE);
    assert_string_equal(err.message, "stale token 33 for `x`: the highest seen is 34");
    assert_int_equal(seen, 34);
    assert_string_equal(content("x"), "late");
}

static void an_equal_token_passes_unless_strict(void **state)
{
    struct stile_file_options strict = stile_file_options_init();
    (void)state;
    strict.strict = true;
    must_put("x", "one", 5);
    must_put("x", "two", 5);
    assert_string_equal(content("x"), "two");
    assert_int_equal(stile_file_replace("x", "three", 5, 5, &strict, NULL), STILE_STALE);
    assert_int_equal(stile_file_raise("x", 5, &strict, NULL), STILE_STALE);
    assert_int_equal(stile_file_remove("x", 5, &strict, NULL), STILE_STALE);
    assert_int_equal(stile_file_replace("x", "four", 4, 6, &strict, NULL), STILE_OK);
    assert_string_equal(content("x"), "four");
}

static void a_larger_token_is_remembered(void **state)
{
    uint64_t seen = 0;
    (void)state;
    must_put("x", "one", 5);
    assert_int_equal(
        stile_file_replace("x", "two", 3, 7, STILE_FILE_OPTIONS(.highest = &seen), NULL), STILE_OK);
    assert_int_equal(seen, 7);
    assert_int_equal(highest("x"), 7);
    assert_int_equal(put("x", "three", 6), STILE_STALE);
    must_put("x", "four", STILE_TOKEN_MAX);
    assert_int_equal(highest("x"), STILE_TOKEN_MAX);
    assert_int_equal(put("x", "five", STILE_TOKEN_MAX - 1), STILE_STALE);
}

static void a_raise_refuses_before_the_first_write(void **state)
{
    (void)state;
    must_put("x", "old", 5);
    assert_int_equal(stile_file_raise("x", 6, NULL, NULL), STILE_OK);
    assert_int_equal(put("x", "late", 5), STILE_STALE);
    assert_int_equal(stile_file_raise("x", 5, NULL, NULL), STILE_STALE);
    assert_string_equal(content("x"), "old");
    assert_int_equal(stile_file_raise("new", 9, NULL, NULL), STILE_OK); /* of no file yet */
    assert_int_equal(put("new", "late", 8), STILE_STALE);
    must_put("new", "first", 9);
}

static void a_check_remembers_nothing(void **state)
{
    uint64_t seen = 0;
    (void)state;
    assert_int_equal(stile_file_check("x", 9, NULL, NULL), STILE_OK);
    assert_int_equal(entries("."), 0);
    assert_int_equal(put_as("one", 5, "redis:a"), STILE_OK);
    assert_int_equal(stile_file_check("x", 9, NULL, NULL), STILE_OK);
    assert_int_equal(stile_file_check("x", 5, NULL, NULL), STILE_OK);
    assert_int_equal(stile_file_check("x", 5, STILE_FILE_OPTIONS(.strict = true), NULL),
                     STILE_STALE);
    assert_int_equal(stile_file_check("x", 4, STILE_FILE_OPTIONS(.highest = &seen), NULL),
                     STILE_STALE);
    assert_int_equal(seen, 5);
    assert_int_equal(stile_file_check("x", 9, STILE_FILE_OPTIONS(.issuer = "etcd:a"), NULL),
                     STILE_FOREIGN);
    assert_int_equal(highest("x"), 5);
}

static void a_removal_leaves_the_token(void **state)
{
    (void)state;
    must_put("x", "old", 5);
    assert_int_equal(stile_file_remove("x", 4, NULL, NULL), STILE_STALE);
    assert_string_equal(content("x"), "old");
    assert_int_equal(stile_file_remove("x", 6, NULL, NULL), STILE_OK);
    assert_int_equal(access("x", F_OK), -1);
    assert_int_equal(put("x", "late", 5), STILE_STALE);
    assert_int_equal(access("x", F_OK), -1);
    assert_int_equal(stile_file_remove("x", 6, NULL, NULL), STILE_OK); /* again */
    assert_int_equal(stile_file_remove("never", 3, NULL, NULL), STILE_OK);
    assert_int_equal(put("never", "late", 2), STILE_STALE);
    must_put("x", "new", 6);
}

static void a_token_of_another_issuer_is_refused(void **state)
{
    struct stile_error err = {0};
    uint64_t seen = 0;
    (void)state;
    assert_int_equal(put_as("one", 5, "redis:a"), STILE_OK);
    assert_int_equal(stile_file_replace("x", "no", 2, 90,
                                        STILE_FILE_OPTIONS(.issuer = "etcd:a", .highest = &seen),
                                        &err),
                     STILE_FOREIGN);
    assert_string_equal(err.message, "token of etcd:a for `x`, whose tokens come from redis:a");
    assert_int_equal(seen, 5);
    assert_int_equal(put_as("no", 4, "etcd:a"), STILE_FOREIGN);
    assert_int_equal(put_as("two", 6, "redis:a"), STILE_OK);
    assert_int_equal(put_as("three", 7, ""), STILE_OK); /* not given: only the tokens count */
    assert_string_equal(issuer("x"), "redis:a");
    assert_int_equal(put_as("no", 8, "redis:b"), STILE_FOREIGN);
    assert_string_equal(content("x"), "three");
}

static void an_issuer_is_recorded_with_a_token_that_passes(void **state)
{
    char longest[STILE_ISSUER_MAX + 1];
    (void)state;
    must_put("x", "one", 5);
    assert_string_equal(issuer("x"), "");
    assert_int_equal(put_as("no", 4, "redis:a"), STILE_STALE);
    assert_string_equal(issuer("x"), "");
    assert_int_equal(put_as("two", 5, "redis:a"), STILE_OK);
    assert_string_equal(issuer("x"), "redis:a");
    memset(longest, 'i', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    longest[3] = ' ';
    assert_int_equal(stile_file_raise("y", 1, STILE_FILE_OPTIONS(.issuer = longest), NULL),
                     STILE_OK);
    assert_string_equal(issuer("y"), longest);
}

static void a_reset_forgets(void **state)
{
    (void)state;
    assert_int_equal(put_as("one", 50, "redis:a"), STILE_OK);
    assert_int_equal(stile_file_guard_reset("x", 3, "etcd:a", NULL), STILE_OK);
    assert_int_equal(highest("x"), 3);
    assert_string_equal(issuer("x"), "etcd:a");
    assert_int_equal(put_as("no", 2, "etcd:a"), STILE_STALE);
    assert_int_equal(put_as("two", 4, "etcd:a"), STILE_OK);
    assert_int_equal(stile_file_guard_reset("x", 0, NULL, NULL), STILE_OK);
    assert_int_equal(highest("x"), 0);
    must_put("x", "three", 1);
}

static void misuse_is_answered(void **state)
{
    static const char *const paths[] = {"",     ".", "..",       "d/",         "d/.",
                                        "d/..", "/", ".x.stile", "d/.x.stile", ".x.stile-7"};
    struct stile_file_guard guard;
    char longer[STILE_ISSUER_MAX + 2];
    (void)state;
    assert_int_equal(mkdir("d", 0700), 0);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        assert_int_equal(put(paths[i], "text", 1), STILE_MISUSE);
        assert_int_equal(stile_file_guard_show(&guard, paths[i], NULL), STILE_MISUSE);
    }
    assert_int_equal(stile_file_guard_show(NULL, "x", NULL), STILE_MISUSE);
    assert_int_equal(put(NULL, "text", 1), STILE_MISUSE);
    assert_int_equal(put("x", "text", 0), STILE_MISUSE);
    assert_int_equal(put("x", "text", STILE_TOKEN_MAX + 1), STILE_MISUSE);
    assert_int_equal(stile_file_replace("x", NULL, 1, 1, NULL, NULL), STILE_MISUSE);
    assert_int_equal(put_as("text", 1, "a\nhighest 0"), STILE_MISUSE);
    memset(longer, 'i', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(put_as("text", 1, longer), STILE_MISUSE);
    assert_int_equal(stile_file_raise("x", 1, STILE_FILE_OPTIONS(.mode = 04755), NULL),
                     STILE_MISUSE);
    assert_int_equal(stile_file_raise("x", 1, STILE_FILE_OPTIONS(.wait_ms = -2), NULL),
                     STILE_MISUSE);
    assert_int_equal(entries("."), 1);
    assert_int_equal(entries("d"), 0);
}

/* ---- what is at the path ---- */

static void a_symbolic_link_is_not_followed(void **state)
{
    (void)state;
    write_plainly("victim", "untouched");
    assert_int_equal(symlink("victim", "x"), 0);
    assert_int_equal(put("x", "text", 1), STILE_REFUSED);
    assert_int_equal(stile_file_remove("x", 1, NULL, NULL), STILE_REFUSED);
    assert_int_equal(symlink("nowhere", "dangling"), 0);
    assert_int_equal(put("dangling", "text", 1), STILE_REFUSED);
    assert_string_equal(content("victim"), "untouched");
    assert_int_equal(access("nowhere", F_OK), -1);
}

static void the_guard_is_no_symbolic_link(void **state)
{
    struct stile_error err = {0};
    (void)state;
    write_plainly("victim", "untouched");
    assert_int_equal(symlink("victim", ".x.stile"), 0);
    assert_int_equal(stile_file_replace("x", "text", 4, 1, NULL, &err), STILE_REFUSED);
    assert_int_equal(err.native, ELOOP);
    assert_string_equal(content("victim"), "untouched");
    for (int i = 0; i < 3; i++) { /* nor is what is written */
        char name[32];
        snprintf(name, sizeof name, ".y.stile-%d", i);
        assert_int_equal(symlink("victim", name), 0);
    }
    must_put("y", "text", 1);
    assert_string_equal(content("victim"), "untouched");
}

static void only_regular_files_are_replaced(void **state)
{
    (void)state;
    assert_int_equal(mkdir("directory", 0700), 0);
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(put("directory", "text", 1), STILE_REFUSED);
    assert_int_equal(put("fifo", "text", 1), STILE_REFUSED);
    assert_int_equal(stile_file_remove("directory", 1, NULL, NULL), STILE_REFUSED);
    assert_int_equal(stile_file_remove("fifo", 1, NULL, NULL), STILE_REFUSED);
    assert_int_equal(entries("."), 2);
    assert_int_equal(mkfifo(".x.stile", 0600), 0); /* no call waits for its other end */
    assert_int_equal(put("x", "text", 1), STILE_REFUSED);
    assert_int_equal(mkfifo(".y.stile-0", 0600), 0);
    must_put("y", "text", 1);
}

static void a_hard_link_is_a_name_of_its_own(void **state)
{
    (void)state;
    must_put("x", "one", 5);
    assert_int_equal(link("x", "other"), 0);
    must_put("x", "two", 6);
    assert_string_equal(content("other"), "one");
    must_put("other", "three", 1);
}

static void a_directory_may_be_reached_through_a_link(void **state)
{
    (void)state;
    assert_int_equal(mkdir("d", 0700), 0);
    assert_int_equal(symlink("d", "link"), 0);
    must_put("link/x", "one", 5);
    assert_int_equal(put("d/x", "late", 4), STILE_STALE);
    assert_string_equal(content("d/x"), "one");
    assert_int_equal(put("nowhere/x", "text", 1), STILE_REFUSED);
    assert_int_equal(put("d/x/y", "text", 1), STILE_REFUSED);
}

/* The same for names of all lengths: NAME_MAX bytes at most, and of one guard each. */
static void long_names_have_guards(void **state)
{
    char name[258];
    (void)state;
    for (size_t len = 240; len <= 255; len++) {
        memset(name, 'n', len);
        name[len] = '\0';
        must_put(name, "one", 5);
        assert_int_equal(put(name, "late", 4), STILE_STALE);
        name[len - 1] = 'm';
        must_put(name, "other", 1);
    }
    assert_int_equal(entries("."), 16 * 4);
    memset(name, 'n', 256);
    name[256] = '\0';
    assert_int_equal(put(name, "text", 1), STILE_MISUSE);
    for (size_t i = 0; i < 127; i++) /* a character that would be cut in two */
        memcpy(name + 2 * i, "\xc3\xa4", 2);
    name[254] = '\0';
    must_put(name, "one", 5);
    assert_int_equal(put(name, "late", 4), STILE_STALE);
}

/* ---- permissions ---- */

static unsigned mode_of(const char *path)
{
    struct stat stat;
    assert_int_equal(lstat(path, &stat), 0);
    return stat.st_mode & 07777;
}

static void permissions_are_kept(void **state)
{
    struct stile_file_options private = stile_file_options_init();
    (void)state;
    private.mode = 0400;
    mode_t old = umask(027);
    must_put("x", "one", 1);
    assert_int_equal(mode_of("x"), 0640);
    assert_int_equal(mode_of(".x.stile"), 0640);
    umask(0);
    assert_int_equal(chmod("x", 0604), 0);
    must_put("x", "two", 2);
    assert_int_equal(mode_of("x"), 0604);
    assert_int_equal(stile_file_replace("x", "three", 5, 3, &private, NULL), STILE_OK);
    assert_int_equal(mode_of("x"), 0400);
    must_put("x", "four", 4);
    assert_int_equal(mode_of("x"), 0400);
    assert_int_equal(stile_file_replace("y", "one", 3, 3, &private, NULL), STILE_OK);
    assert_int_equal(mode_of("y"), 0400);
    assert_int_equal(mode_of(".y.stile"), 0600);
    assert_int_equal(chmod("x", 06755), 0); /* nobody has looked at the new program */
    must_put("x", "five", 5);
    assert_int_equal(mode_of("x"), 0755);
    umask(old);
}

static void the_guard_is_for_all_that_may_replace_the_file(void **state)
{
    (void)state;
    assert_int_equal(mkdir("d", 0700), 0);
    assert_int_equal(chmod("d", 02770), 0);
    must_put("d/x", "one", 1);
    assert_int_equal(mode_of("d/.x.stile") & 0660, 0660);
    assert_int_equal(mode_of("d/.x.stile") & 0002, 0);
}

static void the_owner_is_kept(void **state)
{
    struct stat stat;
    (void)state;
    if (geteuid() != 0)
        skip();
    must_put("x", "one", 1);
    assert_int_equal(unlink(".x.stile"), 0);
    assert_int_equal(chown("x", 1234, 2345), 0);
    must_put("x", "two", 2);
    assert_int_equal(lstat("x", &stat), 0);
    assert_int_equal(stat.st_uid, 1234);
    assert_int_equal(stat.st_gid, 2345);
    assert_int_equal(lstat(".x.stile", &stat), 0);
    assert_int_equal(stat.st_uid, 1234);
}

/* As another user, in a child: 0, or the line that was not true. */
static int as_user(uid_t uid, int (*fn)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(setgid(uid) != 0 || setuid(uid) != 0 ? 255 : fn());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__;                                                                       \
    } while (0)

static int write_to_others_directories(void)
{
    struct stile_error err = {0};
    EXPECT(stile_file_replace("closed/x", "no", 2, 9, NULL, &err) == STILE_REFUSED);
    EXPECT(err.native == EACCES);
    EXPECT(stile_file_raise("closed/x", 9, NULL, &err) == STILE_REFUSED);
    EXPECT(put("open/x", "text", 9) == STILE_REFUSED); /* the guard is another user's */
    EXPECT(put("open/mine", "text", 9) == STILE_OK);
    EXPECT(put("group/x", "text", 9) == STILE_OK);
    struct stat stat; /* its group is not the writer's, so it gets no more than all others */
    EXPECT(lstat("group/x", &stat) == 0 && (stat.st_mode & 0777) == 0644);
    return 0;
}

static void others_may_what_the_directory_allows(void **state)
{
    struct stile_error err = {0};
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(".", 0755), 0);
    assert_int_equal(mkdir("closed", 0755), 0);
    assert_int_equal(mkdir("open", 0700) | chmod("open", 01777), 0);
    assert_int_equal(mkdir("group", 0700) | chown("group", 0, 1234) | chmod("group", 0770), 0);
    must_put("closed/x", "one", 1);
    must_put("open/x", "one", 1);
    assert_int_equal(chown("open/.x.stile", 2345, 2345), 0);
    must_put("group/x", "one", 1);
    assert_int_equal(
        chown("group/.x.stile", 0, 1234) | chown("group/x", 0, 77) | chmod("group/x", 0664), 0);
    assert_int_equal(as_user(1234, write_to_others_directories), 0);
    assert_string_equal(content("closed/x"), "one");
    assert_string_equal(content("group/x"), "text");
    assert_int_equal(stile_file_replace("open/mine", "no", 2, 10, NULL, &err), STILE_REFUSED);
    assert_non_null(strstr(err.message, "belongs to user 1234"));
}

/* ---- content of all sizes ---- */

struct feed {
    int fd;
    size_t size;
};

static char byte_at(size_t i)
{
    return (char)(i * 7 + i / 4096);
}

static void *feed(void *data)
{
    struct feed *feed = data;
    char chunk[1000];
    for (size_t i = 0; i < feed->size;) {
        size_t n = feed->size - i < sizeof chunk ? feed->size - i : sizeof chunk;
        for (size_t k = 0; k < n; k++)
            chunk[k] = byte_at(i + k);
        ssize_t done = write(feed->fd, chunk, n);
        i += done > 0 ? (size_t)done : 0;
    }
    close(feed->fd);
    return NULL;
}

static void put_from_pipe(size_t size, int flags)
{
    int ends[2];
    pthread_t thread;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(fcntl(ends[0], F_SETFL, flags), 0);
    struct feed source = {.fd = ends[1], .size = size};
    assert_int_equal(pthread_create(&thread, NULL, feed, &source), 0);
    assert_int_equal(stile_file_replace_from_fd("x", ends[0], 1, NULL, NULL), STILE_OK);
    pthread_join(thread, NULL);
    close(ends[0]);
}

static void content_comes_from_a_descriptor(void **state)
{
    static const size_t sizes[] = {0, 1, 65535, 65536, 65537, 3000000};
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof sizes / sizeof sizes[0]); i++) {
        size_t size = sizes[i / 2], n = 0;
        put_from_pipe(size, i % 2 ? O_NONBLOCK : 0);
        FILE *file = fopen("x", "re");
        assert_non_null(file);
        for (int c; (c = getc(file)) != EOF; n++)
            assert_int_equal((char)c, byte_at(n));
        fclose(file);
        assert_int_equal(n, size);
    }
    assert_int_equal(stile_file_replace_from_fd("x", -1, 1, NULL, NULL), STILE_REFUSED);
    assert_int_equal(entries("."), 2);
}

/* A pipe that is never closed: a stale writer does not wait for its end. */
static void a_stale_writer_is_refused_before_its_content_has_come(void **state)
{
    int ends[2];
    (void)state;
    must_put("x", "late", 5);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(stile_file_replace_from_fd("x", ends[0], 4, NULL, NULL), STILE_STALE);
    close(ends[0]);
    close(ends[1]);
}

/* Nor does it keep a later writer waiting, or pass because its check was early. */
static void a_writer_whose_content_is_slow_is_overtaken(void **state)
{
    int ends[2];
    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        _exit((int)stile_file_replace_from_fd("x", ends[0], 4, NULL, NULL));
    }
    while (access(".x.stile-0", F_OK) != 0) /* its check is done: it waits for content */
        sched_yield();
    must_put("x", "late", 5);
    close(ends[0]);
    close(ends[1]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), STILE_STALE);
    assert_string_equal(content("x"), "late");
    assert_int_equal(entries("."), 2);
}

static void a_limit_of_file_sizes_is_no_signal(void **state)
{
    struct rlimit old, low = {.rlim_cur = 100};
    (void)state;
    signal(SIGXFSZ, SIG_DFL); /* some shells start us with it ignored */
    must_put("x", "one", 1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    char text[200] = {0};
    struct stile_error err = {0};
    memset(text, 't', sizeof text - 1);
    enum stile_status large = stile_file_replace("x", text, strlen(text), 2, NULL, &err);
    enum stile_status guard = stile_file_raise("x", 2, NULL, NULL);
    enum stile_status created = stile_file_raise("new", 2, NULL, NULL);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(large, STILE_REFUSED);
    assert_int_equal(err.native, EFBIG);
    assert_int_equal(guard, STILE_REFUSED);
    assert_int_equal(created, STILE_REFUSED);
    assert_int_equal(highest("x"), 1);
    assert_int_equal(entries("."), 2);
}

/* ---- what dead writers leave ---- */

static int lock_of(const char *path)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    return fd;
}

static void left_overs_are_removed(void **state)
{
    (void)state;
    write_plainly(".x.stile-0", "half of");
    write_plainly(".x.stile-1", "");
    write_plainly(".x.stile-63", "content");
    int live = lock_of(".x.stile-5");
    write_plainly(".x.stile-64", "not ours");
    write_plainly(".xx.stile-0", "of another file");
    must_put("x", "one", 1);
    assert_string_equal(content("x"), "one");
    assert_int_equal(access(".x.stile-5", F_OK), 0);
    assert_int_equal(entries("."), 5);
    close(live);
    must_put("x", "two", 2);
    assert_int_equal(entries("."), 4);
}

static void a_stopped_writer_is_reported(void **state)
{
    struct stile_error err = {0};
    (void)state;
    must_put("x", "one", 1);
    int holder = lock_of(".x.stile");
    assert_int_equal(stile_file_raise("x", 2, STILE_FILE_OPTIONS(.wait_ms = 20), &err),
                     STILE_TIMEOUT);
    assert_string_equal(err.message, "another writer of `x` does not finish");
    assert_int_equal(highest("x"), 1); /* which needs no lock */
    assert_int_equal(put("x", "late", 0), STILE_MISUSE);
    close(holder);
    assert_int_equal(stile_file_raise("x", 2, STILE_FILE_OPTIONS(.wait_ms = 20), NULL), STILE_OK);
}

/* ---- a damaged guard ---- */

static void spoil(const char *path, off_t at, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, at), n);
    close(fd);
}

/* Each byte of a slot counts, those behind its text included. */
static void one_damaged_slot_changes_nothing(void **state)
{
    (void)state;
    for (off_t at = 0; at < 2 * SLOT; at += at % SLOT < 100 ? 1 : 501) {
        must_put("x", "one", 5);
        must_put("x", "two", 6);
        char text[2 * SLOT];
        FILE *file = fopen(".x.stile", "re");
        assert_non_null(file);
        assert_int_equal(fread(text, 1, sizeof text, file), sizeof text);
        fclose(file);
        text[at] ^= 1;
        spoil(".x.stile", at, text + at, 1);
        assert_int_equal(highest("x"), 6);
        assert_int_equal(put("x", "late", 5), STILE_STALE);
        must_put("x", "three", 6); /* which repairs it */
        spoil(".x.stile", at < SLOT ? SLOT : 0, "?", 1);
        assert_int_equal(highest("x"), 6);
        assert_int_equal(stile_file_guard_reset("x", 0, NULL, NULL), STILE_OK);
    }
}

static void expect_corrupt(void)
{
    struct stile_error err = {0};
    struct stile_file_guard guard;
    assert_int_equal(stile_file_replace("x", "new", 3, 99, NULL, &err), STILE_CORRUPT);
    assert_non_null(strstr(err.message, "is damaged"));
    assert_int_equal(stile_file_raise("x", 99, NULL, NULL), STILE_CORRUPT);
    assert_int_equal(stile_file_remove("x", 99, NULL, NULL), STILE_CORRUPT);
    assert_int_equal(stile_file_guard_show(&guard, "x", NULL), STILE_CORRUPT);
    assert_string_equal(content("x"), "one");
    assert_int_equal(stile_file_guard_reset("x", 7, "redis:a", NULL), STILE_OK);
    assert_int_equal(put("x", "late", 6), STILE_STALE);
    assert_string_equal(issuer("x"), "redis:a");
}

static void a_damaged_guard_is_not_an_empty_one(void **state)
{
    char slot[2 * SLOT];
    (void)state;
    for (int how = 0; how < 6; how++) {
        must_put("x", "one", 7);
        if (how == 0)
            assert_int_equal(truncate(".x.stile", 0), 0);
        else if (how == 1)
            write_plainly(".x.stile", "something else\n");
        else if (how == 2)
            assert_int_equal(truncate(".x.stile", 10), 0);
        else
            spoil(".x.stile", 20, "9", 1), spoil(".x.stile", SLOT + 20, "9", 1);
        if (how == 4) { /* zeroed, as by some file systems after a power cut */
            memset(slot, 0, sizeof slot);
            spoil(".x.stile", 0, slot, sizeof slot);
        }
        expect_corrupt();
    }
}

static void slots_of_one_sequence_that_differ_are_damaged(void **state)
{
    char slot[SLOT];
    (void)state;
    must_put("other", "one", 5);
    must_put("x", "one", 7);
    FILE *file = fopen(".other.stile", "re");
    assert_non_null(file);
    assert_int_equal(fread(slot, 1, sizeof slot, file), sizeof slot);
    fclose(file);
    spoil(".x.stile", SLOT, slot, sizeof slot);
    expect_corrupt();
}

static void a_guard_of_a_later_version_is_left_alone(void **state)
{
    char then[SLOT];
    (void)state;
    must_put("x", "one", 7);
    spoil(".x.stile", 12, "2", 1);
    spoil(".x.stile", SLOT + 12, "2", 1);
    memcpy(then, content(".x.stile"), sizeof then);
    assert_int_equal(put("x", "new", 9), STILE_UNSUPPORTED);
    assert_int_equal(stile_file_guard_reset("x", 9, NULL, NULL), STILE_UNSUPPORTED);
    assert_memory_equal(content(".x.stile"), then, sizeof then);
}

static void a_deleted_guard_has_seen_nothing(void **state)
{
    (void)state;
    must_put("x", "one", 7);
    assert_int_equal(unlink(".x.stile"), 0);
    assert_int_equal(highest("x"), 0);
    must_put("x", "two", 3);
    assert_int_equal(highest("x"), 3);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, file_kit_enter, file_kit_leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_smaller_token_is_refused),
        TEST(an_equal_token_passes_unless_strict),
        TEST(a_larger_token_is_remembered),
        TEST(a_raise_refuses_before_the_first_write),
        TEST(a_check_remembers_nothing),
        TEST(a_removal_leaves_the_token),
        TEST(a_token_of_another_issuer_is_refused),
        TEST(an_issuer_is_recorded_with_a_token_that_passes),
        TEST(a_reset_forgets),
        TEST(misuse_is_answered),
        TEST(a_symbolic_link_is_not_followed),
        TEST(the_guard_is_no_symbolic_link),
        TEST(only_regular_files_are_replaced),
        TEST(a_hard_link_is_a_name_of_its_own),
        TEST(a_directory_may_be_reached_through_a_link),
        TEST(long_names_have_guards),
        TEST(permissions_are_kept),
        TEST(the_guard_is_for_all_that_may_replace_the_file),
        TEST(the_owner_is_kept),
        TEST(others_may_what_the_directory_allows),
        TEST(content_comes_from_a_descriptor),
        TEST(a_stale_writer_is_refused_before_its_content_has_come),
        TEST(a_writer_whose_content_is_slow_is_overtaken),
        TEST(a_limit_of_file_sizes_is_no_signal),
        TEST(left_overs_are_removed),
        TEST(a_stopped_writer_is_reported),
        TEST(one_damaged_slot_changes_nothing),
        TEST(a_damaged_guard_is_not_an_empty_one),
        TEST(slots_of_one_sequence_that_differ_are_damaged),
        TEST(a_guard_of_a_later_version_is_left_alone),
        TEST(a_deleted_guard_has_seen_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
