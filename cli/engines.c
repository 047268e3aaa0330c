/* stile --engines: the engines that this command knows, and where they are. */
#include <string.h>

#include "cli.h"

static int add_row(const struct stile_engine *engine, void *data)
{
    struct table *table = data;
    table_add(table, engine->name);
    if (engine->module == NULL)
        table_add(table, "not found");
    else
        table_add(table, engine->module[0] == '\0' ? "built in" : engine->module);
    table_add(table, engine->schemes);
    return 0;
}

static void add_schemes(struct json *json, const char *schemes)
{
    char word[64];
    json_open(json, "schemes", '[');
    for (size_t n; *schemes != '\0'; schemes += n + strspn(schemes + n, " ")) {
        n = strcspn(schemes, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, schemes);
        json_text(json, NULL, word);
    }
    json_close(json, ']');
}

static int add_json(const struct stile_engine *engine, void *data)
{
    struct json *json = data;
    json_open(json, NULL, '{');
    json_text(json, "engine", engine->name);
    add_schemes(json, engine->schemes);
    json_bool(json, "found", engine->module != NULL);
    if (engine->module != NULL && engine->module[0] != '\0')
        json_text(json, "module", engine->module);
    json_close(json, '}');
    return 0;
}

int engines_print(const char *option)
{
    static const char *const heads[] = {"ENGINE", "WHERE", "SCHEMES", NULL};
    struct json json = {.out = stdout};
    struct table table;
    if (option != NULL && strcmp(option, "--json") != 0) {
        say("--engines: only --json may follow");
        return EXIT_USAGE;
    }
    if (option != NULL) {
        json_open(&json, NULL, '[');
        stile_engines_list(add_json, &json);
        json_close(&json, ']');
        putchar('\n');
    } else {
        table_start(&table, heads);
        stile_engines_list(add_row, &table);
        table_finish(&table, stdout);
    }
    return finish_output(0);
}
