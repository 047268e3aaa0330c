/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what `stile torture` has found. */
#include <inttypes.h>

#include "torture.h"

#define SECONDS(ns) ((double)(ns) / 1e9)

enum conclusion report_conclusion(const struct findings *findings)
{
    if (!findings->verdict.holds || findings->complaint.rule != NULL ||
        findings->tallies[GUARDED].lost > 0)
        return VIOLATED;
    return findings->tallies[PLAIN].lost > 0 ? HOLDS : TOOTHLESS;
}

static uint64_t median_of(const struct takeovers *takeovers)
{
    return takeovers->ns[takeovers->n / 2];
}

static uint64_t longest_of(const struct takeovers *takeovers)
{
    return takeovers->ns[takeovers->n - 1];
}

/* ---- for readers ---- */

static void print_injections(const struct findings *findings)
{
    const char *before = "";
    printf("  injected           ");
    for (enum injection_kind kind = 0; kind < INJECTION_KINDS; kind++) {
        if (findings->injected[kind] == 0)
            continue;
        printf("%s%s %zu", before, injection_text(kind), findings->injected[kind]);
        before = ", ";
    }
    puts(before[0] == '\0' ? "nothing" : "");
}

static void print_takeovers(const struct findings *findings)
{
    for (enum injection_kind kind = 0; kind < INJECTION_KINDS; kind++) {
        const struct takeovers *takeovers = &findings->takeovers[kind];
        if (takeovers->n > 0)
            printf("  take-over, %-7s median %.3f s, longest %.3f s, of %zu\n",
                   injection_text(kind), SECONDS(median_of(takeovers)),
                   SECONDS(longest_of(takeovers)), takeovers->n);
    }
}

static void print_tally(const char *head, const struct tally *tally)
{
    printf("  %-18s %zu lost of %zu updates; %zu refused, %zu without an answer\n", head,
           tally->lost, tally->accepted, tally->refused, tally->unknown);
}

static void print_conclusion(const struct findings *findings, const struct plan *plan)
{
    switch (report_conclusion(findings)) {
    case HOLDS:
        puts(plan->guarded ? "holds: every promise was kept, and with the guard no update was lost"
                           : "holds: every promise was kept");
        return;
    case TOOTHLESS:
        puts("no verdict: without the guard no update was lost either, so this run proves "
             "nothing;\n  give it more time (--for), more clients or fewer names, and let holders "
             "be stopped or broken (--inject)");
        return;
    case VIOLATED:
        if (!findings->verdict.holds)
            check_print_violation(&findings->verdict, &findings->history, stdout);
        if (findings->complaint.rule != NULL)
            printf("%s: %s\n", findings->complaint.rule, findings->complaint.sentence);
        if (findings->tallies[GUARDED].lost > 0)
            printf("lost: %zu acknowledged updates were lost in spite of the guard\n",
                   findings->tallies[GUARDED].lost);
        puts("violated: a promise was broken");
    }
}

void report_print(const struct findings *findings, const struct recording *recording,
                  const struct plan *plan)
{
    printf("%" PRIu32 " clients, %" PRIu32 " names, %.0f s", plan->n_clients, plan->n_names,
           SECONDS(recording->ended_ns - recording->began_ns));
    if (recording->ttl_ms > 0)
        printf(", TTL %.1f s", (double)recording->ttl_ms / 1e3);
    putchar('\n');
    printf("  acquisitions       %zu; longest wait %.3f s; %zu attempts failed\n",
           recording->grants, SECONDS(findings->verdict.longest_wait_ns), recording->failures);
    print_injections(findings);
    if (recording->script_failures > 0)
        printf("  --fault            failed %zu times\n", recording->script_failures);
    if (findings->handovers.n > 0)
        printf("  hand-over          median %.1f ms, 99 %% below %.1f ms, of %zu\n",
               (double)findings->handovers.median_ns / 1e6,
               (double)findings->handovers.p99_ns / 1e6, findings->handovers.n);
    print_takeovers(findings);
    printf("  losses reported    %zu, %zu of them late\n", recording->losses,
           recording->late_losses);
    print_tally("without the guard", &findings->tallies[PLAIN]);
    if (plan->guarded)
        print_tally("with the guard", &findings->tallies[GUARDED]);
    else
        puts("  with the guard     nothing: without tokens there is no guard");
    print_conclusion(findings, plan);
}

/* ---- for programs ---- */

static void json_ms(struct json *json, const char *key, uint64_t ns)
{
    json_uint(json, key, ns / NS_PER_MS);
}

static void json_tally(struct json *json, const char *key, const struct tally *tally)
{
    json_open(json, key, '{');
    json_uint(json, "updates", tally->accepted);
    json_uint(json, "lost", tally->lost);
    json_uint(json, "refused", tally->refused);
    json_uint(json, "unanswered", tally->unknown);
    json_close(json, '}');
}

static void json_injections(struct json *json, const struct findings *findings)
{
    json_open(json, "injected", '{');
    for (enum injection_kind kind = 0; kind < INJECTION_KINDS; kind++)
        json_uint(json, injection_text(kind), findings->injected[kind]);
    json_close(json, '}');
    json_open(json, "takeovers", '{');
    for (enum injection_kind kind = 0; kind < INJECTION_KINDS; kind++) {
        const struct takeovers *takeovers = &findings->takeovers[kind];
        if (takeovers->n == 0)
            continue;
        json_open(json, injection_text(kind), '{');
        json_uint(json, "n", takeovers->n);
        json_ms(json, "median_ms", median_of(takeovers));
        json_ms(json, "longest_ms", longest_of(takeovers));
        json_close(json, '}');
    }
    json_close(json, '}');
}

static void json_handovers(struct json *json, const struct handovers *handovers)
{
    json_open(json, "handovers", '{');
    json_uint(json, "n", handovers->n);
    json_uint(json, "median_us", handovers->median_ns / 1000);
    json_uint(json, "p99_us", handovers->p99_ns / 1000);
    json_close(json, '}');
}

static void json_violation(struct json *json, const struct findings *findings)
{
    const struct violation *violation = &findings->verdict.violation;
    bool by_checker = !findings->verdict.holds;
    if (!by_checker && findings->complaint.rule == NULL) {
        json_null(json, "violation");
        return;
    }
    json_open(json, "violation", '{');
    json_text(json, "rule",
              by_checker ? check_rule_text(violation->rule) : findings->complaint.rule);
    json_text(json, "sentence", by_checker ? violation->sentence : findings->complaint.sentence);
    json_close(json, '}');
}

void report_json(const struct findings *findings, const struct recording *recording,
                 const struct plan *plan)
{
    static const char *const words[] = {
        [HOLDS] = "holds", [TOOTHLESS] = "none", [VIOLATED] = "violated"};
    struct json json = {.out = stdout};
    json_open(&json, NULL, '{');
    json_text(&json, "verdict", words[report_conclusion(findings)]);
    json_violation(&json, findings);
    json_uint(&json, "clients", plan->n_clients);
    json_uint(&json, "names", plan->n_names);
    json_ms(&json, "duration_ms", recording->ended_ns - recording->began_ns);
    json_int(&json, "ttl_ms", recording->ttl_ms);
    json_uint(&json, "acquisitions", recording->grants);
    json_ms(&json, "longest_wait_ms", findings->verdict.longest_wait_ns);
    json_uint(&json, "failed_attempts", recording->failures);
    json_injections(&json, findings);
    json_uint(&json, "fault_failures", recording->script_failures);
    json_handovers(&json, &findings->handovers);
    json_uint(&json, "losses", recording->losses);
    json_uint(&json, "late_losses", recording->late_losses);
    json_tally(&json, "without_guard", &findings->tallies[PLAIN]);
    if (plan->guarded)
        json_tally(&json, "with_guard", &findings->tallies[GUARDED]);
    else
        json_null(&json, "with_guard");
    json_close(&json, '}');
    putchar('\n');
}
