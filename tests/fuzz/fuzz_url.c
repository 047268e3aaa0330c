/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A URL that is understood is within its bounds; shown without secrets it is understood again, and
 * is the same but for those. No error repeats a password, escaped or not. */
#include "fuzz.h"

#include "core/lookup.h"

#define SECRET "hunterSECRETtwo"

static bool same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static void check_bounds(const struct url *url)
{
    MUST(url->scheme[0] != '\0');
    MUST(url->n_hosts <= URL_HOSTS_MAX && url->n_params <= URL_PARAMS_MAX);
    MUST(url->path[0] == '\0' || url->path[0] == '/');
    for (size_t i = 0; i < url->n_hosts; i++)
        MUST(fuzz_is_line(url->hosts[i].host) && !strpbrk(url->hosts[i].host, "@/?# "));
    for (size_t i = 0; i < url->n_params; i++) {
        MUST(fuzz_is_line(url->params[i].key));
        MUST(url_param(url, url->params[i].key));
    }
}

static void check_same_place(const struct url *url, const struct url *shown)
{
    size_t j = 0;

    MUST(!shown->user && !shown->password);
    MUST(same(url->scheme, shown->scheme) && same(url->path, shown->path));
    MUST(url->n_hosts == shown->n_hosts);
    for (size_t i = 0; i < url->n_hosts; i++) {
        MUST(same(url->hosts[i].host, shown->hosts[i].host));
        MUST(url->hosts[i].port == shown->hosts[i].port);
    }
    for (size_t i = 0; i < shown->n_params; i++, j++) {
        while (j < url->n_params && !same(url->params[j].key, shown->params[i].key))
            j++;
        MUST(j < url->n_params && same(url->params[j].value, shown->params[i].value));
    }
}

/* It may only be refused for its length: escaping makes longer, and a scheme where it had none. */
static void check_redaction(const struct url *url, const char *text)
{
    static char once[STILE_URL_MAX + 1], twice[STILE_URL_MAX + 1], small[8];
    struct url *shown;

    if (stile_url_redact(once, sizeof(once), text) != STILE_OK) {
        MUST(same(once, "?") && strlen(text) > STILE_URL_MAX / 3 - 16);
        return;
    }
    MUST(fuzz_is_line(once));
    MUST(lookup_url(&shown, once, NULL) == STILE_OK);
    check_same_place(url, shown);
    url_free(shown);
    MUST(stile_url_redact(twice, sizeof(twice), once) == STILE_OK && same(once, twice));
    bool fits = strlen(once) < sizeof(small);
    MUST((stile_url_redact(small, sizeof(small), text) == STILE_OK) == fits);
    MUST(same(small, fits ? once : "?"));
}

static void check_params(const struct url *url)
{
    static const char *const known[] = {"prefix", "db", NULL};
    struct stile_error err = {.status = STILE_OK};

    if (url_check_params(url, known, &err) != STILE_OK)
        MUST(err.status == STILE_MISUSE && fuzz_is_line(err.message));
}

/* Not libpq's keywords, in which a percent sign is one. */
static bool is_url(const char *text)
{
    return text[strcspn(text, ":= ")] == ':';
}

static void check(const char *text)
{
    struct stile_error err = {.status = STILE_OK};
    struct url *url = NULL;
    enum stile_status status = lookup_url(&url, text, &err);

    MUST(status == err.status);
    if (status) {
        MUST(status == STILE_MISUSE && !url && fuzz_is_line(err.message));
        return;
    }
    MUST(!is_url(text) || !strstr(text, "%00"));
    check_bounds(url);
    check_redaction(url, text);
    check_params(url);
    url_free(url);
}

/* The input in the place of the rest of a password, and of all that follows it. */
static void check_secret(const char *before, const char *input, const char *after)
{
    struct stile_error err = {.status = STILE_OK};
    char shown[STILE_URL_MAX + 1];
    struct url *url;
    char *text = malloc(strlen(before) + strlen(input) + strlen(after) + 1);

    MUST(text);
    strcat(strcat(strcpy(text, before), input), after);
    if (lookup_url(&url, text, &err) == STILE_OK)
        url_free(url);
    else
        MUST(!strstr(err.message, SECRET));
    (void)stile_url_redact(shown, sizeof(shown), text);
    MUST(!strstr(shown, SECRET));
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size);

    check(text);
    if (!strstr(text, SECRET)) {
        check_secret("x://u:" SECRET, text, "@h");
        check_secret("x://u:" SECRET "@", text, "");
        check_secret("x://u:", text, SECRET "@h");
    }
    free(text);
    return 0;
}
