/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile: the command. One verb, one file. */
#include "process.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"

static const struct verb *const verbs[] = {
    &verb_run,   &verb_acquire, &verb_renew, &verb_release, &verb_ls,
    &verb_show,  &verb_watch,   &verb_break, &verb_caps,    &verb_doctor,
    &verb_setup, &verb_advise,  &verb_once,  &verb_elect,   &verb_leader,
    &verb_pace,  &verb_sim,     &verb_play,  &verb_torture,
};

/* Verbs of several words, by their first one. */
static const struct group {
    const char *name;
    const struct verb *verbs[12]; /* NULL-terminated */
} groups[] = {
    {"jobs",
     {&verb_jobs_add, &verb_jobs_work, &verb_jobs_ls, &verb_jobs_show, &verb_jobs_retry,
      &verb_jobs_drop}},
    {"cell",
     {&verb_cell_get, &verb_cell_put, &verb_cell_rm, &verb_cell_ls, &verb_cell_watch,
      &verb_cell_update}},
    {"guard",
     {&verb_guard_check, &verb_guard_raise, &verb_guard_show, &verb_guard_reset,
      &verb_guard_install, &verb_guard_sql, &verb_guard_lua, &verb_guard_nginx}},
    {"crdt",
     {&verb_crdt_counter_add, &verb_crdt_counter_get, &verb_crdt_set_add, &verb_crdt_set_rm,
      &verb_crdt_set_ls}},
    {"file", {&verb_file_put, &verb_file_rm, &verb_file_show}},
};

#define N_VERBS  (sizeof verbs / sizeof verbs[0])
#define N_GROUPS (sizeof groups / sizeof groups[0])

static const struct verb *verb_named(const char *name)
{
    for (size_t i = 0; i < N_VERBS; i++) {
        if (strcmp(verbs[i]->name, name) == 0)
            return verbs[i];
    }
    return NULL;
}

static const struct group *group_named(const char *name)
{
    for (size_t i = 0; i < N_GROUPS; i++) {
        if (strcmp(groups[i].name, name) == 0)
            return &groups[i];
    }
    return NULL;
}

static size_t group_size(const struct group *group)
{
    size_t n = 0;
    while (group->verbs[n] != NULL)
        n++;
    return n;
}

/* What follows the first word of a verb. */
static const char *word_in(const struct group *group, const struct verb *verb)
{
    return verb->name + strlen(group->name) + 1;
}

/* How many arguments spell the words of text; 0: they do not. */
static int spell(char **argv, const char *text)
{
    for (int n = 0; argv[n] != NULL; n++) {
        size_t len = strcspn(text, " ");
        if (strlen(argv[n]) != len || strncmp(argv[n], text, len) != 0)
            return 0;
        if (text[len] == '\0')
            return n + 1;
        text += len + 1;
    }
    return 0;
}

/* argv: what follows the group's name; *n_words of it are the verb. */
static const struct verb *verb_in(const struct group *group, char **argv, int *n_words)
{
    for (size_t i = 0; i < group_size(group); i++) {
        *n_words = spell(argv, word_in(group, group->verbs[i]));
        if (*n_words > 0)
            return group->verbs[i];
    }
    return NULL;
}

/* "counter" of "counter add": a verb of the group begins with it, and another word must follow. */
static bool begins_verb(const struct group *group, const char *word)
{
    size_t len = strlen(word);
    for (size_t i = 0; i < group_size(group); i++) {
        const char *words = word_in(group, group->verbs[i]);
        if (strncmp(words, word, len) == 0 && words[len] == ' ')
            return true;
    }
    return false;
}

static void print_overview(FILE *out)
{
    fputs("stile: only one at a time, across processes and machines\n\n"
          "  stile run NAME -- CMD [ARG...]     run CMD while holding the lock NAME\n"
          "  stile once KEY -- CMD [ARG...]     run CMD once for KEY, and keep its result\n"
          "  stile elect NAME -- CMD [ARG...]   run CMD while leading the election NAME\n"
          "  stile leader NAME                  show the leader and what it proclaims\n"
          "  stile ls [PREFIX]                  list locks and their holders\n"
          "  stile show NAME                    show the holders and the queue of one lock\n"
          "  stile watch NAME                   print a line for every change\n"
          "  stile break NAME                   take a lock from its holder\n"
          "  stile advise                       ask which lock fits, or what fits better\n"
          "  stile caps [URL]                   show what an engine promises\n"
          "  stile doctor [URL]                 check whether it can keep those promises\n"
          "  stile setup [URL]                  create what an engine needs in its server\n"
          "  stile torture [URL]                test it: stop, kill and cut off its users\n"
          "  stile pace NAME --rate 5/1s        wait until the next call may start\n"
          "  stile jobs add|work QUEUE          run a queue of jobs in a database\n"
          "  stile jobs ls [QUEUE]              count queues, or list the jobs of one\n"
          "  stile jobs show|retry|drop QUEUE   look at jobs, or repair a queue\n"
          "  stile cell get|put|rm KEY          read and write a small value with a version\n"
          "  stile cell ls|watch [PREFIX]       list cells, or print changes of one\n"
          "  stile cell update KEY -- CMD       pass a cell through a command\n"
          "  stile crdt counter add|get KEY     count, in a cell and without a lock\n"
          "  stile crdt set add|rm|ls KEY       keep a set, in the same way\n"
          "  stile guard check|raise URL RES    compare a token with the highest one seen\n"
          "  stile guard show|reset URL RES     look at a guard, or reset it\n"
          "  stile guard install URL            create what guards need in a server\n"
          "  stile guard sql|lua|nginx [...]    print a guard for another program\n"
          "  stile file put|rm|show PATH        replace a file, unless the token is stale\n"
          "  stile acquire|renew|release NAME   hold a lock across commands of a script\n"
          "  stile sim                          test the engines with generated failures\n"
          "  stile play                         watch Redlock and fencing, and break them\n\n"
          "stile VERB --help lists all options. -e URL, $STILE_ENGINE or a stile.conf\n"
          "chooses the engine; stile --engines lists those that are installed.\n"
          "Exit codes: the command's own; 75 not acquired, 76 lost, 77 stale token, 79\n"
          "another fingerprint, 69 engine failed, 64 usage.\n",
          out);
}

/* The verb that was probably meant, or NULL. */
static const char *guess_verb(const char *name)
{
    struct nearest nearest = nearest_to(name, strlen(name));
    for (size_t i = 0; i < N_VERBS; i++)
        nearest_try(&nearest, verbs[i]->name);
    for (size_t i = 0; i < N_GROUPS; i++)
        nearest_try(&nearest, groups[i].name);
    return nearest.best;
}

static const char *guess_in(const struct group *group, const char *word)
{
    struct nearest nearest = nearest_to(word, strlen(word));
    for (size_t i = 0; i < group_size(group); i++)
        nearest_try(&nearest, word_in(group, group->verbs[i]));
    return nearest.best;
}

/* group: the first word of the verb, with a blank behind it; or "". Of a URL, which may have a
 * password, only the scheme is printed. */
static void no_such_verb(const char *group, const char *name, const char *guess)
{
    const char *url = strstr(name, "://");
    int len = url != NULL && url < name + 40 ? (int)(url - name) : 40;
    if (guess != NULL)
        say("%s%.*s: no such verb; did you mean stile %s%s? See stile %s--help", group, len, name,
            group, guess, group);
    else
        say("%s%.*s: no such verb; see stile %s--help", group, len, name, group);
}

/* True: it is an option, and was refused. No further than the option itself is printed: what
 * follows may be a URL with a password. group and verb: an example. */
static bool refuse_option(const char *name, const char *group, const char *verb)
{
    int len = name[1] == '-' ? (int)strcspn(name, "=") : 2;
    if (name[0] != '-')
        return false;
    say("%.*s: options come after the verb, as in stile %s%s -e URL; see stile %s--help", len, name,
        group, verb, group);
    return true;
}

static int unknown_verb(const char *name)
{
    if (!refuse_option(name, "", "ls"))
        no_such_verb("", name, guess_verb(name));
    return EXIT_USAGE;
}

static int help(const char *name)
{
    const struct group *group = name != NULL ? group_named(name) : NULL;
    const struct verb *verb = name != NULL ? verb_named(name) : NULL;
    if (name != NULL && group == NULL && verb == NULL)
        return unknown_verb(name);
    if (group != NULL)
        options_print_group(group->verbs, group_size(group));
    else if (verb != NULL && verb->helper != NULL)
        return helper_run(verb, (char *[]){(char *)verb->name, "--help", NULL});
    else if (verb != NULL)
        options_print_help(verb);
    else
        print_overview(stdout);
    return finish_output(0);
}

static int run_verb(const struct verb *verb, int argc, char **argv)
{
    struct options options;
    if (verb->helper != NULL)
        return helper_run(verb, argv);
    int code = options_parse(&options, verb, argc, argv);
    if (code != 0)
        return code;
    if (options.given & OPT_HELP) {
        options_print_help(verb);
        return finish_output(0);
    }
    engine_hide_secrets(&options);
    code = verb->run(&options);
    free(options.hidden);
    free(options.hidden_guard);
    return code;
}

static bool asks_for_help(const char *word)
{
    return word != NULL && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0);
}

/* The first one, of those that begin with the word if there are any. */
static const char *example_in(const struct group *group, const char *word)
{
    for (size_t i = 0; i < group_size(group); i++) {
        const char *verb = word_in(group, group->verbs[i]);
        if (strncmp(verb, word, strlen(word)) == 0 && verb[strlen(word)] == ' ')
            return verb;
    }
    return word_in(group, group->verbs[0]);
}

static int run_group(const struct group *group, int argc, char **argv)
{
    int n_words;
    const struct verb *verb = verb_in(group, argv + 1, &n_words);
    if (verb != NULL)
        return run_verb(verb, argc - n_words, argv + n_words);
    bool halfway = argv[1] != NULL && begins_verb(group, argv[1]);
    const char *last = halfway ? argv[2] : argv[1];
    if (asks_for_help(argv[1]) || (halfway && asks_for_help(argv[2])))
        return help(group->name);
    char first[16], word[80];
    snprintf(first, sizeof first, "%s ", group->name);
    if (last != NULL && refuse_option(last, first, example_in(group, argv[1])))
        return EXIT_USAGE;
    snprintf(word, sizeof word, "%s%s%s", argv[1] != NULL ? argv[1] : "",
             halfway && argv[2] != NULL ? " " : "", halfway && argv[2] != NULL ? argv[2] : "");
    if (argv[1] != NULL)
        no_such_verb(first, word, guess_in(group, word));
    else
        say("%s: no verb given; see stile %s --help", group->name, group->name);
    return EXIT_USAGE;
}

/* Started with a standard descriptor closed, the next file we open would get its number, and what
 * we say on stderr would be written into it. The command still finds it closed. Reading stdin fails
 * as before: an empty value would be written otherwise. */
static void fill_standard_fds(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        int mode = fd == STDIN_FILENO ? O_WRONLY : O_RDWR;
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", mode | O_CLOEXEC) != fd)
            _exit(EXIT_ENGINE);
    }
}

int main(int argc, char **argv)
{
    title_begin(argv);
    fill_standard_fds();
    (void)stile_sigbus_trap(NULL); /* a state file that is cut off ends no command */
    if (argc < 2) {
        print_overview(stderr);
        return EXIT_USAGE;
    }
    const struct verb *verb = verb_named(argv[1]);
    if (verb != NULL)
        return run_verb(verb, argc - 1, argv + 1);
    const struct group *group = group_named(argv[1]);
    if (group != NULL)
        return run_group(group, argc - 1, argv + 1);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("stile %s\n", stile_version());
        return finish_output(0);
    }
    if (strcmp(argv[1], "--engines") == 0)
        return engines_print(argv[2]);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help(NULL);
    if (strcmp(argv[1], "help") == 0)
        return help(argv[2]);
    return unknown_verb(argv[1]);
}
