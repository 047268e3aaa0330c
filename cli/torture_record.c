/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the workers of `stile torture` report becomes events. They arrive in any order; judge()
 * sorts them. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "torture.h"

/* A loss that is reported this long after the deadline is late. */
#define LATE_NS (250 * NS_PER_MS)

const char *injection_text(enum injection_kind kind)
{
    static const char *const texts[] = {
#define INJECTION_TEXT(name, text) [INJECT_##name] = text,
        INJECTIONS(INJECTION_TEXT)
#undef INJECTION_TEXT
    };
    return texts[kind];
}

void recording_add(struct recording *recording, const struct event *event)
{
    if (recording->n == recording->room) {
        size_t room = recording->room != 0 ? 2 * recording->room : 4096;
        struct event *events = realloc(recording->events, room * sizeof *events);
        if (events == NULL) {
            recording->out_of_memory = true;
            return;
        }
        recording->events = events;
        recording->room = room;
    }
    recording->events[recording->n++] = *event;
}

size_t recording_inject(struct recording *recording, const struct injection *injection)
{
    if (recording->n_injections == recording->injection_room) {
        size_t room = recording->injection_room != 0 ? 2 * recording->injection_room : 256;
        struct injection *all = realloc(recording->injections, room * sizeof *all);
        recording->injections = must_alloc(all);
        recording->injection_room = room;
    }
    recording->injections[recording->n_injections] = *injection;
    return recording->n_injections++;
}

void recording_free(struct recording *recording)
{
    free(recording->events);
    free(recording->injections);
}

bool recording_enrol(struct recording *recording, struct worker_seen *seen, uint32_t slot)
{
    if (recording->n_clients == sizeof recording->slots / sizeof *recording->slots)
        return false;
    uint64_t until = seen->broken_until_ns, from = seen->broken_from_ns;
    *seen = (struct worker_seen){.client = recording->n_clients,
                                 .claim = NO_NUMBER,
                                 .write = SIZE_MAX,
                                 .broken_from_ns = from,
                                 .broken_until_ns = until};
    recording->slots[recording->n_clients++] = slot;
    return true;
}

void recording_dismiss(struct recording *recording)
{
    recording->n_clients--;
}

/* ---- claims ---- */

static void add_of_client(struct recording *recording, const struct worker_seen *seen,
                          enum event_kind kind, uint64_t ns)
{
    recording_add(recording, &(struct event){.ns = ns, .kind = kind, .client = seen->client});
}

static void add_of_claim(struct recording *recording, const struct worker_seen *seen,
                         enum event_kind kind, uint64_t ns)
{
    recording_add(recording, &(struct event){.ns = ns,
                                             .kind = kind,
                                             .client = seen->client,
                                             .name = seen->name,
                                             .claim = seen->claim,
                                             .token = seen->token,
                                             .deadline_ns = seen->deadline_ns});
}

static void on_asked(struct recording *recording, struct worker_seen *seen,
                     const struct message *message)
{
    if (seen->holds) /* its loss was not reported: it ended at its deadline, or now */
        add_of_claim(recording, seen, EVENT_LOST, message->ns);
    seen->holds = seen->in_gap = false;
    seen->claim = recording->n_claims++;
    seen->own_claim = message->claim;
    seen->name = message->name;
    recording_add(recording, &(struct event){.ns = message->ns,
                                             .kind = EVENT_ASKED,
                                             .client = seen->client,
                                             .name = seen->name,
                                             .claim = seen->claim,
                                             .until_ns = message->ns + WAIT_MS * NS_PER_MS});
}

static void on_granted(struct recording *recording, struct worker_seen *seen,
                       const struct message *message)
{
    seen->holds = true;
    seen->token = message->token;
    seen->deadline_ns = message->deadline_ns;
    seen->renewed_ns = message->ns;
    recording->grants++;
    if (message->ttl_ms > recording->ttl_ms)
        recording->ttl_ms = message->ttl_ms;
    add_of_claim(recording, seen, EVENT_GRANTED, message->ns);
    if (recording->by_connection && message->ns <= seen->broken_until_ns) {
        uint64_t from = seen->broken_from_ns;
        add_of_claim(recording, seen, EVENT_BROKEN, from > message->ns ? from : message->ns);
    }
}

/* The lock has been held all the time: the event is placed before the deadline known so far, even
 * if that had passed when the worker looked again. */
static void on_renewed(struct recording *recording, struct worker_seen *seen,
                       const struct message *message)
{
    if (!seen->holds || message->claim != seen->own_claim ||
        message->deadline_ns <= seen->deadline_ns)
        return;
    uint64_t ns = message->ns < seen->deadline_ns ? message->ns : seen->deadline_ns - 1;
    seen->deadline_ns = message->deadline_ns;
    seen->renewed_ns = ns;
    add_of_claim(recording, seen, EVENT_RENEWED, ns);
}

static void on_lost(struct recording *recording, struct worker_seen *seen,
                    const struct message *message)
{
    if (!seen->holds || message->claim != seen->own_claim)
        return;
    uint64_t due = seen->deadline_ns > seen->resumed_ns ? seen->deadline_ns : seen->resumed_ns;
    recording->losses++;
    recording->late_losses += seen->deadline_ns != UINT64_MAX && message->ns > due + LATE_NS;
    seen->holds = false;
    add_of_claim(recording, seen, EVENT_LOST, message->ns);
}

static void on_given_back(struct recording *recording, struct worker_seen *seen,
                          const struct message *message)
{
    seen->holds = seen->in_gap = false;
    /* Another thread may have looked at the lock since then, and reported that first. */
    add_of_claim(recording, seen, EVENT_RELEASED,
                 message->ns > seen->renewed_ns ? message->ns : seen->renewed_ns);
}

/* Of its claim no more will be heard: a wait or a release was answered. */
static void on_answer(struct recording *recording, struct worker_seen *seen, enum event_kind kind,
                      const struct message *message)
{
    seen->holds = seen->in_gap = false;
    recording_add(recording, &(struct event){.ns = message->ns,
                                             .kind = kind,
                                             .client = seen->client,
                                             .claim = seen->claim,
                                             .status = message->status});
}

/* ---- writes ---- */

/* The event's time is that before the request: a successor that has read the value has sent its
 * own write later. That order holds whenever the answer comes. */
static void on_writes(struct recording *recording, struct worker_seen *seen,
                      const struct message *message)
{
    seen->in_gap = false;
    seen->write = recording->n;
    recording_add(
        recording,
        &(struct event){.ns = message->ns,
                        .kind = EVENT_WROTE,
                        .client = seen->client,
                        .name = (1 + message->counter) * recording->n_names + message->name,
                        .token = message->counter == GUARDED ? message->token : 0,
                        .guarded = message->counter == GUARDED,
                        .outcome = WRITE_UNKNOWN,
                        .seen = message->seen,
                        .value = message->value});
}

static void on_wrote(struct recording *recording, struct worker_seen *seen,
                     const struct message *message)
{
    if (seen->write < recording->n)
        recording->events[seen->write].outcome = message->outcome;
    seen->write = SIZE_MAX;
}

/* ---- messages ---- */

static bool is_about_claim(enum message_kind kind)
{
    return kind != MESSAGE_WRITES && kind != MESSAGE_WROTE;
}

void recording_take(struct recording *recording, struct worker_seen *seen,
                    const struct message *message)
{
    /* What it did between the decision to kill it and its death. Its writes count. */
    if (seen->died_ns != 0 && message->ns >= seen->died_ns && is_about_claim(message->kind))
        return;
    if (message->ns > seen->heard_ns)
        seen->heard_ns = message->ns;
    switch (message->kind) {
    case MESSAGE_ASKED:
        return on_asked(recording, seen, message);
    case MESSAGE_GRANTED:
        return on_granted(recording, seen, message);
    case MESSAGE_RENEWED:
        return on_renewed(recording, seen, message);
    case MESSAGE_PAUSED:
        return add_of_client(recording, seen, EVENT_EXCUSED, message->ns);
    case MESSAGE_READ:
        seen->in_gap = seen->holds;
        return;
    case MESSAGE_WRITES:
        return on_writes(recording, seen, message);
    case MESSAGE_WROTE:
        return on_wrote(recording, seen, message);
    case MESSAGE_RELEASED:
        return on_given_back(recording, seen, message);
    case MESSAGE_ENDED:
        return on_answer(recording, seen, EVENT_ENDED, message);
    case MESSAGE_UNTOLD:
        recording->untold++;
        return;
    case MESSAGE_LOST:
        return on_lost(recording, seen, message);
    case MESSAGE_ANSWERED:
        recording->failures +=
            message->status != STILE_TIMEOUT && message->status != STILE_CANCELLED;
        return on_answer(recording, seen, EVENT_ANSWERED, message);
    case MESSAGE_FAILED:
        recording->failures++;
        return;
    case MESSAGE_COUNTER:
        recording->ends[message->counter][message->name] =
            (struct counter){message->count, message->value};
        return;
    case MESSAGE_OPENED:
    case MESSAGE_DONE:
        return;
    }
}

/* ---- what this process does ---- */

static void add_death(struct recording *recording, struct worker_seen *seen, uint64_t ns)
{
    seen->died_ns = ns;
    seen->holds = seen->in_gap = false;
    add_of_client(recording, seen, EVENT_DIED, ns);
}

void recording_died(struct recording *recording, struct worker_seen *seen)
{
    add_death(recording, seen, poller_now_ns());
}

void recording_crashed(struct recording *recording, struct worker_seen *seen, int status)
{
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    add_death(recording, seen, seen->heard_ns != 0 ? seen->heard_ns : poller_now_ns());
    if (number == SIGKILL || number == SIGTERM) {
        recording->killed_by_others++;
        return;
    }
    recording->crashes++;
    recording->crash_status = status;
}

void recording_excused(struct recording *recording, const struct worker_seen *seen)
{
    add_of_client(recording, seen, EVENT_EXCUSED, poller_now_ns());
}

void recording_broken(struct recording *recording, struct worker_seen *seen)
{
    if (seen->holds)
        add_of_claim(recording, seen, EVENT_BROKEN, poller_now_ns());
}

void recording_endanger(struct recording *recording, struct worker_seen *seen, uint64_t until_ns)
{
    if (seen->broken_until_ns != UINT64_MAX)
        seen->broken_from_ns = poller_now_ns();
    seen->broken_until_ns = until_ns;
    if (recording->by_connection)
        recording_broken(recording, seen);
}

void recording_fault(struct recording *recording, bool healed)
{
    recording_add(recording, &(struct event){.ns = poller_now_ns(),
                                             .kind = healed ? EVENT_HEALED : EVENT_FAULT});
}
