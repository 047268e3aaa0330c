/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the postgres engine that need no server: names, keys, the URL, what is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/url.h"
#include "engines/postgres/errors.h"
#include "engines/postgres/names.h"
#include "engines/postgres/options.h"
#include "engines/postgres/session.h"

/* ---- names ---- */

static void check_stored(const char *name, const char *stored)
{
    char there[STORED_MAX], back[STILE_NAME_MAX + 1];
    postgres_name_store(there, name, strlen(name));
    assert_string_equal(there, stored);
    assert_true(postgres_name_restore(back, there));
    assert_string_equal(back, name);
}

static void names_are_stored_readably(void **state)
{
    (void)state;
    check_stored("order:17", "order:17");
    check_stored("\xc3\xa9", "\xc3\xa9");
    check_stored("\xf0\x9f\x94\x92", "\xf0\x9f\x94\x92");
    check_stored("\xff", "\1ff");
    check_stored("a\xc3", "\1"
                          "61c3");
}

/* What PostgreSQL would refuse as UTF-8: overlong, surrogates, beyond the last code, cut. */
static void what_is_no_utf8_is_escaped(void **state)
{
    static const char *const bad[] = {"\xc0\x80",     "\xc1\xbf", "\xe0\x9f\xbf",
                                      "\xed\xa0\x80", "\xf5\x80", "\xf4\x90\x80\x80",
                                      "\xe2\x82",     "\x80",     "\xf8\x88\x80\x80\x80"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char there[STORED_MAX], back[STILE_NAME_MAX + 1];
        postgres_name_store(there, bad[i], strlen(bad[i]));
        assert_int_equal(there[0], 1);
        assert_true(postgres_name_restore(back, there));
        assert_string_equal(back, bad[i]);
    }
}

static void the_longest_names_fit(void **state)
{
    char name[STILE_NAME_MAX + 1], there[STORED_MAX], back[STILE_NAME_MAX + 1];
    (void)state;
    memset(name, '\xff', STILE_NAME_MAX);
    name[STILE_NAME_MAX] = '\0';
    postgres_name_store(there, name, STILE_NAME_MAX);
    assert_int_equal(strlen(there), 1 + 2 * STILE_NAME_MAX);
    assert_true(postgres_name_restore(back, there));
    assert_string_equal(back, name);
}

static void what_others_stored_is_no_name(void **state)
{
    char back[STILE_NAME_MAX + 1], endless[STILE_NAME_MAX + 2];
    (void)state;
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_false(postgres_name_restore(back, ""));
    assert_false(postgres_name_restore(back, "\1x"));
    assert_false(postgres_name_restore(back, "\1"
                                             "abc"));
    assert_false(postgres_name_restore(back, endless));
}

/* ---- keys ---- */

static void check_key(enum dialect dialect, const char *name, enum key_form form,
                      const char *number)
{
    struct key key;
    postgres_key_make(&key, dialect, name, strlen(name));
    assert_int_equal(key.form, form);
    assert_string_equal(key.number, number);
}

static void numbers_are_the_keys_themselves(void **state)
{
    (void)state;
    for (int dialect = DIALECT_SQL; dialect <= DIALECT_MADELSON; dialect++) {
        check_key((enum dialect)dialect, "#12345", KEY_ONE, "12345");
        check_key((enum dialect)dialect, "#-9223372036854775808", KEY_ONE, "-9223372036854775808");
        check_key((enum dialect)dialect, "#1,-42", KEY_TWO, "1,-42");
    }
}

static void other_names_with_a_hash_are_names(void **state)
{
    static const char *const names[] = {"#",      "#x",  "#1,",           "#,1",
                                        "#1,2,3", "# 1", "#1 ",           "#+1",
                                        "#--1",   "1",   "#1,2147483648", "#9223372036854775808",
                                        "#0x10"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_key(DIALECT_SQL, names[i], KEY_HASH, "");
}

/* crc32("123456789") is 0xcbf43926, sha1("abc") begins with a9993e36 4706816a. */
static void dialects_have_their_own_keys(void **state)
{
    enum dialect dialect;
    (void)state;
    check_key(DIALECT_SQL, "123456789", KEY_HASH, "");
    check_key(DIALECT_WITH_ADVISORY_LOCK, "123456789", KEY_TWO, "1274296614,0");
    check_key(DIALECT_DJANGO, "123456789", KEY_ONE, "-873187034");
    check_key(DIALECT_PALS, "abc", KEY_ONE, "7674422142938552745");
    check_key(DIALECT_MADELSON, "x", KEY_TWO, "-251658241,-1");
    check_key(DIALECT_MADELSON, "nightly", KEY_TWO, "-576242034,-1690517505");
    check_key(DIALECT_MADELSON, "123456789", KEY_TWO, "1657379654,-1382303630");
    check_key(DIALECT_MADELSON, "00000000000000fF", KEY_ONE, "255");
    check_key(DIALECT_MADELSON, "ffffffff,00000010", KEY_TWO, "-1,16");
    check_key(DIALECT_MADELSON, "nightly report", KEY_ONE, "-3493012053219155971");
    check_key(DIALECT_PALS, "nightly report", KEY_ONE, "-3493012053219155971");
    assert_true(postgres_dialect_named(&dialect, "madelson"));
    assert_int_equal(dialect, DIALECT_MADELSON);
    assert_true(postgres_dialect_named(&dialect, "django-pglocks"));
    assert_int_equal(dialect, DIALECT_DJANGO);
    assert_false(postgres_dialect_named(&dialect, "django"));
}

/* ---- the URL ---- */

static enum stile_status read_url(struct options *options, const char *text,
                                  struct stile_error *err)
{
    struct url *url;
    memset(options, 0, sizeof *options);
    assert_int_equal(url_parse(&url, text, err), STILE_OK);
    enum stile_status status = url_check_params(url, postgres_options_params, err);
    if (!status)
        status = postgres_options_read(options, url, err);
    url_free(url);
    return status;
}

static void check_option(const char *url, const char *keyword, const char *value)
{
    struct options options;
    struct stile_error err;
    assert_int_equal(read_url(&options, url, &err), STILE_OK);
    const char *got = postgres_options_get(&options, keyword);
    if (value)
        assert_string_equal(got, value);
    else
        assert_null(got);
    postgres_options_free(&options);
}

static void the_url_goes_on_to_libpq(void **state)
{
    (void)state;
    check_option("postgres://ann:p%40ss@127.0.0.1:5433/db", "user", "ann");
    check_option("postgres://ann:p%40ss@127.0.0.1:5433/db", "password", "p@ss");
    check_option("postgres://ann@127.0.0.1:5433/db", "port", "5433");
    check_option("postgres://ann@127.0.0.1:5433/db", "dbname", "db");
    check_option("postgres://127.0.0.1,localhost:5433/db", "host", "127.0.0.1,localhost");
    check_option("postgres://127.0.0.1,localhost:5433/db", "port", ",5433");
    check_option("postgres:", "host", NULL);
    check_option("postgres:///db?host=/run/pg", "host", "/run/pg");
    check_option("postgres://127.0.0.1?connect_timeout=7", "connect_timeout", "7");
    check_option("postgres://127.0.0.1?sessions=9", "sessions", NULL);
    check_option("postgres://127.0.0.1?client_encoding=LATIN1", "client_encoding", "UTF8");
}

static void another_host_must_be_verified(void **state)
{
    (void)state;
    unsetenv("PGSSLMODE");
    unsetenv("PGHOST");
    check_option("postgres://127.0.0.1", "sslmode", NULL);
    check_option("postgres://localhost", "sslmode", NULL);
    check_option("postgres://[::1]", "sslmode", NULL);
    check_option("postgres:///db?host=/run/pg", "sslmode", NULL);
    check_option("postgres://db.example", "sslmode", "verify-full");
    check_option("postgres://localhost,db.example", "sslmode", "verify-full");
    check_option("postgres://localhost.example", "sslmode", "verify-full");
    check_option("postgres://localhost?hostaddr=192.0.2.1", "sslmode", "verify-full");
    check_option("postgres://db.example?sslmode=disable", "sslmode", "disable");
    setenv("PGHOST", "db.example", 1);
    check_option("postgres:", "sslmode", "verify-full");
    setenv("PGSSLMODE", "require", 1);
    check_option("postgres:", "sslmode", NULL);
    unsetenv("PGSSLMODE");
    unsetenv("PGHOST");
}

/* ---- hosts are resolved before libpq gets them ---- */

static struct options hosts;

static void begin_with(const char *url)
{
    struct stile_error err;
    assert_int_equal(read_url(&hosts, url, &err), STILE_OK);
}

/* The next name, and its addresses; NULL: it has none. */
static enum stile_status resolve_next(const char *name, const char *address)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    struct stile_error err;
    char next[NI_MAXHOST];
    assert_true(postgres_options_next_name(next, &hosts));
    assert_string_equal(next, name);
    if (address)
        assert_int_equal(getaddrinfo(address, NULL, &hints, &found), 0);
    enum stile_status status = postgres_options_set_addresses(&hosts, name, found, &err);
    if (found)
        freeaddrinfo(found);
    return status;
}

static void check_hosts(const char *host, const char *address, const char *port)
{
    char next[NI_MAXHOST];
    assert_false(postgres_options_next_name(next, &hosts));
    assert_string_equal(postgres_options_get(&hosts, "host"), host);
    assert_string_equal(postgres_options_get(&hosts, "hostaddr"), address);
    assert_string_equal(postgres_options_get(&hosts, "port"), port);
}

static void every_host_of_a_list_is_resolved(void **state)
{
    (void)state;
    begin_with("postgres://one:1,127.0.0.1:2,two:3/db?sslmode=disable");
    assert_int_equal(resolve_next("one", "192.0.2.1"), STILE_OK);
    assert_int_equal(resolve_next("two", "2001:db8::2"), STILE_OK);
    check_hosts("one,127.0.0.1,two", "192.0.2.1,,2001:db8::2", "1,2,3");
    postgres_options_unpin(&hosts);
    assert_string_equal(postgres_options_get(&hosts, "host"), "one,127.0.0.1,two");
    assert_null(postgres_options_get(&hosts, "hostaddr"));
    postgres_options_free(&hosts);
}

static void a_host_without_an_address_is_left_out(void **state)
{
    char next[NI_MAXHOST];
    (void)state;
    begin_with("postgres://one:1,two:2/db?sslmode=disable");
    assert_int_equal(resolve_next("one", NULL), STILE_OK);
    assert_int_equal(resolve_next("two", "192.0.2.2"), STILE_OK);
    check_hosts("two", "192.0.2.2", "2");
    postgres_options_free(&hosts);
    begin_with("postgres://one:1,two:2/db?sslmode=disable");
    assert_int_equal(resolve_next("one", NULL), STILE_OK);
    assert_int_equal(resolve_next("two", NULL), STILE_UNREACHABLE);
    postgres_options_unpin(&hosts);
    assert_true(postgres_options_next_name(next, &hosts));
    assert_string_equal(next, "one");
    postgres_options_free(&hosts);
}

/* Sessions that connect at once resolve the same
 * name. */
static void a_name_is_repeated_for_each_address_and_only_once(void **state)
{
    struct addrinfo two[2], *found;
    struct stile_error err;
    (void)state;
    begin_with("postgres://one:1/db?sslmode=disable");
    assert_int_equal(
        getaddrinfo("192.0.2.1", NULL,
                    &(struct addrinfo){.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM},
                    &found),
        0);
    two[0] = two[1] = *found;
    two[0].ai_next = &two[1];
    two[1].ai_next = NULL;
    assert_int_equal(postgres_options_set_addresses(&hosts, "one", two, &err), STILE_OK);
    check_hosts("one,one", "192.0.2.1,192.0.2.1", "1");
    assert_int_equal(postgres_options_set_addresses(&hosts, "one", two, &err), STILE_OK);
    check_hosts("one,one", "192.0.2.1,192.0.2.1", "1");
    freeaddrinfo(found);
    postgres_options_free(&hosts);
}

static void sockets_and_addresses_are_not_resolved(void **state)
{
    static const char *const urls[] = {"postgres:",
                                       "postgres:///db?host=/run/pg",
                                       "postgres:///db?host=%40abstract",
                                       "postgres://[::1]",
                                       "postgres://one?hostaddr=127.0.0.1",
                                       "postgres://127.0.0.1,[::1]/db",
                                       "postgres:///db?host=one,two&hostaddr=127.0.0.1"};
    char next[NI_MAXHOST];
    (void)state;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        begin_with(urls[i]);
        assert_false(postgres_options_next_name(next, &hosts));
        postgres_options_free(&hosts);
    }
}

static void what_is_wrong_is_refused(void **state)
{
    static const char *const bad[] = {"sessions=1", "sessions=x", "sessions=-3",
                                      "sessions=",  "mode=other", "dialect=other",
                                      "allow=all",  "nothing=1",  "mode=table&dialect=pals"};
    char text[64];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct options options;
        struct stile_error err;
        snprintf(text, sizeof text, "postgres://localhost?%s", bad[i]);
        assert_int_equal(read_url(&options, text, &err), STILE_MISUSE);
        postgres_options_free(&options);
    }
}

/* ---- what is said ---- */

static void codes_tell_the_status(void **state)
{
    (void)state;
    assert_int_equal(postgres_error_status("53300"), STILE_UNREACHABLE);
    assert_int_equal(postgres_error_status("57P01"), STILE_UNREACHABLE);
    assert_int_equal(postgres_error_status("08006"), STILE_UNREACHABLE);
    assert_int_equal(postgres_error_status("28P01"), STILE_REFUSED);
    assert_int_equal(postgres_error_status("53100"), STILE_REFUSED);
    assert_int_equal(postgres_error_status("42501"), STILE_REFUSED);
}

/* libpq quotes what it was given. */
static void a_secret_is_not_repeated(void **state)
{
    static const char *const keywords[] = {"host", "password", "port", NULL};
    static const char *const values[] = {"127.0.0.1", "tell-nobody", "tell-nobody", NULL};
    struct stile_error err;
    (void)state;
    PGconn *conn = PQconnectStartParams(keywords, values, 0);
    assert_non_null(strstr(PQerrorMessage(conn), "tell-nobody"));
    postgres_connection_error(&err, conn, "tell-nobody");
    assert_null(strstr(err.message, "tell-nobody"));
    assert_null(strstr(err.message, "nobody"));
    assert_non_null(strstr(err.message, "***"));
    assert_int_equal(err.status, STILE_REFUSED);
    postgres_connection_error(&err, conn, "t");
    assert_null(strstr(err.message, "tell"));
    PQfinish(conn);
    postgres_connection_error(&err, NULL, NULL);
    assert_int_equal(err.status, STILE_NOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_stored_readably),
        cmocka_unit_test(what_is_no_utf8_is_escaped),
        cmocka_unit_test(the_longest_names_fit),
        cmocka_unit_test(what_others_stored_is_no_name),
        cmocka_unit_test(numbers_are_the_keys_themselves),
        cmocka_unit_test(other_names_with_a_hash_are_names),
        cmocka_unit_test(dialects_have_their_own_keys),
        cmocka_unit_test(the_url_goes_on_to_libpq),
        cmocka_unit_test(another_host_must_be_verified),
        cmocka_unit_test(every_host_of_a_list_is_resolved),
        cmocka_unit_test(a_host_without_an_address_is_left_out),
        cmocka_unit_test(a_name_is_repeated_for_each_address_and_only_once),
        cmocka_unit_test(sockets_and_addresses_are_not_resolved),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(codes_tell_the_status),
        cmocka_unit_test(a_secret_is_not_repeated),
    };
    return cmocka_run_group_tests_name("postgres", tests, NULL, NULL);
}
