/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/local_queue_kit.h"

#include <string.h>

#include "base/name.h"

struct user user;
struct tx tx;
struct wakeups wakeups;

void table_begin(void)
{
    assert_true(local_tx_begin(&tx, &user.store));
    wakeups_init(&wakeups);
}

void table_commit(void)
{
    struct stile_error err = {0};
    if (!local_tx_commit(&tx)) {
        local_tx_error(&tx, &err);
        fail_msg("%s", err.message);
    }
}

int table_set_up(void **state)
{
    (void)state;
    user_make(&user);
    return 0;
}

int table_tear_down(void **state)
{
    (void)state;
    kit_check(&user.store);
    user_close(&user);
    return 0;
}

uint32_t table_open_name(const char *name)
{
    return local_names_open(&tx, name_hash(name, strlen(name)), name, strlen(name), START_NS);
}

uint32_t table_find_name(const char *name)
{
    return local_names_find(&tx, name_hash(name, strlen(name)), name, strlen(name));
}

uint32_t table_enter(const char *name, uint64_t session, enum stile_mode mode, uint32_t slots)
{
    struct claim_request request = {
        .session = session, .id = (uint32_t)session, .mode = mode, .slots = slots};
    table_begin();
    uint32_t claim = local_queue_enter(&tx, table_open_name(name), &request, START_NS, &wakeups);
    table_commit();
    return claim;
}

void table_leave(uint32_t claim, enum leave_how how)
{
    table_begin();
    local_queue_leave(&tx, claim, how, START_NS, &wakeups);
    table_commit();
}

const struct claim_cell *table_claim(uint32_t index)
{
    return &user.store.cells[index].claim;
}

bool table_is_held(uint32_t index)
{
    return claim_is_held(table_claim(index));
}

bool table_was_woken(uint64_t session)
{
    for (uint32_t i = wakeups.head; i != wakeups.tail; i++)
        if (wakeups.ring[i % WAKEUPS_MAX].session == session)
            return true;
    return false;
}

uint32_t table_n_woken(void)
{
    return wakeups.tail - wakeups.head;
}
