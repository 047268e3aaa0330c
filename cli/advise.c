/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile advise: asks what the work is like, and says which lock fits, or what fits better. */
#include "advice.h"
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- answers ---- */

/* The answer that a word, or the beginning of one and only one, names; -1: none. */
static int answer_named(const struct advice_question_text *question, const char *word, size_t len)
{
    int found = -1, n_found = 0;
    for (int i = 0; question->choices[i].word != NULL && len > 0; i++) {
        if (strncmp(question->choices[i].word, word, len) != 0)
            continue;
        if (question->choices[i].word[len] == '\0')
            return i;
        found = i;
        n_found++;
    }
    return n_found == 1 ? found : -1;
}

/* NULL, or what is wrong with the text. */
static const char *answer(struct advice_answers *answers, int question, const char *text)
{
    const struct advice_question_text *asked = &advice_questions[question];
    unsigned bits = 0;
    if (question == ASK_HOLD) {
        int64_t ms;
        const char *wrong = duration_parse(&ms, text);
        if (wrong == NULL)
            answers->picked[question] = BIT(advice_hold_of(ms));
        return wrong;
    }
    for (const char *at = text;; at++) {
        size_t len = question == ASK_ENGINES ? strcspn(at, ",") : strlen(at);
        int found = answer_named(asked, at, len);
        if (found < 0)
            return "not one of the answers";
        bits |= BIT(found);
        at += len;
        if (*at == '\0')
            break;
    }
    answers->picked[question] = bits;
    advice_complete(answers);
    return NULL;
}

static void list_words(char *out, size_t size, int question)
{
    const struct advice_choice *choices = advice_questions[question].choices;
    out[0] = '\0';
    if (question == ASK_HOLD)
        snprintf(out, size, "a duration, as 10s");
    for (int i = 0; question != ASK_HOLD && choices[i].word != NULL; i++)
        snprintf(out + strlen(out), size - strlen(out), "%s%s", i == 0 ? "" : ", ",
                 choices[i].word);
}

static int take_flags(struct advice_answers *answers, const struct options *options)
{
    for (int q = 0; q < ADVICE_QUESTIONS; q++) {
        char words[128];
        const char *wrong =
            options->advice[q] != NULL ? answer(answers, q, options->advice[q]) : NULL;
        if (wrong == NULL)
            continue;
        list_words(words, sizeof words, q);
        say("advise: --%s: %s; write %s", advice_questions[q].flag, wrong, words);
        return EXIT_USAGE;
    }
    return 0;
}

/* ---- questions ---- */

static void print_question(int question)
{
    const struct advice_question_text *asked = &advice_questions[question];
    fprintf(stderr, "\n%s\n", asked->text);
    for (int i = 0; question != ASK_HOLD && asked->choices[i].word != NULL; i++)
        fprintf(stderr, "  %-12s %s\n", asked->choices[i].word, asked->choices[i].meaning);
}

static int ask(struct advice_answers *answers, int question)
{
    char *line = NULL, words[128];
    size_t room = 0;
    const char *wrong;
    print_question(question);
    do {
        fputs("> ", stderr);
        ssize_t len = getline(&line, &room, stdin);
        if (len < 0) {
            free(line);
            fputc('\n', stderr);
            say("advise: no answer; --%s gives it, too", advice_questions[question].flag);
            return EXIT_USAGE;
        }
        line[strcspn(line, "\r\n")] = '\0';
        wrong = answer(answers, question, line);
        list_words(words, sizeof words, question);
        if (wrong != NULL)
            fprintf(stderr, "%s: write %s\n", wrong, words);
    } while (wrong != NULL);
    free(line);
    return 0;
}

/* All that would be asked, whatever the answers to the questions before. */
static int say_missing(struct advice_answers answers)
{
    char flags[512] = "", words[128];
    int next;
    while ((next = advice_next_question(&answers)) >= 0) {
        list_words(words, sizeof words, next);
        snprintf(flags + strlen(flags), sizeof flags - strlen(flags), "%s--%s (%s)",
                 flags[0] != '\0' ? ", " : "", advice_questions[next].flag, words);
        answers.picked[next] = ~0U;
    }
    say("advise: no terminal to ask on; give the answers as %s", flags);
    return EXIT_USAGE;
}

static int complete(struct advice_answers *answers)
{
    bool can_ask = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    int next, code = 0;
    while (code == 0 && (next = advice_next_question(answers)) >= 0)
        code = can_ask ? ask(answers, next) : say_missing(*answers);
    return code;
}

/* ---- advice ---- */

static const char *kind_word(enum advice_kind kind)
{
    static const char *const words[] = {"no-lock", "cell", "own-lock", "lock"};
    return words[kind];
}

static const char *engine_word(int engine)
{
    return advice_questions[ASK_ENGINES].choices[engine].word;
}

static void print_line(const char *head, const char *text)
{
    int column = printf("%-10s", head);
    print_wrapped(text, (size_t)column, (size_t)column);
}

static void print_advice(const struct advice *advice)
{
    char text[ADVICE_TEXT_MAX];
    snprintf(text, sizeof text, "%s%s", advice->rule->use,
             advice->rule->kind == NO_LOCK ? "; no lock is needed" : "");
    print_line("use", text);
    print_line("why", advice->rule->why);
    printf("%-10s%s\n", "type", advice->command);
    if (advice->ttl != NULL) {
        snprintf(text, sizeof text,
                 "%s, renewed for as long as the command runs; others wait that long if this "
                 "machine dies",
                 advice->ttl);
        print_line("TTL", text);
    }
    if (advice->guard != NULL)
        print_line("guard", advice->guard);
    print_line("read", advice->rule->read);
}

static void json_maybe(struct json *json, const char *key, const char *text)
{
    if (text != NULL)
        json_text(json, key, text);
    else
        json_null(json, key);
}

static void print_advice_json(const struct advice *advice)
{
    struct json json = {.out = stdout};
    const struct advice_rule *rule = advice->rule;
    const char *mode = rule->shared                                 ? "shared"
                       : strstr(rule->command, " --slots ") != NULL ? "slots"
                       : rule->kind == LOCK                         ? "exclusive"
                                                                    : NULL;
    json_open(&json, NULL, '{');
    json_text(&json, "rule", rule->id);
    json_text(&json, "kind", kind_word(rule->kind));
    json_text(&json, "use", rule->use);
    json_text(&json, "why", rule->why);
    json_text(&json, "command", advice->command);
    json_maybe(&json, "engine", advice->engine >= 0 ? engine_word(advice->engine) : NULL);
    json_maybe(&json, "mode", mode);
    json_maybe(&json, "ttl", advice->ttl);
    json_bool(&json, "renewed", advice->ttl != NULL);
    json_maybe(&json, "guard", advice->guard);
    json_text(&json, "read", rule->read);
    json_close(&json, '}');
    putchar('\n');
}

/* ---- the table ---- */

static void print_fits_json(struct json *json, const struct advice_rule *rule)
{
    json_open(json, "when", '{');
    for (int q = 0; q < ASK_ENGINES; q++) {
        if (rule->fits[q] == 0)
            continue;
        json_open(json, advice_questions[q].flag, '[');
        for (int i = 0; advice_questions[q].choices[i].word != NULL; i++) {
            const struct advice_choice *choice = &advice_questions[q].choices[i];
            if (rule->fits[q] & BIT(i))
                json_text(json, NULL, q == ASK_HOLD ? choice->meaning : choice->word);
        }
        json_close(json, ']');
    }
    json_open(json, "engines", '[');
    for (size_t i = 0; i < rule->n_engines; i++)
        json_text(json, NULL, engine_word(rule->engines[i]));
    json_close(json, ']');
    json_close(json, '}');
}

static void print_table_json(void)
{
    struct json json = {.out = stdout};
    json_open(&json, NULL, '[');
    for (size_t i = 0; i < advice_n_rules; i++) {
        const struct advice_rule *rule = &advice_rules[i];
        json_open(&json, NULL, '{');
        json_text(&json, "rule", rule->id);
        json_text(&json, "kind", kind_word(rule->kind));
        print_fits_json(&json, rule);
        json_bool(&json, "guarded", rule->guarded);
        json_maybe(&json, "brief", rule->brief);
        json_text(&json, "use", rule->use);
        json_text(&json, "why", rule->why);
        json_text(&json, "command", rule->command);
        json_maybe(&json, "in_mysql", rule->in_mysql);
        json_maybe(&json, "in_sqlite", rule->in_sqlite);
        json_text(&json, "read", rule->read);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    putchar('\n');
}

static void print_rules_table(void)
{
    static const char *const heads[] = {"RULE", "USE", NULL};
    struct table table;
    table_start(&table, heads);
    for (size_t i = 0; i < advice_n_rules; i++) {
        table_add(&table, advice_rules[i].id);
        table_add(&table, advice_rules[i].use);
    }
    table_finish(&table, stdout);
}

/* ---- the verb ---- */

static int advise_verb(struct options *options)
{
    struct advice_answers answers = {0};
    struct advice advice;
    if (options->given & OPT_TABLE) {
        options->given &OPT_JSON ? print_table_json() : print_rules_table();
        return finish_output(0);
    }
    int code = take_flags(&answers, options);
    if (code == 0)
        code = complete(&answers);
    if (code != 0)
        return code;
    advice_make(&advice, &answers);
    if (options->given & OPT_JSON)
        print_advice_json(&advice);
    else
        print_advice(&advice);
    return finish_output(0);
}

const struct verb verb_advise = {
    .name = "advise",
    .accepts = OPT_ADVICE | OPT_TABLE | OPT_JSON,
    .without_engine = true,
    .operands = "",
    .about = "Asks up to five questions and recommends what fits: no lock at all, a cell, the "
             "lock of a database, or a lock on one of your engines with its TTL and guard. It does "
             "not ask for answers that options give. docs/choosing.md has the whole table.",
    .run = advise_verb,
};
