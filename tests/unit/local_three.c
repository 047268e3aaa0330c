/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/local_three.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

char dir[64];
struct party a, b, c;

int three_open(void **state)
{
    (void)state;
    kit_make_dir(dir);
    kit_open(&a, dir);
    kit_open(&b, dir);
    kit_open(&c, dir);
    return 0;
}

int three_close(void **state)
{
    (void)state;
    kit_settle();
    kit_check(kit_store(&a));
    kit_close(&a);
    kit_close(&b);
    kit_close(&c);
    kit_remove_dir(dir);
    return 0;
}

struct other other_start(const char *name, struct bid_options options, enum said said)
{
    struct other other;
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    other.pid = fork();
    assert_true(other.pid >= 0);
    if (other.pid == 0) {
        struct party party;
        kit_be_child();
        if (kit_try_open(&party, dir, NULL) != STILE_OK)
            _exit(3);
        struct bid *bid = kit_bid_with(&party, name, options);
        if (kit_wait(bid) != said)
            _exit(4);
        if (write(ready[1], "r", 1) != 1)
            _exit(5);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return other;
}

void other_kill(struct other *other)
{
    kill(other->pid, SIGKILL);
    assert_int_equal(waitpid(other->pid, NULL, 0), other->pid);
}
