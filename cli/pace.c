/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile pace: returns when the next call may start. stile run --pace: the same, under a lock. */
#include "pace.h"

#include <signal.h>

#include "raise.h"

#define LOOK_MS 1000

static struct stile_pace_options options_for_pace(const struct options *options)
{
    return (struct stile_pace_options){
        .size = sizeof(struct stile_pace_options),
        .count = (uint32_t)options->rate.count,
        .per_ms = options->rate.per_ms,
        .burst = (uint32_t)options->burst,
    };
}

/* ---- stile pace ---- */

static void print_json(const struct options *options, enum stile_status status,
                       const struct stile_pace_start *start)
{
    struct json json = {.out = stdout};
    json_open(&json, NULL, '{');
    json_text(&json, "name", options->args[0]);
    json_bool(&json, "start", status == STILE_OK);
    json_int(&json, status == STILE_OK ? "waited_ms" : "next_ms", start->delay_ms);
    json_close(&json, '}');
    putchar('\n');
}

static bool is_far(enum stile_status status)
{
    return status == STILE_HELD || status == STILE_TIMEOUT;
}

static int run(struct options *options)
{
    struct stile_client *client;
    struct stile_pace_start start = {0};
    struct stile_error err = {0};
    const struct stile_pace_options pace = options_for_pace(options);
    if (!(options->given & OPT_RATE)) {
        say("pace: --rate: missing; write --rate 5/1s for five starts in a second; see stile pace "
            "--help");
        return EXIT_USAGE;
    }
    int code = engine_open(&client, options, 0, "stile pace");
    if (code != 0)
        return code;
    enum stile_status status =
        stile_pace(&start, client, options->args[0], &pace, options->wait_ms, &err);
    if ((options->given & OPT_JSON) && (status == STILE_OK || is_far(status)))
        print_json(options, status, &start);
    if (status != STILE_OK)
        code = is_far(status) && (options->given & OPT_QUIET) ? EXIT_NOT_ACQUIRED
                                                              : say_failure("pace", status, &err);
    code = finish_output(code);
    stile_client_close(client);
    return code;
}

const struct verb verb_pace = {
    .name = "pace",
    .accepts = OPT_RATE | OPT_BURST | OPT_TRY | OPT_WAIT | OPT_QUIET | OPT_JSON,
    .min_args = 1,
    .max_args = 1,
    .operands = "NAME",
    .about =
        "Waits until the next call may start, and exits with 0:\n"
        "    stile pace api --rate 5/1s && curl https://api.example\n"
        "Across all machines, no window of one second then holds more than 5 starts. With "
        "--burst, starts are spread evenly, and up to N follow at once after a pause.\n\n"
        "A start is reserved in one step, in the order of arrival, and waited for. If that would "
        "take longer than --wait, nothing is reserved, and the message says when the next start "
        "would be. All callers of NAME give the same rate. The engine needs cells and a clock: "
        "redis, postgres, mysql, zookeeper, local.\n\n"
        "The calls may overlap. For one at a time, use stile run --pace.\n\n"
        "Exit codes: 75 not within --wait, or another rate is in use; 69 engine failed; 64 usage.",
    .wording =
        (const struct wording[]){
            {OPT_TRY, "do not wait: exit 75 if the call may not start now"},
            {OPT_QUIET, "print no message if the call may not start within --wait"},
            {0},
        },
    .run = run,
};

/* ---- stile run --pace ---- */

static void on_start(const struct stile_pace_start *start, enum stile_status status,
                     const struct stile_error *err, void *data)
{
    struct pacing *pacing = data;
    (void)start;
    pacing->answered = true;
    pacing->status = status;
    if (err != NULL)
        pacing->err = *err;
}

static struct stile_lock *find_lost(const struct pacing *pacing)
{
    for (size_t i = 0; i < pacing->n; i++) {
        if (!stile_lock_held(pacing->locks[i]))
            return pacing->locks[i];
    }
    return NULL;
}

static void take_events(struct pacing *pacing)
{
    struct event event;
    while ((event = inbox_next(pacing->inbox)).kind != EVENT_NONE) {
        if (event.sig == SIGTSTP || event.sig == SIGCONT)
            pacing->paused = event.sig == SIGTSTP;
        else if (signals_ends_wait(event.sig) && pacing->sig == 0)
            pacing->sig = event.sig;
    }
    pacing->missed |= pacing->paused;
}

/* 0: it is answered, and not paused. Else a signal, the death of the front or the loss of a lock
 * was first. */
static int wait_for_start(struct pacing *pacing)
{
    pacing->missed = pacing->paused;
    stile_client_dispatch(pacing->client);
    while (!pacing->answered || pacing->paused) {
        wait_ready(pacing->client, pacing->inbox, now_ms() + LOOK_MS);
        take_events(pacing);
        if (pacing->sig != 0 || pacing->inbox->orphaned)
            return EXIT_LOST;
        if (find_lost(pacing) != NULL)
            return raise_tell_lost(find_lost(pacing));
    }
    return find_lost(pacing) != NULL ? raise_tell_lost(find_lost(pacing)) : 0;
}

static int64_t wait_left(const struct pacing *pacing)
{
    int64_t left = pacing->until_ms - now_ms();
    return pacing->until_ms == 0 ? pacing->options->wait_ms : left > 0 ? left : 0;
}

static int await_once(struct pacing *pacing)
{
    const struct stile_pace_options pace = options_for_pace(pacing->options);
    pacing->answered = false;
    enum stile_status asked = stile_pace_async(NULL, pacing->client, pacing->name, &pace,
                                               wait_left(pacing), on_start, pacing);
    if (asked == STILE_OK)
        return wait_for_start(pacing);
    pacing->status = asked;
    return 0;
}

int pace_await(struct pacing *pacing)
{
    if (!(pacing->options->given & OPT_PACE))
        return 0;
    int code = await_once(pacing);
    while (code == 0 && pacing->status == STILE_OK && pacing->missed)
        code = await_once(pacing);
    if (code != 0 || pacing->status == STILE_OK)
        return code;
    if (is_far(pacing->status) && (pacing->options->given & OPT_QUIET))
        return EXIT_NOT_ACQUIRED;
    return say_failure("run: --pace", pacing->status, &pacing->err);
}

int pace_check(const struct options *options, struct stile_client *client)
{
    const struct stile_caps *caps = stile_client_caps(client);
    if (!(options->given & OPT_PACE) || caps->paces)
        return 0;
    if (caps->clock)
        say("run: --pace: this database has no cells; run stile setup URL");
    else
        say("run: --pace: %s has no clock that its clients could go by; use redis, postgres, "
            "mysql, zookeeper or local (stile caps URL prints it)",
            caps->engine);
    return EXIT_ENGINE;
}
