/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile elect: CMD for as long as this process leads.
 *
 * The warden of `stile run` does the work, and campaigns instead of acquiring. When the tree of CMD
 * is gone and the leadership over, it campaigns again. */
#include <signal.h>
#include <string.h>

#include "process.h"

/* A command that ends at once must not make its host the leader again and again. */
#define PAUSE_FIRST_MS 1000
#define PAUSE_MAX_MS   30000
#define CELL_NAME_MAX  (STILE_NAME_MAX - strlen("elect:")) /* of which the cell is named */
#define LED_LONG_MS    10000 /* a leadership of this length was no such failure */

struct elect {
    struct warden_job job; /* first */
    const struct options *options;
    int64_t led_ms;   /* when this leadership began */
    int64_t pause_ms; /* the last one; 0: none so far */
};

/* Before the wait: a campaign that cannot proclaim is not worth waiting for. */
static int check_value(struct warden_job *job, struct stile_client *client)
{
    const struct stile_caps *caps = stile_client_caps(client);
    const struct options *options = ((struct elect *)job)->options;
    if (!(options->given & OPT_PROCLAIM) || caps->proclaims)
        return WARDEN_GO_ON;
    if (caps->cells && caps->token && strlen(options->args[0]) <= CELL_NAME_MAX)
        return WARDEN_GO_ON;
    if (caps->cells && caps->token)
        say("elect: with %s, the name of an election that proclaims a value has at most %zu bytes; "
            "this one has %zu",
            caps->engine, CELL_NAME_MAX, strlen(options->args[0]));
    else
        say("elect: %s has no %s, so a leader cannot proclaim a value; leave --proclaim out, or "
            "use an engine that has both (stile caps URL prints it)",
            caps->engine, caps->token ? "cells" : "tokens");
    return EXIT_ENGINE;
}

static int leads(struct warden_job *job, struct stile_lock *lock)
{
    (void)lock;
    ((struct elect *)job)->led_ms = now_ms();
    return WARDEN_GO_ON;
}

/* Another candidate leads during the pause, if there is one. */
static int64_t campaign_again(struct warden_job *job, bool lost, int code)
{
    struct elect *elect = (struct elect *)job;
    bool quiet = elect->options->given & OPT_QUIET;
    const char *name = elect->options->args[0];
    if (lost) {
        if (!quiet)
            say("%s: campaigning again", name);
        return 0;
    }
    if (child_was_not_executed())
        return -1;
    bool long_enough = now_ms() - elect->led_ms >= LED_LONG_MS;
    int64_t pause_ms = long_enough || elect->pause_ms == 0 ? PAUSE_FIRST_MS : elect->pause_ms * 2;
    elect->pause_ms = pause_ms < PAUSE_MAX_MS ? pause_ms : PAUSE_MAX_MS;
    if (!quiet)
        say("%s: the command has ended with %d; resigned, and campaigning again in %d s", name,
            code, (int)(elect->pause_ms / 1000));
    return elect->pause_ms;
}

static int warden(struct options *options, const struct signals *signals, const struct link *link)
{
    struct elect elect = {
        .job = {.verb = "elect",
                .elects = true,
                .opened = check_value,
                .granted = leads,
                .again = options->given & OPT_ONCE ? NULL : campaign_again},
        .options = options,
    };
    return warden_run(&elect.job, options, signals, link);
}

static int elect(struct options *options)
{
    size_t size = options->given & OPT_PROCLAIM ? strlen(options->proclaim) : 0;
    if (size > STILE_PROCLAIM_MAX) {
        say("elect: --proclaim: %zu bytes, %d is the limit; see stile elect --help", size,
            STILE_PROCLAIM_MAX);
        return EXIT_USAGE;
    }
    int code = run_check_nesting("elect", options);
    return code != 0 ? code : front_run("elect", "the leadership", 1, warden, options);
}

const struct verb verb_elect = {
    .name = "elect",
    .accepts = OPT_TRY | OPT_WAIT | OPT_TTL | OPT_PROFILE | OPT_PROCLAIM | OPT_ONCE | OPT_GRACE |
               OPT_QUIET | OPT_LABEL | OPT_CODE | OPT_FENCED | OPT_GUARD | OPT_COMMAND,
    .min_args = 1,
    .max_args = 1,
    .operands = "NAME -- CMD [ARG...]",
    .about =
        "Runs CMD while this process leads the election NAME. Every process that CMD started is "
        "gone before the leadership ends. Then it campaigns again, unless --once is given.\n\n"
        "If CMD ends by itself, stile resigns, waits a second so that another candidate can lead, "
        "and campaigns again. The pause doubles, up to 30 seconds, while CMD ends within ten "
        "seconds. If the leadership is lost, the whole tree is stopped before the lease ends. "
        "SIGTERM stops the tree and resigns; other signals are passed on to CMD.\n\n"
        "--proclaim TEXT is what stile leader NAME prints, and what observers of Go's Election, "
        "Curator's LeaderLatch and kazoo's Election see. CMD finds the same variables as with "
        "stile run. A paused leader may still write: pass STILE_TOKEN on, or use --guard.\n\n"
        "Exits when a signal has ended CMD or the campaign, or with --once as stile run does: "
        "with CMD's code, or 75 not elected, 76 lost, 69 engine failed (with -E, CODE for these "
        "three), 77 the guard has seen a larger token, 64 usage, 126 CMD cannot be executed, 127 "
        "CMD not found.",
    .wording =
        (const struct wording[]){
            {OPT_TRY, "do not wait: exit 75 if another candidate leads"},
            {OPT_PROCLAIM, "the leader's value, which stile leader prints"},
            {OPT_ONCE, "lead once, then exit"},
            {0},
        },
    .run = elect,
};
