/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/run.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "sim/faults.h"
#include "sim/story.h"
#include "sim/workload.h"

#define FAULTS_END_NS (40 * SEC) /* when the last fault has healed */
#define WORK_END_NS   (70 * SEC) /* when no new claims are made */
#define END_NS        (90 * SEC)
#define BURSTS_MAX    4
/* Streams that leave the seeds kept in tests/sim as they were. */
#define MORE_STREAM    439
#define RACES_STREAM   512
#define PLOT_STREAM    26
#define FOREIGN_STREAM 15
#define QUEUED_STREAM  43 /* other programs that stand in the queue */
#define DEATHS_STREAM  600
#define RACES_MAX      6
#define DEATHS_MAX     4
#define PLOTS_MIN      4
#define PLOTS_MAX      16
#define BURST_NS       (5 * SEC)
#define BOUND_NS       (7 * SEC)
#define ANSWER_NS      (8 * SEC + 2 * MS) /* a client counts eight seconds by its own clock */
#define TAKEOVER_NS    (12 * SEC)         /* the longest lease, and a second */

const struct run_limits RUN_WITHOUT_LIMITS = {
    .rounds = {[0 ... CROWD_MAX - 1] = UINT_MAX},
    .end_ns = END_NS,
};

static struct {
    struct run_options options;
    struct run_limits limits;
    const struct sim_engine_class *engine;
    struct run_result *result;
    const char *url;
    struct random random;
    struct fault *faults[FAULTS_MAX];
    uint64_t classes; /* of faults that happen in this run: the shared ones, then the engine's */
    uint64_t bursts[BURSTS_MAX];    /* when most faults happen, one shortly after another */
    unsigned n_bursts;              /* 0: at any time */
    bool more, calm;                /* more of what happens; calm: only what is in order */
    bool races, alone;              /* alone: and nothing else goes wrong */
    const struct fault_class *plot; /* the only fault of this run, several times; NULL: none */
    struct random foreign;          /* of other programs */
    void (*others)(uint64_t end_ns, struct random *random); /* NULL: there are none */
} run;

/* ---- faults ---- */

static void mark(enum event_kind kind)
{
    history_add(world_history(), &(struct event){.ns = world_now(), .kind = kind});
}

static void heal(void *data)
{
    struct fault *fault = data;
    world_trace("healed: %s", fault->class->text);
    if (fault->path != NULL)
        net_unblock(fault->path);
    if (fault->class->heal != NULL)
        fault->class->heal(fault);
    story_fault(fault, false);
    if (fault->class->aim != IN_ORDER)
        mark(EVENT_HEALED);
}

static bool can_strike(const struct fault *fault)
{
    return workload_process(fault->user) != NULL &&
           (fault->class->aim != AT_SERVER || server_runs(fault->server));
}

static void strike_now(void *data)
{
    struct fault *fault = data;
    if (!can_strike(fault) || world_now() >= FAULTS_END_NS)
        return;
    if (world_now() + fault->for_ns > FAULTS_END_NS)
        fault->for_ns = FAULTS_END_NS - world_now();
    world_trace("fault: %s (user %u, %s)", fault->class->text, fault->user, fault->server->host);
    if (fault->class->aim != IN_ORDER)
        mark(EVENT_FAULT);
    fault->class->strike(fault);
    story_fault(fault, true);
    run.result->rules &= ~fault->class->breaks;
    world_at(world_now() + fault->for_ns, heal, fault);
}

static void strike(void *data)
{
    struct fault *fault = data;
    if (fault->waits)
        workload_await(fault->user, fault->moment, fault->after_ns, strike_now, fault);
    else
        strike_now(fault);
}

static unsigned count_classes(const struct fault_class *classes)
{
    unsigned n = 0;
    while (classes[n].text != NULL)
        n++;
    return n;
}

static const struct fault_class *class_at(unsigned number)
{
    unsigned shared = count_classes(shared_faults);
    return number < shared ? &shared_faults[number] : &run.engine->faults[number - shared];
}

static unsigned sum_often(unsigned n)
{
    unsigned all = 0;
    for (unsigned i = 0; i < n; i++)
        all += run.classes & UINT64_C(1) << i ? class_at(i)->often : 0;
    return all;
}

/* Half of all runs know some kinds of faults only: what needs three of one kind in a row would
 * otherwise hardly ever happen. */
static void choose_classes(void)
{
    unsigned n = count_classes(shared_faults) + count_classes(run.engine->faults);
    struct random random = random_stream(run.options.seed, 6);
    bool some = random_once_in(&random, 2);
    do
        run.classes = some ? random_next(&random) & random_next(&random) : UINT64_MAX;
    while (sum_often(n) == 0);
}

static const struct fault_class *choose_class(void)
{
    unsigned n = count_classes(shared_faults) + count_classes(run.engine->faults);
    unsigned at = (unsigned)random_below(&run.random, sum_often(n));
    for (unsigned i = 0;; i++) {
        unsigned often = run.classes & UINT64_C(1) << i ? class_at(i)->often : 0;
        if (at < often)
            return class_at(i);
        at -= often;
    }
}

static void choose_bursts(void)
{
    struct random random = random_stream(run.options.seed, 8);
    run.n_bursts =
        random_once_in(&random, 2) ? 0 : (unsigned)random_between(&random, 1, BURSTS_MAX);
    for (unsigned i = 0; i < run.n_bursts; i++)
        run.bursts[i] = random_below(&random, FAULTS_END_NS - BURST_NS - 2 * SEC);
}

static uint64_t choose_time(void)
{
    if (run.n_bursts == 0)
        return random_below(&run.random, FAULTS_END_NS - 2 * SEC);
    return run.bursts[random_below(&run.random, run.n_bursts)] +
           random_below(&run.random, BURST_NS);
}

/* Some wait for the worst moment: a request is on its way, or was just answered. */
static void plan_moment(struct fault *fault, struct random *random)
{
    fault->waits = random_once_in(random, 3);
    fault->moment = (enum moment)random_below(random, MOMENTS);
    fault->after_ns =
        random_once_in(random, 4) ? random_below(random, SEC) : random_below(random, 2 * MS);
}

/* Some follow the one before at once, and concern the same client and server: a grant comes late,
 * and then nothing can be renewed. */
static void plan_after(struct fault *fault, const struct fault *before)
{
    fault->at_ns = before->at_ns + before->for_ns + random_below(&run.random, 300 * MS);
    if (fault->at_ns > FAULTS_END_NS - 2 * SEC)
        fault->at_ns = FAULTS_END_NS - 2 * SEC;
    fault->user = before->user;
    fault->server = before->server;
    fault->waits = false;
}

static void plan_fault(unsigned number)
{
    struct fault *fault = world_alloc(sizeof *fault);
    run.faults[number] = fault;
    fault->class = choose_class();
    fault->at_ns = choose_time();
    fault->for_ns = random_once_in(&run.random, 3) ? random_below(&run.random, 15 * SEC)
                                                   : random_below(&run.random, 2 * SEC);
    fault->user = (unsigned)random_below(&run.random, USERS_MAX);
    fault->server = net_server(random_below(&run.random, net_count()));
    fault->number = (unsigned)random_below(&run.random, 20000000);
    plan_moment(fault, &run.random);
    if (number > 0 && random_once_in(&run.random, 3))
        plan_after(fault, run.faults[number - 1]);
    if (!(run.limits.faults_left_out & (1u << number)))
        world_at(fault->at_ns, strike, fault);
}

/* ---- more of them ---- */

/* Half of all runs have more faults, with random streams of their own: what the others have stays
 * as it was. A third of these have nothing else, and nothing that is wrong: then all that is
 * promised is asked for. */
static void choose_more(void)
{
    struct random random = random_stream(run.options.seed, MORE_STREAM);
    run.more = random_once_in(&random, 2);
    run.calm = run.more && random_once_in(&random, 3);
}

/* A quarter of the runs with more draw one of the engine's plots, or none, and have nothing else:
 * what needs several things in a row, at moments of its own, would hardly ever happen by itself. */
static void choose_plot(void)
{
    struct random random = random_stream(run.options.seed, PLOT_STREAM);
    unsigned n = run.engine->plots != NULL ? count_classes(run.engine->plots) : 0;
    unsigned at = (unsigned)random_below(&random, n + 1);
    if (run.more && at < n && random_once_in(&random, 4))
        run.plot = &run.engine->plots[at];
}

static const struct fault_class *more_class_at(unsigned number)
{
    unsigned shared = count_classes(more_faults);
    return number < shared ? &more_faults[number] : &run.engine->more[number - shared];
}

static const struct fault_class *choose_more_class(struct random *random)
{
    unsigned n = count_classes(more_faults), all = 0;
    n += run.engine->more != NULL ? count_classes(run.engine->more) : 0;
    for (unsigned i = 0; i < n; i++)
        all += !run.calm || more_class_at(i)->aim == IN_ORDER ? more_class_at(i)->often : 0;
    unsigned at = (unsigned)random_below(random, all);
    for (unsigned i = 0;; i++) {
        const struct fault_class *class = more_class_at(i);
        unsigned often = !run.calm || class->aim == IN_ORDER ? class->often : 0;
        if (at < often)
            return class;
        at -= often;
    }
}

static const struct fault_class *choose_from(const struct fault_class *classes,
                                             struct random *random)
{
    unsigned all = 0;
    for (unsigned i = 0; i < count_classes(classes); i++)
        all += classes[i].often;
    unsigned at = (unsigned)random_below(random, all);
    for (; at >= classes->often; classes++)
        at -= classes->often;
    return classes;
}

static struct fault *plan_another(const struct fault_class *class, unsigned number,
                                  struct random *random)
{
    struct fault *fault = world_alloc(sizeof *fault);
    run.faults[number] = fault;
    fault->class = class;
    fault->at_ns = random_below(random, FAULTS_END_NS - 2 * SEC);
    fault->for_ns =
        random_once_in(random, 3) ? random_below(random, 15 * SEC) : random_below(random, SEC);
    fault->user = (unsigned)random_below(random, USERS_MAX);
    fault->server = net_server(random_below(random, net_count()));
    fault->number = (unsigned)random_below(random, 20000000);
    plan_moment(fault, random);
    fault->waits |= random_once_in(random, 2);
    if (!(run.limits.faults_left_out & (1u << number)))
        world_at(fault->at_ns, strike, fault);
    return fault;
}

static void plan_more(void)
{
    struct random random = random_stream(run.options.seed, 10);
    unsigned n = run.plot != NULL
                     ? (unsigned)random_between(&random, PLOTS_MIN, PLOTS_MAX)
                     : (unsigned)random_between(&random, 1, FAULTS_MAX - run.result->n_faults);
    for (unsigned i = 0; i < n; i++)
        plan_another(run.plot != NULL ? run.plot : choose_more_class(&random),
                     run.result->n_faults + i, &random);
    run.result->n_faults += n;
}

/* ---- other programs ---- */

/* They are the last to draw: everything else is as it would be without them. */
static void choose_foreign(void)
{
    run.foreign = random_stream(run.options.seed,
                                run.engine->queues_foreign ? QUEUED_STREAM : FOREIGN_STREAM);
    if (run.engine->foreign == NULL || !random_once_in(&run.foreign, 8))
        return;
    run.others = run.engine->foreign;
    if (run.engine->dialect == NULL || !random_once_in(&run.foreign, 4))
        return;
    run.others = run.engine->foreign_of_dialect;
    run.url = world_print("%s%s", run.url, run.engine->dialect);
}

/* ---- races ---- */

/* A third of all runs, again with streams of their own: faults that strike at the one moment in the
 * life of a claim at which one rule alone prevents the worst, most of them of several steps. */
static void choose_races(void)
{
    struct random random = random_stream(run.options.seed, RACES_STREAM);
    run.races = run.engine->races != NULL && random_once_in(&random, 3) && !run.calm;
    run.alone = run.races && random_once_in(&random, 2);
    run.more &= !run.alone;
}

static unsigned sum_races(const struct race *races)
{
    unsigned all = 0;
    for (; races->fault.text != NULL; races++)
        all += races->fault.often;
    return all;
}

static const struct race *choose_race(struct random *random)
{
    unsigned shared = sum_races(shared_races), own = sum_races(run.engine->races);
    unsigned at = (unsigned)random_below(random, shared + own);
    const struct race *race = at < shared ? shared_races : run.engine->races;
    at -= at < shared ? 0 : shared;
    for (; at >= race->fault.often; race++)
        at -= race->fault.often;
    return race;
}

static void plan_races(void)
{
    struct random random = random_stream(run.options.seed, 14);
    unsigned n = (unsigned)random_between(&random, 1, RACES_MAX);
    for (unsigned i = 0; i < n && run.result->n_faults < FAULTS_MAX; i++) {
        const struct race *race = choose_race(&random);
        struct fault *fault = plan_another(&race->fault, run.result->n_faults++, &random);
        fault->waits = true;
        if (!random_once_in(&random, 4))
            fault->moment = race->moment;
        if (random_once_in(&random, 2))
            fault->after_ns = random_below(&random, MS);
    }
}

/* ---- operators that die ---- */

/* In an eighth of the runs in which something is wrong. */
static void plan_deaths(void)
{
    struct random random = random_stream(run.options.seed, DEATHS_STREAM);
    if (run.engine->deaths == NULL || run.calm || run.alone || run.plot != NULL ||
        !random_once_in(&random, 8))
        return;
    unsigned n = (unsigned)random_between(&random, 1, DEATHS_MAX);
    for (unsigned i = 0; i < n && run.result->n_faults < FAULTS_MAX; i++)
        plan_another(choose_from(run.engine->deaths, &random), run.result->n_faults++, &random);
}

/* ---- forks ---- */

static void fork_client(void *data)
{
    const unsigned *user = data;
    if (workload_process(*user) != NULL)
        workload_fork(*user);
}

/* They change nothing, and so take no part in what else is drawn. */
static void plan_forks(void)
{
    struct random random = random_stream(run.options.seed, 9);
    for (unsigned i = (unsigned)random_below(&random, 3); i > 0; i--) {
        unsigned *user = world_alloc(sizeof *user);
        *user = (unsigned)random_below(&random, USERS_MAX);
        world_at(random_below(&random, WORK_END_NS), fork_client, user);
    }
}

/* ---- the run ---- */

static void save_all(void *data)
{
    (void)data;
    run.engine->save();
    if (world_now() < FAULTS_END_NS)
        world_at(world_now() + SEC, save_all, NULL);
}

static void wind_down(void *data)
{
    (void)data;
    workload_wind_down();
}

static void tell_story(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < run.result->n_users; i++)
        n += run.result->rounds[i] > 0;
    fprintf(run.options.story, "  %u of %u users, %zu servers\n", n, run.result->n_users,
            net_count());
    for (unsigned i = 0; i < run.result->n_faults; i++) {
        const struct fault *fault = run.faults[i];
        if (!(run.limits.faults_left_out & (1u << i)) && fault->at_ns < run.limits.end_ns)
            fprintf(run.options.story, "  %.3f s to %.3f s: %s (user %u, %s)\n",
                    (double)fault->at_ns / SEC, (double)(fault->at_ns + fault->for_ns) / SEC,
                    fault->class->text, fault->user % run.result->n_users, fault->server->host);
    }
    if (!run.result->verdict.holds)
        check_print_violation(&run.result->verdict, world_history(), run.options.story);
}

/* What follows from the rules that were taken back: a lock that may have two holders may be lost at
 * any time, and one that may never be free may turn everybody away. */
static unsigned rules_left(void)
{
    unsigned rules = run.result->rules;
    if (!(rules & BIT(OVERLAP)))
        rules &= ~(BIT(FALSE_LOSS) | BIT(KEPT));
    if (!(rules & BIT(STARVED)))
        rules &= ~(BIT(BUSY) | BIT(JUMPED));
    if (!run.engine->fifo)
        rules &= ~BIT(JUMPED);
    return rules;
}

static void fail(enum rule rule, const char *sentence)
{
    struct violation *violation = &run.result->verdict.violation;
    run.result->verdict = (struct verdict){.violation.rule = rule};
    snprintf(violation->sentence, sizeof violation->sentence, "%s", sentence);
}

/* What is owed at the end of the run is missed then. */
static uint64_t when_broken(void)
{
    const struct violation *violation = &run.result->verdict.violation;
    if (run.result->verdict.holds || violation->n_events == 0 || violation->at_end)
        return world_now();
    return world_history()->events[violation->events[violation->n_events - 1]].ns;
}

/* A server that has failed is a defect of the scripts or of the simulator. */
static void judge(void)
{
    if (run.engine->also_broken != NULL)
        run.result->rules &= ~run.engine->also_broken();
    const struct promises promises = {.rules = rules_left(),
                                      .claims_race = run.engine->claims_race,
                                      .exact_holds = run.engine->exact_holds,
                                      .late_delays = run.engine->late_delays,
                                      .breaks_named = run.engine->breaks_named,
                                      .polls_foreign = run.engine->polls_foreign,
                                      .queues_foreign = run.engine->queues_foreign,
                                      .bound_ns = BOUND_NS,
                                      .takeover_ns = TAKEOVER_NS,
                                      .wake_ns = run.engine->wake_ns,
                                      .answer_ns = ANSWER_NS};
    check_history(&run.result->verdict, world_history(), &promises);
    const char *failed = run.engine->failed != NULL ? run.engine->failed() : NULL;
    if (failed != NULL && run.result->verdict.holds)
        fail(RULE_SERVER, failed);
    if (workload_overdue() != NULL && run.result->verdict.holds && rules_left() & BIT(OVERLAP))
        fail(RULE_DEADLINE, workload_overdue());
    if (workload_forked() != NULL && run.result->verdict.holds)
        fail(RULE_FORKED, workload_forked());
    if (world_is_endless() && run.result->verdict.holds)
        fail(RULE_ENDLESS, "Requests and answers follow each other without an end.");
    run.result->broken_ns = when_broken();
    run.result->trace_sum = world_trace_end();
    run.result->virtual_ns = world_now();
}

static void end_page(void)
{
    story_end(&(struct story_run){.engine = run.engine->name,
                                  .url = run.url,
                                  .seed = run.options.seed,
                                  .users = run.result->n_users,
                                  .rules = rules_left(),
                                  .verdict = &run.result->verdict});
}

static void finish(void)
{
    judge();
    if (run.options.story != NULL)
        tell_story();
    if (run.options.page != NULL)
        end_page();
    workload_dispose();
    run.engine->dispose();
    world_end();
}

/* Half of the time every user has a process of its own. */
static unsigned choose_hosts(unsigned users)
{
    struct random random = random_stream(run.options.seed, 5);
    return random_once_in(&random, 2) ? users : (unsigned)random_between(&random, 1, users);
}

/* Queues that are longer than one look of an engine shows, and long enough to be read in pages.
 * Without order, a place far behind costs time (redlock: a second each). */
static void make_crowd(struct workload *workload)
{
    struct random random = random_stream(run.options.seed, 13);
    if (!run.engine->fifo || !random_once_in(&random, 6))
        return;
    workload->n_users = random_once_in(&random, 6) ? CROWD_MAX : 14;
    workload->n_hosts = workload->n_users;
    workload->n_names = 1;
}

void sim_run(struct run_result *result, const struct run_options *options)
{
    memset(&run, 0, sizeof run);
    *result = (struct run_result){.rules = ALL_RULES};
    run.options = *options;
    run.limits = options->limits != NULL ? *options->limits : RUN_WITHOUT_LIMITS;
    run.engine = options->engine;
    run.result = result;
    world_begin(options->seed, options->trace);
    net_begin();
    if (options->page != NULL)
        story_begin(options->page);
    run.random = random_stream(options->seed, 4);
    run.url = run.engine->begin(&run.random);
    choose_foreign();
    struct workload workload = {
        .url = run.url,
        .n_users = (unsigned)random_between(&run.random, 2, 5),
        .n_names = (unsigned)random_between(&run.random, 1, 2),
        .exclusive_only = run.engine->exclusive_only ||
                          (run.others != NULL && run.others == run.engine->foreign_of_dialect),
        .tokens = run.engine->tokens,
        .votes = run.engine->votes};
    choose_more();
    choose_races();
    choose_plot();
    run.races &= run.plot == NULL;
    workload.more = run.more;
    workload.races = run.races;
    workload.keepers = run.plot != NULL;
    result->n_faults = (unsigned)random_below(&run.random, 16);
    if (run.calm || run.alone || run.plot != NULL)
        result->n_faults = 0;
    memcpy(workload.rounds, run.limits.rounds, sizeof workload.rounds);
    workload.n_hosts = choose_hosts(workload.n_users);
    if (run.more && run.plot == NULL)
        make_crowd(&workload);
    result->n_users = workload.n_users;
    choose_classes();
    choose_bursts();
    for (unsigned i = 0; i < result->n_faults; i++)
        plan_fault(i);
    if (run.more)
        plan_more();
    if (run.races)
        plan_races();
    plan_deaths();
    plan_forks();
    if (run.others != NULL)
        run.others(WORK_END_NS, &run.foreign);
    workload_begin(&workload);
    if (run.engine->save != NULL)
        world_at(0, save_all, NULL);
    world_at(WORK_END_NS, wind_down, NULL);
    world_run(run.limits.end_ns);
    for (unsigned i = 0; i < result->n_users; i++)
        result->rounds[i] = workload_rounds(i);
    finish();
}
