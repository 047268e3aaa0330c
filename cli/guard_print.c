/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile guard sql, lua, nginx: what other programs run as guards. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "engines/redis/guard/texts.h"
#include "guard_nginx.h"

/* Written by the build from the files of the same names. */
extern const char guard_sql_mysql[], guard_sql_postgres[], guard_sql_sqlite[];

/* ---- sql ---- */

static int sql(struct options *options)
{
    static const struct {
        const char *name, *text;
    } dialects[] = {
        {"mysql", guard_sql_mysql},
        {"postgres", guard_sql_postgres},
        {"sqlite", guard_sql_sqlite},
    };
    for (size_t i = 0; i < sizeof dialects / sizeof dialects[0]; i++) {
        if (strcmp(options->dialect, dialects[i].name) == 0) {
            fputs(dialects[i].text, stdout);
            return finish_output(0);
        }
    }
    say("guard sql: --dialect: %.40s: must be postgres, mysql or sqlite", options->dialect);
    return EXIT_USAGE;
}

const struct verb verb_guard_sql = {
    .name = "guard sql",
    .accepts = OPT_DIALECT,
    .without_engine = true,
    .operands = "",
    .about = "Prints the SQL that creates guards in a database: functions for PostgreSQL, "
             "procedures for MySQL and MariaDB, a table and triggers for SQLite. It may be run "
             "again. The text begins with how to use it; docs/fences.md has complete examples. "
             "stile guard install URL runs it in a PostgreSQL or MySQL server.",
    .run = sql,
};

/* ---- lua ---- */

static int no_such_script(const char *name)
{
    char *list = NULL;
    size_t size;
    FILE *out = must_alloc(open_memstream(&list, &size));
    for (const struct redis_guard_text *text = redis_guard_scripts; text->name != NULL; text++)
        fprintf(out, "%s%s", text == redis_guard_scripts ? "" : ", ", text->name);
    fclose(out);
    list = must_alloc(list);
    say("guard lua: --script: %.40s: there are %s", name, list);
    free(list);
    return EXIT_USAGE;
}

static int lua(struct options *options)
{
    const struct redis_guard_text *text = &redis_guard_library;
    if (options->given & OPT_SCRIPT) {
        text = redis_guard_scripts;
        while (text->name != NULL && strcmp(text->name, options->script) != 0)
            text++;
    }
    if (text->source == NULL)
        return no_such_script(options->script);
    fwrite(text->source, 1, text->len, stdout);
    return finish_output(0);
}

const struct verb verb_guard_lua = {
    .name = "guard lua",
    .accepts = OPT_SCRIPT,
    .without_engine = true,
    .operands = "",
    .about = "Prints the guards of Redis: a library for FUNCTION LOAD, or with --script one script "
             "for EVAL. The text begins with its keys and arguments. stile guard install URL loads "
             "the library into a server.",
    .run = lua,
};

/* ---- nginx ---- */

static int check_value(const char *option, const char *value)
{
    if (value == NULL || guard_nginx_accepts(value))
        return 0;
    say("guard nginx: %s: has a blank or a character with a special meaning in nginx", option);
    return EXIT_USAGE;
}

static int check_require(const char *require)
{
    if (require == NULL || strcmp(require, "all") == 0 || strcmp(require, "writes") == 0 ||
        strcmp(require, "none") == 0)
        return 0;
    say("guard nginx: --require: must be all, writes or none");
    return EXIT_USAGE;
}

static int nginx(struct options *options)
{
    const struct guard_nginx values = {.listen = options->listen,
                                       .upstream = options->upstream,
                                       .state = options->state_dir,
                                       .require = options->require};
    int code = check_value("--listen", values.listen);
    if (code == 0)
        code = check_value("--upstream", values.upstream);
    if (code == 0)
        code = check_value("--state-dir", values.state);
    if (code == 0)
        code = check_require(values.require);
    if (code != 0)
        return code;
    guard_nginx_print(stdout, &values);
    return finish_output(0);
}

const struct verb verb_guard_nginx = {
    .name = "guard nginx",
    .accepts = OPT_LISTEN | OPT_UPSTREAM | OPT_STATE_DIR | OPT_REQUIRE,
    .without_engine = true,
    .operands = "",
    .about = "Prints a configuration for nginx with its Lua module (Debian: libnginx-mod-http-lua) "
             "that guards an HTTP API. Requests carry the headers Fencing-Resource and "
             "Fencing-Token; a stale one is answered with 412, and a larger token waits until "
             "requests with smaller ones have ended. Include it in the http block of nginx.",
    .run = nginx,
};
