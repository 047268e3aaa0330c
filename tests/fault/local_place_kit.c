/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/local_place_kit.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
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
