/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A holder is killed with -9 while another process waits: how long from kill() until the waiter's
 * acquire returns. Kills of stile's and of flock's holders take turns.
 *
 *   bench-kill DIR KILLS
 */
#include "bench.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct shared {
    uint32_t stage; /* see below; of the process that was started last */
    int64_t took_ns;
};

enum stage { STARTED = 1, WAITS, HOLDS };

static pid_t start(struct shared *shared, const struct subject *subject, const char *dir)
{
    shared->stage = STARTED;
    pid_t pid = bench_fork();
    if (pid == 0) {
        void *lock = subject->open(dir, "kill");
        bench_word_set(&shared->stage, WAITS);
        subject->take(lock);
        shared->took_ns = bench_now_ns();
        bench_word_set(&shared->stage, HOLDS);
        for (;;)
            pause();
    }
    return pid;
}

/* *holder: the present holder; becomes the next one. */
static int64_t kill_one(pid_t *holder, struct shared *shared, const struct subject *subject,
                        const char *dir)
{
    pid_t waiter = start(shared, subject, dir);
    bench_word_await(&shared->stage, WAITS);
    bench_await_asleep(waiter);
    int64_t kill_ns = bench_now_ns();
    kill(*holder, SIGKILL);
    bench_word_await(&shared->stage, HOLDS);
    bench_reap(*holder);
    *holder = waiter;
    return shared->took_ns - kill_ns;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        bench_die("usage: bench-kill DIR KILLS");
    const struct subject *subjects[] = {&subject_stile, &subject_flock};
    struct shared *shared[2];
    pid_t holder[2];
    for (int s = 0; s < 2; s++) {
        shared[s] = bench_share(sizeof(*shared[s]));
        holder[s] = start(shared[s], subjects[s], argv[1]);
        bench_word_await(&shared[s]->stage, HOLDS);
    }
    for (long i = bench_number(argv[2]); i > 0; i--)
        for (int s = 0; s < 2; s++)
            printf("{\"subject\": \"%s\", \"took_ns\": %ld}\n", subjects[s]->name,
                   (long)kill_one(&holder[s], shared[s], subjects[s], argv[1]));
    for (int s = 0; s < 2; s++) {
        kill(holder[s], SIGKILL);
        bench_reap(holder[s]);
    }
    return 0;
}
