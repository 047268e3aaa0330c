/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that claim jobs and finish them, as fast as they can, until the queue is empty; then
 * whether each job came exactly once, and no worker has one whose claim was not answered. A job's
 * payload is its number, from 0 up. Finished jobs are acknowledged with the next claim.
 *
 *   bench-jobs URL QUEUE WORKERS BATCH JOBS
 */
#include "bench.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stile.h"

struct shared {
    _Alignas(64) uint32_t go;
    uint32_t done;
    uint32_t ready[64];
    uint8_t seen[]; /* how often */
};

/* A job that comes a second time was claimed before, but the answer was lost. */
static void check(struct shared *shared, const struct stile_job *jobs, size_t n, long total)
{
    for (size_t i = 0; i < n; i++) {
        char text[24] = "";
        memcpy(text, jobs[i].payload, jobs[i].payload_size < 23 ? jobs[i].payload_size : 23);
        long number = atol(text);
        if (number < 0 || number >= total)
            bench_die("bench-jobs: a job that is not ours: %s", text);
        if (jobs[i].tries != 1)
            bench_die("bench-jobs: job %" PRIu64 " is claimed for the %uth time: %s", jobs[i].id,
                      jobs[i].tries, jobs[i].last_error);
        __atomic_fetch_add(&shared->seen[number], 1, __ATOMIC_RELAXED);
    }
}

static void count(struct shared *shared, const struct stile_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (jobs[i].status != STILE_OK)
            bench_die("bench-jobs: a job could not be finished: %s",
                      stile_status_name(jobs[i].status));
    __atomic_fetch_add(&shared->done, (uint32_t)n, __ATOMIC_RELAXED);
}

static int show_unheard(const struct stile_job *job, void *data)
{
    size_t *unheard = data;
    if (job->state == STILE_JOB_CLAIMED && job->pid == getpid()) {
        fprintf(stderr,
                "bench-jobs: job %" PRIu64 " is claimed by us, %d, with token %" PRIu64
                ", for %" PRId64 " ms more\n",
                job->id, (int)getpid(), job->token, job->due_ms);
        ++*unheard;
    }
    return 0;
}

/* Of a worker whose claim came back empty, when all jobs it knows of are finished. */
static void check_none_is_ours(struct stile_client *client, const char *queue, long total)
{
    struct stile_error err;
    size_t unheard = 0;
    if (stile_jobs_list(client, queue, STILE_JOBS_OPTIONS(.max = (size_t)total), show_unheard,
                        &unheard, &err))
        bench_die("bench-jobs: %s", err.message);
    if (unheard > 0)
        bench_die("bench-jobs: %zu claimed jobs that their worker never got", unheard);
}

/* What is locked by others at this moment is theirs as a rule, but not always. */
static void rest(struct shared *shared, struct stile_client *client, const char *queue, long total)
{
    check_none_is_ours(client, queue, total);
    if (__atomic_load_n(&shared->done, __ATOMIC_RELAXED) >= (uint32_t)total)
        _exit(0);
    bench_sleep_us(1000);
}

static void work(struct shared *shared, char **argv, long worker, long batch, long total)
{
    struct stile_client *client;
    struct stile_error err = {0};
    struct stile_job *jobs, *done = NULL;
    size_t n = 0, n_done = 0;
    if (stile_client_open(&client, argv[1], NULL, &err))
        bench_die("bench-jobs: %s", err.message);
    bench_word_set(&shared->ready[worker], 1);
    bench_word_await(&shared->go, 1);
    for (;;) {
        enum stile_status status = stile_jobs_claim(
            &jobs, &n, client, argv[2],
            STILE_JOBS_OPTIONS(.max = (size_t)batch, .done = done, .n_done = n_done), &err);
        if (status && status != STILE_TIMEOUT)
            bench_die("bench-jobs: %s", err.message);
        count(shared, done, n_done);
        stile_jobs_free(done, n_done);
        check(shared, jobs, n, total);
        done = jobs;
        n_done = n;
        if (status)
            rest(shared, client, argv[2], total);
    }
}

/* Until all is done. A worker that ends earlier has failed, and has printed why. */
static void await_all(struct shared *shared, long total)
{
    while (__atomic_load_n(&shared->done, __ATOMIC_RELAXED) < (uint32_t)total) {
        siginfo_t ended = {0};
        waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT);
        if (ended.si_pid != 0 && ended.si_status != 0)
            bench_die("bench-jobs: a worker has ended before all was done");
        bench_sleep_us(1000);
    }
}

static void reap_all(const pid_t *pids, long workers)
{
    int how;
    for (long i = 0; i < workers; i++) {
        while (waitpid(pids[i], &how, 0) < 0 && errno == EINTR)
            ;
        if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
            bench_die("bench-jobs: a worker has ended badly");
    }
}

static void report(const struct shared *shared, long workers, long batch, long total,
                   int64_t took_ns)
{
    long lost = 0, twice = 0;
    for (long i = 0; i < total; i++) {
        lost += shared->seen[i] == 0;
        twice += shared->seen[i] > 1;
    }
    printf("{\"workers\": %ld, \"batch\": %ld, \"jobs\": %ld, \"per_s\": %.0f, \"lost\": %ld, "
           "\"twice\": %ld}\n",
           workers, batch, total, (double)total * 1e9 / (double)took_ns, lost, twice);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        bench_die("usage: bench-jobs URL QUEUE WORKERS BATCH JOBS");
    long workers = bench_number(argv[3]), batch = bench_number(argv[4]),
         total = bench_number(argv[5]);
    struct shared *shared = bench_share(sizeof *shared + (size_t)total);
    pid_t pids[64];
    if (workers > 64)
        bench_die("bench-jobs: at most 64 workers");
    for (long i = 0; i < workers; i++)
        if ((pids[i] = bench_fork()) == 0)
            work(shared, argv, i, batch, total);
    for (long i = 0; i < workers; i++)
        bench_word_await(&shared->ready[i], 1);
    int64_t start_ns = bench_now_ns();
    bench_word_set(&shared->go, 1);
    await_all(shared, total);
    int64_t took_ns = bench_now_ns() - start_ns;
    reap_all(pids, workers);
    report(shared, workers, batch, total, took_ns);
    return 0;
}
