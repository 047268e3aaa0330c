/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Guarded files when something goes wrong at a system call, at each one in turn: the call fails,
 * the process is killed there, or the power is cut.
 *
 * After a power cut a file has what was synced last, what was written since, or a part of it; and
 * each name is there as of the last sync of the directory, or as of now. All combinations are made
 * in a directory of their own, and looked at: the file has its old content or the new one, the
 * guard is never behind what the file has or what was acknowledged, and it is never damaged. */
#include "guard/file_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard/file_calls.h"

#define SLOT      4096
#define CALLS_MAX 300

struct scene {
    const char *name;
    const char *old; /* content before, "": no file */
    uint64_t acked;  /* the highest token before */
    enum stile_status (*act)(void);
    const char *now; /* content afterwards */
};

#define TOKEN 6 /* of every act */

static enum stile_status replace(void)
{
    return put("x", "the new one", TOKEN);
}

static enum stile_status replace_again(void)
{
    return put("x", "and another", TOKEN);
}

static enum stile_status replace_with_issuer(void)
{
    return stile_file_replace("x", "the new one", 11, TOKEN, STILE_FILE_OPTIONS(.issuer = "a:b"),
                              NULL);
}

static enum stile_status raise_only(void)
{
    return stile_file_raise("x", TOKEN, NULL, NULL);
}

static enum stile_status remove_it(void)
{
    return stile_file_remove("x", TOKEN, NULL, NULL);
}

static const struct scene scenes[] = {
    {"first", "", 0, replace, "the new one"},
    {"larger", "the old one", 5, replace, "the new one"},
    {"equal", "the old one", 6, replace, "the new one"},
    {"issuer", "the old one", 6, replace_with_issuer, "the new one"},
    {"raise", "the old one", 5, raise_only, "the old one"},
    {"remove", "the old one", 5, remove_it, ""},
};

#define N_SCENES (sizeof scenes / sizeof scenes[0])

static void set(const struct scene *scene)
{
    unlink("x");
    unlink(".x.stile");
    if (scene->acked > 1)
        must_put("x", scene->old, scene->acked - 1); /* the slots have changed places before */
    if (scene->acked)
        must_put("x", scene->old, scene->acked);
}

/* ---- what must be true whatever happened ---- */

static void check(const struct scene *scene, const char *path, bool acknowledged, unsigned call)
{
    struct stile_error err = {0};
    struct stile_file_guard guard;
    const char *text = content(path);
    if (stile_file_guard_show(&guard, path, &err) != STILE_OK)
        fail_msg("%s, call %u: %s", scene->name, call, err.message);
    bool is_old = strcmp(text, scene->old) == 0, is_new = strcmp(text, scene->now) == 0;
    if (!is_old && !is_new)
        fail_msg("%s, call %u: the file has `%s`", scene->name, call, text);
    if (guard.highest < scene->acked || (!is_old && guard.highest < TOKEN))
        fail_msg("%s, call %u: `%s` with a guard of %d", scene->name, call, text,
                 (int)guard.highest);
    if (acknowledged && (!is_new || guard.highest != TOKEN))
        fail_msg("%s, call %u: acknowledged, but `%s` with %d", scene->name, call, text,
                 (int)guard.highest);
}

/* The next holder finds nothing in its way, and nothing is left over. */
static void go_on(const struct scene *scene, unsigned call)
{
    struct stile_error err = {0};
    if (scene->acked && put("x", "late", scene->acked - 1) != STILE_STALE)
        fail_msg("%s, call %u: a late write has passed", scene->name, call);
    if (stile_file_replace("x", "next", 4, TOKEN + 1, NULL, &err) != STILE_OK)
        fail_msg("%s, call %u: %s", scene->name, call, err.message);
    assert_string_equal(content("x"), "next");
    if (entries(".") != 2)
        fail_msg("%s, call %u: something is left over", scene->name, call);
}

/* ---- calls that fail ---- */

/* False: there is no such call. */
static bool one_fails(const struct scene *scene, enum calls_end end, unsigned at, int error)
{
    set(scene);
    unsigned before = open_descriptors();
    calls_begin(end, at, error);
    enum stile_status status = scene->act();
    calls_finish();
    bool reached = calls.seen > at;
    if (open_descriptors() != before)
        fail_msg("%s, call %u: a descriptor is left open", scene->name, at);
    if (status != STILE_OK && status != STILE_REFUSED && status != STILE_UNCERTAIN &&
        status != STILE_NOMEM && status != STILE_UNSUPPORTED)
        fail_msg("%s, call %u: %s", scene->name, at, stile_status_name(status));
    check(scene, "x", status == STILE_OK, at);
    if (status != STILE_OK && status != STILE_UNCERTAIN)
        assert_string_equal(content("x"), scene->old);
    go_on(scene, at);
    return reached;
}

static void each_call_may_fail(void **state)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT, EROFS, EACCES, ENOMEM};
    (void)state;
    for (size_t i = 0; i < N_SCENES; i++) {
        for (size_t k = 0; k < sizeof errors / sizeof errors[0]; k++) {
            unsigned at = 0;
            while (one_fails(&scenes[i], CALLS_FAIL, at, errors[k]))
                at++;
            assert_in_range(at, 10, CALLS_MAX);
        }
        for (unsigned at = 0; one_fails(&scenes[i], CALLS_FAIL_ON, at, ENOSPC);)
            at++;
    }
}

/* ---- kill -9 ---- */

/* False: it was not reached. */
static bool one_is_killed(const struct scene *scene, enum calls_end end, unsigned at)
{
    int status;
    set(scene);
    pid_t pid = fork();
    if (pid == 0) {
        calls_begin(end, at, 0);
        scene->act();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    check(scene, "x", WIFEXITED(status), at);
    go_on(scene, at);
    return WIFSIGNALED(status);
}

static void a_kill_at_each_call_leaves_old_or_new(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SCENES; i++) {
        unsigned before = 0, half = 0;
        while (one_is_killed(&scenes[i], CALLS_KILL, before))
            before++;
        while (one_is_killed(&scenes[i], CALLS_KILL_HALF, half))
            half++;
        assert_in_range(before, 10, CALLS_MAX);
        assert_int_equal(before, half);
    }
}

/* ---- power cuts ---- */

#define IMAGE_MAX (2 * SLOT)
#define NODES     64
#define NONE      (-1)

static const char *const names[] = {"x", ".x.stile", ".x.stile-0", ".x.stile-1"};
#define N_NAMES (sizeof names / sizeof names[0])

struct image {
    size_t size;
    char bytes[IMAGE_MAX];
};

/* The disk: the files there have been, and which name stands for which of them. */
static struct disk {
    struct node {
        ino_t ino;
        struct image synced;
        struct image lost; /* of a failed sync */
    } nodes[NODES];
    int n_nodes;
    int durable[N_NAMES];
    const struct scene *scene;
    bool acknowledged;
    unsigned cuts;
} disk;

static void read_image(struct image *image, int fd)
{
    ssize_t n = pread(fd, image->bytes, sizeof image->bytes, 0);
    assert_true(n >= 0);
    image->size = (size_t)n;
    memset(image->bytes + n, 0, sizeof image->bytes - (size_t)n);
}

static int node_new(ino_t ino)
{
    assert_true(disk.n_nodes < NODES);
    disk.nodes[disk.n_nodes] = (struct node){.ino = ino};
    return disk.n_nodes++;
}

/* The latest: the numbers of removed files are used again. */
static int node_of(ino_t ino)
{
    for (int i = disk.n_nodes; i-- > 0;) {
        if (disk.nodes[i].ino == ino)
            return i;
    }
    return NONE;
}

static int node_now(size_t name)
{
    struct stat stat;
    return lstat(names[name], &stat) == 0 ? node_of(stat.st_ino) : NONE;
}

static void on_created(int fd)
{
    struct stat stat;
    assert_int_equal(fstat(fd, &stat), 0);
    node_new(stat.st_ino);
}

/* After a sync that failed the kernel takes a block for clean until it is written again: a later
 * sync succeeds without it. */
static void sync_node(struct node *node, int fd)
{
    struct image now;
    read_image(&now, fd);
    for (size_t at = 0; at < now.size; at += SLOT) {
        bool lost = node->lost.size > 0 && memcmp(now.bytes + at, node->lost.bytes + at, SLOT) == 0;
        if (!lost)
            memcpy(node->synced.bytes + at, now.bytes + at, SLOT);
    }
    node->synced.size = now.size;
}

static struct node *node_behind(int fd) /* NULL: a directory */
{
    struct stat stat;
    assert_int_equal(fstat(fd, &stat), 0);
    return S_ISREG(stat.st_mode) ? &disk.nodes[node_of(stat.st_ino)] : NULL;
}

static void on_written(int fd)
{
    node_behind(fd)->lost.size = 0;
}

static void on_not_synced(int fd)
{
    struct node *node = node_behind(fd);
    if (!node)
        return;
    read_image(&node->lost, fd);
    for (size_t at = 0; at < IMAGE_MAX; at += SLOT) { /* what was on the disk before is not lost */
        if (memcmp(node->lost.bytes + at, node->synced.bytes + at, SLOT) == 0)
            node->lost.bytes[at] ^= 1;
    }
}

static void on_synced(int fd)
{
    struct node *node = node_behind(fd);
    if (node)
        sync_node(node, fd);
    for (size_t i = 0; i < N_NAMES && !node; i++)
        disk.durable[i] = node_now(i);
}

/* As written now; as synced, if no name leads to it. */
static void image_now(struct image *image, int node)
{
    *image = disk.nodes[node].synced;
    for (size_t i = 0; i < N_NAMES; i++) {
        int fd = node_now(i) == node ? open(names[i], O_RDONLY | O_CLOEXEC) : -1;
        if (fd < 0)
            continue;
        read_image(image, fd);
        close(fd);
        return;
    }
}

/* The ways in which a cut can leave a file: as synced, as written, or with only the first or the
 * last part of each block of what was written since. False: there are no more. */
static bool image_left(struct image *image, int node, unsigned way)
{
    const struct image *synced = &disk.nodes[node].synced;
    struct image now;
    image_now(&now, node);
    bool same = now.size == synced->size && memcmp(now.bytes, synced->bytes, IMAGE_MAX) == 0;
    if (way > (same ? 0 : 3))
        return false;
    *image = way == 0 ? *synced : now;
    for (size_t i = 0; i < image->size && way >= 2; i++) {
        if ((i % SLOT < 30) == (way == 2)) /* in the middle of a slot's text */
            image->bytes[i] = synced->bytes[i];
    }
    return true;
}

static void lay_out(size_t name, const struct image *image)
{
    char path[64];
    snprintf(path, sizeof path, "cut/%s", names[name]);
    if (!image) {
        unlink(path);
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, image->bytes, image->size), image->size);
    close(fd);
}

/* All that can be found after a cut at this moment, name by name. */
static void cut_from(size_t name)
{
    if (name == N_NAMES) {
        check(disk.scene, "cut/x", disk.acknowledged, calls.seen);
        disk.cuts++;
        return;
    }
    int choices[2] = {disk.durable[name], node_now(name)};
    for (int i = 0; i < 2 && (i == 0 || choices[0] != choices[1]); i++) {
        struct image image;
        if (choices[i] == NONE) {
            lay_out(name, NULL);
            cut_from(name + 1);
            continue;
        }
        for (unsigned way = 0; image_left(&image, choices[i], way); way++) {
            lay_out(name, &image);
            cut_from(name + 1);
        }
    }
}

static void cut(void)
{
    assert_int_equal(mkdir("cut", 0700), 0);
    cut_from(0);
    remove_tree("cut");
}

static void disk_start(const struct scene *scene)
{
    disk = (struct disk){.scene = scene};
    for (size_t i = 0; i < N_NAMES; i++) {
        struct stat stat;
        disk.durable[i] = NONE;
        if (lstat(names[i], &stat) != 0)
            continue;
        disk.durable[i] = node_new(stat.st_ino);
        int fd = open(names[i], O_RDONLY | O_CLOEXEC);
        read_image(&disk.nodes[disk.durable[i]].synced, fd);
        close(fd);
    }
}

static void hook(void (*changed)(void))
{
    calls.created = on_created;
    calls.written = on_written;
    calls.synced = on_synced;
    calls.not_synced = on_not_synced;
    calls.changed = changed;
}

static void act_with_cuts(enum stile_status (*act)(void))
{
    hook(cut);
    calls_begin(CALLS_FAIL, UINT32_MAX, 0);
    enum stile_status status = act();
    calls_finish();
    assert_int_equal(status, STILE_OK);
    disk.acknowledged = true;
    cut();
    calls.changed = NULL;
}

static void a_power_cut_at_each_call_loses_nothing(void **state)
{
    unsigned cuts = 0;
    (void)state;
    for (size_t i = 0; i < N_SCENES; i++) {
        set(&scenes[i]);
        disk_start(&scenes[i]);
        act_with_cuts(scenes[i].act);
        cuts += disk.cuts;
    }
    print_message("# %u directories after a power cut\n", cuts);
}

/* Whether there is such a call. */
static bool goes_wrong_at(const struct scene *scene, enum calls_end end, unsigned at)
{
    if (setjmp(calls.away) != 0)
        return true;
    calls_begin(end, at, EIO);
    scene->act();
    calls_finish();
    return calls.seen > at;
}

/* A writer fails or dies, and another one with the same token is acknowledged. It may not rely on
 * what the first one had written and not synced. */
static bool wrong_then_cut(const struct scene *scene, enum calls_end end, unsigned at)
{
    int lowest = dup(0); /* what the writer opens comes from here on */
    set(scene);
    disk_start(scene);
    hook(NULL);
    bool reached = goes_wrong_at(scene, end, at);
    for (int fd = lowest; fd < lowest + 16; fd++)
        close(fd);
    char old[64];
    snprintf(old, sizeof old, "%s", content("x"));
    struct scene again = {scene->name, old, scene->acked, replace_again, "and another"};
    disk.scene = &again;
    /* Content that was not synced with its directory is new to the disk, and another case. */
    if (reached && strcmp(old, scene->old) == 0)
        act_with_cuts(replace_again);
    return reached;
}

static void what_a_killed_writer_wrote_is_synced_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SCENES; i++) {
        for (unsigned at = 0; wrong_then_cut(&scenes[i], CALLS_LEAVE, at);)
            at++;
    }
}

static void what_was_not_synced_is_written_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SCENES; i++) {
        for (unsigned at = 0; wrong_then_cut(&scenes[i], CALLS_FAIL, at);)
            at++;
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, file_kit_enter, file_kit_leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_call_may_fail),
        TEST(a_kill_at_each_call_leaves_old_or_new),
        TEST(a_power_cut_at_each_call_loses_nothing),
        TEST(what_a_killed_writer_wrote_is_synced_again),
        TEST(what_was_not_synced_is_written_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
