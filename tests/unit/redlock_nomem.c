/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation fails in turn, in core and in the engine: each call is answered, nobody holds
 * what it was not granted, and with memory back it works again. */
#include <stdio.h>
#include <stdlib.h>

#include "base/url.h"
#include "core/client.h"
#include "support/redlock_kit.h"
#include "support/scarcity.h"

#define NEVER_FAILS UINT32_MAX

extern const struct engine_class redlock_class;

static enum stile_status open_here(struct stile_client **client, const char *more, unsigned at)
{
    const struct stile_client_options options = {.size = sizeof options, .threadless = true};
    struct loop *loop;
    struct url *url;
    assert_int_equal(loop_epoll_new(&loop), 0);
    assert_status(url_parse(&url, nodes_url(more), &why), OK);
    scarcity_begin(at, false);
    enum stile_status status = client_new(client, &redlock_class, loop, url, &options, &why);
    scarcity_end();
    url_free(url);
    return status;
}

static int ignore(const struct stile_info *info, void *data)
{
    (void)info, (void)data;
    return 0;
}

/* True: no allocation was refused. */
static bool survives(unsigned at, const char *more, bool opening)
{
    struct stile_client *client;
    enum stile_status status = open_here(&client, more, opening ? at : NEVER_FAILS);
    if (status) {
        assert_true(opening);
        return false;
    }
    struct stile_lock *lock = lock_on(client, "name", 60000);
    scarcity_begin(opening ? NEVER_FAILS : at, false);
    for (int i = 0; i < 2; i++) {
        status = take(lock);
        assert_int_equal(status == STILE_OK, stile_lock_held(lock));
        stile_list(client, NULL, ignore, NULL, NULL);
        stile_show(client, "name", ignore, NULL, NULL);
        if (status == STILE_OK)
            stile_lock_release(lock, NULL);
    }
    scarcity_end();
    stile_client_close(client);
    return !scarcity.failed || opening;
}

static void works_again(const char *more)
{
    struct stile_client *client;
    assert_status(open_here(&client, more, NEVER_FAILS), OK);
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
