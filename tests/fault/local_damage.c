/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A state file that is cut off, foreign, of another version or boot, or has a flipped bit: opening
 * or the first use says CORRUPT, or all goes on with tokens that grow. Never a crash, never a
 * second holder. Every bit in turn under STILE_SOAK=1, else a seeded choice. */
#include "unit/local_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FLIPS 1500 /* in a normal run, for each test */

/* A file as it is in the middle of things, with claims of every kind. */
struct specimen {
    char dir[64];
    uint8_t *bytes;
    size_t size, used; /* used: up to the last cell in use */
    size_t word;       /* of a name that is held by it (quick.h) */
    uint64_t token;    /* the last one given for "held" */
};

static struct specimen specimen;

static void path_of(char path[96], const char *dir, const char *name)
{
    snprintf(path, 96, "%s/%s", dir, name);
}

static void read_specimen(struct specimen *s)
{
    char path[96];
    struct stat st;
    path_of(path, s->dir, "state");
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    s->size = (size_t)st.st_size;
    s->bytes = malloc(s->size);
    assert_non_null(s->bytes);
    assert_int_equal(read(fd, s->bytes, s->size), s->size);
    close(fd);
}

static void write_state(const void *bytes, size_t size)
{
    char path[96];
    path_of(path, specimen.dir, "state");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
}

/* Only what is in use, in place: quick. */
static void restore(void)
{
    char path[96];
    path_of(path, specimen.dir, "state");
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, specimen.bytes, specimen.used, 0), specimen.used);
    close(fd);
}

static void flip(size_t bit)
{
    char path[96];
    path_of(path, specimen.dir, "state");
    uint8_t byte = specimen.bytes[bit / 8] ^ (uint8_t)(1 << bit % 8);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
    close(fd);
}

static int make_specimen(void **state)
{
    struct party a, b;
    struct bid *bids[7];
    struct answer answer;
    (void)state;
    kit_make_dir(specimen.dir);
    kit_open(&a, specimen.dir);
    kit_open(&b, specimen.dir);
    for (int i = 0; i < 3; i++) {
        bids[0] = kit_bid(&a, "held");
        kit_take(bids[0]);
        if (i < 2) {
            kit_release(bids[0]);
            kit_bid_free(bids[0]);
        }
    }
    specimen.token = bids[0]->token;
    kit_wait(bids[1] = kit_bid(&b, "held"));
    kit_take(bids[2] = kit_bid_with(&a, "shared", (struct bid_options){.mode = STILE_SHARED}));
    kit_take(bids[3] = kit_bid_with(&b, "shared", (struct bid_options){.mode = STILE_SHARED}));
    kit_take(bids[4] = kit_bid_with(&a, "kept", (struct bid_options){.hold_ms = 3600000}));
    kit_release(bids[4]);
    kit_take(bids[5] =
                 kit_bid_with(&a, "a name that takes more than one cell of text to be written",
                              (struct bid_options){.mode = STILE_SLOTS, .slots = 3}));
    for (int i = 0; i < 4; i++) {
        if (i == 0)
            bids[6] = kit_bid(&a, "open");
        else
            kit_release(bids[6]);
        kit_take(bids[6]);
    }
    specimen.word =
        (size_t)((uint8_t *)quick_slot(kit_store(&a), local_claim_of(bids[6]->claim)->name) -
                 (uint8_t *)kit_store(&a)->cells);
    kit_ask(&answer, &b, "held", local_inspect_watch, 0);
    read_specimen(&specimen);
    specimen.used = (size_t)kit_store(&a)->cells[AT_LEDGER].ledger.n_used * CELL_BYTES;
    local_inspect_unwatch(b.engine, &answer.query);
    for (int i = 0; i < 7; i++) {
        kit_release(bids[i]);
        kit_bid_free(bids[i]);
    }
    kit_close(&a);
    kit_close(&b);
    write_state(specimen.bytes, specimen.size);
    return 0;
}

static int drop_specimen(void **state)
{
    (void)state;
    free(specimen.bytes);
    kit_remove_dir(specimen.dir);
    return 0;
}

/* Takes the lock that had been given most often; its token must be a new one. */
static void use(struct party *party)
{
    struct bid *bid = kit_bid(party, "held"), *kept = kit_bid(party, "kept");
    enum said said = kit_try(bid);
    if (said == SAID_GRANTED) {
        assert_true(bid->token > specimen.token);
        kit_release(bid);
    } else {
        assert_int_equal(said, SAID_FAILED);
        assert_status(bid->error.status, CORRUPT);
    }
    if (kit_try(kept) == SAID_FAILED)
        assert_status(kept->error.status, CORRUPT);
    kit_release(kept);
    kit_bid_free(bid);
    kit_bid_free(kept);
}

static bool open_and_use(void)
{
    struct party party;
    struct stile_error err = {0};
    enum stile_status status = kit_try_open(&party, specimen.dir, &err);
    if (status) {
        assert_status(status, CORRUPT);
        assert_true(strlen(err.message) > 20);
        return false;
    }
    use(&party);
    kit_close(&party);
    return true;
}

/* ---- tests ---- */

static void test_the_specimen_is_sound(void **state)
{
    (void)state;
    struct party party;
    kit_open(&party, specimen.dir);
    kit_check(kit_store(&party));
    struct bid *bid = kit_bid(&party, "held"), *kept = kit_bid(&party, "kept");
    kit_take(bid); /* its holder is dead */
    assert_true(bid->token > specimen.token);
    kit_release(bid);
    assert_int_equal(kit_try(kept), SAID_BUSY); /* kept by hold_at_least */
    kit_bid_free(bid);
    kit_bid_free(kept);
    kit_close(&party);
    restore();
}

static void test_cut_off_anywhere(void **state)
{
    (void)state;
    for (size_t size = 0; size < specimen.size; size += 4096) {
        write_state(specimen.bytes, size);
        assert_false(open_and_use());
    }
    const size_t odd[] = {1, 63, 64, 65, 127, 4095, 4097, specimen.used - 1, specimen.size - 1};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        write_state(specimen.bytes, odd[i]);
        assert_false(open_and_use());
    }
    write_state(specimen.bytes, specimen.size);
    assert_true(open_and_use());
    write_state(specimen.bytes, specimen.size);
}

static void test_foreign_bytes(void **state)
{
    (void)state;
    uint8_t *bytes = calloc(1, specimen.size);
    assert_non_null(bytes);
    write_state(bytes, specimen.size);
    assert_false(open_and_use());
    write_state("hello\n", 6);
    assert_false(open_and_use());
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < 8192; i++)
            bytes[i] = (uint8_t)kit_random();
        if (round % 2)
            memcpy(bytes, specimen.bytes, CELL_BYTES);
        write_state(bytes, specimen.size);
        assert_false(open_and_use());
    }
    free(bytes);
    write_state(specimen.bytes, specimen.size);
}

static void seal_header(void)
{
    union cell *cell = (union cell *)specimen.bytes;
    cell->check = cell_sum(cell, AT_HEADER);
    restore();
}

static void test_another_version(void **state)
{
    (void)state;
    struct header_cell *header = (struct header_cell *)specimen.bytes;
    const uint32_t versions[] = {0, STATE_VERSION + 1, UINT32_MAX};
    struct party party;
    struct stile_error err;
    for (int i = 0; i < 3; i++) {
        header->version = versions[i];
        seal_header();
        assert_status(kit_try_open(&party, specimen.dir, &err), CORRUPT);
        assert_non_null(strstr(err.message, "another version"));
    }
    header->version = STATE_VERSION;
    header->abi ^= 4;
    seal_header();
    assert_status(kit_try_open(&party, specimen.dir, &err), CORRUPT);
    header->abi ^= 4;
    seal_header();
}

static int open_beside_an_older_version(void)
{
    struct party party;
    struct stile_error err;
    enum stile_status status = kit_try_open(&party, specimen.dir, &err);
    return status == STILE_CORRUPT && strstr(err.message, "older version") ? 0 : 100;
}

/* What nobody uses any longer is replaced, and tokens go on above all that were given before. */
static void test_an_older_version(void **state)
{
    (void)state;
    struct header_cell *header = (struct header_cell *)specimen.bytes;
    struct party party;
    header->version = STATE_VERSION - 1;
    seal_header();
    kit_open(&party, specimen.dir);
    union cell *cell = &kit_store(&party)->cells[AT_HEADER];
    assert_int_equal(cell->header.version, STATE_VERSION);
    struct bid *bid = kit_bid(&party, "held");
    kit_take(bid);
    assert_true(bid->token == (UINT64_C(2) << 32) + 1);
    cell->header.version = STATE_VERSION - 1; /* as if it were of another library */
    cell->check = cell_sum(cell, AT_HEADER);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        kit_be_child();
        _exit(open_beside_an_older_version());
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(kit_release(bid), SAID_RELEASED);
    kit_bid_free(bid);
    kit_close(&party);
    header->version = STATE_VERSION;
    seal_header();
    write_state(specimen.bytes, specimen.size);
}

/* After a reboot nobody holds anything, and tokens go on above all that were given before. */
static void test_another_boot(void **state)
{
    (void)state;
    struct header_cell *header = (struct header_cell *)specimen.bytes;
    struct party party;
    header->boot[3] ^= 1;
    seal_header();
    kit_open(&party, specimen.dir);
    struct bid *bid = kit_bid(&party, "held"), *kept = kit_bid(&party, "kept");
    kit_take(bid);
    assert_true(bid->token == (UINT64_C(1) << 32) + 1);
    kit_take(kept);
    kit_release(bid);
    kit_release(kept);
    kit_bid_free(bid);
    kit_bid_free(kept);
    kit_close(&party);
    header->boot[3] ^= 1;
    seal_header();
    write_state(specimen.bytes, specimen.size);
}

static bool is_used_bit(size_t bit)
{
    return bit / 8 < specimen.used;
}

static void test_a_flipped_bit_before_opening(void **state)
{
    (void)state;
    size_t n = specimen.used * 8, worked = 0;
    size_t rounds = kit_is_soak() ? n : FLIPS;
    for (size_t i = 0; i < rounds; i++) {
        size_t bit = kit_is_soak() ? i : kit_random() % n;
        assert_true(is_used_bit(bit));
        flip(bit);
        worked += open_and_use();
        restore();
    }
    /* What nothing depends on, as old journal entries, may be anything. */
    assert_true(worked > 0 && worked < rounds);
}

/* In all cells that count, it is always seen. */
static void test_no_flipped_bit_in_a_cell_goes_unseen(void **state)
{
    (void)state;
    size_t buckets = (AT_QUICK - AT_SEGMENTS) * CELL_BYTES * 8;
    size_t n = buckets + specimen.used * 8 - AT_FIRST * CELL_BYTES * 8;
    for (size_t i = 0; i < FLIPS; i++) {
        size_t bit = kit_random() % n;
        flip(bit < buckets ? AT_SEGMENTS * CELL_BYTES * 8 + bit
                           : AT_FIRST * CELL_BYTES * 8 + bit - buckets);
        assert_false(open_and_use());
        restore();
    }
}

/* Of the words, only those of open names count. */
static void test_no_flipped_bit_in_a_word_goes_unseen(void **state)
{
    (void)state;
    for (size_t bit = 0; bit < 64; bit++) {
        flip(specimen.word * 8 + bit);
        assert_false(open_and_use());
        restore();
    }
}

/* ---- while it is in use ---- */

/* What others do with a damaged file while one holds: they are refused or notified, never let in.
 */
static void try_beside(struct party *holder, struct party *other, const struct bid *held)
{
    struct bid *bid = kit_bid(other, "held"), *fresh = kit_bid(other, "fresh");
    struct answer answer;
    enum said said = kit_try(bid);
    if (said == SAID_FAILED)
        assert_status(bid->error.status, CORRUPT);
    else
        assert_int_equal(said, SAID_BUSY);
    if (kit_try(fresh) == SAID_GRANTED)
        kit_release(fresh);
    kit_ask(&answer, other, "held", local_inspect_show, 0);
    kit_ask(&answer, other, "", local_inspect_list, 0);
    assert_int_equal(held->said, SAID_GRANTED);
    (void)holder;
    kit_bid_free(bid);
    kit_bid_free(fresh);
}

static void test_a_flipped_bit_while_in_use(void **state)
{
    char dir[64];
    struct party a, b;
    (void)state;
    kit_make_dir(dir);
    kit_open(&a, dir);
    kit_open(&b, dir);
    struct bid *held = kit_bid(&a, "held");
    kit_take(held);
    uint8_t *bytes = (uint8_t *)kit_store(&a)->cells;
    size_t used = (size_t)kit_store(&a)->cells[AT_LEDGER].ledger.n_used * CELL_BYTES;
    size_t journal = AT_LOCK * (size_t)CELL_BYTES, behind = AT_BUCKETS * (size_t)CELL_BYTES;
    for (int i = 0; i < FLIPS; i++) {
        size_t bit = kit_random() % (used * 8);
        if (bit / 8 >= journal && bit / 8 < behind)
            continue; /* rewritten all the time */
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        try_beside(&a, &b, held);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    kit_check(kit_store(&a));
    assert_int_equal(kit_release(held), SAID_RELEASED);
    assert_status(held->error.status, OK);
    kit_bid_free(held);
    kit_close(&a);
    kit_close(&b);
    kit_remove_dir(dir);
}

/* ---- epoch ---- */

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[96];
    path_of(path, dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void test_a_damaged_epoch(void **state)
{
    char path[96], kept[64] = "";
    const char *bad[] = {"",     "stile-epoch 1 0 2776ac09\n",  "stile-epoch 1 1 2776ac08\n",
                         "x",    "stile-epoch 1 0 2776ac08",    "stile-epoch 1 0 2776ac08\n\n",
                         "-1\n", "stile-epoch 1 00 2776ac08\n", "stile-epoch 2 0 2776ac08\n"};
    struct party party;
    struct stile_error err;
    (void)state;
    path_of(path, specimen.dir, "epoch");
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && read(fd, kept, sizeof kept - 1) > 0);
    close(fd);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(specimen.dir, "epoch", bad[i]);
        assert_status(kit_try_open(&party, specimen.dir, &err), CORRUPT);
    }
    assert_int_equal(unlink(path), 0);
    assert_status(kit_try_open(&party, specimen.dir, &err), CORRUPT);
    assert_non_null(strstr(err.message, "missing"));
    write_file(specimen.dir, "epoch", kept);
    assert_true(open_and_use());
    write_state(specimen.bytes, specimen.size);
}

/* Without `state` nothing is known of the tokens given before, so they start above all of them. */
static void test_a_removed_state_starts_the_next_epoch(void **state)
{
    char dir[64], path[96];
    struct party party;
    (void)state;
    kit_make_dir(dir);
    path_of(path, dir, "state");
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        kit_open(&party, dir);
        struct bid *bid = kit_bid(&party, "n");
        kit_take(bid);
        assert_true(bid->token == (epoch << 32) + 1);
        kit_release(bid);
        kit_bid_free(bid);
        kit_close(&party);
        assert_int_equal(unlink(path), 0);
    }
    kit_remove_dir(dir);
}

/* In another process, because one process opens a directory once. */
static enum stile_status open_elsewhere(const char *dir)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct party party;
        _exit((int)kit_try_open(&party, dir, NULL));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return (enum stile_status)WEXITSTATUS(status);
}

static void test_removed_while_others_use_it(void **state)
{
    char dir[64], path[96];
    struct party party;
    (void)state;
    kit_make_dir(dir);
    kit_open(&party, dir);
    assert_status(open_elsewhere(dir), OK);
    path_of(path, dir, "state");
    assert_int_equal(unlink(path), 0);
    assert_status(open_elsewhere(dir), CORRUPT);
    kit_close(&party);
    assert_status(open_elsewhere(dir), OK);
    kit_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_specimen_is_sound),
        cmocka_unit_test(test_cut_off_anywhere),
        cmocka_unit_test(test_foreign_bytes),
        cmocka_unit_test(test_another_version),
        cmocka_unit_test(test_a_flipped_bit_before_opening),
        cmocka_unit_test(test_no_flipped_bit_in_a_cell_goes_unseen),
        cmocka_unit_test(test_no_flipped_bit_in_a_word_goes_unseen),
        cmocka_unit_test(test_a_flipped_bit_while_in_use),
        cmocka_unit_test(test_a_damaged_epoch),
        cmocka_unit_test(test_another_boot),
        cmocka_unit_test(test_an_older_version),
        cmocka_unit_test(test_a_removed_state_starts_the_next_epoch),
        cmocka_unit_test(test_removed_while_others_use_it),
    };
    return cmocka_run_group_tests_name("local_damage", tests, make_specimen, drop_specimen);
}
