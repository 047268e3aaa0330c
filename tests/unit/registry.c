/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of this build: each engine that was built is found by its schemes, and texts that
 * are no URLs reach the engine that claims their form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/lookup.h"
#include "engines/registry.h"

static bool was_built(const char *module)
{
    char built[] = MODULES_BUILT;

    for (char *word = strtok(built, " "); word; word = strtok(NULL, " "))
        if (strcmp(word, module) == 0)
            return true;
    return false;
}

/* The schemes stand in the engine's class and in its meson.build. */
static void every_engine_is_found_by_each_of_its_schemes(void **state)
{
    (void)state;
    for (const struct engine_entry *e = engine_registry; e->name; e++) {
        char schemes[256];
        if (!e->class && !was_built(e->module))
            continue;
        assert_true(strlen(e->schemes) < sizeof schemes);
        strcpy(schemes, e->schemes);
        for (char *rest = schemes, *scheme; (scheme = strtok_r(rest, " ", &rest));) {
            const struct engine_class *class = NULL;
            struct stile_error err = {0};
            if (lookup_engine(&class, scheme, &err))
                fail_msg("%s: %s", scheme, err.message);
            assert_string_equal(class->schemes, e->schemes);
        }
    }
}

struct listing {
    unsigned n, missing;
};

static int count(const struct stile_engine *engine, void *data)
{
    struct listing *listing = data;

    assert_string_equal(engine->name, engine_registry[listing->n].name);
    assert_string_equal(engine->schemes, engine_registry[listing->n].schemes);
    listing->missing += !engine->module;
    return ++listing->n == 2;
}

static int count_all(const struct stile_engine *engine, void *data)
{
    (void)count(engine, data);
    return 0;
}

static void engines_are_listed_until_the_caller_has_enough(void **state)
{
    struct listing listing = {0};

    (void)state;
    stile_engines_list(count, &listing);
    assert_int_equal(listing.n, 2);
    stile_engines_list(NULL, NULL);
}

static void an_engine_without_its_module_is_listed_as_missing(void **state)
{
    struct listing there = {0}, gone = {0};
    char *directory = strdup(getenv("STILE_MODULES"));

    (void)state;
    assert_non_null(directory);
    stile_engines_list(count_all, &there);
    setenv("STILE_MODULES", "/no/such/directory", 1);
    stile_engines_list(count_all, &gone);
    setenv("STILE_MODULES", directory, 1);
    free(directory);
    assert_int_equal(gone.n, there.n);
    assert_int_equal(gone.missing - there.missing, N_MODULES);
}

/* ---- keyword strings ---- */

static struct url *found(const char *text)
{
    struct stile_error err = {.status = STILE_OK};
    struct url *url = NULL;

    if (lookup_url(&url, text, &err) != STILE_OK)
        fail_msg("%s: %s", text, err.message);
    return url;
}

static void keyword_strings_of_libpq(void **state)
{
    struct url *url = found(" host = db.example port=5432 dbname='my \\'app\\\\' user=a\\ b "
                            "password=p%&#@:/?=w mode=table empty=''");

    (void)state;
    assert_string_equal(url->scheme, "postgres");
    assert_int_equal(url->n_hosts, 0);
    assert_string_equal(url->path, "");
    assert_string_equal(url_param(url, "host"), "db.example");
    assert_string_equal(url_param(url, "port"), "5432");
    assert_string_equal(url_param(url, "dbname"), "my 'app\\");
    assert_string_equal(url_param(url, "user"), "a b");
    assert_string_equal(url_param(url, "password"), "p%&#@:/?=w");
    assert_string_equal(url_param(url, "mode"), "table");
    assert_string_equal(url_param(url, "empty"), "");
    url_free(url);
}

static void bad_keyword_strings_are_refused_with_a_reason(void **state)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"", "is empty"},
        {"host=db dbname", "not made of keyword=value"},
        {"host=db =x", "not made of keyword=value"},
        {"host=db dbname='app", "that nothing ends"},
        {"host=db 1=2", "not made of keyword=value"},
        {"host=a\nb=c", "control character"},
        {"=x", "does not start with an engine's name"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stile_error err = {.status = STILE_OK};
        struct url *url;
        assert_int_equal(lookup_url(&url, cases[i].text, &err), STILE_MISUSE);
        if (!strstr(err.message, cases[i].reason))
            fail_msg("%s: %s, not %s", cases[i].text, err.message, cases[i].reason);
    }
}

static void keyword_strings_keep_their_secrets(void **state)
{
    static const char *const bad[] = {"password='hunter", "password=1 hunter"};
    char shown[256];

    (void)state;
    assert_int_equal(
        stile_url_redact(shown, sizeof shown, "host=db user=ann password='a b' dbname='my app'"),
        STILE_OK);
    assert_string_equal(shown, "postgres:?host=db&dbname=my%20app");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct stile_error err;
        struct url *url;
        assert_int_equal(lookup_url(&url, bad[i], &err), STILE_MISUSE);
        assert_null(strstr(err.message, "hunter"));
        assert_int_equal(stile_url_redact(shown, sizeof shown, bad[i]), STILE_MISUSE);
        assert_string_equal(shown, "?");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_engine_is_found_by_each_of_its_schemes),
        cmocka_unit_test(engines_are_listed_until_the_caller_has_enough),
        cmocka_unit_test(an_engine_without_its_module_is_listed_as_missing),
        cmocka_unit_test(keyword_strings_of_libpq),
        cmocka_unit_test(bad_keyword_strings_are_refused_with_a_reason),
        cmocka_unit_test(keyword_strings_keep_their_secrets),
    };

    return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
