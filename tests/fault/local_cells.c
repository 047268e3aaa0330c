/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Cells of the local engine in several processes: killed, stopped, forked, with threads, and with a
 * file that grows under them. */
#include "fault/local_cells_kit.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engines/local/liveness.h"

static uint8_t value[STILE_CELL_MAX];

static struct stile_cell *read_cell(struct stile_client *client, const char *key)
{
    struct stile_cell *cell;
    if (stile_cell_get(&cell, client, key, &why))
        fail_msg("%s", why.message);
    return cell;
}

static pid_t spawn(int (*act)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        kit_be_child();
        _exit(act());
    }
    return pid;
}

static int ending_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* What a child has done, in memory that its end does not change. */
static struct progress {
    volatile uint64_t begun, done; /* versions */
    volatile unsigned size;
    volatile int ready;
} * progress;

static size_t size_of(uint64_t version)
{
    return version % 5 == 0 ? 30000 + version % 1000 : version % 300;
}

/* ---- killed ---- */

/* A cell, and others that end and drop one another. */
static int write_for_ever(void)
{
    char brief[32];
    struct stile_client *client = cells_open();
    for (;;) {
        uint64_t version = progress->begun = progress->done + 1, written;
        cells_fill(value, size_of(version), "k", (unsigned)version);
        if (stile_cell_put(&written, client, "k", value, size_of(version),
                           STILE_CELL_OPTIONS(.token = version), &why) ||
            written != version)
            return 1;
        progress->done = version;
        snprintf(brief, sizeof brief, "brief %llu", (unsigned long long)version);
        if (stile_cell_put(NULL, client, brief, value, size_of(version),
                           STILE_CELL_OPTIONS(.keep_ms = 1), &why))
            return 1;
    }
}

/* Whatever was answered is there, and what was not is there as a whole or not at all. */
static void check_after_kill(void)
{
    struct stile_client *client = cells_open();
    struct stile_cell *cell = read_cell(client, "k");
    if (cell->version != progress->done && cell->version != progress->begun)
        fail_msg("version %llu, of %llu answered", (unsigned long long)cell->version,
                 (unsigned long long)progress->done);
    assert_int_equal(cell->token, cell->version);
    if (cell->version) {
        assert_int_equal(cell->size, size_of(cell->version));
        assert_true(cells_is_filled(cell, (unsigned)cell->version));
    }
    progress->done = cell->version;
    stile_cell_free(cell);
    assert_status(cells_put_text(client, "other", "still works"), OK);
    stile_client_close(client);
}

static void test_a_killed_writer_leaves_the_old_or_the_new(void **state)
{
    (void)state;
    for (unsigned i = cells_rounds(25, 1000); i > 0; i--) {
        uint64_t from = progress->done;
        pid_t pid = spawn(write_for_ever);
        while (progress->done < from + i % 4)
            sched_yield();
        struct timespec nap = {.tv_nsec = (long)(kit_random() % 6000000)};
        nanosleep(&nap, NULL);
        kill(pid, SIGKILL);
        assert_int_equal(ending_of(pid), 128 + SIGKILL);
        check_after_kill();
    }
    assert_true(progress->done > 25);
}

/* ---- stopped ---- */

static int stop_inside(void)
{
    char path[128];
    place_path(path, "live");
    int fd = open(path, O_RDWR);
    if (local_liveness_lock(fd, LIVE_CELLS, true))
        return 1;
    progress->ready = 1;
    for (;;)
        pause();
}

static void test_a_stopped_writer_is_not_waited_for(void **state)
{
    (void)state;
    struct stile_client *client = cells_open();
    struct stile_cell *cell;
    assert_status(cells_put_text(client, "k", "before"), OK);
    progress->ready = 0;
    pid_t pid = spawn(stop_inside);
    while (!progress->ready)
        sched_yield();
    alarm(30); /* more is a hang */
    assert_status(stile_cell_get(&cell, client, "k", &why), UNREACHABLE);
    assert_non_null(strstr(why.message, "is it stopped"));
    assert_status(cells_put_text(client, "k", "meanwhile"), UNREACHABLE);
    alarm(0);
    kill(pid, SIGKILL);
    ending_of(pid);
    assert_status(cells_put_text(client, "k", "after"), OK);
    stile_client_close(client);
}

/* ---- fork ---- */

static struct stile_client *inherited;

static int use_after_fork(void)
{
    struct stile_cell *cell;
    if (stile_cell_get(&cell, inherited, "k", &why) != STILE_MISUSE)
        return 1;
    struct stile_client *own = cells_open();
    if (cells_put_text(own, "k", "from the child"))
        return 2;
    stile_client_close(own);
    stile_client_close(inherited);
    return 0;
}

static void test_a_forked_child_opens_its_own(void **state)
{
    (void)state;
    inherited = cells_open();
    assert_status(cells_put_text(inherited, "k", "from the parent"), OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ending_of(spawn(use_after_fork)), 0);
        struct stile_cell *cell = read_cell(inherited, "k");
        assert_string_equal(cell->value, "from the child");
        stile_cell_free(cell);
        assert_status(cells_put_text(inherited, "k", "from the parent"), OK);
    }
    stile_client_close(inherited);
}

/* ---- one file, several clients ---- */

static int add_one(struct stile_cell_next *next, const struct stile_cell *now, void *data)
{
    char *text = data;
    next->value = text;
    next->size = (size_t)sprintf(text, "%d", now->version ? atoi(now->value) + 1 : 1);
    return 0;
}

#define COUNTS 30

static void *count(void *data)
{
    char text[32];
    for (int i = 0; i < COUNTS; i++)
        if (stile_cell_update(NULL, data, "count", add_one, text, STILE_CELL_OPTIONS(.tries = 1000),
                              NULL))
            return data;
    return NULL;
}

static void test_clients_of_one_process_share_the_file(void **state)
{
    (void)state;
    struct stile_client *clients[3];
    pthread_t threads[6];
    void *failed;
    for (int i = 0; i < 3; i++)
        clients[i] = cells_open();
    for (int i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count, clients[i / 2]), 0);
    for (int i = 0; i < 6; i++) {
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    stile_client_close(clients[0]);
    struct stile_cell *cell = read_cell(clients[1], "count");
    assert_int_equal(atoi(cell->value), 6 * COUNTS);
    stile_cell_free(cell);
    stile_client_close(clients[1]);
    assert_status(cells_put_text(clients[2], "count", "0"), OK);
    stile_client_close(clients[2]);
}

/* ---- growing ---- */

#define WRITERS 3

static int writer;

static int write_many(void)
{
    char key[32];
    struct stile_client *client = cells_open();
    for (unsigned i = 0; i < progress->size; i++) {
        snprintf(key, sizeof key, "big %d %u", writer, i);
        cells_fill(value, sizeof value, key, i);
        if (cells_put(client, key, value, sizeof value, 0)) {
            fprintf(stderr, "# %s\n", why.message);
            return 1;
        }
    }
    stile_client_close(client);
    return 0;
}

static int check_one(const struct stile_cell *cell, void *data)
{
    unsigned *n = data;
    assert_int_equal(cell->size, sizeof value);
    ++*n;
    return 0;
}

/* Some processes fill it at once, each with a map that the others outgrow; one only reads. */
static void test_the_file_grows_under_all_of_them(void **state)
{
    (void)state;
    pid_t pids[WRITERS];
    char key[32];
    unsigned n = 0;
    struct stile_client *client = cells_open();
    assert_status(cells_put_text(client, "small", "before it grew"), OK);
    progress->size = cells_rounds(400, 1100); /* 75 or 206 MB in all */
    for (writer = 0; writer < WRITERS; writer++)
        pids[writer] = spawn(write_many);
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(ending_of(pids[i]), 0);
    assert_status(stile_cell_list(client, "big ", check_one, &n, &why), OK);
    assert_int_equal(n, WRITERS * progress->size);
    for (unsigned i = 0; i < progress->size; i += 37) {
        snprintf(key, sizeof key, "big %u %u", i % WRITERS, i);
        struct stile_cell *cell = read_cell(client, key);
        assert_true(cell->size == sizeof value && cells_is_filled(cell, i));
        stile_cell_free(cell);
    }
    struct stile_cell *small = read_cell(client, "small");
    assert_string_equal(small->value, "before it grew");
    stile_cell_free(small);
    stile_client_close(client);
}

static int make_progress(void **state)
{
    progress = child_shared(sizeof *progress);
    (void)state;
    return 0;
}

int main(void)
{
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, place_make, place_remove)
    const struct CMUnitTest tests[] = {
        IN_PLACE(test_a_killed_writer_leaves_the_old_or_the_new),
        IN_PLACE(test_a_stopped_writer_is_not_waited_for),
        IN_PLACE(test_a_forked_child_opens_its_own),
        IN_PLACE(test_clients_of_one_process_share_the_file),
        IN_PLACE(test_the_file_grows_under_all_of_them),
    };
    return cmocka_run_group_tests(tests, make_progress, NULL);
}
