/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What `stile torture` does to its workers and, through the user's script, to the servers. */
#include "torture_crew.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAUSE_MS      100 /* between two injections, and up to so much more: */
#define PAUSE_MORE_MS 500
#define PATIENCE_NS   (1500 * NS_PER_MS) /* for a worker in its gap; then any is taken */
#define ANYWHERE_EACH 3 /* one in this many injections does not look for a worker in its gap */
#define SLOW_WAIT_NS  (120 * NS_PER_MS)
#define SLOW_PASS_NS  (15 * NS_PER_MS)
#define BREAK_MS      800      /* a stopped holder whose lock is broken continues after that */
#define DANGER_NS     NS_PER_S /* after the end of a connection */
#define SCRIPT_NS     (90 * NS_PER_S) /* the most that the script may take */

/* ---- which ---- */

bool chaos_allow(unsigned *allowed, const char *list)
{
    *allowed = 0;
    while (*list != '\0') {
        size_t len = strcspn(list, ",");
        unsigned bit = 0;
        for (enum injection_kind kind = 0; kind < INJECT_FAULT; kind++) {
            const char *text = injection_text(kind);
            if (strlen(text) == len && strncmp(text, list, len) == 0)
                bit = 1u << kind;
        }
        if (bit == 0)
            return false;
        *allowed |= bit;
        list += len + (list[len] == ',');
    }
    return true;
}

/* How often each comes: those that the user has named, equally; else by what ends a lock. Without a
 * lease a stop has no consequence. */
static unsigned weight_of(const struct chaos *chaos, enum injection_kind kind)
{
    static const unsigned leased[INJECTION_KINDS] = {
        [INJECT_STOP] = 6, [INJECT_KILL] = 3,  [INJECT_CUT] = 3, [INJECT_RESET] = 2,
        [INJECT_SLOW] = 1, [INJECT_BREAK] = 2, [INJECT_ALL] = 1};
    static const unsigned unleased[INJECTION_KINDS] = {
        [INJECT_STOP] = 1, [INJECT_KILL] = 4, [INJECT_BREAK] = 8, [INJECT_ALL] = 1};
    if (!(chaos->allowed & (1u << kind)))
        return 0;
    if (chaos->named)
        return 1;
    return chaos->lease == STILE_LEASE_PROCESS ? unleased[kind] : leased[kind];
}

/* False: none is allowed. */
static bool choose(struct chaos *chaos)
{
    unsigned sum = 0;
    for (enum injection_kind kind = 0; kind < INJECTION_KINDS; kind++)
        sum += weight_of(chaos, kind);
    if (sum == 0)
        return false;
    /* A short run begins with what bites. */
    chaos->kind = chaos->lease == STILE_LEASE_PROCESS ? INJECT_BREAK : INJECT_STOP;
    chaos->anywhere = false;
    if (chaos->recording->n_injections == 0 && weight_of(chaos, chaos->kind) > 0)
        return true;
    unsigned drawn = (unsigned)poller_random(&chaos->random, sum);
    chaos->kind = 0;
    while (drawn >= weight_of(chaos, chaos->kind))
        drawn -= weight_of(chaos, chaos->kind++);
    /* A break needs a lock to break. */
    chaos->anywhere =
        chaos->kind != INJECT_BREAK && poller_random(&chaos->random, ANYWHERE_EACH) == 0;
    return true;
}

/* Long enough for the lease to end, and for others to take over. */
static uint64_t past_ttl_ns(struct chaos *chaos)
{
    uint64_t ttl = chaos->recording->ttl_ms > 0 ? (uint64_t)chaos->recording->ttl_ms : 400;
    return (ttl * 5 / 4 + 600 + poller_random(&chaos->random, ttl / 4)) * NS_PER_MS;
}

static uint64_t length_of(struct chaos *chaos, enum injection_kind kind)
{
    switch (kind) {
    case INJECT_KILL:
    case INJECT_RESET:
        return 0;
    case INJECT_BREAK:
        return BREAK_MS * NS_PER_MS;
    case INJECT_ALL:
        return (300 + poller_random(&chaos->random, TTL_MS)) * NS_PER_MS;
    default:
        return past_ttl_ns(chaos);
    }
}

/* ---- striking ---- */

static void note(struct chaos *chaos, struct slot *slot, enum injection_kind kind, uint64_t ns)
{
    uint64_t now = poller_now_ns();
    slot->injection =
        recording_inject(chaos->recording,
                         &(struct injection){.kind = kind,
                                             .slot = slot->number,
                                             .name = slot->seen.holds ? slot->seen.name : NO_NUMBER,
                                             .from_ns = now,
                                             .until_ns = now + ns});
    slot->until_ns = now + ns;
    recording_excused(chaos->recording, &slot->seen);
}

static void stop(struct slot *slot)
{
    slot->plight = STOPPED;
    kill(slot->pid, SIGSTOP);
}

static void reset(struct chaos *chaos, struct slot *slot)
{
    recording_endanger(chaos->recording, &slot->seen,
                       slot->seen.broken_until_ns == UINT64_MAX ? UINT64_MAX
                                                                : poller_now_ns() + DANGER_NS);
    proxy_reset(slot->proxy);
}

static void strike(struct chaos *chaos, struct slot *slot, enum injection_kind kind, uint64_t ns)
{
    note(chaos, slot, kind, ns);
    switch (kind) {
    case INJECT_KILL:
        recording_died(chaos->recording, &slot->seen);
        return crew_kill(slot);
    case INJECT_CUT:
        slot->plight = CUT_OFF;
        return proxy_silence(slot->proxy);
    case INJECT_RESET:
        return reset(chaos, slot);
    case INJECT_SLOW:
        slot->plight = SLOWED;
        slot->waits = false;
        slot->toggle_ns = 0;
        return;
    case INJECT_BREAK:
        recording_broken(chaos->recording, &slot->seen);
        errand_start_break(chaos->crew, slot);
        return stop(slot);
    default:
        return stop(slot);
    }
}

static bool is_well(const struct slot *slot)
{
    return slot->pid != 0 && slot->plight == WELL && slot->seen.died_ns == 0;
}

static unsigned count_well(const struct crew *crew)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < crew->n; i++)
        n += is_well(&crew->slots[i]);
    return n;
}

static void strike_all(struct chaos *chaos, uint64_t ns)
{
    for (uint32_t i = 0; i < chaos->crew->n; i++) {
        if (is_well(&chaos->crew->slots[i]))
            strike(chaos, &chaos->crew->slots[i], INJECT_ALL, ns);
    }
}

/* What hits a worker between its read and its write. */
static bool is_precise(enum injection_kind kind)
{
    return kind == INJECT_STOP || kind == INJECT_KILL || kind == INJECT_BREAK;
}

/* Half of the workers stay well, to take over. */
static void strike_one(struct chaos *chaos, struct slot *slot, bool in_gap)
{
    uint64_t ns = length_of(chaos, chaos->kind);
    if (poller_now_ns() + ns > chaos->last_ns)
        chaos->wanted = false; /* too late for this one */
    if (!chaos->wanted || !is_well(slot) || count_well(chaos->crew) <= chaos->crew->n / 2)
        return;
    if (in_gap && is_precise(chaos->kind) && !crew_seize(slot))
        return;
    chaos->wanted = false;
    if (chaos->kind == INJECT_ALL)
        strike_all(chaos, ns);
    else
        strike(chaos, slot, chaos->kind, ns);
}

static void on_gap(struct slot *slot, void *data)
{
    struct chaos *chaos = data;
    if (chaos->wanted && !chaos->anywhere)
        strike_one(chaos, slot, true);
}

static void seek(struct chaos *chaos, uint64_t now)
{
    if (!chaos->wanted && now >= chaos->next_ns) {
        chaos->next_ns =
            now + (PAUSE_MS + poller_random(&chaos->random, PAUSE_MORE_MS)) * NS_PER_MS;
        chaos->wanted = choose(chaos);
        chaos->wanted_ns = now;
    }
    uint64_t patience = chaos->anywhere ? 0 : PATIENCE_NS;
    if (chaos->wanted && chaos->kind != INJECT_BREAK && now >= chaos->wanted_ns + patience)
        strike_one(chaos, &chaos->crew->slots[poller_random(&chaos->random, chaos->crew->n)],
                   false);
}

/* ---- healing ---- */

static void heal_cut(struct chaos *chaos, struct slot *slot)
{
    /* What was on its way arrives late, or never. */
    if (poller_random(&chaos->random, 2) == 0)
        reset(chaos, slot);
    proxy_resume(slot->proxy);
}

static void heal(struct chaos *chaos, struct slot *slot)
{
    enum plight plight = slot->plight;
    slot->plight = WELL;
    if (plight == STOPPED && slot->pid != 0)
        kill(slot->pid, SIGCONT);
    else if (plight == CUT_OFF)
        heal_cut(chaos, slot);
    else if (plight == SLOWED)
        proxy_resume(slot->proxy);
    slot->seen.resumed_ns = poller_now_ns();
    chaos->recording->injections[slot->injection].until_ns = slot->seen.resumed_ns;
    recording_excused(chaos->recording, &slot->seen);
}

static void slow_down(struct slot *slot, uint64_t now)
{
    if (now < slot->toggle_ns)
        return;
    slot->waits = !slot->waits;
    slot->toggle_ns = now + (slot->waits ? SLOW_WAIT_NS : SLOW_PASS_NS);
    if (slot->waits)
        proxy_silence(slot->proxy);
    else
        proxy_resume(slot->proxy);
}

static void tend(struct chaos *chaos, struct slot *slot, uint64_t now)
{
    if (slot->pid == 0 && !chaos->crew->ending)
        crew_replace(slot);
    else if (slot->plight != WELL && now >= slot->until_ns)
        heal(chaos, slot);
    else if (slot->plight == SLOWED)
        slow_down(slot, now);
}

/* ---- the user's script ---- */

static void endanger_all(struct chaos *chaos, uint64_t until_ns)
{
    for (uint32_t i = 0; i < chaos->crew->n; i++)
        recording_endanger(chaos->recording, &chaos->crew->slots[i].seen, until_ns);
}

/* In a group of its own: Ctrl-C must not end it halfway. */
static void script_start(struct chaos *chaos, const char *word)
{
    char text[4096];
    sigset_t none;
    snprintf(text, sizeof text, "%s \"$@\"", chaos->script);
    chaos->script_ns = poller_now_ns() + SCRIPT_NS;
    chaos->script_pid = fork();
    if (chaos->script_pid != 0)
        return;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    close_range(STDERR_FILENO + 1, ~0u, 0);
    execl("/bin/sh", "sh", "-c", text, "sh", word, (char *)NULL);
    _exit(EXIT_NO_COMMAND);
}

/* True: it has ended, or was ended. */
static bool script_is_over(struct chaos *chaos, uint64_t now, const char *word)
{
    int status = 0;
    if (chaos->script_pid > 0) {
        if (now > chaos->script_ns)
            kill(-chaos->script_pid, SIGKILL);
        if (waitpid(chaos->script_pid, &status, WNOHANG) == 0)
            return false;
    }
    if (chaos->script_pid < 0 || status != 0) {
        chaos->recording->script_failures++;
        say("torture: --fault: %s %s failed%s", chaos->script, word,
            now > chaos->script_ns ? ": it took more than 90s" : "");
    }
    chaos->script_pid = 0;
    return true;
}

static void script_break(struct chaos *chaos, uint64_t now)
{
    chaos->script_injection = recording_inject(
        chaos->recording, &(struct injection){INJECT_FAULT, NO_NUMBER, NO_NUMBER, now, UINT64_MAX});
    recording_fault(chaos->recording, false);
    endanger_all(chaos, UINT64_MAX);
    script_start(chaos, "break");
    chaos->script_state = SCRIPT_BREAKS;
}

static void script_healed(struct chaos *chaos)
{
    uint64_t now = poller_now_ns();
    endanger_all(chaos, now + DANGER_NS);
    recording_fault(chaos->recording, true);
    chaos->recording->injections[chaos->script_injection].until_ns = now;
    chaos->script_state = SCRIPT_RESTS;
    chaos->script_ns = now + (TTL_MS + poller_random(&chaos->random, TTL_MS)) * NS_PER_MS;
}

static void script_tick(struct chaos *chaos, uint64_t now, bool ending)
{
    if (chaos->script_state == SCRIPT_RESTS && !ending && now >= chaos->script_ns &&
        now + 2 * TTL_MS * NS_PER_MS < chaos->last_ns) {
        script_break(chaos, now);
    } else if (chaos->script_state == SCRIPT_BREAKS && script_is_over(chaos, now, "break")) {
        chaos->script_state = SCRIPT_BROKEN;
        chaos->script_ns = now + (TTL_MS / 4 + poller_random(&chaos->random, TTL_MS)) * NS_PER_MS;
    } else if (chaos->script_state == SCRIPT_BROKEN && (ending || now >= chaos->script_ns)) {
        script_start(chaos, "heal");
        chaos->script_state = SCRIPT_HEALS;
    } else if (chaos->script_state == SCRIPT_HEALS && script_is_over(chaos, now, "heal")) {
        script_healed(chaos);
    }
}

/* ---- all of it ---- */

void chaos_begin(struct chaos *chaos, uint64_t last_ns)
{
    uint64_t now = poller_now_ns();
    chaos->random = now | 1;
    chaos->last_ns = last_ns;
    chaos->next_ns = now + PAUSE_MORE_MS * NS_PER_MS;
    chaos->crew->in_gap = on_gap;
    chaos->crew->data = chaos;
    chaos->script_state = chaos->script != NULL ? SCRIPT_RESTS : SCRIPT_NONE;
    chaos->script_ns = now + NS_PER_S;
}

void chaos_tick(struct chaos *chaos)
{
    uint64_t now = poller_now_ns();
    for (uint32_t i = 0; i < chaos->crew->n; i++)
        tend(chaos, &chaos->crew->slots[i], now);
    seek(chaos, now);
    script_tick(chaos, now, false);
}

void chaos_end(struct chaos *chaos)
{
    chaos->wanted = false;
    for (uint32_t i = 0; i < chaos->crew->n; i++) {
        if (chaos->crew->slots[i].plight != WELL)
            heal(chaos, &chaos->crew->slots[i]);
    }
    while (chaos->script_state > SCRIPT_RESTS) {
        poller_turn(20);
        script_tick(chaos, poller_now_ns(), true);
    }
}
