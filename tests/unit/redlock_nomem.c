/* Every allocation fails in turn, in core and in the engine: each call is answered, nobody holds
 * what it was not granted, and with memory back it works again.
 *
 * Linked with --wrap, so that malloc() and the others come here first. */
#include <stdio.h>
#include <stdlib.h>

#include "core/client.h"
#include "core/url.h"
#include "support/redlock_kit.h"

extern const struct engine_class redlock_class;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);

/* Of this thread: clients have none of their own here. */
static struct {
    bool armed;
    unsigned at, seen;
} scarcity;

static bool refuse(void)
{
    return scarcity.armed && scarcity.seen++ == scarcity.at;
}

void *__wrap_malloc(size_t size)
{
    return refuse() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return refuse() ? NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
    return refuse() ? NULL : __real_strdup(text);
}

static enum stile_status open_here(struct stile_client **client, const char *more)
{
    const struct stile_client_options options = {.size = sizeof options, .threadless = true};
    struct loop *loop;
    struct url *url;
    assert_int_equal(loop_epoll_new(&loop), 0);
    assert_status(url_parse(&url, nodes_url(more), &why), OK);
    scarcity.seen = 0;
    scarcity.armed = true;
    enum stile_status status = client_new(client, &redlock_class, loop, url, &options, &why);
    scarcity.armed = false;
    url_free(url);
    return status;
}

static int ignore(const struct stile_info *info, void *data)
{
    (void)info, (void)data;
    return 0;
}

/* True: nothing was refused any more. */
static bool survives(unsigned at, const char *more, bool opening)
{
    struct stile_client *client;
    scarcity.at = opening ? at : UINT32_MAX;
    enum stile_status status = open_here(&client, more);
    if (status) {
        assert_true(opening);
        return false;
    }
    struct stile_lock *lock = lock_on(client, "name", 60000);
    scarcity.at = opening ? UINT32_MAX : at;
    scarcity.seen = 0;
    scarcity.armed = true;
    for (int i = 0; i < 2; i++) {
        status = take(lock);
        assert_int_equal(status == STILE_OK, stile_lock_held(lock));
        stile_list(client, NULL, ignore, NULL, NULL);
        stile_show(client, "name", ignore, NULL, NULL);
        if (status == STILE_OK)
            stile_lock_release(lock, NULL);
    }
    scarcity.armed = false;
    stile_client_close(client);
    return scarcity.seen <= at || opening;
}

static void works_again(const char *more)
{
    struct stile_client *client;
    scarcity.at = UINT32_MAX;
    assert_status(open_here(&client, more), OK);
    struct stile_lock *lock = lock_on(client, "other", 60000);
    assert_status(take(lock), OK);
    give(lock);
    stile_client_close(client);
}

static void opening_without_memory(void **state)
{
    (void)state;
    for (unsigned at = 0; at < 120; at++)
        survives(at, at % 2 ? "?fence=off" : "", true);
    works_again("");
}

static void locking_without_memory(void **state)
{
    unsigned at = 0;
    (void)state;
    while (!survives(at, "", false))
        at++;
    print_message("# %u allocations failed in turn\n", at);
    assert_true(at > 20);
    all_nodes("DEL lock:name");
    works_again("");
}

static void locking_plainly_without_memory(void **state)
{
    unsigned at = 0;
    (void)state;
    while (!survives(at, "?fence=off", false))
        at++;
    all_nodes("DEL lock:name");
    works_again("?fence=off");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(opening_without_memory, nodes_clear),
        cmocka_unit_test_setup(locking_without_memory, nodes_clear),
        cmocka_unit_test_setup(locking_plainly_without_memory, nodes_clear),
    };
    return cmocka_run_group_tests(tests, nodes_start, nodes_stop);
}
