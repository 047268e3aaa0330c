/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The local engine alone, without core: parties (one open engine each) and their claims, with a
 * sink for what the engine says. Several parties live in one process, each with its own loop. */
#ifndef STILE_LOCAL_KIT_H
#define STILE_LOCAL_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engines/local/local.h"

/* What must happen is waited for this long; only a failure comes near it. */
#define KIT_PATIENCE_MS 20000
#define KIT_PARTIES_MAX 80

#define assert_status(actual, expected)                                                            \
    assert_string_equal(stile_status_name(actual), stile_status_name(STILE_##expected))

enum said {
    SAID_NOTHING,
    SAID_GRANTED,
    SAID_BUSY,
    SAID_FAILED,
    SAID_RELEASED,
    SAID_LOST,
};

struct party {
    struct engine *engine;
    struct loop *loop;
};

/* A claim and what was said of it last. */
struct bid {
    struct party *party;
    struct claim *claim;
    char name[STILE_NAME_MAX + 1];
    enum said said;
    unsigned n_said;
    uint64_t token, hint_ns;
    struct stile_error error;
};

/* The answer to a query: what was reported last. */
struct answer {
    struct query query;
    unsigned n_infos, n_changes;
    bool is_done;
    struct stile_error error;
    uint64_t token;
    size_t holders, waiters;
    struct stile_claim_info claims[8];
    char command[8][SESSION_COMMAND_MAX + 1];
    char names[8][64]; /* of the first infos */
};

/* In a forked child, first: it dies with its parent, so that a test that fails leaves nobody
 * behind, and does not run the parent's parties, whose mappings it has not inherited. */
void kit_be_child(void);

/* A new directory below $TMPDIR, and its end with everything in it. */
void kit_make_dir(char path[64]);
void kit_remove_dir(const char *path);

enum stile_status kit_try_open(struct party *party, const char *dir, struct stile_error *err);
void kit_open(struct party *party, const char *dir);
void kit_close(struct party *party);
struct local *kit_local(struct party *party);
struct store *kit_store(struct party *party);

/* Zeroed options: exclusive, no hold, no delay. */
struct bid_options {
    enum stile_mode mode;
    uint32_t slots;
    uint64_t hold_ms, delay_ms;
};

struct bid *kit_bid_named(struct party *party, const char *name, size_t len,
                          struct bid_options options);
struct bid *kit_bid(struct party *party, const char *name);
struct bid *kit_bid_with(struct party *party, const char *name, struct bid_options options);
void kit_bid_free(struct bid *bid);

enum said kit_try(struct bid *bid);  /* without waiting */
enum said kit_wait(struct bid *bid); /* in the queue; SAID_NOTHING while it waits */
enum said kit_release(struct bid *bid);
void kit_take(struct bid *bid); /* must be granted at once */

/* Lets all open parties run until that is said. Fails the test if it isn't within the patience. */
void kit_until(struct bid *bid, enum said said);
/* Lets all run until nothing is left to do. */
void kit_settle(void);
/* ... until so many changes of a watched name have been reported in all. */
void kit_until_changes(const struct answer *answer, unsigned n);

void kit_ask(struct answer *answer, struct party *party, const char *name,
             void (*how)(struct engine *engine, struct query *query), uint64_t token);

/* The whole file must be sound, and so many cells be in use. */
void kit_check(struct store *store);
uint32_t kit_cells_in_use(const struct store *store);
/* Drops the sessions of dead processes, which otherwise happens bit by bit. */
void kit_sweep(struct store *store);

/* Reproducible randomness: $STILE_SEED, or a fixed number. */
uint64_t kit_random(void);
bool kit_is_soak(void);

#endif
