/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "guard.h"

#include <stdlib.h>
#include <string.h>

#define FILE_SCHEME "file:"

static bool is_file(const char *url)
{
    return strncmp(url, FILE_SCHEME, strlen(FILE_SCHEME)) == 0;
}

static const char *scheme_without_client(const char *url)
{
    static const char *const schemes[] = {"http:", "https:", "sqlite:"};
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (strncmp(url, schemes[i], strlen(schemes[i])) == 0)
            return schemes[i];
    }
    return NULL;
}

/* These guards are elsewhere: in the proxy, and in the user's own database file. */
static int refuse_scheme(const char *verb, const char *scheme)
{
    bool sqlite = scheme[0] == 's';
    say("%s: %s is guarded by its own %s; %s", verb, scheme, sqlite ? "triggers" : "proxy",
        sqlite ? "see stile guard sql --dialect sqlite"
               : "any request with Fencing-Resource and Fencing-Token raises it: see stile guard "
                 "nginx");
    return EXIT_USAGE;
}

/* file:DIR, file:///DIR: a directory of this machine. */
static int open_file(struct guard_place *place, const char *verb, const char *url,
                     const char *resource)
{
    const char *dir = url + strlen(FILE_SCHEME);
    if (strncmp(dir, "///", 3) == 0)
        dir += 2;
    if (dir[0] == '\0' || strncmp(dir, "//", 2) == 0) {
        say("%s: file: needs a directory of this machine, as in file:/var/lib/app", verb);
        return EXIT_USAGE;
    }
    if (asprintf(&place->path, "%s/%s", dir, resource) < 0)
        must_alloc(NULL);
    return 0;
}

static int cannot_open(const char *url, enum stile_status status, const struct stile_error *err)
{
    char redacted[STILE_URL_MAX + 1];
    bool is_url = stile_url_redact(redacted, sizeof redacted, url) == STILE_OK;
    if (status == STILE_UNSUPPORTED)
        say("%s", err->message);
    else
        say_failure(is_url ? redacted : "guard", status, err);
    return exit_code_of(status);
}

int guard_place_open(struct guard_place *place, const char *verb, const char *url,
                     const char *resource)
{
    struct stile_error err = {0};
    *place = (struct guard_place){.resource = must_alloc(strdup(resource)), .owned = true};
    const char *other = scheme_without_client(url);
    if (other != NULL)
        return refuse_scheme(verb, other);
    if (is_file(url))
        return open_file(place, verb, url, resource);
    enum stile_status status =
        stile_client_open(&place->client, url, STILE_CLIENT_OPTIONS(.label = "stile guard"), &err);
    return status == STILE_OK ? 0 : cannot_open(url, status, &err);
}

void guard_place_use(struct guard_place *place, struct stile_client *client, const char *resource)
{
    *place = (struct guard_place){.client = client, .resource = must_alloc(strdup(resource))};
}

void guard_place_close(struct guard_place *place)
{
    if (place->owned)
        stile_client_close(place->client);
    free(place->resource);
    free(place->path);
    *place = (struct guard_place){.client = NULL};
}

int guard_split(char **url, const char **resource, const char *verb, const char *text)
{
    const char *hash = strchr(text, '#');
    if (hash == NULL || hash[1] == '\0') {
        say("%s: --guard: must be URL#RESOURCE, or #RESOURCE for the engine of the lock", verb);
        return EXIT_USAGE;
    }
    *url = must_alloc(strndup(text, (size_t)(hash - text)));
    *resource = hash + 1;
    return 0;
}
