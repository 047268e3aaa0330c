/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile doctor: whether an engine, as it is set up now, can keep its promises. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define LABEL_WIDTH 9
#define LINE_WIDTH  98

struct visit {
    struct json json;
    bool as_json, begun;
    unsigned seen[STILE_DANGER + 1]; /* how many of each severity */
    const char *engine;
};

static const char *severity_word(enum stile_severity severity)
{
    static const char *const words[] = {
        [STILE_FINE] = "fine",
        [STILE_NOTE] = "note",
        [STILE_WARNING] = "warning",
        [STILE_DANGER] = "DANGER",
    };
    return words[severity];
}

/* ---- as text ---- */

static size_t word_length(const char *text)
{
    return strcspn(text, " ");
}

/* Behind a label, in lines that are not too long, each below the one before. */
static void print_paragraph(const char *label, const char *text)
{
    char *safe = text_escape(text);
    size_t column = LABEL_WIDTH;
    printf("%-*s", LABEL_WIDTH, label);
    for (const char *at = safe; *at != '\0'; at += strspn(at, " ")) {
        size_t len = word_length(at);
        bool first = column == LABEL_WIDTH;
        if (!first && column + 1 + len > LINE_WIDTH) {
            printf("\n%*s", LABEL_WIDTH, "");
            column = LABEL_WIDTH;
            first = true;
        }
        printf("%s%.*s", first ? "" : " ", (int)len, at);
        column += len + !first;
        at += len;
    }
    putchar('\n');
    free(safe);
}

/* As they are, to be copied: never broken. */
static void print_commands(const char *commands)
{
    const char *label = "  run";
    while (*commands != '\0') {
        size_t len = strcspn(commands, "\n");
        char *line = must_alloc(strndup(commands, len)), *safe = text_escape(line);
        printf("%-*s%s\n", LABEL_WIDTH, label, safe);
        free(safe);
        free(line);
        label = "";
        commands += len + (commands[len] == '\n');
    }
}

static void print_text(const struct stile_finding *finding)
{
    char *head = NULL;
    if (asprintf(&head, "%s%s%s", finding->where, finding->where[0] != '\0' ? ": " : "",
                 finding->what) < 0)
        head = NULL;
    print_paragraph(severity_word(finding->severity), must_alloc(head));
    free(head);
    if (finding->why[0] != '\0')
        print_paragraph("  why", finding->why);
    print_commands(finding->command);
    if (finding->cure[0] != '\0')
        print_paragraph(finding->command[0] != '\0' ? "  and" : "  do", finding->cure);
}

static void print_sum(const struct visit *visit)
{
    unsigned danger = visit->seen[STILE_DANGER], warnings = visit->seen[STILE_WARNING];
    if (danger > 0)
        printf(
            "\n%u danger%s, %u warning%s: don't rely on locks here before the dangers are gone.\n",
            danger, danger == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s");
    else if (warnings > 0)
        printf("\n%u warning%s: locks work, but a promise is weaker than it could be.\n", warnings,
               warnings == 1 ? "" : "s");
    else if (visit->seen[STILE_NOTE] + visit->seen[STILE_FINE] > 0)
        printf("\nNothing to worry about: %s can keep what stile caps promises.\n", visit->engine);
    else
        printf("%s could be opened, and there is nothing else to look at.\n", visit->engine);
}

/* ---- as JSON ---- */

static void begin_json(struct visit *visit)
{
    if (visit->begun)
        return;
    visit->begun = true;
    json_open(&visit->json, NULL, '{');
    json_text(&visit->json, "engine", visit->engine);
    json_open(&visit->json, "findings", '[');
}

static void commands_json(struct json *json, const char *commands)
{
    json_open(json, "commands", '[');
    while (*commands != '\0') {
        size_t len = strcspn(commands, "\n");
        char *line = must_alloc(strndup(commands, len));
        json_text(json, NULL, line);
        free(line);
        commands += len + (commands[len] == '\n');
    }
    json_close(json, ']');
}

static void print_json(struct visit *visit, const struct stile_finding *finding)
{
    static const char *const words[] = {"fine", "note", "warning", "danger"};
    struct json *json = &visit->json;
    begin_json(visit);
    json_open(json, NULL, '{');
    json_text(json, "severity", words[finding->severity]);
    json_text(json, "id", finding->id);
    json_text(json, "where", finding->where);
    json_text(json, "what", finding->what);
    json_text(json, "why", finding->why);
    json_text(json, "cure", finding->cure);
    commands_json(json, finding->command);
    json_close(json, '}');
}

static void end_json(struct visit *visit)
{
    begin_json(visit);
    json_close(&visit->json, ']');
    json_uint(&visit->json, "danger", visit->seen[STILE_DANGER]);
    json_uint(&visit->json, "warnings", visit->seen[STILE_WARNING]);
    json_close(&visit->json, '}');
    putchar('\n');
}

/* ---- the verb ---- */

static int add_finding(const struct stile_finding *finding, void *data)
{
    struct visit *visit = data;
    visit->seen[finding->severity]++;
    if (visit->as_json)
        print_json(visit, finding);
    else
        print_text(finding);
    return 0;
}

static int exit_code(struct visit *visit)
{
    if (visit->as_json)
        end_json(visit);
    else
        print_sum(visit);
    return finish_output(visit->seen[STILE_DANGER] > 0    ? EXIT_DANGER
                         : visit->seen[STILE_WARNING] > 0 ? EXIT_NO
                                                          : 0);
}

static int doctor(struct options *options)
{
    struct stile_client *client;
    struct stile_error err = {0};
    engine_from_argument(options);
    int code = engine_open_to_examine(&client, options, "stile doctor");
    if (code != 0)
        return code;
    struct visit visit = {.json = {.out = stdout},
                          .as_json = options->given & OPT_JSON,
                          .engine = stile_client_caps(client)->engine};
    unsigned flags = (options->given & OPT_ADOPT ? STILE_ADOPT : 0) |
                     (options->given & OPT_RESIZE ? STILE_RESIZE : 0);
    enum stile_status status = stile_doctor(client, flags, add_finding, &visit, &err);
    code = status != STILE_OK ? say_failure("doctor", status, &err) : exit_code(&visit);
    stile_client_close(client);
    return code;
}

const struct verb verb_doctor = {
    .name = "doctor",
    .accepts = OPT_ADOPT | OPT_RESIZE | OPT_JSON,
    .max_args = 1,
    .operands = "[URL]",
    .about = "Checks the live engine and reports what endangers its locks, why that matters, and "
             "what to run to change it, worst first. It changes nothing, with two exceptions.\n\n"
             "--adopt takes back redlock nodes that lost their data, if a majority still has its "
             "data. --resize makes the nodes in URL the members of a redlock group. A majority of "
             "the old members must be among them. Holders lose their locks, and nothing is granted "
             "for as long as the longest lease lasted. If it is interrupted, run it again.\n\n"
             "Exit codes: 0 all is well, 1 warnings, 2 danger, 69 the engine cannot be checked.",
    .run = doctor,
};
