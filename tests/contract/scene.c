/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "contract.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* For a call that never comes back; every wait of a test itself ends long before. */
#define WATCHDOG_S 200

struct stile_error why;

void check_status_at(enum stile_status want, enum stile_status got, const char *call,
                     const char *file, int line)
{
    if (want == got)
        return;
    print_error("%s\n    is %s, not %s%s%s\n", call, stile_status_name(got),
                stile_status_name(want), why.status ? ": " : "", why.status ? why.message : "");
    _fail(file, line);
}

/* ---- a test's beginning and end ---- */

static void hangs(int signal)
{
    static const char text[] = "Bail out! this test hangs in a call\n";
    (void)signal;
    _exit(write(STDOUT_FILENO, text, sizeof text - 1) < 0 ? 2 : 1);
}

static void set_watchdog(bool on)
{
    struct sigaction action = {.sa_handler = on ? hangs : SIG_DFL};
    sigaction(SIGALRM, &action, NULL);
    alarm(on ? WATCHDOG_S * suite.soak : 0);
}

int scene_open(void **state)
{
    static unsigned n;
    struct scene *scene = calloc(1, sizeof *scene);
    struct stile_error err;
    if (!scene)
        return -1;
    snprintf(scene->name, sizeof scene->name, "contract-%d-%u", (int)getpid(), ++n);
    if (stile_client_open(&scene->client, suite.url, NULL, &err)) {
        print_error("cannot open the engine: %s\n", err.message);
        free(scene);
        return -1;
    }
    scene->caps = stile_client_caps(scene->client);
    arena_reset();
    set_watchdog(true);
    *state = scene;
    return 0;
}

static void end_peer(struct peer *peer)
{
    if (peer->pid > 0) {
        kill(peer->pid, SIGKILL);
        waitpid(peer->pid, NULL, 0);
    }
    close(peer->to);
    close(peer->from);
    free(peer);
}

/* Also after a failed test: the next one starts from nothing. */
int scene_close(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < COUNT(scene->peers); i++) {
        if (scene->peers[i])
            end_peer(scene->peers[i]);
    }
    for (size_t i = 0; i < COUNT(scene->strays); i++) {
        if (scene->strays[i] > 0)
            kill(scene->strays[i], SIGKILL);
    }
    for (size_t i = 0; i < COUNT(scene->clients); i++)
        stile_client_close(scene->clients[i]);
    stile_client_close(scene->client);
    set_watchdog(false);
    for (size_t i = 0; i < COUNT(scene->memory); i++)
        free(scene->memory[i]);
    free(scene);
    return 0;
}

void *scene_memory(struct scene *scene, size_t size)
{
    size_t i = 0;
    while (i < COUNT(scene->memory) && scene->memory[i])
        i++;
    assert_true(i < COUNT(scene->memory));
    scene->memory[i] = calloc(1, size);
    assert_non_null(scene->memory[i]);
    return scene->memory[i];
}

sem_t *scene_semaphore(struct scene *scene)
{
    sem_t *sem = scene_memory(scene, sizeof *sem);
    assert_int_equal(sem_init(sem, 0, 0), 0);
    return sem;
}

struct stile_client *scene_client(struct scene *scene, const struct stile_client_options *options)
{
    for (size_t i = 0; i < COUNT(scene->clients); i++) {
        if (scene->clients[i])
            continue;
        check_ok(stile_client_open(&scene->clients[i], suite.url, options, &why));
        return scene->clients[i];
    }
    fail_msg("too many clients in one scene");
    return NULL;
}

unsigned scene_rounds(const struct scene *scene, unsigned fast, unsigned slow)
{
    unsigned rounds = ends_with_process(scene) ? fast : slow;
    return suite.rounds ? suite.rounds : rounds * suite.soak;
}

/* ---- what the engine has ---- */

bool ends_with_process(const struct scene *scene)
{
    return scene->caps->lease == STILE_LEASE_PROCESS;
}

int64_t short_ttl(const struct scene *scene)
{
    return ends_with_process(scene) ? 300 : 3000;
}

static bool has_or_refuses(struct scene *scene, bool has, const struct stile_lock_options *options)
{
    struct stile_lock *lock;
    if (!has) {
        check_status(STILE_UNSUPPORTED,
                     stile_lock_new(&lock, scene->client, scene->name, options, &why));
        assert_null(lock);
        assert_true(strlen(why.message) > 0);
    }
    return has;
}

bool has_mode(struct scene *scene, enum stile_mode mode)
{
    unsigned slots = mode == STILE_SLOTS ? 2 : 0;
    return has_or_refuses(scene, scene->caps->modes & 1u << mode,
                          STILE_OPTIONS(.mode = mode, .slots = slots));
}

bool has_hold(struct scene *scene)
{
    return has_or_refuses(scene, scene->caps->hold_at_least, STILE_OPTIONS(.hold_at_least_ms = 10));
}

bool has_delay(struct scene *scene)
{
    return has_or_refuses(scene, scene->caps->lock_delay, STILE_OPTIONS(.lock_delay_ms = 10));
}

bool has_proclaim(struct scene *scene)
{
    return has_or_refuses(scene, scene->caps->proclaims, STILE_OPTIONS(.proclaim = "me"));
}

bool has_history(struct scene *scene)
{
    if (scene->caps->history)
        return true;
    struct stile_lock *lock = held_on(scene->client, scene->name, NULL);
    check_status(STILE_UNSUPPORTED, stile_lock_record_start(lock, &why));
    assert_true(strlen(why.message) > 0);
    check_status(STILE_UNSUPPORTED, stile_lock_record_end(lock, 0, &why));
    check_ok(stile_lock_release(lock, &why));
    print_message("# %s keeps no record of holders, and says so\n", scene->caps->engine);
    return false;
}

bool has_cells(struct scene *scene)
{
    struct stile_cell *cell = NULL;
    struct stile_client *client = scene->client;
    const char *key = scene->name;
    if (scene->caps->cells)
        return true;
    check_status(STILE_UNSUPPORTED, stile_cell_get(&cell, client, key, &why));
    assert_null(cell);
    assert_true(strlen(why.message) > 0);
    check_status(STILE_UNSUPPORTED, stile_cell_put(NULL, client, key, "x", 1, NULL, &why));
    check_status(STILE_UNSUPPORTED, stile_cell_remove(client, key, NULL, &why));
    check_status(STILE_UNSUPPORTED, stile_cell_list(client, "", NULL, NULL, &why));
    check_status(STILE_UNSUPPORTED, stile_guard_raise(client, key, 1, NULL, &why));
    check_status(STILE_UNSUPPORTED, stile_guard_check(client, key, 1, NULL, &why));
    check_status(STILE_UNSUPPORTED, stile_guard_reset(client, key, 0, NULL, &why));
    print_message("# %s keeps no cells, and says so\n", scene->caps->engine);
    return false;
}

/* ---- locks ---- */

struct stile_lock *lock_on(struct stile_client *client, const char *name,
                           const struct stile_lock_options *options)
{
    struct stile_lock *lock;
    check_ok(stile_lock_new(&lock, client, name, options, &why));
    return lock;
}

struct stile_lock *held_on(struct stile_client *client, const char *name,
                           const struct stile_lock_options *options)
{
    struct stile_lock *lock = lock_on(client, name, options);
    check_ok(stile_lock_acquire(lock, 0, &why));
    return lock;
}

uint64_t token_of(struct stile_lock *lock)
{
    uint64_t token = 0;
    enum stile_status status = stile_lock_token(lock, &token);
    if (status != STILE_UNSUPPORTED)
        check_ok(status);
    return token;
}
