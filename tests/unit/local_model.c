/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a name beside a model of it that is slow and plain: random operations, and after
 * each of them both must agree on the order of the claims, the holders and their tokens. */
#include "unit/local_table_kit.h"

#include <string.h>

#include "base/name.h"

#define ROUNDS      40
#define OPERATIONS  500
#define MEMBERS_MAX 40

struct member {
    uint32_t id, cell;
    enum stile_mode mode;
    uint32_t slots, hold_ms, delay_ms;
    enum { WAITS, HOLDS, HAUNTS } state;
    uint64_t token, since_ns, until_ns;
};

struct model {
    struct member members[MEMBERS_MAX];
    int n;
    uint64_t token, now_ns;
    uint32_t last_id;
    bool was_open;
};

/* ---- the model ---- */

static void model_remove(struct model *model, int i)
{
    memmove(&model->members[i], &model->members[i + 1],
            (size_t)(model->n - i - 1) * sizeof(struct member));
    model->n--;
}

/* As the rule says it, word by word. */
static bool may_hold(const struct model *model, int at)
{
    const struct member *me = &model->members[at];
    for (int i = 0; i < at; i++) {
        if (model->members[i].state == WAITS || model->members[i].mode != me->mode)
            return false;
    }
    switch (me->mode) {
    case STILE_EXCLUSIVE:
        return at == 0;
    case STILE_SHARED:
        return true;
    default:
        return (uint32_t)at < me->slots;
    }
}

static void model_settle(struct model *model)
{
    for (int i = model->n; i-- > 0;)
        if (model->members[i].state == HAUNTS && model->members[i].until_ns <= model->now_ns)
            model_remove(model, i);
    for (int i = 0; i < model->n; i++) {
        struct member *member = &model->members[i];
        if (member->state != WAITS || !may_hold(model, i))
            continue;
        member->state = HOLDS;
        member->since_ns = model->now_ns;
        member->token = ++model->token;
    }
}

static void model_leave(struct model *model, int i, enum leave_how how)
{
    struct member *member = &model->members[i];
    uint64_t until_ns = 0;
    if (member->state == HOLDS && how != LEAVE_BROKEN && member->hold_ms)
        until_ns = member->since_ns + member->hold_ms * NS_PER_MS;
    if (member->state == HOLDS && how == LEAVE_DEAD && member->delay_ms &&
        model->now_ns + member->delay_ms * NS_PER_MS > until_ns)
        until_ns = model->now_ns + member->delay_ms * NS_PER_MS;
    if (until_ns > model->now_ns) {
        member->state = HAUNTS;
        member->until_ns = until_ns;
    } else {
        model_remove(model, i);
    }
}

/* ---- both ---- */

static struct user user;
static struct tx tx;
static struct wakeups wakeups;

static void begin(void)
{
    assert_true(local_tx_begin(&tx, &user.store));
    wakeups_init(&wakeups);
}

static uint32_t the_name(uint64_t now_ns)
{
    return local_names_open(&tx, name_hash("n", 1), "n", 1, now_ns);
}

static void settle_both(struct model *model)
{
    begin();
    local_queue_settle(&tx, the_name(model->now_ns), model->now_ns, &wakeups);
    assert_true(local_tx_commit(&tx));
    model_settle(model);
}

static void enter_both(struct model *model)
{
    struct member *member = &model->members[model->n++];
    *member = (struct member){
        .id = ++model->last_id,
        .mode = (enum stile_mode)(kit_random() % 3),
        .hold_ms = kit_random() % 4 ? 0 : (uint32_t)(kit_random() % 50),
        .delay_ms = kit_random() % 4 ? 0 : (uint32_t)(kit_random() % 50),
        .since_ns = model->now_ns,
    };
    member->slots = member->mode == STILE_SLOTS ? 1 + (uint32_t)(kit_random() % 4) : 0;
    struct claim_request request = {.session = member->id,
                                    .id = member->id,
                                    .mode = member->mode,
                                    .slots = member->slots,
                                    .hold_ms = member->hold_ms,
                                    .delay_ms = member->delay_ms};
    begin();
    member->cell =
        local_queue_enter(&tx, the_name(model->now_ns), &request, model->now_ns, &wakeups);
    assert_true(local_tx_commit(&tx));
}

/* The first claim leaves without a hand-over; then it comes again, with the right token or with an
 * old one, or does not. */
static void leave_open_both(struct model *model)
{
    struct member member = model->members[0];
    begin();
    bool left = local_queue_leave_open(&tx, member.cell, model->now_ns, &wakeups);
    assert_true(local_tx_commit(&tx));
    assert_int_equal(left, model->n > 1 && member.mode == STILE_EXCLUSIVE && !member.hold_ms);
    if (!left)
        return;
    model_remove(model, 0);
    uint64_t dice = kit_random() % 4;
    if (dice == 0)
        return;
    struct claim_request request = {.session = member.id,
                                    .id = member.id,
                                    .mode = member.mode,
                                    .delay_ms = member.delay_ms,
                                    .retakes = model->token - (dice == 1)};
    begin();
    member.cell =
        local_queue_enter(&tx, the_name(model->now_ns), &request, model->now_ns, &wakeups);
    assert_true(local_tx_commit(&tx));
    member.state = WAITS;
    member.token = 0;
    member.since_ns = model->now_ns;
    int at = dice == 1 ? model->n : 0;
    memmove(&model->members[at + 1], &model->members[at],
            (size_t)(model->n - at) * sizeof(struct member));
    model->members[at] = member;
    model->n++;
}

/* What is open begins a block of tokens, once. */
static void model_open(struct model *model)
{
    if (!model->was_open)
        model->token = (model->token | (QUICK_BLOCK - 1)) + 1;
    model->was_open = true;
}

static void leave_both(struct model *model)
{
    if (!model->n)
        return;
    int i = (int)(kit_random() % (uint64_t)model->n);
    struct member *member = &model->members[i];
    enum leave_how how = (enum leave_how)(kit_random() % 3);
    if (member->state == HAUNTS)
        return;
    begin();
    bool opens = kit_random() % 2;
    bool quietly = how == LEAVE_RELEASED && local_queue_leave_quietly(&tx, member->cell, opens);
    if (quietly && opens && model->n == 1)
        model_open(model);
    if (!quietly)
        local_queue_leave(&tx, member->cell, how, model->now_ns, &wakeups);
    assert_true(local_tx_commit(&tx));
    model_leave(model, i, how);
}

static void operate(struct model *model)
{
    uint64_t dice = kit_random() % 10;
    if (dice < 5 && model->n < MEMBERS_MAX)
        enter_both(model);
    else if (dice < 9 && model->n && model->members[0].state == HOLDS && kit_random() % 2)
        leave_open_both(model);
    else if (dice < 9)
        leave_both(model);
    else
        model->now_ns += kit_random() % 40 * NS_PER_MS;
    settle_both(model);
}

/* ---- do they agree? ---- */

static void compare_one(const struct member *member, uint32_t cell)
{
    const struct claim_cell *claim = &user.store.cells[cell].claim;
    assert_int_equal(claim->id, member->id);
    assert_int_equal(cell, member->cell);
    assert_true(claim->token == member->token);
    if (member->state == HAUNTS) {
        assert_int_equal(claim->state, CLAIM_GHOST);
        assert_true(claim->until_ns == member->until_ns);
    } else {
        assert_int_equal(claim->state, member->state == HOLDS ? CLAIM_HELD : CLAIM_WAITING);
    }
}

static void compare(const struct model *model)
{
    kit_check(&user.store);
    begin();
    uint32_t name = the_name(model->now_ns);
    const struct name_cell *cell = tx_name(&tx, name);
    uint32_t next = cell->first;
    assert_int_equal(cell->n_held + cell->n_waiting, model->n);
    assert_true(cell->token == model->token);
    assert_true(local_tx_commit(&tx));
    for (int i = 0; i < model->n; i++) {
        assert_int_not_equal(next, 0);
        compare_one(&model->members[i], next);
        next = user.store.cells[next].claim.next;
    }
    assert_int_equal(next, 0);
}

static void test_table_and_model_agree(void **state)
{
    int rounds = kit_is_soak() ? 100 * ROUNDS : ROUNDS;
    (void)state;
    for (int round = 0; round < rounds; round++) {
        struct model model = {.now_ns = 1000 * NS_PER_SEC};
        user_make(&user);
        for (int i = 0; i < OPERATIONS; i++) {
            operate(&model);
            compare(&model);
        }
        user_close(&user);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table_and_model_agree)};
    return cmocka_run_group_tests_name("local_model", tests, NULL, NULL);
}
