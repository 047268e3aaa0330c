/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* At most two at a time, however many ask: slots protect an expensive resource from overload.
 *
 * Here six threads of one process; if started twice, both processes share the same two slots. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include <stile.h>

#define JOBS  6
#define SLOTS 2

static atomic_int running, most;

static void convert_a_video(int job)
{
    const struct timespec a_while = {.tv_nsec = 20000000};
    int now = atomic_fetch_add(&running, 1) + 1, before = atomic_load(&most);
    while (now > before && !atomic_compare_exchange_weak(&most, &before, now))
        ;
    printf("job %d works\n", job);
    nanosleep(&a_while, NULL);
    atomic_fetch_sub(&running, 1);
}

struct job {
    pthread_t thread;
    struct stile_client *client;
    int number, failed;
};

/* One client serves all threads; each has its own lock handle. */
static void *run_job(void *arg)
{
    struct job *job = arg;
    struct stile_lock *lock;
    struct stile_error err;
    job->failed = 1;
    if (stile_lock_new(&lock, job->client, "converter",
                       STILE_LOCK_OPTIONS(.mode = STILE_SLOTS, .slots = SLOTS), &err) ||
        stile_lock_acquire(lock, -1, &err)) {
        fprintf(stderr, "job %d: %s\n", job->number, err.message);
        return NULL;
    }
    convert_a_video(job->number);
    job->failed = stile_lock_release(lock, &err) != STILE_OK;
    if (job->failed)
        fprintf(stderr, "job %d: %s\n", job->number, err.message);
    stile_lock_free(lock);
    return NULL;
}

int main(void)
{
    struct stile_client *client;
    struct stile_error err;
    struct job jobs[JOBS];
    int started = 0, failed = 0;

    if (stile_client_open(&client, NULL, NULL, &err)) {
        fprintf(stderr, "pool: %s\n", err.message);
        return 69;
    }
    for (; started < JOBS; started++) {
        jobs[started] = (struct job){.client = client, .number = started + 1};
        if (pthread_create(&jobs[started].thread, NULL, run_job, &jobs[started]) != 0)
            break;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(jobs[i].thread, NULL);
        failed += jobs[i].failed;
    }
    printf("%d jobs done, never more than %d at once\n", started - failed, atomic_load(&most));
    stile_client_close(client);
    return started == JOBS && failed == 0 ? 0 : 1;
}
