/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Options of all verbs, from one table. */
#include "base/nearest.h"
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LEASE_MIN_MS 1000

enum value_kind { FLAG, TEXT, DURATION, KEEPING, COUNT, NUMBER, CODE, MODE, PROFILE, RATE };

struct option_rule {
    uint64_t bit;
    char letter; /* 0: none */
    const char *name;
    enum value_kind kind;
    size_t offset; /* of its value in struct options */
    const char *value, *about;
    const char *fallback; /* its value if it is not given, also for --help; NULL: none */
    bool or_next;         /* excludes the next one; for the usage line */
};

#define AT(field) offsetof(struct options, field)

/* In the order of --help, the usage lines and the manual. A default that is no value of the option
 * is part of `about`. */
static const struct option_rule rules[] = {
    {OPT_ENGINE, 'e', "engine", TEXT, AT(engine), "URL",
     .about =
         "engine that stores the locks (default: $STILE_ENGINE, else stile.conf, else local:)"},
    {OPT_TRY, 0, "try", FLAG, 0, NULL, .about = "do not wait: exit 75 if the lock is taken",
     .or_next = true},
    {OPT_WAIT, 0, "wait", DURATION, AT(wait_ms), "T",
     .about = "wait at most T, then exit 75 (default: forever)"},
    {OPT_RATE, 0, "rate", RATE, AT(rate), "RATE",
     .about = "at most N starts in any window of T, as N/T: 5/1s, 100/1m; required"},
    {OPT_PACE, 0, "pace", RATE, AT(rate), "RATE",
     .about = "with the lock held, wait for a start of NAME at this rate, as 5/1s (default: none)"},
    {OPT_BURST, 0, "burst", COUNT, AT(burst), "N",
     .about = "spread starts evenly, with up to N at once after a pause (default: exact windows)"},
    {OPT_TTL, 0, "ttl", DURATION, AT(ttl_ms), "T",
     .about = "how long the lock outlives a client that went silent (default: 10s, or the "
              "profile's)"},
    {OPT_SHARED, 0, "shared", FLAG, 0, NULL, .about = "share the lock with other --shared holders",
     .or_next = true},
    {OPT_SLOTS, 0, "slots", COUNT, AT(slots), "N", .about = "let up to N holders in at a time"},
    {OPT_HOLD, 0, "hold-at-least", DURATION, AT(hold_ms), "T",
     .about = "keep the lock for at least T after the grant", .fallback = "0s"},
    {OPT_DELAY, 0, "lock-delay", DURATION, AT(delay_ms), "T",
     .about = "keep the lock for T after an abnormal end", .fallback = "0s"},
    {OPT_PROFILE, 0, "profile", PROFILE, AT(profile), "PROFILE",
     .about = "TTL, renewal and retries: default, financial, cache or batch",
     .fallback = "default"},
    {OPT_GRACE, 0, "grace", DURATION, AT(grace_ms), "T",
     .about = "time from SIGTERM to SIGKILL; less on a short lease", .fallback = "5s"},
    {OPT_LEAVE, 0, "leave", FLAG, 0, NULL,
     .about = "release the lock when CMD ends, even if it left processes running"},
    {OPT_FENCED, 0, "require-token", FLAG, 0, NULL,
     .about = "exit 69 instead of running CMD without a fencing token"},
    {OPT_GUARD, 0, "guard", TEXT, AT(guard), "PLACE",
     .about = "raise the guard at URL#RESOURCE to the lock's token before CMD starts; without "
              "URL, on the engine of the lock (default: no guard)"},
    {OPT_LABEL, 0, "label", TEXT, AT(label), "TEXT",
     .about = "name that stile show prints (default: the program's name)"},
    {OPT_CODE, 'E', "conflict-exit-code", CODE, AT(code), "CODE",
     .about = "exit with CODE instead of 69, 75 or 76"},
    {OPT_PROCLAIM, 0, "proclaim", TEXT, AT(proclaim), "TEXT",
     .about = "text shown to others while holding or awaiting the lock (etcd, ZooKeeper)"},
    {OPT_OWNER, 0, "owner", TEXT, AT(owner), "OWNER",
     .about = "owner value that acquire printed (default: $STILE_OWNER)"},
    {OPT_IF_VERSION, 0, "if-version", NUMBER, AT(if_version), "VERSION",
     .about = "write only if the cell has this version; 0: if there is none (default: any)"},
    {OPT_KEEP, 0, "keep", KEEPING, AT(keep_ms), "T",
     .about = "how long the engine keeps the cell after this write (default: forever)"},
    {OPT_KEEP_FAILURES, 0, "keep-failures", FLAG, 0, NULL,
     .about = "store the result of a run that failed, too"},
    {OPT_FINGERPRINT, 0, "fingerprint", TEXT, AT(fingerprint), "TEXT",
     .about = "exit 79 if KEY was used with another one, or with none (default: none)"},
    {OPT_SLOT, 0, "slot", DURATION, AT(slot_ms), "T",
     .about = "add the current slot of this length to KEY (default: no slot)"},
    {OPT_SHOW, 0, "show", FLAG, 0, NULL, .about = "print what is stored for KEY, and run nothing",
     .or_next = true},
    {OPT_FORGET, 0, "forget", FLAG, 0, NULL,
     .about = "remove what is stored for KEY, and run nothing"},
    {OPT_WATCH, 0, "watch", FLAG, 0, NULL, .about = "print a line now and after every change"},
    {OPT_TOKEN, 0, "token", COUNT, AT(token), "TOKEN",
     .about = "fencing token of the write (default: none)"},
    {OPT_ISSUER, 0, "issuer", TEXT, AT(issuer), "ISSUER",
     .about = "lock that the token comes from, as ENGINE:NAME (default: $STILE_ISSUER, if the "
              "token is $STILE_TOKEN)"},
    {OPT_STRICT, 0, "strict", FLAG, 0, NULL, .about = "refuse a token that was used before, too"},
    {OPT_MODE, 0, "mode", MODE, AT(mode), "MODE",
     .about = "permissions of the file, octal (default: as before, new files 666 & ~umask)"},
    {OPT_YES, 'y', "yes", FLAG, 0, NULL, .about = "do not ask for confirmation"},
    {OPT_ADOPT, 0, "adopt", FLAG, 0, NULL, .about = "take back redlock nodes that lost their data",
     .or_next = true},
    {OPT_RESIZE, 0, "resize", FLAG, 0, NULL,
     .about = "change the members of a redlock group to those in URL"},
    {OPT_PRINT, 0, "print", FLAG, 0, NULL, .about = "print what would run, and run nothing"},
    {OPT_KEY, 0, "key", TEXT, AT(key), "KEY",
     .about = "add nothing if a job with this key is waiting"},
    {OPT_DUE, 0, "delay", DURATION, AT(due_ms), "T",
     .about = "earliest time of the job, counted from now", .fallback = "0s"},
    {OPT_LINES, 0, "lines", FLAG, 0, NULL, .about = "add a job for each line of stdin",
     .or_next = true},
    {OPT_NULL, '0', "null", FLAG, 0, NULL,
     .about = "like --lines, with a NUL at the end of each job"},
    {OPT_PARALLEL, 0, "parallel", COUNT, AT(parallel), "N",
     .about = "number of jobs to run at a time", .fallback = "1"},
    {OPT_TRIES, 0, "tries", COUNT, AT(tries), "N", .about = "number of tries before a job is dead",
     .fallback = "5"},
    {OPT_BACKOFF, 0, "backoff", DURATION, AT(backoff_ms), "T",
     .about = "limit of the random pause after a failure; doubles each time", .fallback = "1s"},
    {OPT_LEASE, 0, "lease", DURATION, AT(lease_ms), "T",
     .about = "how long a claim outlives a worker that went silent", .fallback = "30s"},
    {OPT_FINISH, 0, "finish", DURATION, AT(finish_ms), "T",
     .about = "how long running jobs may continue after SIGTERM", .fallback = "30s"},
    {OPT_ONCE, 0, "once", FLAG, 0, NULL, .about = "run one job, if there is one", .or_next = true},
    {OPT_DRAIN, 0, "drain", FLAG, 0, NULL, .about = "exit when no job is due"},
    {OPT_STATE, 0, "state", TEXT, AT(state), "STATE",
     .about = "list only jobs that are ready, delayed, claimed or dead (default: all)"},
    {OPT_DIALECT, 0, "dialect", TEXT, AT(dialect), "DIALECT", .about = "postgres, mysql or sqlite",
     .fallback = "postgres"},
    {OPT_SCRIPT, 0, "script", TEXT, AT(script), "SCRIPT",
     .about = "print this script for EVAL, as set or del (default: the library)"},
    {OPT_LISTEN, 0, "listen", TEXT, AT(listen), "ADDRESS",
     .about = "where nginx listens (default: 8080)"},
    {OPT_UPSTREAM, 0, "upstream", TEXT, AT(upstream), "ADDRESS",
     .about = "the API that is guarded (default: http://127.0.0.1:8000)"},
    {OPT_STATE_DIR, 0, "state-dir", TEXT, AT(state_dir), "DIR",
     .about = "where nginx keeps the highest tokens (default: /var/lib/stile-guard)"},
    {OPT_REQUIRE, 0, "require", TEXT, AT(require), "WHICH",
     .about = "requests that must carry a token: all, writes or none (default: writes)"},
    {OPT_ADVICE, 0, "access", TEXT, AT(advice[0]), "WORK",
     .about = "what the work does: reads, writes, adds, once, leads or calls (default: asked)"},
    {OPT_ADVICE, 0, "writes-to", TEXT, AT(advice[1]), "WHERE",
     .about = "postgres, mysql, sqlite, redis, file, http, cell or other (default: asked)"},
    {OPT_ADVICE, 0, "hold", TEXT, AT(advice[2]), "T",
     .about = "how long the work takes, from reading to its last write (default: asked)"},
    {OPT_ADVICE, 0, "contention", TEXT, AT(advice[3]), "LEVEL",
     .about = "how often two want the same thing: low or high (default: asked)"},
    {OPT_ADVICE, 0, "for", TEXT, AT(advice[4]), "GOAL",
     .about = "efficiency: doing it twice is a nuisance; correctness: it is damage (default: "
              "asked)"},
    {OPT_ADVICE, 0, "engines", TEXT, AT(advice[5]), "LIST",
     .about = "those you have, separated by commas: local (all on one machine), redis, redlock "
              "(several Redis servers), etcd, zk, postgres, mysql, dynamodb (default: asked)"},
    {OPT_TORTURE, 0, "for", DURATION, AT(for_ms), "T", .about = "how long the run takes, 6s to 1h",
     .fallback = "60s"},
    {OPT_TORTURE, 0, "clients", COUNT, AT(clients), "N", .about = "number of workers",
     .fallback = "8"},
    {OPT_TORTURE, 0, "names", COUNT, AT(names), "N", .about = "number of locks", .fallback = "4"},
    {OPT_TORTURE, 0, "inject", TEXT, AT(inject), "KINDS",
     .about =
         "faults for the workers, separated by commas: stop, kill, cut, reset, slow, break, all "
         "(default: all)"},
    {OPT_TORTURE, 0, "fault", TEXT, AT(fault), "CMD",
     .about = "a script that breaks and heals servers, run as CMD break and CMD heal (default: "
              "none)"},
    {OPT_TORTURE, 0, "timeline", TEXT, AT(timeline), "FILE",
     .about = "draw the run, as FILE.svg or FILE.html (default: no drawing)"},
    {OPT_TORTURE, 0, "history", TEXT, AT(history), "FILE",
     .about = "write every event to FILE (default: they are only checked)"},
    {OPT_TABLE, 0, "table", FLAG, 0, NULL, .about = "print all rules; the first that fits counts"},
    {OPT_QUIET, 'q', "quiet", FLAG, 0, NULL,
     .about = "print no messages about waiting or a lock that was not acquired"},
    {OPT_PAYLOAD, 0, "payload", FLAG, 0, NULL, .about = "print the payload and nothing else",
     .or_next = true},
    {OPT_JSON, 0, "json", FLAG, 0, NULL, .about = "print JSON"},
    {OPT_HELP, 'h', "help", FLAG, 0, NULL, .about = "print this help"},
};

#define N_RULES (sizeof rules / sizeof rules[0])

static bool accepts(const struct verb *verb, const struct option_rule *rule)
{
    return (verb->accepts | (verb->without_engine ? 0 : OPT_ENGINE) | OPT_HELP) & rule->bit;
}

static int usage_error(const struct verb *verb, const char *word, const char *why)
{
    bool asks = why[strlen(why) - 1] == '?';
    say("%s: %s: %s%s stile %s --help", verb->name, word, why, asks ? " See" : "; see", verb->name);
    return EXIT_USAGE;
}

static const char *parse_number(uint64_t *count, const char *text)
{
    uint64_t number = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at < '0' || *at > '9')
            return "not a whole number";
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number))
            return "number too large";
    }
    *count = number;
    return text[0] == '\0' ? "is empty" : NULL;
}

static const char *parse_count(uint64_t *count, const char *text)
{
    const char *wrong = parse_number(count, text);
    return wrong == NULL && *count == 0 ? "must be a positive whole number" : wrong;
}

static const char *parse_code(uint64_t *code, const char *text)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || number > 255)
        return "must be a whole number from 0 to 255";
    *code = number;
    return NULL;
}

static const char *parse_mode(uint64_t *mode, const char *text)
{
    char *end;
    unsigned long number = strtoul(text, &end, 8);
    if (text[0] < '0' || text[0] > '7' || *end != '\0' || number == 0 || number > 0777)
        return "must be an octal number from 1 to 777";
    *mode = number;
    return NULL;
}

static const char *parse_profile(enum stile_profile *profile, const char *text)
{
    static const char *const names[] = {
        [STILE_PROFILE_DEFAULT] = "default",
        [STILE_PROFILE_FINANCIAL] = "financial",
        [STILE_PROFILE_CACHE] = "cache",
        [STILE_PROFILE_BATCH] = "batch",
    };
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0) {
            *profile = (enum stile_profile)i;
            return NULL;
        }
    }
    return "not a profile; there are default, financial, cache and batch";
}

static const char *parse_keeping(int64_t *ms, const char *text)
{
    if (strcmp(text, "forever") != 0)
        return duration_parse(ms, text);
    *ms = STILE_CELL_KEEP_MAX;
    return NULL;
}

static const char *parse_rate(struct rate *rate, const char *text)
{
    char count[8];
    const char *slash = strchr(text, '/');
    size_t len = slash != NULL ? (size_t)(slash - text) : sizeof count;
    if (len >= sizeof count)
        return "not a rate; write a number and a time, as in 5/1s";
    memcpy(count, text, len);
    count[len] = '\0';
    if (parse_count(&rate->count, count) != NULL || rate->count > STILE_PACE_COUNT_MAX)
        return "a rate has 1 to 1000 starts, as in 5/1s; for more, give a shorter time";
    const char *wrong = duration_parse(&rate->per_ms, slash + 1);
    bool fits = rate->per_ms >= 10 && rate->per_ms <= INT64_C(366) * 24 * 3600 * 1000;
    return wrong != NULL || fits ? wrong : "the time of a rate is 10ms to 366d";
}

static const char *set_value(struct options *options, const struct option_rule *rule, char *value)
{
    void *at = (char *)options + rule->offset;
    switch (rule->kind) {
    case FLAG:
        return NULL;
    case TEXT:
        *(char **)at = value;
        return value[0] != '\0' ? NULL : "is empty";
    case DURATION:
        return duration_parse(at, value);
    case KEEPING:
        return parse_keeping(at, value);
    case COUNT:
        return parse_count(at, value);
    case NUMBER:
        return parse_number(at, value);
    case CODE:
        return parse_code(at, value);
    case MODE:
        return parse_mode(at, value);
    case PROFILE:
        return parse_profile(at, value);
    case RATE:
        return parse_rate(at, value);
    }
    return NULL;
}

static const struct option_rule *rule_of(const struct verb *verb, const char *word, size_t len)
{
    for (size_t i = 0; i < N_RULES; i++) {
        const struct option_rule *rule = &rules[i];
        if (!accepts(verb, rule))
            continue;
        if (word[1] == '-'
                ? strlen(rule->name) == len - 2 && memcmp(rule->name, word + 2, len - 2) == 0
                : rule->letter == word[1])
            return rule;
    }
    return NULL;
}

static int unknown_option(const struct verb *verb, const char *name)
{
    char why[64] = "unknown option";
    struct nearest nearest = nearest_to(name + 2, strlen(name) > 2 ? strlen(name) - 2 : 0);
    for (size_t i = 0; i < N_RULES && name[1] == '-'; i++) {
        if (accepts(verb, &rules[i]))
            nearest_try(&nearest, rules[i].name);
    }
    if (nearest.best != NULL)
        snprintf(why, sizeof why, "unknown option; did you mean --%s?", nearest.best);
    return usage_error(verb, name, why);
}

/* Takes the option at **at and perhaps its value behind it, and moves *at past them. */
static int take_option(struct options *options, const struct verb *verb, char ***at, char **end)
{
    char *word = *(*at)++;
    bool is_long = word[1] == '-';
    char *equals = is_long ? strchr(word, '=') : NULL;
    char *value = equals != NULL ? equals + 1 : !is_long && word[2] != '\0' ? word + 2 : NULL;
    size_t len = equals != NULL ? (size_t)(equals - word) : strlen(word);
    const struct option_rule *rule = rule_of(verb, word, len);
    /* The value stays out of the message: it may be a URL with a password. */
    char name[40];
    snprintf(name, sizeof name, "%.*s", is_long ? (int)(len < 39 ? len : 39) : 2, word);
    if (rule == NULL)
        return unknown_option(verb, name);
    if (rule->kind == FLAG && value != NULL)
        return usage_error(verb, name, "takes no value");
    if (rule->kind != FLAG && value == NULL) {
        if (*at == end)
            return usage_error(verb, name, "needs a value");
        value = *(*at)++;
    }
    options->given |= rule->bit;
    const char *wrong = set_value(options, rule, value);
    return wrong != NULL ? usage_error(verb, name, wrong) : 0;
}

static int check_together(const struct options *options, const struct verb *verb)
{
    uint64_t given = options->given;
    if ((given & OPT_TRY) && (given & OPT_WAIT))
        return usage_error(verb, "--try", "cannot go with --wait");
    if ((given & OPT_SHARED) && (given & OPT_SLOTS))
        return usage_error(verb, "--shared", "cannot go with --slots");
    if ((given & OPT_BURST) && !(given & (OPT_PACE | OPT_RATE)))
        return usage_error(verb, "--burst",
                           verb->accepts & OPT_PACE ? "goes with --pace only"
                                                    : "goes with --rate only");
    if (options->burst > STILE_PACE_COUNT_MAX)
        return usage_error(verb, "--burst", "at most 1000 starts");
    if (options->slots > UINT32_MAX)
        return usage_error(verb, "--slots", "number too large");
    if ((given & OPT_TTL) && options->ttl_ms == 0)
        return usage_error(verb, "--ttl", "must be more than 0");
    if ((given & OPT_KEEP) && options->keep_ms == 0)
        return usage_error(verb, "--keep", "must be more than 0");
    if ((given & OPT_LEASE) && options->lease_ms < LEASE_MIN_MS)
        return usage_error(verb, "--lease", "must be at least 1s, to leave room to extend it");
    if ((given & OPT_GRACE) && (given & OPT_TTL) && options->grace_ms > options->ttl_ms / 2)
        return usage_error(verb, "--grace",
                           "must be at most half of --ttl, to leave room to renew");
    return 0;
}

/* It may be a URL with a password. */
static int one_too_many(const struct verb *verb, const char *word)
{
    char redacted[STILE_URL_MAX + 1];
    if (strstr(word, "://") != NULL || strchr(word, '=') != NULL) {
        stile_url_redact(redacted, sizeof redacted, word);
        word = redacted;
    }
    return usage_error(verb, word, "one argument too many");
}

static int check_count(const struct options *options, const struct verb *verb)
{
    if (options->n_args < verb->min_args)
        return usage_error(verb, verb->argument != NULL ? verb->argument : "NAME", "missing");
    if (options->n_args > verb->max_args)
        return one_too_many(verb, options->args[verb->max_args]);
    if ((verb->accepts & OPT_COMMAND) && options->command[0] == NULL &&
        !(options->given & verb->alone))
        return usage_error(verb, "CMD", "missing after --");
    return 0;
}

/* One of its options says that no command follows. */
static bool stands_alone(const struct verb *verb, char **argv)
{
    for (; *argv != NULL; argv++) {
        const struct option_rule *rule =
            strncmp(*argv, "--", 2) == 0 ? rule_of(verb, *argv, strlen(*argv)) : NULL;
        if (rule != NULL && (rule->bit & verb->alone))
            return true;
    }
    return false;
}

static int without_command(struct options *options, const struct verb *verb, char **argv)
{
    for (; *argv != NULL; argv++) {
        if (strcmp(*argv, "--help") == 0 || strcmp(*argv, "-h") == 0) {
            options->given = OPT_HELP;
            return 0;
        }
    }
    say("%s: no -- found; write the command after it: stile %s %s -- CMD [ARG...]", verb->name,
        verb->name, verb->argument != NULL ? verb->argument : "NAME");
    return EXIT_USAGE;
}

static void set_fallbacks(struct options *options, const struct verb *verb)
{
    for (size_t i = 0; i < N_RULES; i++) {
        if (rules[i].fallback != NULL && accepts(verb, &rules[i]))
            set_value(options, &rules[i], (char *)rules[i].fallback);
    }
}

static bool is_operand(const struct verb *verb, const char *word)
{
    return word[0] != '-' || word[1] == '\0' ||
           (verb->negatives && word[1] >= '0' && word[1] <= '9');
}

int options_parse(struct options *options, const struct verb *verb, int argc, char **argv)
{
    *options = (struct options){.wait_ms = -1, .args = argv};
    set_fallbacks(options, verb);
    char **end = argv + 1;
    while (*end != NULL && strcmp(*end, "--") != 0)
        end++;
    /* Reported first: without it, options of the command would be taken for stile's. */
    if ((verb->accepts & OPT_COMMAND) && *end == NULL && !stands_alone(verb, argv + 1))
        return without_command(options, verb, argv + 1);

    for (char **at = argv + 1; at < end;) {
        if (is_operand(verb, *at)) {
            options->args[options->n_args++] = *at++;
            continue;
        }
        int code = take_option(options, verb, &at, end);
        if (code != 0 || (options->given & OPT_HELP))
            return code;
    }
    if (verb->accepts & OPT_COMMAND)
        options->command = *end != NULL ? end + 1 : end;
    else
        for (char **at = end < argv + argc ? end + 1 : end; *at != NULL; at++)
            options->args[options->n_args++] = *at;
    if (options->given & OPT_TRY)
        options->wait_ms = 0;
    int code = check_together(options, verb);
    return code != 0 ? code : check_count(options, verb);
}

/* ---- help ---- */

#define ABOUT_COLUMN 26

static const char *about_of(const struct verb *verb, const struct option_rule *rule)
{
    for (const struct wording *at = verb->wording; at != NULL && at->bit != 0; at++) {
        if (at->bit == rule->bit)
            return at->about;
    }
    return rule->about;
}

static void print_rule(const struct verb *verb, const struct option_rule *rule)
{
    char letter[8] = "    ", about[200];
    if (rule->letter != 0)
        snprintf(letter, sizeof letter, "-%c, ", rule->letter);
    int column = printf("  %s--%s%s%s", letter, rule->name, rule->value != NULL ? " " : "",
                        rule->value != NULL ? rule->value : "");
    if (column + 2 > ABOUT_COLUMN) {
        putchar('\n');
        column = 0;
    }
    if (rule->fallback != NULL)
        snprintf(about, sizeof about, "%s (default: %s)", about_of(verb, rule), rule->fallback);
    else
        snprintf(about, sizeof about, "%s", about_of(verb, rule));
    printf("%*s", ABOUT_COLUMN - column, "");
    print_wrapped(about, ABOUT_COLUMN, ABOUT_COLUMN);
}

static void print_rules(const struct verb *verb)
{
    bool durations = false, numbers = false;
    for (size_t i = 0; i < N_RULES; i++) {
        if (!accepts(verb, &rules[i]))
            continue;
        print_rule(verb, &rules[i]);
        durations |= rules[i].value != NULL && strcmp(rules[i].value, "T") == 0;
        numbers |= rules[i].value != NULL && strcmp(rules[i].value, "N") == 0;
    }
    if (durations || numbers)
        putchar('\n');
    if (durations)
        puts("T is a duration: 250ms, 10s, 5m, 2h, 1d.");
    if (numbers)
        puts("N is a whole number, 1 or more.");
}

static void write_usage(FILE *out, const struct verb *verb)
{
    const char *before = "[";
    for (size_t i = 0; i < N_RULES; i++) {
        const struct option_rule *rule = &rules[i];
        if (rule->bit == OPT_HELP || !accepts(verb, rule))
            continue;
        if (rule->letter != 0)
            fprintf(out, "%s-%c", before, rule->letter);
        else
            fprintf(out, "%s--%s", before, rule->name);
        if (rule->value != NULL)
            fprintf(out, " %s", rule->value);
        before = rule->or_next && accepts(verb, rule + 1) ? " | " : "] [";
    }
    fprintf(out, "]%s%s", verb->operands[0] != '\0' ? " " : "", verb->operands);
}

/* head: "usage:", or as many blanks. */
static void print_usage(const char *head, const struct verb *verb)
{
    char *text = NULL;
    size_t size;
    FILE *out = must_alloc(open_memstream(&text, &size));
    write_usage(out, verb);
    fclose(out);
    int column = printf("%s stile %s ", head, verb->name);
    print_wrapped(must_alloc(text), (size_t)column, (size_t)column);
    free(text);
}

void options_print_help(const struct verb *verb)
{
    print_usage("usage:", verb);
    putchar('\n');
    print_wrapped(verb->about, 0, 0);
    putchar('\n');
    print_rules(verb);
}

void options_print_group(const struct verb *const *verbs, size_t n)
{
    struct verb all = {.without_engine = true};
    for (size_t i = 0; i < n; i++) {
        print_usage(i == 0 ? "usage:" : "      ", verbs[i]);
        all.accepts |= verbs[i]->accepts;
        all.without_engine &= verbs[i]->without_engine;
        if (all.wording == NULL)
            all.wording = verbs[i]->wording;
    }
    for (size_t i = 0; i < n; i++) {
        printf("\nstile %s:\n", verbs[i]->name);
        print_wrapped(verbs[i]->about, 0, 0);
    }
    putchar('\n');
    print_rules(&all);
}

int options_exit_code(const struct options *options, int code)
{
    bool ours = code == EXIT_ENGINE || code == EXIT_NOT_ACQUIRED || code == EXIT_LOST;
    return ours && (options->given & OPT_CODE) ? (int)options->code : code;
}

struct stile_lock_options options_for_lock(const struct options *options)
{
    enum stile_mode mode = options->given & OPT_SHARED  ? STILE_SHARED
                           : options->given & OPT_SLOTS ? STILE_SLOTS
                                                        : STILE_EXCLUSIVE;
    return (struct stile_lock_options){
        .size = sizeof(struct stile_lock_options),
        .mode = mode,
        .slots = (unsigned)options->slots,
        .profile = options->profile,
        .ttl_ms = options->ttl_ms,
        .hold_at_least_ms = options->hold_ms,
        .lock_delay_ms = options->delay_ms,
        .proclaim = options->proclaim,
    };
}
