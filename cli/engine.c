/* Which engine, and opening it. */
#include "process.h"

#include <stdlib.h>
#include <string.h>

static const char *named_url(const struct options *options)
{
    if (options->given & OPT_ENGINE)
        return options->engine;
    const char *url = secure_getenv("STILE_ENGINE");
    return url != NULL && url[0] != '\0' ? url : "local:";
}

const char *engine_url(const struct options *options)
{
    static char *whole; /* as the outer run has it */
    const char *url = named_url(options);
    if (whole == NULL)
        whole = credentials_find(url);
    return whole != NULL ? whole : url;
}

void engine_hide_secrets(struct options *options)
{
    char redacted[STILE_URL_MAX + 1];
    if (!(options->given & OPT_ENGINE))
        return;
    char *word = options->engine;
    stile_url_redact(redacted, sizeof redacted, word);
    if (strcmp(redacted, word) == 0)
        return;
    options->engine = options->hidden = must_alloc(strdup(word));
    memset(word, '*', strlen(word));
}

void engine_from_argument(struct options *options)
{
    if (options->n_args == 0)
        return;
    options->engine = options->args[0];
    options->given |= OPT_ENGINE;
    engine_hide_secrets(options);
}

static int open_with(struct stile_client **client, const struct options *options,
                     const struct stile_client_options *how)
{
    struct stile_error err = {0};
    enum stile_status status = stile_client_open(client, engine_url(options), how, &err);
    if (status == STILE_OK)
        return 0;
    char url[STILE_URL_MAX + 1];
    bool is_url = stile_url_redact(url, sizeof url, engine_url(options)) == STILE_OK;
    int code = exit_code_of(status);
    if (status == STILE_UNSUPPORTED)
        say("%s", err.message); /* it names the engine; no other URL of its would do better */
    else
        say_failure(is_url ? url : "engine", status, &err);
    if (status == STILE_REFUSED && credentials_are_missing(engine_url(options)))
        say("the user and password of the run around this one could not be read: that needs the "
            "same user and a /proc that shows it; give the URL with -e, or use password_file=");
    return code;
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
    /* Our own command line would be the default, and it may carry a URL with a password. */
    char label[STILE_NAME_MAX + 32];
    snprintf(label, sizeof label, "stile %s %s", verb, options->args[0]);
    int code = engine_open(client, options, 0, label);
    if (code != 0)
        return code;
    const struct stile_caps *caps = stile_client_caps(*client);
    if (caps->detached)
        return 0;
    say("%s: a lock of the %s engine ends with the process that took it, so nothing would be left "
        "of it; use stile run %s -- CMD, or an engine whose locks have a lease of their own%s%s",
        verb, caps->engine, options->args[0], caps->instead != NULL ? ": " : "",
        caps->instead != NULL ? caps->instead : "");
    stile_client_close(*client);
    *client = NULL;
    return EXIT_ENGINE;
}
