/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* CRDTs under random operations. The laws of merging hold for random states; a set agrees with a
 * naive one that forgets nothing; and a million operations on five replicas, whose messages are
 * lost, repeated and reordered, converge without a lost add. Always the same run: the seed is
 * fixed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stile.h"

#define REPLICAS 5
#define KINDS    4

static struct stile_error why;

/* ---- chance ---- */

static uint64_t seed;

/* xorshift64* */
static unsigned chance(unsigned below)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return (unsigned)((seed * UINT64_C(2685821657736338717)) >> 33) % below;
}

static int begin(void **state)
{
    (void)state;
    seed = UINT64_C(20261118);
    return 0;
}

/* ---- replicas ---- */

static int64_t clocks[REPLICAS];

static int64_t clock_of(void *data)
{
    return *(int64_t *)data;
}

static const struct stile_crdt_options *options_of(size_t i)
{
    static struct stile_crdt_options options;
    static unsigned char id[STILE_REPLICA_SIZE];
    id[0] = (unsigned char)(i + 1);
    options = (struct stile_crdt_options){
        .size = sizeof options, .replica = id, .clock = clock_of, .clock_data = &clocks[i]};
    return &options;
}

static struct stile_crdt *empty(enum stile_crdt_kind kind, size_t i)
{
    struct stile_crdt *crdt;
    assert_int_equal(stile_crdt_new(&crdt, kind, options_of(i), &why), STILE_OK);
    return crdt;
}

static void merge(struct stile_crdt *into, const struct stile_crdt *from)
{
    if (stile_crdt_merge(into, from, &why))
        fail_msg("%s", why.message);
}

#define ELEMENTS 24

static const char *element(unsigned i)
{
    static char name[16];
    (void)snprintf(name, sizeof name, "element %u", i);
    return name;
}

/* What was added to the counters altogether. */
static int64_t counted[KINDS + 1];

static void change_set(struct stile_crdt *crdt)
{
    const char *name = element(chance(ELEMENTS));
    if (chance(3) > 0)
        assert_int_equal(stile_orset_add(crdt, name, strlen(name), &why), STILE_OK);
    else
        assert_int_equal(stile_orset_remove(crdt, name, strlen(name), &why), STILE_OK);
    assert_int_equal(stile_orset_count(crdt) <= ELEMENTS, true);
}

/* The clocks go wrong by up to 40 s, in both directions. */
static void change_register(struct stile_crdt *crdt, size_t i)
{
    uint64_t before = stile_lww_time_ms(crdt);
    const char *value = element(chance(1000));
    clocks[i] = 1000000 + (int64_t)chance(40000);
    assert_int_equal(stile_lww_set(crdt, value, strlen(value), &why), STILE_OK);
    assert_string_equal(stile_lww_get(NULL, crdt), value);
    assert_true(stile_lww_time_ms(crdt) >= before);
}

static void change(struct stile_crdt *crdt, size_t i)
{
    enum stile_crdt_kind kind = stile_crdt_kind(crdt);
    if (kind == STILE_CRDT_ORSET) {
        change_set(crdt);
    } else if (kind == STILE_CRDT_LWW) {
        change_register(crdt, i);
    } else {
        int64_t n = (int64_t)chance(10) - (kind == STILE_CRDT_PNCOUNTER ? 5 : 0);
        assert_int_equal(stile_counter_add(crdt, n, &why), STILE_OK);
        counted[kind] += n;
    }
}

/* ---- messages ---- */

struct message {
    char *bytes;
    size_t size;
};

static struct message encoded(const struct stile_crdt *crdt)
{
    struct message message;
    assert_int_equal(stile_crdt_encode(&message.size, NULL, 0, crdt, &why), STILE_OK);
    message.bytes = malloc(message.size);
    assert_int_equal(stile_crdt_encode(&message.size, message.bytes, message.size, crdt, &why),
                     STILE_OK);
    return message;
}

static struct stile_crdt *decoded(const struct message *message)
{
    struct stile_crdt *crdt;
    if (stile_crdt_decode(&crdt, message->bytes, message->size, options_of(0), &why))
        fail_msg("%s", why.message);
    return crdt;
}

static struct stile_crdt *copy(const struct stile_crdt *crdt)
{
    struct message message = encoded(crdt);
    struct stile_crdt *made = decoded(&message);
    assert_true(stile_crdt_equal(crdt, made));
    free(message.bytes);
    return made;
}

/* ---- the laws ---- */

/* Equal, and byte for byte. */
static void same(struct stile_crdt *a, struct stile_crdt *b, const char *law)
{
    struct message x = encoded(a), y = encoded(b);
    if (!stile_crdt_equal(a, b) || x.size != y.size || memcmp(x.bytes, y.bytes, x.size) != 0)
        fail_msg("kind %d: not %s", (int)stile_crdt_kind(a), law);
    free(x.bytes);
    free(y.bytes);
}

static void check_laws(struct stile_crdt *const *of)
{
    struct stile_crdt *ab = copy(of[0]), *ba = copy(of[1]), *bc = copy(of[1]), *a = copy(of[0]);
    merge(ab, of[1]);
    merge(ba, of[0]);
    same(ab, ba, "commutative");
    merge(ba, of[1]);
    same(ab, ba, "idempotent");
    merge(ab, of[2]);
    merge(bc, of[2]);
    merge(a, bc);
    same(ab, a, "associative");
    stile_crdt_free(ab);
    stile_crdt_free(ba);
    stile_crdt_free(bc);
    stile_crdt_free(a);
}

/* Three replicas that have merged now and then. */
static void check_laws_of(enum stile_crdt_kind kind)
{
    struct stile_crdt *of[3];
    for (size_t i = 0; i < 3; i++)
        of[i] = empty(kind, i);
    for (unsigned n = chance(40); n > 0; n--) {
        size_t i = chance(3);
        if (chance(4) > 0)
            change(of[i], i);
        else
            merge(of[i], of[chance(3)]);
    }
    check_laws(of);
    for (size_t i = 0; i < 3; i++)
        stile_crdt_free(of[i]);
}

static void merging_obeys_its_laws(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 8000; round++) {
        for (size_t i = 0; i < REPLICAS; i++)
            clocks[i] = 1000000;
        check_laws_of((enum stile_crdt_kind)(1 + round % KINDS));
    }
}

/* ---- a set that forgets nothing ---- */

#define ADDS  192
#define NAMES 5

/* Each add is a number of its own. Everything that was ever added and removed is kept. */
struct naive {
    bool added[ADDS], removed[ADDS];
};

static unsigned name_of[ADDS];

static bool naive_has(const struct naive *set, unsigned name)
{
    for (unsigned i = 0; i < ADDS; i++) {
        if (name_of[i] == name && set->added[i] && !set->removed[i])
            return true;
    }
    return false;
}

static void naive_remove(struct naive *set, unsigned name)
{
    for (unsigned i = 0; i < ADDS; i++)
        set->removed[i] |= set->added[i] && name_of[i] == name;
}

static void naive_merge(struct naive *into, const struct naive *from)
{
    for (unsigned i = 0; i < ADDS; i++) {
        into->added[i] |= from->added[i];
        into->removed[i] |= from->removed[i];
    }
}

static void agree(const struct stile_crdt *set, const struct naive *naive)
{
    for (unsigned name = 0; name < NAMES; name++) {
        if (stile_orset_has(set, element(name), strlen(element(name))) != naive_has(naive, name))
            fail_msg("%s: only one of them has it", element(name));
    }
}

static void compare_once(void)
{
    struct stile_crdt *sets[REPLICAS];
    struct naive naive[REPLICAS] = {0};
    for (size_t i = 0; i < REPLICAS; i++)
        sets[i] = empty(STILE_CRDT_ORSET, i);
    for (unsigned n = 0; n < ADDS; n++) {
        unsigned i = chance(REPLICAS), other = chance(REPLICAS), name = chance(NAMES);
        name_of[n] = name;
        switch (chance(4)) {
        case 0:
            stile_orset_remove(sets[i], element(name), strlen(element(name)), NULL);
            naive_remove(&naive[i], name);
            break;
        case 1:
            stile_orset_add(sets[i], element(name), strlen(element(name)), NULL);
            naive[i].added[n] = true;
            break;
        default:
            merge(sets[i], sets[other]);
            naive_merge(&naive[i], &naive[other]);
        }
        agree(sets[i], &naive[i]);
    }
    for (size_t i = 0; i < REPLICAS; i++)
        stile_crdt_free(sets[i]);
}

static void a_set_loses_no_add(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 300; round++)
        compare_once();
}

/* ---- a million operations ---- */

#define OPERATIONS 1000000
#define INBOX      8

static struct node {
    struct stile_crdt *crdts[KINDS];
    struct message inbox[INBOX];
} nodes[REPLICAS];

/* A message takes the place of another one, which is lost; or is lost itself. */
static void send_state(const struct stile_crdt *crdt, struct node *to)
{
    if (chance(3) == 0)
        return;
    struct message *slot = &to->inbox[chance(INBOX)];
    free(slot->bytes);
    *slot = encoded(crdt);
}

/* Any of those that wait, and it may wait on and come again. */
static void receive(struct node *node)
{
    struct message *slot = &node->inbox[chance(INBOX)];
    if (!slot->bytes)
        return;
    struct stile_crdt *state = decoded(slot);
    merge(node->crdts[stile_crdt_kind(state) - 1], state);
    stile_crdt_free(state);
    if (chance(3) == 0)
        return;
    free(slot->bytes);
    *slot = (struct message){0};
}

static void operate(void)
{
    size_t i = chance(REPLICAS), kind = chance(KINDS);
    switch (chance(10)) {
    case 0:
        send_state(nodes[i].crdts[kind], &nodes[chance(REPLICAS)]);
        break;
    case 1:
        receive(&nodes[i]);
        break;
    default:
        change(nodes[i].crdts[kind], i);
    }
}

static void check_converged(size_t kind)
{
    for (size_t i = 1; i < REPLICAS; i++)
        merge(nodes[0].crdts[kind], nodes[i].crdts[kind]);
    for (size_t i = 1; i < REPLICAS; i++) {
        merge(nodes[i].crdts[kind], nodes[0].crdts[kind]);
        same(nodes[i].crdts[kind], nodes[0].crdts[kind], "converged");
    }
}

static void close_nodes(void)
{
    for (size_t i = 0; i < REPLICAS; i++) {
        for (size_t kind = 0; kind < KINDS; kind++)
            stile_crdt_free(nodes[i].crdts[kind]);
        for (size_t slot = 0; slot < INBOX; slot++)
            free(nodes[i].inbox[slot].bytes);
    }
}

static void a_million_operations_converge(void **state)
{
    (void)state;
    memset(counted, 0, sizeof counted);
    for (size_t i = 0; i < REPLICAS; i++) {
        clocks[i] = 1000000;
        for (size_t kind = 0; kind < KINDS; kind++)
            nodes[i].crdts[kind] = empty((enum stile_crdt_kind)(kind + 1), i);
    }
    for (unsigned n = 0; n < OPERATIONS; n++)
        operate();
    for (size_t kind = 0; kind < KINDS; kind++)
        check_converged(kind);
    assert_int_equal(stile_counter_value(nodes[3].crdts[0]), counted[STILE_CRDT_GCOUNTER]);
    assert_int_equal(stile_counter_value(nodes[3].crdts[1]), counted[STILE_CRDT_PNCOUNTER]);
    close_nodes();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(merging_obeys_its_laws, begin),
        cmocka_unit_test_setup(a_set_loses_no_add, begin),
        cmocka_unit_test_setup(a_million_operations_converge, begin),
    };
    return cmocka_run_group_tests_name("crdt-random", tests, NULL, NULL);
}
