/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile sim: runs seeds in virtual time, and reports those that break a rule. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim/minimise.h"
#include "sim/page.h"

#define EXIT_BROKEN 1
#define EXIT_USAGE  64
#define EXIT_OUTPUT 74

struct progress {
    bool shown;
    time_t last;
};

struct request {
    uint64_t first, n;
    const struct sim_engine_class *engine; /* NULL: all */
    bool trace, single, stop, timing, help;
    const char *script; /* NULL: seeds */
    struct page *page;
    struct progress *progress;
};

struct totals {
    uint64_t seeds, broken, grants, losses, refused, virtual_s;
    uint64_t sum; /* of all traces: two runs of the same seeds print the same */
};

static const char help[] =
    "usage: stile sim [--engine ENGINE] [--seeds N | --seed SEED] [--from SEED]\n"
    "                 [--trace] [--story FILE] [--stop] [--timing] [--script FILE]\n"
    "\n"
    "Runs the engines of stile in virtual time against simulated servers, with\n"
    "failures that a seed chooses, and checks what is promised. A seed that breaks\n"
    "a rule is minimised and explained.\n"
    "\n"
    "      --engine ENGINE     run this engine only (default: all)\n"
    "      --seeds N           number of seeds (default: 1000)\n"
    "      --seed SEED         run this seed alone (default: none)\n"
    "      --from SEED         first of the seeds (default: 1)\n"
    "      --trace             with --seed: print every step\n"
    "      --story FILE        write the first seed that breaks a rule as a page, or\n"
    "                          the one of --seed (default: none)\n"
    "      --stop              stop at the first seed that breaks a rule\n"
    "      --timing            print the processor time to standard error, too\n"
    "      --script FILE       run this written story instead (default: none)\n"
    "  -h, --help              print this help\n"
    "\n"
    "N is a whole number, 1 or more.\n"
    "Exit codes: 0 if every seed holds, 1 if one does not, 64 usage, 74 FILE or\n"
    "standard output could not be written.\n"
    "ENGINE is one of:";

/* ---- a seed that ends the program ---- */

static char doomed[80]; /* the message for it */

static void on_signal(int number)
{
    (void)number; /* it is raised again, and ends the program as it would have */
    if (write(STDERR_FILENO, doomed, strlen(doomed)) < 0)
        _exit(EXIT_BROKEN);
}

static void expect_signals(const struct run_options *options)
{
    static const int numbers[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE};
    snprintf(doomed, sizeof doomed, "seed %" PRIu64 " of %s: an assertion failed, or worse\n",
             options->seed, options->engine->name);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i],
                  &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESETHAND}, NULL);
}

/* ---- progress, at a terminal ---- */

static void progress_show(struct progress *progress, const struct sim_engine_class *engine,
                          const struct totals *totals, uint64_t n)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!progress->shown || now.tv_sec == progress->last)
        return;
    progress->last = now.tv_sec;
    fprintf(stderr, "\r%s: %" PRIu64 " of %" PRIu64 " seeds, %" PRIu64 " broken\033[K",
            engine->name, totals->seeds, n, totals->broken);
}

/* Before anything else is printed: both may be the same terminal. */
static void progress_clear(const struct progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
}

/* ---- one seed ---- */

static void explain(const struct run_options *least)
{
    struct run_options options = *least;
    struct run_result result;
    printf("seed %" PRIu64 " of %s breaks a rule; the least that does so:\n", options.seed,
           options.engine->name);
    options.trace = NULL;
    options.story = stdout;
    sim_run(&result, &options);
    printf("  every step: stile sim --engine %s --seed %" PRIu64 " --trace\n", options.engine->name,
           options.seed);
}

static void offer(const struct run_options *options, bool holds, const struct request *request)
{
    if (request->page->path == NULL || (holds && !request->single) ||
        page_offer(request->page, options, holds))
        return;
    fprintf(stderr, "stile: sim: %s: %s\n", request->page->path, strerror(errno));
    exit(EXIT_OUTPUT);
}

static void run_seed(struct totals *totals, const struct run_options *options,
                     const struct request *request)
{
    struct run_options least = *options;
    struct run_limits limits;
    struct run_result result;
    expect_signals(options);
    sim_run(&result, options);
    totals->seeds++;
    totals->grants += result.verdict.grants;
    totals->losses += result.verdict.losses;
    totals->refused += result.verdict.writes_refused;
    totals->virtual_s += result.virtual_ns / SEC;
    totals->sum = totals->sum * UINT64_C(31) + result.trace_sum;
    if (result.verdict.holds) {
        offer(options, true, request);
        return;
    }
    progress_clear(request->progress);
    totals->broken++;
    least.limits = request->stop ? NULL : &limits;
    if (request->stop) {
        printf("seed %" PRIu64 " of %s: %s: %s\n", options->seed, options->engine->name,
               check_rule_text(result.verdict.violation.rule), result.verdict.violation.sentence);
    } else {
        sim_minimise(&limits, options, &result);
        explain(&least);
    }
    offer(&least, false, request);
    fflush(stdout);
}

/* ---- all of them ---- */

/* Not with the results: two runs of the same seeds print the same. */
static void print_timing(const struct sim_engine_class *engine, const struct totals *totals,
                         double seconds)
{
    fflush(stdout);
    fprintf(stderr, "%s: %.2f s of processor time, %.0f times as fast as real time\n", engine->name,
            seconds, (double)totals->virtual_s / (seconds > 0 ? seconds : 1));
}

static uint64_t run_engine(const struct sim_engine_class *engine, const struct request *request)
{
    struct totals totals = {0};
    clock_t start = clock();
    for (uint64_t i = 0; i < request->n && !(request->stop && totals.broken > 0); i++) {
        run_seed(&totals,
                 &(struct run_options){.engine = engine,
                                       .seed = request->first + i,
                                       .trace = request->trace ? stdout : NULL},
                 request);
        progress_show(request->progress, engine, &totals, request->n);
    }
    progress_clear(request->progress);
    printf("%s: %" PRIu64 " %s, %" PRIu64 " broken; %" PRIu64 " grants, %" PRIu64
           " losses, %" PRIu64 " late writes refused, %" PRIu64
           " s of virtual time, trace %016" PRIx64 "\n",
           engine->name, totals.seeds, totals.seeds == 1 ? "seed" : "seeds", totals.broken,
           totals.grants, totals.losses, totals.refused, totals.virtual_s, totals.sum);
    if (request->timing)
        print_timing(engine, &totals, (double)(clock() - start) / CLOCKS_PER_SEC);
    return totals.broken;
}

/* Says what is wrong with the words of the command; never true. */
__attribute__((format(printf, 1, 2))) static bool misused(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("stile: sim: ", stderr);
    vfprintf(stderr, format, args);
    fputs("; see stile sim --help\n", stderr);
    va_end(args);
    return false;
}

static bool read_count(uint64_t *number, const char *option, uint64_t least)
{
    char *end;
    errno = 0;
    *number = strtoull(optarg, &end, 10);
    if (errno == 0 && *end == '\0' && *optarg >= '0' && *optarg <= '9' && *number >= least)
        return true;
    return misused("--%s: '%s' is not a whole number%s", option, optarg,
                   least > 0 ? " above 0" : "");
}

static bool read_engine(struct request *request)
{
    for (size_t i = 0; sim_engines[i] != NULL; i++) {
        if (strcmp(optarg, sim_engines[i]->name) == 0)
            request->engine = sim_engines[i];
    }
    return request->engine != NULL || misused("there is no engine '%s' here", optarg);
}

static bool read_option(struct request *request, int option, const char *word)
{
    switch (option) {
    case 'n':
        return read_count(&request->n, "seeds", 1);
    case 'f':
        return read_count(&request->first, "from", 0);
    case 's':
        return request->single = read_count(&request->first, "seed", 0);
    case 'e':
        return read_engine(request);
    case 't':
        return request->trace = true;
    case 'p':
        return (request->page->path = optarg) != NULL;
    case 'w':
        return (request->script = optarg) != NULL;
    case 'x':
        return request->stop = true;
    case 'c':
        return request->timing = true;
    case 'h':
        return request->help = true;
    case ':':
        return misused("%s needs a value", word);
    default:
        return misused("%s: no such option", word);
    }
}

static bool read_arguments(struct request *request, int argc, char **argv)
{
    static const struct option known[] = {{"seeds", required_argument, NULL, 'n'},
                                          {"from", required_argument, NULL, 'f'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"trace", no_argument, NULL, 't'},
                                          {"engine", required_argument, NULL, 'e'},
                                          {"stop", no_argument, NULL, 'x'},
                                          {"story", required_argument, NULL, 'p'},
                                          {"script", required_argument, NULL, 'w'},
                                          {"timing", no_argument, NULL, 'c'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":h", known, NULL)) != -1;) {
        if (!read_option(request, option, argv[optind - 1]))
            return false;
    }
    if (request->single)
        request->n = 1;
    if (optind < argc)
        return misused("%s: no such option", argv[optind]);
    return !request->trace || request->single ||
           misused("--trace needs --seed SEED: a trace is of one run");
}

static int print_help(void)
{
    fputs(help, stdout);
    for (size_t i = 0; sim_engines[i] != NULL; i++)
        printf(" %s", sim_engines[i]->name);
    putchar('\n');
    return fflush(stdout) == 0 ? 0 : EXIT_OUTPUT;
}

static void finish_engines(void)
{
    for (size_t i = 0; sim_engines[i] != NULL; i++) {
        if (sim_engines[i]->finish != NULL)
            sim_engines[i]->finish();
    }
}

static int tell(const struct request *request)
{
    enum page_end end = page_tell(request->script, request->page->path);
    finish_engines();
    if (end == PAGE_UNREAD)
        return EXIT_USAGE;
    return end == PAGE_DONE ? 0 : EXIT_OUTPUT;
}

int main(int argc, char **argv)
{
    static struct page page;
    struct progress progress = {.shown = isatty(STDERR_FILENO)};
    struct request request = {.first = 1, .n = 1000, .page = &page, .progress = &progress};
    uint64_t broken = 0;
    if (!read_arguments(&request, argc, argv))
        return EXIT_USAGE;
    if (request.help)
        return print_help();
    if (request.script != NULL)
        return tell(&request);
    for (size_t i = 0; sim_engines[i] != NULL; i++) {
        bool wanted = request.engine == NULL || request.engine == sim_engines[i];
        if (wanted && !(request.stop && broken > 0))
            broken += run_engine(sim_engines[i], &request);
    }
    finish_engines();
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "stile: sim: standard output: %s\n", strerror(errno));
        return EXIT_OUTPUT;
    }
    return broken != 0 ? EXIT_BROKEN : 0;
}
