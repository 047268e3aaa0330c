/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Judges what the workers of `stile torture` did: with the checker of histories, and by following
 * the changes of each counter back from its end. */
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "torture.h"

#define BOUND_NS    (10 * NS_PER_S) /* a waiter of a free name is granted it by then */
#define ANSWER_NS   (15 * NS_PER_S) /* a wait that is over, and a release, are answered by then */
#define HANDOVERS   4               /* this many show whether a release frees a lock */
#define NO_LEASE_MS 1000            /* a lock without a lease is free sooner than that */

/* ---- promises that the checker does not know ---- */

static void complain(struct findings *findings, const char *rule, const char *format, ...)
{
    struct complaint *complaint = &findings->complaint;
    va_list args;
    complaint->rule = rule;
    va_start(args, format);
    vsnprintf(complaint->sentence, sizeof complaint->sentence, format, args);
    va_end(args);
}

static void judge_workers(struct findings *findings, const struct recording *recording)
{
    int status = recording->crash_status;
    if (recording->untold > 0)
        complain(findings, "untold", "%zu losses were seen by their holders, but not reported.",
                 recording->untold);
    if (recording->crashes == 0)
        return;
    if (WIFSIGNALED(status))
        complain(findings, "crashed", "%zu workers crashed, the last one by signal %d (%s).",
                 recording->crashes, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        complain(findings, "crashed", "%zu workers ended by themselves, the last one with %d.",
                 recording->crashes, WEXITSTATUS(status));
}

/* ---- writes by their values, which are unique in a resource ---- */

struct place {
    uint32_t name;
    uint64_t value;
    size_t event; /* SIZE_MAX: none */
};

struct index {
    struct place *places;
    size_t mask;
};

static struct place *index_place(const struct index *index, uint32_t name, uint64_t value)
{
    uint64_t hash = (value + name * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd);
    for (size_t i = hash >> 20;; i++) {
        struct place *place = &index->places[i & index->mask];
        if (place->event == SIZE_MAX || (place->name == name && place->value == value))
            return place;
    }
}

static bool index_build(struct index *index, const struct history *history)
{
    size_t places = 16;
    while (places < 2 * history->n)
        places *= 2;
    index->mask = places - 1;
    index->places = malloc(places * sizeof *index->places);
    if (index->places == NULL)
        return false;
    for (size_t i = 0; i < places; i++)
        index->places[i].event = SIZE_MAX;
    for (size_t i = 0; i < history->n; i++) {
        const struct event *event = &history->events[i];
        if (event->kind == EVENT_WROTE)
            *index_place(index, event->name, event->value) =
                (struct place){event->name, event->value, i};
    }
    return true;
}

/* ---- updates that were lost ---- */

static struct event *find_write(const struct index *index, struct history *history, uint32_t name,
                                uint64_t value)
{
    const struct place *place = value != 0 ? index_place(index, name, value) : NULL;
    return place != NULL && place->event != SIZE_MAX ? &history->events[place->event] : NULL;
}

/* A write without an answer has happened if its value was read, or is there at the end. */
static void settle(const struct index *index, struct history *history, uint32_t name,
                   uint64_t value)
{
    struct event *write = find_write(index, history, name, value);
    if (write != NULL && write->outcome == WRITE_UNKNOWN)
        write->outcome = WRITE_ACCEPTED;
}

/* The number of acknowledged changes that led to the counter's last value. All others are lost. */
static size_t count_kept(const struct index *index, struct history *history, uint32_t name,
                         uint64_t value)
{
    size_t kept = 0, steps = 0;
    struct event *write;
    while ((write = find_write(index, history, name, value)) != NULL && steps++ < history->n) {
        kept += write->outcome == WRITE_ACCEPTED;
        value = write->seen;
    }
    return kept;
}

static uint32_t resource_of(const struct recording *recording, enum counter_kind kind, uint32_t i)
{
    return (1 + kind) * recording->n_names + i;
}

static void count_outcomes(struct findings *findings, uint32_t n_names)
{
    for (size_t i = 0; i < findings->history.n; i++) {
        const struct event *event = &findings->history.events[i];
        if (event->kind != EVENT_WROTE)
            continue;
        struct tally *tally = &findings->tallies[event->name / n_names - 1];
        tally->accepted += event->outcome == WRITE_ACCEPTED;
        tally->refused += event->outcome == WRITE_REFUSED;
        tally->unknown += event->outcome == WRITE_UNKNOWN;
    }
}

static bool judge_writes(struct findings *findings, const struct recording *recording)
{
    struct index index;
    struct history *history = &findings->history;
    if (!index_build(&index, history))
        return false;
    for (size_t i = 0; i < history->n; i++) {
        if (history->events[i].kind == EVENT_WROTE)
            settle(&index, history, history->events[i].name, history->events[i].seen);
    }
    for (enum counter_kind kind = 0; kind < COUNTERS; kind++) {
        for (uint32_t i = 0; i < recording->n_names; i++)
            settle(&index, history, resource_of(recording, kind, i),
                   recording->ends[kind][i].value);
    }
    count_outcomes(findings, recording->n_names);
    for (enum counter_kind kind = 0; kind < COUNTERS; kind++) {
        size_t kept = 0;
        for (uint32_t i = 0; i < recording->n_names; i++)
            kept += count_kept(&index, history, resource_of(recording, kind, i),
                               recording->ends[kind][i].value);
        findings->tallies[kind].lost = findings->tallies[kind].accepted - kept;
    }
    free(index.places);
    return true;
}

/* ---- take-overs ---- */

static int compare_ns(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

/* A claim, when it was made. */
struct made {
    uint64_t asked_ns;
    uint32_t name;
};

/* Its holder is supposed to lose the lock by it. */
static bool ends_a_hold(const struct recording *recording, enum injection_kind kind)
{
    return kind != INJECT_SLOW && (kind != INJECT_RESET || recording->by_connection);
}

/* From when its holder was hit until another one that waited then was granted the lock. */
static void judge_takeover(struct findings *findings, const struct recording *recording,
                           const struct made *claims, const struct injection *injection)
{
    const struct history *history = &findings->history;
    struct takeovers *takeovers = &findings->takeovers[injection->kind];
    if (injection->name == NO_NUMBER || takeovers->n == TAKEOVER_MAX ||
        !ends_a_hold(recording, injection->kind))
        return;
    for (size_t i = 0; i < history->n; i++) {
        const struct event *event = &history->events[i];
        if (event->kind != EVENT_GRANTED || event->ns <= injection->from_ns ||
            claims[event->claim].name != injection->name)
            continue;
        if (recording->slots[event->client] != injection->slot &&
            claims[event->claim].asked_ns < injection->from_ns)
            takeovers->ns[takeovers->n++] = event->ns - injection->from_ns;
        return;
    }
}

/* All workers are stopped one after the other. */
static bool is_part_of_last(const struct recording *recording, size_t i)
{
    const struct injection *one = &recording->injections[i];
    return i > 0 && one->kind == INJECT_ALL && one[-1].kind == INJECT_ALL &&
           one->slot > one[-1].slot;
}

static bool judge_takeovers(struct findings *findings, const struct recording *recording)
{
    const struct history *history = &findings->history;
    struct made *claims = calloc(history->n_claims + 1, sizeof *claims);
    if (claims == NULL)
        return false;
    for (size_t i = 0; i < history->n; i++) {
        const struct event *event = &history->events[i];
        if (event->kind == EVENT_ASKED)
            claims[event->claim] = (struct made){event->ns, event->name};
    }
    for (size_t i = 0; i < recording->n_injections; i++) {
        findings->injected[recording->injections[i].kind] += !is_part_of_last(recording, i);
        judge_takeover(findings, recording, claims, &recording->injections[i]);
    }
    for (enum injection_kind kind = 0; kind < INJECTION_KINDS; kind++)
        qsort(findings->takeovers[kind].ns, findings->takeovers[kind].n, sizeof(uint64_t),
              compare_ns);
    free(claims);
    return true;
}

/* ---- hand-overs ---- */

/* From each release until the lock was granted to a claim that waited then. */
static size_t collect_handovers(uint64_t *times, const struct history *history, struct made *claims,
                                uint64_t *released)
{
    size_t n = 0;
    for (size_t i = 0; i < history->n; i++) {
        const struct event *event = &history->events[i];
        struct made *claim = &claims[event->claim];
        switch (event->kind) {
        case EVENT_ASKED:
            *claim = (struct made){event->ns, event->name};
            break;
        case EVENT_RELEASED:
            released[claim->name] = event->ns;
            break;
        case EVENT_GRANTED:
            if (claim->asked_ns < released[claim->name])
                times[n++] = event->ns - released[claim->name];
            released[claim->name] = 0;
            break;
        default:
            break;
        }
    }
    return n;
}

/* A release that does nothing leaves the lock to the end of its lease, every time. Some hand-overs
 * take as long for other reasons: a waiter that was stopped is passed over, a server was broken. */
static void judge_release(struct findings *findings, const struct recording *recording,
                          uint64_t quick_ns)
{
    uint64_t lease_ms = recording->ttl_ms > 0 ? (uint64_t)recording->ttl_ms : NO_LEASE_MS;
    if (findings->handovers.n < HANDOVERS || quick_ns < lease_ms * NS_PER_MS / 2)
        return;
    complain(findings, "not-freed",
             "Locks that were given back were not free: three of four waiters got them more than "
             "%.3f s later.",
             (double)quick_ns / 1e9);
}

static bool judge_handovers(struct findings *findings, const struct recording *recording)
{
    const struct history *history = &findings->history;
    struct handovers *handovers = &findings->handovers;
    uint64_t *times = calloc(recording->grants + 1, sizeof *times);
    struct made *claims = calloc(history->n_claims + 1, sizeof *claims);
    uint64_t *released = calloc(history->n_names + 1, sizeof *released);
    bool able = times != NULL && claims != NULL && released != NULL;
    if (able) {
        handovers->n = collect_handovers(times, history, claims, released);
        qsort(times, handovers->n, sizeof *times, compare_ns);
        handovers->median_ns = times[handovers->n / 2];
        handovers->p99_ns = times[handovers->n * 99 / 100];
        judge_release(findings, recording, times[handovers->n / 4]);
    }
    free(times);
    free(claims);
    free(released);
    return able;
}

/* ---- the history ---- */

struct numbered {
    struct event event;
    size_t index;
};

static int compare_events(const void *a, const void *b)
{
    const struct numbered *one = a, *other = b;
    if (one->event.ns != other->event.ns)
        return one->event.ns > other->event.ns ? 1 : -1;
    return (one->index > other->index) - (one->index < other->index);
}

static bool sort_events(struct history *history, const struct recording *recording)
{
    struct numbered *sorted = malloc((recording->n + 1) * sizeof *sorted);
    if (sorted == NULL)
        return false;
    for (size_t i = 0; i < recording->n; i++)
        sorted[i] = (struct numbered){recording->events[i], i};
    qsort(sorted, recording->n, sizeof *sorted, compare_events);
    for (size_t i = 0; i < recording->n; i++)
        history_add(history, &sorted[i].event);
    free(sorted);
    return !history->out_of_memory;
}

static void name_all(struct history *history, const struct plan *plan)
{
    char key[KEY_MAX];
    for (uint32_t i = 0; i < plan->n_names; i++) {
        snprintf(key, sizeof key, "%s:lock:%u", plan->prefix, (unsigned)i);
        history_name(history, key);
    }
    for (uint32_t i = 0; i < COUNTERS * plan->n_names; i++) {
        counter_key(key, plan, i / plan->n_names, i % plan->n_names);
        history_name(history, key);
    }
}

static bool judge_history(struct findings *findings, const struct recording *recording)
{
    const struct promises promises = {
        .rules = 1u << RULE_OVERLAP | 1u << RULE_TOKEN_ORDER | 1u << RULE_TOKEN_TWICE |
                 1u << RULE_UNASKED | 1u << RULE_UNTOLD | 1u << RULE_STARVED | 1u << RULE_LATE |
                 1u << RULE_WENT_BACK | 1u << RULE_WRITE_LOST,
        .bound_ns = BOUND_NS,
        .takeover_ns = (uint64_t)recording->ttl_ms * 2 * NS_PER_MS + 2 * NS_PER_S,
        .answer_ns = ANSWER_NS,
    };
    return check_history(&findings->verdict, &findings->history, &promises);
}

bool judge(struct findings *findings, struct recording *recording, const struct plan *plan)
{
    *findings = (struct findings){0};
    history_init(&findings->history);
    name_all(&findings->history, plan);
    bool able = !recording->out_of_memory && sort_events(&findings->history, recording) &&
                judge_writes(findings, recording) && judge_takeovers(findings, recording) &&
                judge_history(findings, recording) && judge_handovers(findings, recording);
    judge_workers(findings, recording);
    return able;
}

void findings_free(struct findings *findings)
{
    history_free(&findings->history);
}
