/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* From a scheme to an engine, through modules that are there, not there, or not ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "core/lookup.h"
#include "engines/registry.h"

/* In place of the library's own. */
const struct engine_entry engine_registry[] = {
    {.name = "works", .schemes = "works works+tls", .module = "works"},
    {.name = "other", .schemes = "other", .module = "works"},
    {.name = NULL},
};

static char directory[64], path[96];
static const struct engine_class *class;
static struct stile_error err;

static int set_up(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/stile-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/works.so", directory);
    setenv("STILE_MODULES", directory, 1);
    memset(&err, 0, sizeof err);
    class = NULL;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(directory);
}

static void put_there(const char *name)
{
    char built[4096];

    snprintf(built, sizeof built, "%s/%s.so", MODULES, name);
    assert_int_equal(symlink(built, path), 0);
}

static void fails_with(enum stile_status status, const char *scheme, const char *words)
{
    assert_int_equal(lookup_engine(&class, scheme, &err), status);
    assert_int_equal(err.status, status);
    if (!strstr(err.message, words))
        fail_msg("\"%s\" lacks \"%s\"", err.message, words);
}

static void is_unsupported(const char *scheme, const char *words)
{
    fails_with(STILE_UNSUPPORTED, scheme, words);
}

/* A typing error in a URL, not something that another engine or server would change. */
static void is_misuse(const char *scheme, const char *words)
{
    fails_with(STILE_MISUSE, scheme, words);
}

static void a_module_is_loaded_by_its_scheme(void **state)
{
    const struct engine_class *again;

    (void)state;
    put_there("good");
    assert_int_equal(lookup_engine(&class, "works", &err), STILE_OK);
    assert_string_equal(class->caps.engine, "works");
    assert_int_equal(lookup_engine(&again, "works+tls", &err), STILE_OK);
    assert_ptr_equal(again, class);
}

static void a_scheme_its_module_does_not_have(void **state)
{
    (void)state;
    put_there("good");
    is_misuse("other", "no engine for 'other:'");
}

static void a_scheme_nobody_has(void **state)
{
    (void)state;
    is_misuse("nosuch", "no engine for 'nosuch:' URLs; there is: ");
    assert_non_null(strstr(err.message, "works"));
    is_misuse("work", "no engine for 'work:'");
    is_misuse("", "no engine for ':'");
}

static void a_scheme_that_was_meant(void **state)
{
    (void)state;
    is_misuse("wroks", "no engine for 'wroks:' URLs; did you mean works:? There is: ");
    is_misuse("work", "did you mean works:?");
    is_misuse("works+tsl", "did you mean works+tls:?");
    is_misuse("others", "did you mean other:?");
    is_misuse("w", "no engine for 'w:' URLs; there is: ");
    is_misuse("wurst", "no engine for 'wurst:' URLs; there is: ");
}

/* The words are those of the command and of the real registry. */
static void near_words(void **state)
{
    static const char *const words[] = {"run",   "acquire", "renew",  "release", "ls",  "show",
                                        "watch", "break",   "doctor", "setup",   "jobs"};
    static const struct {
        const char *word, *meant;
    } cases[] = {{"rnu", "run"},
                 {"shwo", "show"},
                 {"sohw", "show"},
                 {"l", NULL},
                 {"lss", "ls"},
                 {"stat", NULL},
                 {"relase", "release"},
                 {"aquire", "acquire"},
                 {"acq", "acquire"},
                 {"doktor", "doctor"},
                 {"frobnicate", NULL},
                 {"", NULL},
                 {"xyz", NULL},
                 {"renwe", "renew"},
                 {"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct nearest nearest = nearest_to(cases[i].word, strlen(cases[i].word));
        for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
            nearest_try(&nearest, words[k]);
        if (cases[i].meant)
            assert_string_equal(nearest.best ? nearest.best : "", cases[i].meant);
        else
            assert_null(nearest.best);
    }
}

static void a_module_that_is_not_installed(void **state)
{
    (void)state;
    is_unsupported("works", "works engine not found; looked in /tmp/stile-test-");
    assert_null(strstr(err.message, " and "));
    is_unsupported("other", "other engine not found; looked in /tmp/stile-test-");
}

static void without_the_variable_it_is_the_installed_one(void **state)
{
    (void)state;
    setenv("STILE_MODULES", "", 1);
    is_unsupported("works", "/stile (see stile --engines)");
}

static void a_file_that_is_no_module(void **state)
{
    FILE *file = fopen(path, "w");

    (void)state;
    assert_non_null(file);
    fputs("hello", file);
    fclose(file);
    is_unsupported("works", "loading the engine");
}

static void a_library_of_somebody_else(void **state)
{
    (void)state;
    put_there("nameless");
    is_unsupported("works", "not a module of stile");
}

static void a_module_of_another_build(void **state)
{
    (void)state;
    put_there("next-abi");
    is_unsupported("works", "another build");
}

static void a_module_of_another_version(void **state)
{
    (void)state;
    put_there("next-version");
    is_unsupported("works", "another build");
}

static void a_variable_that_is_too_long(void **state)
{
    static char longest[5000];

    (void)state;
    memset(longest, 'x', sizeof longest - 1);
    setenv("STILE_MODULES", longest, 1);
    is_unsupported("works", "works engine not found; looked in xxx");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_module_is_loaded_by_its_scheme),
        TEST(a_scheme_its_module_does_not_have),
        TEST(a_scheme_nobody_has),
        TEST(a_scheme_that_was_meant),
        TEST(near_words),
        TEST(a_module_that_is_not_installed),
        TEST(without_the_variable_it_is_the_installed_one),
        TEST(a_file_that_is_no_module),
        TEST(a_library_of_somebody_else),
        TEST(a_module_of_another_build),
        TEST(a_module_of_another_version),
        TEST(a_variable_that_is_too_long),
    };

    return cmocka_run_group_tests_name("lookup", tests, NULL, NULL);
}
