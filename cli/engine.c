/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Which engine: from -e, the environment, a file or the outer run.
 *
 * A run inside a run uses the engine of the outer one, password included. STILE_ENGINE, which every
 * process below can read, log and pass on, has no secrets. The whole URL is in a sealed file in the
 * memory of the outer warden, and STILE_ENGINE_FROM says where: PID/DESCRIPTOR. Opening that file
 * takes the same rights as reading the outer process's memory: the same user, or root. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli.h"
#include "process.h"

/* ---- choosing and opening it ---- */

struct default_engine {
    char url[STILE_URL_MAX + 1], from[STILE_FROM_MAX];
};

/* Ends the command if a file is wrong: another engine would not exclude what the user expects. */
static const struct default_engine *default_engine(const struct options *options)
{
    static struct default_engine found;
    struct stile_error err = {0};
    if (found.url[0] != '\0')
        return &found;
    enum stile_status status =
        stile_engine_default(found.url, sizeof found.url, found.from, sizeof found.from, &err);
    if (status != STILE_OK)
        exit(options_exit_code(options, say_failure("the default engine", status, &err)));
    return &found;
}

static const char *named_url(const struct options *options)
{
    return options->given & OPT_ENGINE ? options->engine : default_engine(options)->url;
}

const char *engine_origin(const struct options *options)
{
    return options->given & OPT_ENGINE ? "-e" : default_engine(options)->from;
}

bool engine_is_unnamed(const struct options *options)
{
    return engine_origin(options)[0] == '\0';
}

const char *engine_url(const struct options *options)
{
    static char *whole; /* as the outer run has it */
    const char *url = named_url(options);
    if (whole == NULL)
        whole = credentials_find(url);
    return whole != NULL ? whole : url;
}

static bool has_secrets(const char *url)
{
    char redacted[STILE_URL_MAX + 1];
    stile_url_redact(redacted, sizeof redacted, url);
    return strcmp(redacted, url) != 0;
}

/* A copy of the word, which is overwritten. */
static char *hide(char *word)
{
    char *copy = must_alloc(strdup(word));
    memset(word, '*', strlen(word));
    return copy;
}

static void hide_guard(struct options *options)
{
    char *url = must_alloc(strndup(options->guard, strcspn(options->guard, "#")));
    if (url[0] != '\0' && has_secrets(url))
        options->guard = options->hidden_guard = hide(options->guard);
    free(url);
}

void engine_hide_secrets(struct options *options)
{
    if ((options->given & OPT_ENGINE) && has_secrets(options->engine))
        options->engine = options->hidden = hide(options->engine);
    if (options->given & OPT_GUARD)
        hide_guard(options);
}

void engine_from_argument(struct options *options)
{
    if (options->n_args == 0)
        return;
    options->engine = options->args[0];
    options->given |= OPT_ENGINE;
    engine_hide_secrets(options);
}

int engine_say_failure(const struct options *options, enum stile_status status,
                       const struct stile_error *err)
{
    char url[STILE_URL_MAX + 1], what[STILE_URL_MAX + STILE_FROM_MAX + 32];
    bool is_url = stile_url_redact(url, sizeof url, engine_url(options)) == STILE_OK;
    const char *from = engine_origin(options);
    bool is_file = from[0] == '/';
    snprintf(what, sizeof what, "%s%s%s%s", is_url ? url : "engine", is_file ? " (set in " : "",
             is_file ? from : "", is_file ? ")" : "");
    return say_failure(what, status, err);
}

static int not_opened(const struct options *options, enum stile_status status,
                      const struct stile_error *err)
{
    if (status == STILE_UNSUPPORTED)
        say("%s", err->message); /* it names the engine; its URL would add nothing */
    else
        engine_say_failure(options, status, err);
    if (status == STILE_REFUSED && credentials_are_missing(engine_url(options)))
        say("cannot read the user and password of the stile run around this one; that takes the "
            "same user and the same /proc. Give the URL with -e, or use password_file=");
    return exit_code_of(status);
}

static int open_with(struct stile_client **client, const struct options *options,
                     const struct stile_client_options *how)
{
    struct stile_error err = {0};
    enum stile_status status = stile_client_open(client, engine_url(options), how, &err);
    return status == STILE_OK ? 0 : not_opened(options, status, &err);
}

int engine_open_for_caps(struct stile_client **client, const struct stile_caps **caps,
                         const struct options *options, const char *label)
{
    struct stile_error err = {0};
    enum stile_status status =
        stile_client_open(client, engine_url(options),
                          STILE_CLIENT_OPTIONS(.threadless = true, .label = label), &err);
    if (status == STILE_OK)
        *caps = stile_client_caps(*client);
    else if (status != STILE_UNREACHABLE ||
             stile_engine_caps(caps, engine_url(options), NULL) != STILE_OK)
        return not_opened(options, status, &err);
    else
        engine_say_failure(options, status, &err);
    return 0;
}

int engine_open(struct stile_client **client, const struct options *options, pid_t pid,
                const char *label)
{
    return open_with(client, options,
                     STILE_CLIENT_OPTIONS(.threadless = true, .label = label, .pid = pid));
}

int engine_open_to_examine(struct stile_client **client, const struct options *options,
                           const char *label)
{
    return open_with(client, options,
                     STILE_CLIENT_OPTIONS(.threadless = true, .label = label, .examine = true));
}

int engine_open_detached(struct stile_client **client, const struct options *options,
                         const char *verb)
{
    /* The default label would be this command line, which may contain a URL with a password. */
    char label[STILE_NAME_MAX + 32];
    snprintf(label, sizeof label, "stile %s %s", verb, options->args[0]);
    int code = engine_open(client, options, 0, label);
    if (code != 0)
        return code;
    const struct stile_caps *caps = stile_client_caps(*client);
    if (caps->detached)
        return 0;
    say("%s: a lock of the %s engine ends with the process that took it, so it would be gone at "
        "once; use stile run %s -- CMD, or an engine whose locks have leases of their own%s%s",
        verb, caps->engine, options->args[0], caps->instead != NULL ? ": " : "",
        caps->instead != NULL ? caps->instead : "");
    stile_client_close(*client);
    *client = NULL;
    return EXIT_ENGINE;
}

/* ---- a run inside a run ---- */

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

char *credentials_offer(const char *url)
{
    static int fd = -1;
    char place[40], redacted[STILE_URL_MAX + 1];
    stile_url_redact(redacted, sizeof redacted, url);
    if (strcmp(redacted, url) == 0)
        return NULL;
    if (fd < 0) {
        fd = memfd_create("engine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        size_t len = strlen(url);
        if (fd < 0 || write(fd, url, len) != (ssize_t)len || fcntl(fd, F_ADD_SEALS, SEALS) < 0) {
            say("a run inside this one will not find the password: %m");
            return NULL;
        }
    }
    snprintf(place, sizeof place, "%d/%d", (int)getpid(), fd);
    return must_alloc(strdup(place));
}

/* The descriptor of an outer run's file, or -1. Numbers only: the variable must not name an
 * arbitrary path. */
static int open_place(const char *place)
{
    char path[64];
    int pid, number, end = 0;
    if (sscanf(place, "%d/%d%n", &pid, &number, &end) != 2 || place[end] != '\0')
        return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, number);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    /* That process may have ended and another may have its pid: only a file that is sealed against
     * writing is trusted. */
    if (fd >= 0 && fcntl(fd, F_GET_SEALS) != SEALS) {
        close(fd);
        return -1;
    }
    return fd;
}

char *credentials_find(const char *url)
{
    char whole[STILE_URL_MAX + 1], redacted[STILE_URL_MAX + 1];
    const char *engine = secure_getenv("STILE_ENGINE"), *place = secure_getenv("STILE_ENGINE_FROM");
    if (engine == NULL || place == NULL || strcmp(engine, url) != 0)
        return NULL;
    int fd = open_place(place);
    ssize_t len = fd < 0 ? -1 : read(fd, whole, sizeof whole - 1);
    if (fd >= 0)
        close(fd);
    if (len <= 0)
        return NULL;
    whole[len] = '\0';
    /* It must belong to this engine: a run in between may have changed the variable. */
    if (stile_url_redact(redacted, sizeof redacted, whole) != STILE_OK ||
        strcmp(redacted, url) != 0)
        return NULL;
    return must_alloc(strdup(whole));
}

bool credentials_are_missing(const char *url)
{
    const char *engine = secure_getenv("STILE_ENGINE");
    return engine != NULL && strcmp(engine, url) == 0 && secure_getenv("STILE_ENGINE_FROM") != NULL;
}

/* ---- stile --engines ---- */

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
