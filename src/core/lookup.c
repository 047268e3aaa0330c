/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/lookup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "core/config.h"
#include "core/modules.h"
#include "engines/registry.h"

/* ---- the registry ---- */

static bool has_word(const char *words, const char *word)
{
    size_t len = strlen(word);

    for (const char *at = words; *at;) {
        size_t n = strcspn(at, " ");
        if (n == len && strncmp(at, word, len) == 0)
            return true;
        at += n + strspn(at + n, " ");
    }
    return false;
}

static const struct engine_entry *entry_of(const char *scheme)
{
    for (const struct engine_entry *e = engine_registry; e->name; e++)
        if (has_word(e->schemes, scheme))
            return e;
    return NULL;
}

static void copy_word(char out[NEAREST_LEN + 1], const char *words)
{
    snprintf(out, NEAREST_LEN + 1, "%.*s", (int)strcspn(words, " "), words);
}

/* The scheme that was probably meant, or "": an engine's name stands for its first scheme. */
static void guess_scheme(char out[NEAREST_LEN + 1], const char *scheme)
{
    struct nearest nearest = nearest_to(scheme, strlen(scheme));
    char word[NEAREST_LEN + 1];

    out[0] = '\0';
    for (const struct engine_entry *e = engine_registry; e->name; e++) {
        for (const char *at = e->schemes; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
            copy_word(word, at);
            nearest_try(&nearest, word);
            if (nearest.best == word) {
                copy_word(out, at);
                nearest.best = NULL;
            }
        }
        nearest_try(&nearest, e->name);
        if (nearest.best == e->name)
            copy_word(out, e->schemes);
        nearest.best = NULL;
    }
}

static enum stile_status no_such_engine(const char *scheme, struct stile_error *err)
{
    char known[200] = "", guess[NEAREST_LEN + 1];

    for (const struct engine_entry *e = engine_registry; e->name; e++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? " " : "", e->schemes);
    }
    guess_scheme(guess, scheme);
    if (guess[0])
        return error_set(err, STILE_MISUSE, 0,
                         "no engine for '%s:' URLs; did you mean %s:? There is: %s", scheme, guess,
                         known);
    return error_set(err, STILE_MISUSE, 0, "no engine for '%s:' URLs; there is: %s", scheme, known);
}

enum stile_status lookup_engine(const struct engine_class **class, const char *scheme,
                                struct stile_error *err)
{
    const struct engine_entry *entry = entry_of(scheme);
    const struct engine_module *module;

    if (!entry)
        return no_such_engine(scheme, err);
    *class = entry->class;
    if (*class)
        return STILE_OK;
    enum stile_status status = module_load(&module, entry->module, entry->name, err);
    if (status)
        return status;
    const struct engine_class *const *at = module->classes;
    while (*at && !has_word((*at)->schemes, scheme))
        at++;
    *class = *at;
    return *class ? STILE_OK : no_such_engine(scheme, err);
}

void stile_engines_list(stile_engine_fn *fn, void *data)
{
    char path[MODULE_PATH_MAX];
    bool enough = !fn;

    for (const struct engine_entry *e = engine_registry; e->name && !enough; e++) {
        bool found = !e->class && module_find(path, e->module);
        enough = fn(&(struct stile_engine){.name = e->name,
                                           .schemes = e->schemes,
                                           .module = e->class ? ""
                                                     : found  ? path
                                                              : NULL},
                    data) != 0;
    }
}

/* ---- texts ---- */

enum stile_status lookup_url(struct url **url, const char *text, struct stile_error *err)
{
    char *same = NULL;
    enum stile_status status = url_check_text(text, err);

    for (const struct engine_entry *e = engine_registry; e->name && !status && !same; e++)
        if (e->url_from_text)
            status = e->url_from_text(&same, text, err);
    if (!status)
        status = url_parse(url, same ? same : text, err);
    if (same)
        explicit_bzero(same, strlen(same));
    free(same);
    return status;
}

static enum stile_status lookup_checked(struct url **url, const struct engine_class **class,
                                        const char *text, struct stile_error *err)
{
    enum stile_status status = lookup_url(url, text, err);
    if (status)
        return error_wrap(err, status, "reading the engine's URL");
    status = lookup_engine(class, (*url)->scheme, err);
    if (!status)
        status = url_check_params(*url, (*class)->params, err);
    if (status)
        url_free(*url);
    return status;
}

/* ---- the default engine ---- */

static enum stile_status check_exposed(const struct default_engine *found, const struct url *url,
                                       struct stile_error *err)
{
    if (!found->too_open || !url_has_secret(url))
        return STILE_OK;
    return error_set(err, STILE_REFUSED, 0,
                     "other users can read the password in this file; run: chmod %o %s",
                     found->mode, found->path);
}

static enum stile_status wrap_place(const struct default_engine *found, enum stile_status status,
                                    struct stile_error *err)
{
    return status && found->line ? error_wrap(err, status, "%s:%u", found->path, found->line)
                                 : status;
}

/* What is in a variable is checked when it is used: that takes no place to be named. */
static enum stile_status find_default(struct default_engine *found, struct stile_error *err)
{
    struct url *url;
    enum stile_status status = config_find(found, err);
    if (status || !found->line)
        return status;
    status = wrap_place(found, lookup_url(&url, found->url, err), err);
    if (!status) {
        status = check_exposed(found, url, err);
        url_free(url);
    }
    if (status)
        config_forget(found);
    return status;
}

static enum stile_status lookup_default(struct url **url, const struct engine_class **class,
                                        struct stile_error *err)
{
    struct default_engine found;
    enum stile_status status = find_default(&found, err);
    if (status)
        return status;
    status = wrap_place(&found, lookup_checked(url, class, found.url, err), err);
    config_forget(&found);
    return status;
}

enum stile_status stile_engine_default(char *url, size_t url_size, char *from, size_t from_size,
                                       struct stile_error *err)
{
    struct default_engine found;
    if (!url || !from || url_size == 0 || from_size == 0)
        return error_set(err, STILE_MISUSE, 0, "no room for the default engine");
    url[0] = from[0] = '\0';
    enum stile_status status = find_default(&found, err);
    if (status)
        return status;
    int n = snprintf(from, from_size, found.line ? "%s:%u" : "%s", found.path, found.line);
    if (strlen(found.url) >= url_size || (size_t)n >= from_size)
        status = error_set(err, STILE_MISUSE, 0, "too little room for the default engine");
    else
        strcpy(url, found.url);
    config_forget(&found);
    return status;
}

enum stile_status lookup_from_text(struct url **url, const struct engine_class **class,
                                   const char *text, struct stile_error *err)
{
    return text ? lookup_checked(url, class, *text ? text : "local:", err)
                : lookup_default(url, class, err);
}

enum stile_status stile_engine_caps(const struct stile_caps **caps, const char *text,
                                    struct stile_error *err)
{
    const struct engine_class *class;
    struct url *url;

    if (!caps)
        return error_set(err, STILE_MISUSE, 0, "no place for the engine's promises");
    enum stile_status status = lookup_from_text(&url, &class, text, err);
    if (status)
        return status;
    *caps = class->promises ? class->promises(url) : &class->caps;
    url_free(url);
    return STILE_OK;
}

enum stile_status stile_url_redact(char *out, size_t out_size, const char *text)
{
    struct url *url;

    if (!out || out_size == 0)
        return STILE_MISUSE;
    enum stile_status status = text ? lookup_url(&url, text, NULL) : STILE_MISUSE;
    if (!status) {
        if (!url_print_redacted(out, out_size, url))
            status = STILE_MISUSE;
        url_free(url);
    }
    if (status)
        strncpy(out, out_size > 1 ? "?" : "", out_size);
    return status;
}
