/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/file_kit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int remove_one(const char *path, const struct stat *stat, int flag, struct FTW *ftw)
{
    (void)stat, (void)flag, (void)ftw;
    return remove(path);
}

void remove_tree(const char *dir)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int file_kit_enter(void **state)
{
    /* In memory where that is possible: the tests sync without end. */
    char dir[32];
    snprintf(dir, sizeof dir, "%s/stile-file-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(dir) || chdir(dir) != 0)
        return -1;
    *state = strdup(dir);
    return 0;
}

int file_kit_leave(void **state)
{
    if (chdir("/") != 0)
        return -1;
    remove_tree(*state);
    free(*state);
    return 0;
}

enum stile_status put(const char *path, const char *text, uint64_t token)
{
    return stile_file_replace(path, text, strlen(text), token, NULL, NULL);
}

void must_put(const char *path, const char *text, uint64_t token)
{
    struct stile_error err = {0};
    if (stile_file_replace(path, text, strlen(text), token, NULL, &err) != STILE_OK)
        fail_msg("%s", err.message);
}

const char *content(const char *path)
{
    static char text[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd < 0)
        assert_int_equal(errno, ENOENT);
    else
        close(fd);
    assert_true(n >= 0);
    text[n] = '\0';
    return text;
}

void write_plainly(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static struct stile_file_guard show(const char *path)
{
    struct stile_file_guard guard;
    struct stile_error err = {0};
    if (stile_file_guard_show(&guard, path, &err) != STILE_OK)
        fail_msg("%s", err.message);
    return guard;
}

uint64_t highest(const char *path)
{
    return show(path).highest;
}

const char *issuer(const char *path)
{
    static struct stile_file_guard guard;
    guard = show(path);
    return guard.issuer;
}

unsigned entries(const char *dir)
{
    DIR *open = opendir(dir);
    unsigned n = 0;
    assert_non_null(open);
    for (struct dirent *entry; (entry = readdir(open)) != NULL;)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(open);
    return n;
}

unsigned open_descriptors(void)
{
    return entries("/proc/self/fd") - 1; /* without the one that reads the directory */
}
