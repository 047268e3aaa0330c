/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The checker on histories made by hand: good ones hold, and each bad one breaks its rule. */
#include "sim/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)

static struct history history;
static struct verdict verdict;
static uint64_t answer_ns; /* 0: the history has no answers to releases */
static bool queues_foreign;
static bool breaks_named;

static int begin(void **state)
{
    (void)state;
    history_init(&history);
    answer_ns = 0;
    queues_foreign = false;
    breaks_named = false;
    return 0;
}

static int end(void **state)
{
    (void)state;
    history_free(&history);
    return 0;
}

static uint32_t ask_mode(uint64_t ms, uint32_t client, enum stile_mode mode, uint32_t slots)
{
    return history_ask(&history, ms * MS, client, "x", mode, slots);
}

static uint32_t ask(uint64_t ms, uint32_t client)
{
    return ask_mode(ms, client, STILE_EXCLUSIVE, 0);
}

static void grant(uint64_t ms, uint32_t client, uint32_t claim, uint64_t token, uint64_t until_ms)
{
    history_add(&history, &(struct event){.ns = ms * MS,
                                          .kind = EVENT_GRANTED,
                                          .client = client,
                                          .claim = claim,
                                          .token = token,
                                          .deadline_ns = until_ms * MS});
}

static void tell(uint64_t ms, enum event_kind kind, uint32_t client, uint32_t claim)
{
    history_add(&history,
                &(struct event){.ns = ms * MS, .kind = kind, .client = client, .claim = claim});
}

static void tell_status(uint64_t ms, enum event_kind kind, uint32_t client, uint32_t claim,
                        enum stile_status status)
{
    history_add(
        &history,
        &(struct event){
            .ns = ms * MS, .kind = kind, .client = client, .claim = claim, .status = status});
}

/* until_ms UINT64_MAX: without an end. */
static uint32_t ask_until(uint64_t ms, uint32_t client, uint64_t until_ms)
{
    uint64_t until_ns = until_ms == UINT64_MAX ? UINT64_MAX : until_ms * MS;
    return history_ask_more(
        &history, &(struct event){.ns = ms * MS, .client = client, .until_ns = until_ns}, "x");
}

static uint32_t ask_to_keep(uint64_t ms, uint32_t client, uint64_t hold_ms, uint64_t delay_ms)
{
    return history_ask_more(&history,
                            &(struct event){.ns = ms * MS,
                                            .client = client,
                                            .lease_ns = 10000 * MS,
                                            .hold_ns = hold_ms * MS,
                                            .delay_ns = delay_ms * MS},
                            "x");
}

static uint32_t ask_as_another(uint64_t ms, uint32_t client, bool ignores_holds)
{
    return history_ask_more(
        &history,
        &(struct event){
            .ns = ms * MS, .client = client, .foreign = true, .ignores_holds = ignores_holds},
        "x");
}

static void renew(uint64_t ms, uint32_t client, uint32_t claim, uint64_t until_ms)
{
    history_add(&history, &(struct event){.ns = ms * MS,
                                          .kind = EVENT_RENEWED,
                                          .client = client,
                                          .claim = claim,
                                          .deadline_ns = until_ms * MS});
}

static void write_as(uint64_t ms, uint32_t client, uint64_t token, uint64_t seen, uint64_t value,
                     enum write_outcome outcome, bool guarded)
{
    history_add(&history, &(struct event){.ns = ms * MS,
                                          .kind = EVENT_WROTE,
                                          .client = client,
                                          .name = history_name(&history, "store"),
                                          .token = token,
                                          .seen = seen,
                                          .value = value,
                                          .outcome = outcome,
                                          .guarded = guarded});
}

static void judge(unsigned rules)
{
    const struct promises promises = {.rules = rules,
                                      .bound_ns = 1000 * MS,
                                      .takeover_ns = 500 * MS,
                                      .wake_ns = 250 * MS,
                                      .answer_ns = answer_ns,
                                      .queues_foreign = queues_foreign,
                                      .breaks_named = breaks_named};
    assert_true(check_history(&verdict, &history, &promises));
}

static void assert_holds(void)
{
    judge(ALL_RULES);
    if (!verdict.holds)
        check_print_violation(&verdict, &history, stderr);
    assert_true(verdict.holds);
}

static void assert_breaks(enum rule rule, const char *part_of_sentence)
{
    judge(ALL_RULES);
    assert_false(verdict.holds);
    assert_string_equal(check_rule_text(verdict.violation.rule), check_rule_text(rule));
    if (strstr(verdict.violation.sentence, part_of_sentence) == NULL)
        fail_msg("%s", verdict.violation.sentence);
    judge(ALL_RULES & ~(1u << rule)); /* a rule that is not promised is not asked for */
    assert_true(verdict.holds || verdict.violation.rule != rule);
}

/* ---- exclusion ---- */

static void one_after_the_other(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    grant(2, 0, a, 7, 10000);
    tell(50, EVENT_RELEASED, 0, a);
    grant(51, 1, b, 8, 10050);
    renew(3000, 1, b, 13000);
    tell(9000, EVENT_RELEASED, 1, b);
    assert_holds();
    assert_int_equal(verdict.grants, 2);
    assert_int_equal(verdict.longest_wait_ns, 50 * MS);
}

static void before_the_deadline(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    grant(2, 0, a, 7, 10000);
    grant(9999, 1, b, 8, 20000);
    assert_breaks(RULE_OVERLAP, "0.001000 s before the deadline of c0");
    assert_int_equal(verdict.violation.n_events, 0); /* of the second judgement */
}

static void after_the_deadline(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    grant(2, 0, a, 7, 10000);
    grant(10000, 1, b, 8, 20000);
    tell(10500, EVENT_LOST, 0, a);
    assert_holds();
    assert_int_equal(verdict.losses, 1);
}

static void a_renewal_moves_the_deadline(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    grant(2, 0, a, 7, 10000);
    renew(3000, 0, a, 13000);
    grant(10001, 1, b, 8, 20000);
    assert_breaks(RULE_OVERLAP, "c1 was granted x");
}

static void a_dead_holder_holds_nothing(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    grant(2, 0, a, 7, 10000);
    tell(3, EVENT_DIED, 0, 0);
    grant(400, 1, b, 8, 20000);
    assert_holds();
}

static void without_a_deadline(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    grant(2, 0, a, 7, 0);
    history.events[history.n - 1].deadline_ns = UINT64_MAX;
    grant(99999, 1, b, 8, 100000);
    assert_breaks(RULE_OVERLAP, "while c0 held it");
}

static void readers_share(void **state)
{
    (void)state;
    uint32_t a = ask_mode(0, 0, STILE_SHARED, 0), b = ask_mode(1, 1, STILE_SHARED, 0);
    uint32_t c = ask(2, 2);
    grant(3, 0, a, 7, 10000);
    grant(4, 1, b, 8, 10000);
    tell(5, EVENT_RELEASED, 0, a);
    assert_holds();
    grant(6, 2, c, 9, 10000);
    assert_breaks(RULE_OVERLAP, "c2 was granted x");
}

static void a_reader_beside_a_writer(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask_mode(1, 1, STILE_SHARED, 0);
    grant(3, 0, a, 7, 10000);
    grant(4, 1, b, 8, 10000);
    assert_breaks(RULE_OVERLAP, "deadline of c0");
}

static void one_slot_too_many(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        ask_mode(i, i, STILE_SLOTS, 2);
    grant(3, 0, 0, 7, 10000);
    grant(4, 1, 1, 8, 10000);
    assert_holds();
    grant(5, 2, 2, 9, 10000);
    assert_breaks(RULE_OVERLAP, "c2 was granted x");
}

/* ---- tokens ---- */

static void a_token_that_does_not_grow(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    grant(2, 0, a, 7, 10000);
    tell(3, EVENT_RELEASED, 0, a);
    grant(4, 1, b, 6, 10000);
    assert_breaks(RULE_TOKEN_ORDER, "token 6, although 7");
}

static void a_token_twice(void **state)
{
    (void)state;
    uint32_t a = ask_mode(0, 0, STILE_SHARED, 0), b = ask_mode(1, 1, STILE_SHARED, 0);
    grant(2, 0, a, 7, 10000);
    grant(3, 1, b, 7, 10000);
    assert_breaks(RULE_TOKEN_TWICE, "Token 7 of x was issued twice");
}

static void readers_that_asked_together(void **state)
{
    (void)state;
    uint32_t a = ask_mode(0, 0, STILE_SHARED, 0), b = ask_mode(1, 1, STILE_SHARED, 0);
    grant(2, 1, b, 8, 10000);
    grant(3, 0, a, 7, 10000);
    assert_holds();
    uint32_t c = ask_mode(4, 2, STILE_SHARED, 0);
    grant(5, 2, c, 6, 10000);
    assert_breaks(RULE_TOKEN_ORDER, "token 6, although 8");
}

static void names_have_their_own_tokens(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = history_ask(&history, MS, 1, "y", STILE_EXCLUSIVE, 0);
    grant(2, 0, a, 7, 10000);
    grant(3, 1, b, 7, 10000);
    assert_holds();
}

/* ---- claims ---- */

static void granted_twice(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(2, 0, a, 7, 10000);
    tell(3, EVENT_RELEASED, 0, a);
    grant(4, 0, a, 8, 10000);
    assert_breaks(RULE_UNASKED, "c0 was granted claim 0");
}

static void granted_to_another(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(2, 1, a, 7, 10000);
    assert_breaks(RULE_UNASKED, "c1 was granted claim 0");
}

static void renewed_too_late(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(2, 0, a, 7, 10000);
    renew(10002, 0, a, 20000);
    assert_breaks(RULE_UNASKED, "no longer held");
}

static void released_without_a_word(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(2, 0, a, 7, 10000);
    tell(10005, EVENT_RELEASED, 0, a);
    assert_holds();
    history.events[history.n - 1].ns = 10011 * MS;
    assert_breaks(RULE_UNTOLD, "c0 was not told that it had lost x at 10.0");
}

static void told_in_time(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(2, 0, a, 7, 10000);
    tell(10002, EVENT_LOST, 0, a);
    tell(15000, EVENT_RELEASED, 0, a);
    assert_holds();
}

static void no_deadline_is_never_over(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(2, 0, a, 7, 0);
    history.events[history.n - 1].deadline_ns = UINT64_MAX;
    tell(15000, EVENT_RELEASED, 0, a);
    assert_holds();
}

static void granted_too_late(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(10000, 0, a, 7, 10000);
    assert_breaks(RULE_UNTOLD, "when its own deadline had passed");
}

static void acted_on_a_lost_lock(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(2, 0, a, 7, 10000);
    tell(9000, EVENT_ACTED, 0, a);
    tell(10001, EVENT_LOST, 0, a);
    assert_holds();
    tell(10001, EVENT_ACTED, 0, a);
    assert_breaks(RULE_UNTOLD, "c0 was not told that it had lost x");
}

static void acted_after_its_deadline(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(2, 0, a, 7, 10000);
    tell(5000, EVENT_EXCUSED, 0, 0);
    tell(10011, EVENT_ACTED, 0, a);
    assert_breaks(RULE_UNTOLD, "c0 was not told that it had lost x at 10.0");
}

static void told_too_late(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(2, 0, a, 7, 10000);
    tell(11001, EVENT_LOST, 0, a);
    assert_breaks(RULE_UNTOLD, "told only after 1.001");
    tell(11001, EVENT_LOST, 0, a);
    history.events[2] = (struct event){.ns = 5000 * MS, .kind = EVENT_EXCUSED};
    assert_holds();
}

static void a_loss_before_the_deadline(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(2, 0, a, 7, 10000);
    tell(9000, EVENT_LOST, 0, a);
    assert_breaks(RULE_FALSE_LOSS, "lost x, 1.000000 s before its deadline");
}

static void a_release_that_found_nothing(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(2, 0, a, 7, 10000);
    tell(100, EVENT_RELEASED, 0, a);
    tell_status(101, EVENT_ENDED, 0, a, STILE_OK);
    assert_holds();
    history.events[history.n - 1].status = STILE_LOST;
    assert_breaks(RULE_FALSE_LOSS, "lost x");
}

/* ---- breaks ---- */

static void break_at(uint64_t ms, uint64_t answered_ms, enum stile_status status)
{
    tell(ms, EVENT_BREAKS, 0, 0);
    tell_status(answered_ms, EVENT_BROKE, 0, 0, status);
}

static void a_break_is_noticed(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    grant(2, 0, a, 7, 10000);
    tell(50, EVENT_BREAKS, 0, 0);
    tell(50, EVENT_BROKEN, 0, a);
    grant(51, 1, b, 8, 10000);
    tell_status(52, EVENT_BROKE, 0, 0, STILE_OK);
    tell(60, EVENT_LOST, 0, a);
    tell(2000, EVENT_RELEASED, 1, b);
    assert_holds();
    history.events[7].kind = EVENT_ACTED;
    assert_breaks(RULE_UNTOLD, "c0 was not told within a second that its lock x was broken");
}

/* An operator died half-way: the break has come far enough for another grant. */
static void a_grant_beside_a_broken_holder(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    grant(2, 0, a, 7, 10000);
    tell(50, EVENT_BREAKS, 0, 0);
    tell(50, EVENT_BROKEN, 0, a);
    tell_status(51, EVENT_BROKE, 0, 0, STILE_UNCERTAIN);
    grant(52, 1, b, 8, 10000);
    tell(1050, EVENT_LOST, 0, a);
    tell(2000, EVENT_RELEASED, 1, b);
    breaks_named = true;
    assert_holds();
    history.events[7].ns = 1060 * MS;
    assert_breaks(RULE_UNTOLD, "c0 was not told that its lock x was broken within a second");
    breaks_named = false;
    assert_holds();
}

/* It may have been cut off from some servers until shortly before the break. */
static void a_grant_beside_a_broken_holder_after_a_fault(void **state)
{
    (void)state;
    tell(0, EVENT_FAULT, 0, 0);
    tell(10, EVENT_HEALED, 0, 0);
    uint32_t a = ask(11, 0), b = ask(12, 1);
    grant(13, 0, a, 7, 20000);
    tell(3005, EVENT_BREAKS, 0, 0);
    tell(3005, EVENT_BROKEN, 0, a);
    tell_status(3020, EVENT_BROKE, 0, 0, STILE_UNCERTAIN);
    grant(3030, 1, b, 8, 20000);
    tell(4040, EVENT_LOST, 0, a);
    tell(5000, EVENT_RELEASED, 1, b);
    breaks_named = true;
    assert_holds();
    history.events[5].ns = history.events[6].ns = 3015 * MS;
    assert_breaks(RULE_UNTOLD, "c0 was not told that its lock x was broken within a second");
}

static void a_loss_by_a_break_that_was_answered_before(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(2, 0, a, 7, 10000);
    tell(50, EVENT_BREAKS, 0, 0);
    tell(50, EVENT_BROKEN, 0, a);
    tell_status(51, EVENT_BROKE, 0, 0, STILE_UNREACHABLE);
    tell(52, EVENT_LOST, 0, a);
    uint32_t b = ask(53, 1);
    grant(54, 1, b, 8, 10000);
    tell(60, EVENT_LOST, 1, b);
    assert_holds();
    breaks_named = true;
    assert_breaks(RULE_FALSE_LOSS, "c1 was told that it had lost x");
    history.events[4].ns = 55 * MS; /* the break is still under way when it asks */
    struct event answer = history.events[4];
    memmove(&history.events[4], &history.events[5], 3 * sizeof answer);
    history.events[7] = answer;
    history.events[7].ns = 55 * MS;
    assert_holds();
}

static void a_break_overtakes_a_grant(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    break_at(50, 51, STILE_OK);
    grant(52, 0, a, 7, 10000);
    grant(53, 1, b, 8, 10000);
    tell(60, EVENT_LOST, 0, a);
    tell(2000, EVENT_RELEASED, 1, b);
    assert_holds();
    history.events[6].kind = EVENT_ACTED;
    assert_breaks(RULE_OVERLAP, "c0 and c1 both hold x a second after");
}

static void a_break_overtakes_a_grant_to_a_paused_client(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    break_at(50, 51, STILE_OK);
    grant(53, 1, b, 8, 10000);
    grant(3000, 0, a, 7, 4000);
    tell(3001, EVENT_LOST, 0, a);
    tell(3010, EVENT_RELEASED, 1, b);
    assert_holds();
    history.events[4].token = 6;
    assert_breaks(RULE_OVERLAP, "before the deadline of c1");
}

/* Readers and slots hear of their grants in any order: a smaller token is no sign of a break. */
static void a_break_before_two_slots(void **state)
{
    (void)state;
    uint32_t a = ask_mode(0, 0, STILE_SLOTS, 2), b = ask_mode(1, 1, STILE_SLOTS, 2);
    break_at(2, 3, STILE_CONFLICT);
    grant(4, 1, b, 8, 20000);
    grant(5, 0, a, 7, 20000);
    uint32_t c = ask(10, 2);
    tell(20, EVENT_RELEASED, 1, b);
    tell(9000, EVENT_RELEASED, 0, a);
    grant(9001, 2, c, 9, 20000);
    tell(9100, EVENT_RELEASED, 2, c);
    assert_holds();
    history.events[8].ns = 21 * MS; /* the other slot: now the name was free */
    assert_breaks(RULE_STARVED, "c2 waited for x, which was free");
}

/* Tokens have started again: a small one is no sign of a break. */
static void a_break_where_tokens_went_back(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(1, 0, a, 30, 10000);
    tell(2, EVENT_RELEASED, 0, a);
    uint32_t b = ask(3, 1), c = ask(4, 2);
    break_at(5, 6, STILE_CONFLICT);
    grant(1500, 1, b, 3, 20000);
    tell(9000, EVENT_RELEASED, 1, b);
    grant(9001, 2, c, 4, 20000);
    tell(9100, EVENT_RELEASED, 2, c);
    judge(ALL_RULES & ~(1u << RULE_TOKEN_ORDER | 1u << RULE_STARVED));
    assert_true(verdict.holds);
    history.events[7].ns = 900 * MS;
    judge(ALL_RULES & ~(1u << RULE_TOKEN_ORDER));
    assert_true(verdict.holds);
}

/* Its client stands still before it can hear of the break, which was under way already. */
static void a_grant_while_a_break_is_under_way(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    tell(1, EVENT_BREAKS, 0, 0);
    grant(2, 0, a, 7, 10000);
    tell_status(3, EVENT_BROKE, 0, 0, STILE_OK);
    tell(4, EVENT_EXCUSED, 0, 0);
    uint32_t b = ask(5000, 1);
    grant(5001, 1, b, 8, 9000);
    assert_holds();
    history.events[1].kind = EVENT_HEALED;
    history.events[3].kind = EVENT_HEALED;
    assert_breaks(RULE_OVERLAP, "c1 was granted x");
}

/* It was broken while its client stood still, and hears of its grant first and of its loss later.
 */
static void a_grant_that_was_broken_unheard(void **state)
{
    (void)state;
    uint32_t a = ask_mode(0, 0, STILE_SHARED, 0), b = ask(1, 1);
    tell(2, EVENT_EXCUSED, 0, 0);
    break_at(50, 51, STILE_OK);
    grant(3000, 0, a, 7, 9000);
    grant(3010, 1, b, 8, 9000);
    tell(3100, EVENT_LOST, 0, a);
    assert_holds();
    history.events[6].ns = history.events[7].ns = 4100 * MS;
    assert_breaks(RULE_OVERLAP, "before the deadline of c0");
    history.events[6].ns = 3010 * MS;
    history.events[3].kind = history.events[4].kind = EVENT_HEALED; /* there was no break */
    assert_breaks(RULE_OVERLAP, "before the deadline of c0");
}

/* The operator of the second one stands still; it ends a grant that came after the first one's
 * answer. */
static void a_break_behind_the_answer_of_another(void **state)
{
    (void)state;
    uint32_t first = ask(0, 0);
    grant(1, 0, first, 6, 10000);
    tell(2, EVENT_RELEASED, 0, first);
    tell_status(3, EVENT_ENDED, 0, first, STILE_OK);
    tell(4, EVENT_BREAKS, 0, 0);
    tell(5, EVENT_BREAKS, 0, 0);
    tell_status(6, EVENT_BROKE, 0, 0, STILE_OK);
    uint32_t a = ask(1500, 0);
    grant(1501, 0, a, 7, 10000);
    tell(1502, EVENT_LOST, 0, a);
    tell_status(1503, EVENT_BROKE, 0, 0, STILE_OK);
    assert_holds();
    history.events[5].kind = EVENT_HEALED;
    assert_breaks(RULE_FALSE_LOSS, "lost x");
}

/* The client that broke it was closed before its request was answered, or sent. */
static void a_try_behind_a_break_without_an_answer(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(1, 0, a, 7, 10000);
    tell(5, EVENT_BREAKS, 0, 0);
    tell(5, EVENT_BROKEN, 0, a);
    uint32_t b = ask_until(2000, 1, 2000);
    tell_status(2001, EVENT_ANSWERED, 1, b, STILE_HELD);
    assert_holds();
    history.events[3] = (struct event){.ns = 5 * MS, .kind = EVENT_RELEASED, .claim = a};
    assert_breaks(RULE_BUSY, "nobody had used");
}

/* Two may hold it, so only the order of grants on the server is known, not that of the news. */
static void old_news_of_a_grant(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    tell(2, EVENT_EXCUSED, 0, 0);
    grant(3, 1, b, 8, 10000);
    tell(4, EVENT_RELEASED, 1, b);
    grant(5, 0, a, 7, 10000);
    assert_breaks(RULE_TOKEN_ORDER, "although 8 had been issued before");
    judge(ALL_RULES & ~(1u << RULE_OVERLAP));
    assert_true(verdict.holds);
    history.events[2].kind = EVENT_ACTED; /* it did not stand still; its answer was slow */
    judge(ALL_RULES & ~(1u << RULE_OVERLAP));
    assert_true(verdict.holds);
    history.events[history.n - 1].ns = 1004 * MS;
    judge(ALL_RULES & ~(1u << RULE_OVERLAP));
    assert_false(verdict.holds);
}

/* ---- answers ---- */

static void a_wait_that_is_given_up(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask_until(1, 1, UINT64_MAX);
    grant(2, 0, a, 7, 10000);
    tell_status(100, EVENT_ANSWERED, 1, b, STILE_REFUSED);
    assert_holds();
    history.events[history.n - 1].status = STILE_UNREACHABLE;
    assert_breaks(RULE_GAVE_UP, "c1 was answered UNREACHABLE about x before");
}

static void a_wait_that_was_cancelled(void **state)
{
    (void)state;
    answer_ns = 2000 * MS;
    uint32_t a = ask(0, 0), b = ask_until(1, 1, UINT64_MAX);
    grant(2, 0, a, 7, 10000);
    tell(100, EVENT_CANCELLED, 1, b);
    tell_status(2100, EVENT_ANSWERED, 1, b, STILE_CANCELLED);
    assert_holds();
    history.events[history.n - 1].ns += MS;
    assert_breaks(RULE_LATE, "c1 had no answer about x 2.001");
}

static void a_timeout_that_comes_too_late(void **state)
{
    (void)state;
    answer_ns = 2000 * MS;
    uint32_t a = ask(0, 0), b = ask_until(1, 1, 101);
    grant(2, 0, a, 7, 10000);
    tell_status(2101, EVENT_ANSWERED, 1, b, STILE_TIMEOUT);
    assert_holds();
    history.events[history.n - 1].kind = EVENT_ACTED;
    history.events[history.n - 1].claim = a;
    history.events[history.n - 1].ns += MS;
    assert_breaks(RULE_LATE, "c1 had no answer about x");
}

static void a_release_without_an_answer(void **state)
{
    (void)state;
    answer_ns = 2000 * MS;
    uint32_t a = ask(0, 0);
    grant(2, 0, a, 7, 10000);
    tell(100, EVENT_RELEASED, 0, a);
    tell(2101, EVENT_FAULT, 0, 0);
    assert_breaks(RULE_LATE, "c0 had no answer to its release of x");
    tell(2102, EVENT_DIED, 0, 0);
    assert_holds();
}

static void closed_without_an_answer(void **state)
{
    (void)state;
    uint32_t a = ask_until(0, 0, UINT64_MAX);
    tell(1, EVENT_CANCELLED, 0, a);
    tell(2, EVENT_CLOSED, 0, 0);
    assert_breaks(RULE_LATE, "when its client was closed");
}

static void a_try_of_a_free_name(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(2, 0, a, 7, 10000);
    tell(100, EVENT_RELEASED, 0, a);
    tell_status(101, EVENT_ENDED, 0, a, STILE_OK);
    uint32_t b = ask_until(1100, 1, 1100);
    tell_status(1101, EVENT_ANSWERED, 1, b, STILE_HELD); /* too soon to tell */
    assert_holds();
    uint32_t c = ask_until(3000, 1, 3000);
    tell_status(3001, EVENT_ANSWERED, 1, c, STILE_HELD);
    assert_breaks(RULE_BUSY, "nobody had used since 1.101");
}

/* The request that should have broken it never arrived. */
static void a_holder_that_was_not_broken_after_all(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    grant(1, 0, a, 7, 10000);
    tell(5, EVENT_BREAKS, 0, 0);
    tell(5, EVENT_BROKEN, 0, a);
    tell_status(70, EVENT_BROKE, 0, 0, STILE_UNCERTAIN);
    uint32_t b = ask(100, 1);
    renew(5000, 0, a, 15000);
    renew(12000, 0, a, 22000);
    tell(20000, EVENT_RELEASED, 0, a);
    tell_status(20001, EVENT_ENDED, 0, a, STILE_OK);
    grant(20002, 1, b, 8, 30000);
    assert_holds();
    for (size_t i = 6; i < 10; i++) /* no renewal: it was free */
        history.events[i] = (struct event){.ns = 5000 * MS, .kind = EVENT_ACTED, .claim = a};
    assert_breaks(RULE_STARVED, "c1 waited for x");
}

/* The server offers the name to a waiter whose host lost power, until it has noticed. Another
 * program's grant does not go through the queue, and so says nothing about that waiter. */
static void a_try_behind_a_dead_waiter(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    ask(1, 1);
    grant(2, 0, a, 7, 10000);
    tell(5, EVENT_DIED, 1, 0);
    tell(100, EVENT_RELEASED, 0, a);
    tell_status(101, EVENT_ENDED, 0, a, STILE_OK);
    uint32_t b = ask(200, 2);
    grant(201, 2, b, 8, 300);
    tell(250, EVENT_RELEASED, 2, b);
    tell_status(251, EVENT_ENDED, 2, b, STILE_OK);
    uint32_t c = ask_until(5000, 3, 5000);
    tell_status(5001, EVENT_ANSWERED, 3, c, STILE_HELD);
    assert_breaks(RULE_BUSY, "nobody had used since 0.250");
    for (size_t i = 0; i < history.n; i++)
        history.events[i].foreign =
            history.events[i].kind == EVENT_ASKED && history.events[i].claim == b;
    assert_holds();
}

/* ---- what is kept ---- */

static void a_hold_that_is_cut_short(void **state)
{
    (void)state;
    uint32_t a = ask_to_keep(0, 0, 4000, 0), b = ask(1, 1);
    grant(2, 0, a, 7, 9500);
    tell(100, EVENT_RELEASED, 0, a);
    tell_status(101, EVENT_ENDED, 0, a, STILE_OK);
    grant(3900, 1, b, 8, 20000);
    assert_holds();
    history.events[history.n - 1].ns = 1900 * MS;
    assert_breaks(RULE_KEPT, "c1 was granted x at 1.900000 s");
}

static void a_hold_whose_grant_was_slow(void **state)
{
    (void)state;
    uint32_t a = ask_to_keep(0, 0, 4000, 0), b = ask(1, 1);
    tell(2, EVENT_FAULT, 0, 0);
    tell(8000, EVENT_HEALED, 0, 0);
    grant(8100, 0, a, 7, 17500); /* the server may have granted it long before */
    tell(8200, EVENT_RELEASED, 0, a);
    tell_status(8201, EVENT_ENDED, 0, a, STILE_OK);
    grant(8300, 1, b, 8, 20000);
    assert_holds();
}

static void a_delay_that_is_cut_short(void **state)
{
    (void)state;
    uint32_t a = ask_to_keep(0, 0, 0, 4000), b = ask(1, 1);
    grant(2, 0, a, 7, 9500);
    tell(9500, EVENT_LOST, 0, a);
    grant(13400, 1, b, 8, 20000);
    assert_holds();
    history.events[history.n - 1].ns = 11900 * MS;
    assert_breaks(RULE_KEPT, "c1 was granted x at 11.900000 s");
}

/* ---- waiting ---- */

static void a_waiter_that_is_forgotten(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    grant(2, 0, a, 7, 10000);
    tell(100, EVENT_RELEASED, 0, a);
    tell(1101, EVENT_ANSWERED, 1, b);
    assert_breaks(RULE_STARVED, "from 0.100000 s to 1.101000 s");
}

static void a_waiter_at_the_end(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    ask(1, 1);
    grant(2, 0, a, 7, 10000);
    tell(100, EVENT_RELEASED, 0, a);
    tell(200, EVENT_FAULT, 0, 0);
    tell(5000, EVENT_EXCUSED, 7, 0);
    assert_holds();
    tell(5001, EVENT_HEALED, 0, 0);
    tell(6501, EVENT_EXCUSED, 7, 0);
    assert_holds();
    tell(6502, EVENT_EXCUSED, 7, 0);
    assert_breaks(RULE_STARVED, "c1 waited for x");
}

static void a_waiter_that_was_paused(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    ask(1, 1);
    grant(2, 0, a, 7, 10000);
    tell(50, EVENT_EXCUSED, 1, 0);
    tell(100, EVENT_RELEASED, 0, a);
    tell(5000, EVENT_EXCUSED, 7, 0);
    assert_holds();
}

/* Nothing is wrong: the release wakes the waiter, and a look of its own would be too late. */
static void a_waiter_that_is_not_woken(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    grant(2, 0, a, 7, 10000);
    tell(10, EVENT_RELEASED, 0, a);
    tell_status(11, EVENT_ENDED, 0, a, STILE_OK);
    grant(312, 1, b, 8, 10000);
    tell(320, EVENT_RELEASED, 1, b);
    assert_breaks(RULE_STARVED, "c1 was not woken: x was free from 0.010000 s");
    history.events[5].ns = 210 * MS;
    assert_holds();
    history.events[5].ns = 312 * MS;
    history.events[4].status = STILE_REFUSED; /* a release that has failed wakes nobody */
    assert_holds();
}

static void behind_a_dead_holder(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    grant(2, 0, a, 7, 10000);
    tell(3, EVENT_DIED, 0, 0);
    grant(11499, 1, b, 8, 20000); /* its lease, the time to take over, and the bound */
    assert_holds();
    history.events[history.n - 1].ns = 11501 * MS;
    assert_breaks(RULE_STARVED, "c1 waited for x");
}

static void behind_dead_waiters(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0);
    ask(1, 1);
    ask(2, 2);
    uint32_t b = ask(3, 3);
    grant(4, 0, a, 7, 10000);
    tell(5, EVENT_DIED, 1, 0);
    tell(6, EVENT_DIED, 2, 0);
    tell(100, EVENT_RELEASED, 0, a);
    grant(5099, 3, b, 8, 20000); /* the bound, and two seconds for each */
    assert_holds();
    history.events[history.n - 1].ns = 5101 * MS;
    assert_breaks(RULE_STARVED, "c3 waited for x");
    history.events[history.n - 1].ns = 5099 * MS;
    uint32_t c = ask(5100, 4);
    tell(5200, EVENT_RELEASED, 3, b);
    grant(6201, 4, c, 9, 20000); /* they were before the one that was granted */
    assert_breaks(RULE_STARVED, "c4 waited for x");
}

static void out_of_turn(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1);
    grant(2, 0, a, 7, 10000);
    tell(3, EVENT_QUEUED, 1, b);
    uint32_t c = ask(4, 2);
    tell(5, EVENT_RELEASED, 0, a);
    grant(6, 2, c, 8, 10000);
    assert_breaks(RULE_JUMPED, "before c1, which stood in the queue before c2 asked");
}

static void out_of_turn_after_a_break(void **state)
{
    (void)state;
    uint32_t x = history_name(&history, "x"), a = ask(1, 0), b = ask(2, 0);
    history_add(&history, &(struct event){.ns = 3 * MS, .kind = EVENT_BREAKS, .name = x});
    history_add(&history, &(struct event){.ns = 4 * MS, .kind = EVENT_BROKE, .name = x});
    grant(5, 0, b, 7, 10000); /* the other one may have been granted and broken */
    assert_holds();
    (void)a;
}

static void the_later_claim_of_a_client(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 0);
    grant(2, 0, b, 7, 10000);
    assert_breaks(RULE_JUMPED, "c0 was granted x for its later claim first");
    (void)a;
    history.events[1] = (struct event){.ns = MS, .kind = EVENT_FAULT};
    b = ask(3, 0);
    history.events[2] = history.events[3];
    history.n = 3;
    grant(4, 0, b, 7, 10000); /* a request may have been lost meanwhile */
    assert_holds();
}

static void in_turn_as_far_as_is_known(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask(1, 1), c = ask(2, 2);
    grant(3, 0, a, 7, 10000);
    tell(4, EVENT_QUEUED, 1, b);
    tell(5, EVENT_QUEUED, 2, c);
    tell(6, EVENT_RELEASED, 0, a);
    grant(7, 2, c, 8, 10000); /* it had asked before the other's place was confirmed */
    tell(8, EVENT_RELEASED, 2, c);
    grant(9, 1, b, 9, 10000);
    assert_holds();
}

/* ---- other programs ---- */

/* One that polls is owed nothing; one that stands in the queue is. */
static void another_program_that_is_not_woken(void **state)
{
    (void)state;
    uint32_t a = ask(0, 0), b = ask_as_another(1, 1, false);
    grant(2, 0, a, 7, 10000);
    tell(10, EVENT_RELEASED, 0, a);
    tell_status(11, EVENT_ENDED, 0, a, STILE_OK);
    grant(312, 1, b, 8, 10000);
    assert_holds();
    queues_foreign = true;
    assert_breaks(RULE_STARVED, "c1 was not woken");
}

/* Which of the two is the other program makes no difference. */
static void another_program_out_of_turn(void **state)
{
    (void)state;
    queues_foreign = true;
    uint32_t a = ask_as_another(0, 0, false);
    tell(1, EVENT_QUEUED, 0, a);
    uint32_t b = ask(2, 1);
    grant(3, 1, b, 7, 10000);
    assert_breaks(RULE_JUMPED, "before c0");
    history.events[a].foreign = false;
    history.events[2].foreign = true;
    assert_holds(); /* a program without a place in the queue overtakes */
    tell(2, EVENT_QUEUED, 1, b);
    struct event granted = history.events[3];
    history.events[3] = history.events[4];
    history.events[4] = granted;
    assert_breaks(RULE_JUMPED, "before c0");
}

/* Those that asked before it and have died are no longer in the queue. */
static void another_program_behind_a_dead_waiter(void **state)
{
    (void)state;
    queues_foreign = true;
    uint32_t a = ask(0, 0);
    ask(1, 1);
    grant(2, 0, a, 7, 10000);
    tell(5, EVENT_DIED, 1, 0);
    tell(100, EVENT_RELEASED, 0, a);
    tell_status(101, EVENT_ENDED, 0, a, STILE_OK);
    uint32_t b = ask_as_another(200, 2, false);
    tell(200, EVENT_QUEUED, 2, b);
    grant(201, 2, b, 8, 300);
    tell(250, EVENT_RELEASED, 2, b);
    tell_status(251, EVENT_ENDED, 2, b, STILE_OK);
    uint32_t c = ask_until(5000, 3, 5000);
    tell_status(5001, EVENT_ANSWERED, 3, c, STILE_HELD);
    assert_breaks(RULE_BUSY, "nobody had used since 0.250");
}

static void another_program_loses_its_place(void **state)
{
    (void)state;
    uint32_t a = ask_as_another(0, 0, false);
    tell_status(10, EVENT_ANSWERED, 0, a, STILE_LOST);
    assert_breaks(RULE_FALSE_LOSS, "another program");
    history.events[1].status = STILE_UNREACHABLE; /* its session is over */
    assert_holds();
}

static void another_program_is_broken_unheard(void **state)
{
    (void)state;
    uint32_t a = ask_as_another(0, 0, false);
    break_at(1, 2, STILE_OK);
    tell_status(10, EVENT_ANSWERED, 0, a, STILE_LOST);
    assert_holds();
}

static void another_program_ignores_a_hold(void **state)
{
    (void)state;
    uint32_t a = ask_to_keep(0, 0, 5000, 0);
    grant(1, 0, a, 7, 10000);
    tell(10, EVENT_RELEASED, 0, a);
    uint32_t b = ask_as_another(11, 1, true);
    grant(12, 1, b, 8, 10000);
    assert_holds();
    history.events[3].ignores_holds = false;
    assert_breaks(RULE_KEPT, "which was kept after the claim of c0");
}

/* ---- writes ---- */

static void a_late_write_is_refused(void **state)
{
    (void)state;
    write_as(1, 0, 7, 0, 1, WRITE_ACCEPTED, true);
    write_as(2, 1, 8, 1, 2, WRITE_ACCEPTED, true);
    write_as(3, 0, 7, 1, 3, WRITE_REFUSED, true);
    write_as(4, 1, 8, 2, 4, WRITE_ACCEPTED, true);
    assert_holds();
    assert_int_equal(verdict.writes_accepted, 3);
    assert_int_equal(verdict.writes_refused, 1);
}

static void a_late_write_is_accepted(void **state)
{
    (void)state;
    write_as(1, 1, 8, 0, 1, WRITE_ACCEPTED, true);
    write_as(2, 0, 7, 1, 2, WRITE_ACCEPTED, true);
    assert_breaks(RULE_WENT_BACK, "token 7 of c0 after token 8");
}

static void a_write_over_an_unread_value(void **state)
{
    (void)state;
    write_as(1, 0, 7, 0, 1, WRITE_ACCEPTED, true);
    write_as(2, 0, 7, 0, 2, WRITE_ACCEPTED, true);
    assert_breaks(RULE_WRITE_LOST, "overwrote 1 in store");
}

static void without_a_guard_it_is_counted(void **state)
{
    (void)state;
    write_as(1, 1, 8, 0, 1, WRITE_ACCEPTED, false);
    write_as(2, 0, 7, 0, 2, WRITE_ACCEPTED, false);
    assert_holds();
    assert_int_equal(verdict.updates_lost, 1);
}

static void a_write_without_an_answer(void **state)
{
    (void)state;
    write_as(1, 0, 7, 0, 1, WRITE_ACCEPTED, true);
    write_as(2, 0, 7, 1, 2, WRITE_UNKNOWN, true);
    write_as(3, 1, 8, 2, 3, WRITE_ACCEPTED, true); /* it had happened */
    write_as(4, 1, 8, 3, 4, WRITE_UNKNOWN, true);
    write_as(5, 2, 9, 3, 5, WRITE_ACCEPTED, true); /* it had not */
    assert_holds();
}

/* ---- size ---- */

/* A claim more must not cost a look at all claims before it. */
static void many_clients_and_deaths(void **state)
{
    (void)state;
    enum { N = 100000 };
    for (uint32_t i = 0; i < N; i++)
        tell(1, EVENT_QUEUED, i, ask(1, i));
    for (uint32_t i = 0; i < N; i++) {
        grant(2 + i, i, i, i + 1, 10 * N);
        tell(2 + i, i % 2 ? EVENT_DIED : EVENT_RELEASED, i, i);
    }
    judge(ALL_RULES & ~(1u << RULE_STARVED));
    assert_true(verdict.holds);
    assert_int_equal(verdict.grants, N);
}

static void an_event_as_text(void **state)
{
    (void)state;
    char *text;
    size_t size;
    grant(2345, 1, ask(0, 1), 7, 10000);
    write_as(2346, 1, 7, 0, 9, WRITE_REFUSED, true);
    FILE *out = open_memstream(&text, &size);
    history_print(&history, out);
    fclose(out);
    assert_string_equal(text, "0.000000000 c1 asked claim 0 x, exclusive\n"
                              "2.345000000 c1 granted claim 0, token 7, until 10.000000000\n"
                              "2.346000000 c1 wrote store, token 7, 9 over 0, guarded, refused\n");
    free(text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_after_the_other),
        TEST(before_the_deadline),
        TEST(after_the_deadline),
        TEST(a_renewal_moves_the_deadline),
        TEST(a_dead_holder_holds_nothing),
        TEST(without_a_deadline),
        TEST(readers_share),
        TEST(a_reader_beside_a_writer),
        TEST(one_slot_too_many),
        TEST(a_token_that_does_not_grow),
        TEST(a_token_twice),
        TEST(readers_that_asked_together),
        TEST(names_have_their_own_tokens),
        TEST(granted_twice),
        TEST(granted_to_another),
        TEST(renewed_too_late),
        TEST(released_without_a_word),
        TEST(told_in_time),
        TEST(no_deadline_is_never_over),
        TEST(granted_too_late),
        TEST(acted_on_a_lost_lock),
        TEST(acted_after_its_deadline),
        TEST(told_too_late),
        TEST(a_loss_before_the_deadline),
        TEST(a_release_that_found_nothing),
        TEST(a_break_is_noticed),
        TEST(a_grant_beside_a_broken_holder),
        TEST(a_grant_beside_a_broken_holder_after_a_fault),
        TEST(a_loss_by_a_break_that_was_answered_before),
        TEST(a_break_overtakes_a_grant),
        TEST(a_break_overtakes_a_grant_to_a_paused_client),
        TEST(a_wait_that_is_given_up),
        TEST(a_wait_that_was_cancelled),
        TEST(a_timeout_that_comes_too_late),
        TEST(a_release_without_an_answer),
        TEST(closed_without_an_answer),
        TEST(a_try_of_a_free_name),
        TEST(a_holder_that_was_not_broken_after_all),
        TEST(a_try_behind_a_dead_waiter),
        TEST(a_hold_that_is_cut_short),
        TEST(a_hold_whose_grant_was_slow),
        TEST(a_delay_that_is_cut_short),
        TEST(a_break_before_two_slots),
        TEST(a_break_where_tokens_went_back),
        TEST(a_grant_while_a_break_is_under_way),
        TEST(a_grant_that_was_broken_unheard),
        TEST(a_break_behind_the_answer_of_another),
        TEST(a_try_behind_a_break_without_an_answer),
        TEST(old_news_of_a_grant),
        TEST(out_of_turn_after_a_break),
        TEST(the_later_claim_of_a_client),
        TEST(a_waiter_that_is_forgotten),
        TEST(a_waiter_at_the_end),
        TEST(a_waiter_that_was_paused),
        TEST(a_waiter_that_is_not_woken),
        TEST(behind_a_dead_holder),
        TEST(behind_dead_waiters),
        TEST(out_of_turn),
        TEST(in_turn_as_far_as_is_known),
        TEST(another_program_that_is_not_woken),
        TEST(another_program_out_of_turn),
        TEST(another_program_behind_a_dead_waiter),
        TEST(another_program_loses_its_place),
        TEST(another_program_is_broken_unheard),
        TEST(another_program_ignores_a_hold),
        TEST(a_late_write_is_refused),
        TEST(a_late_write_is_accepted),
        TEST(a_write_over_an_unread_value),
        TEST(without_a_guard_it_is_counted),
        TEST(a_write_without_an_answer),
        TEST(many_clients_and_deaths),
        TEST(an_event_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
