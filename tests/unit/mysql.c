/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the mysql engine that need no server: names, the URL, what is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errmsg.h>
#include <mysqld_error.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/url.h"
#include "engines/mysql/names.h"
#include "engines/mysql/options.h"
#include "engines/mysql/session.h"

/* ---- names ---- */

static void check_key(bool mariadb, const char *name, const char *wanted)
{
    char key[KEY_MAX + 1];
    maria_name_key(key, mariadb, name, strlen(name));
    if (wanted) {
        assert_string_equal(key, wanted);
        return;
    }
    assert_string_not_equal(key, name);
    assert_true(strlen(key) <= 64);
    assert_non_null(strchr(key, '#'));
    for (const char *c = key; *c; c++)
        assert_true(*c >= ' ' && *c < 127 && !(*c >= 'A' && *c <= 'Z'));
}

static void plain_names_are_themselves(void **state)
{
    static const char *const plain[] = {"x", "order:17", "a b", "it's", "#12", "50%"};
    (void)state;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        check_key(true, plain[i], plain[i]);
        check_key(false, plain[i], plain[i]);
    }
    check_key(true, "Capital", "Capital");
    check_key(true, "\xc3\xa9", "\xc3\xa9");
}

static void what_mysql_mixes_up_is_hashed(void **state)
{
    char name[STILE_NAME_MAX + 1], a[KEY_MAX + 1], b[KEY_MAX + 1];
    (void)state;
    check_key(false, "Capital", NULL);
    check_key(false, "\xc3\xa9", NULL);
    memset(name, 'n', STILE_NAME_MAX);
    name[STILE_NAME_MAX] = '\0';
    check_key(true, name, NULL);
    check_key(false, name, NULL);
    name[193] = '\0';
    check_key(true, name, NULL);
    name[192] = '\0';
    check_key(true, name, name);
    check_key(false, name, NULL);
    name[64] = '\0';
    check_key(false, name, name);
    maria_name_key(a, false, "Capital", 7);
    maria_name_key(b, false, "CAPITAL", 7);
    assert_string_not_equal(a, b);
    assert_memory_equal(a, "capital#", 8);
}

/* Else somebody's name could be another's hash. */
static void what_looks_hashed_is_hashed(void **state)
{
    char key[KEY_MAX + 1], again[KEY_MAX + 1];
    (void)state;
    maria_name_key(key, false, "Capital", 7);
    maria_name_key(again, false, key, strlen(key));
    assert_string_not_equal(key, again);
    maria_name_key(again, true, key, strlen(key));
    assert_string_not_equal(key, again);
}

static void hex_is_hex(void **state)
{
    char out[2 * 4 + 1];
    (void)state;
    maria_name_hex(out, "a\xff'\\", 4);
    assert_string_equal(out, "61ff275c");
    maria_name_hex(out, "", 0);
    assert_string_equal(out, "");
}

/* ---- the URL ---- */

static enum stile_status read_url(struct options *options, const char *text,
                                  struct stile_error *err)
{
    struct url *url;
    memset(options, 0, sizeof *options);
    assert_int_equal(url_parse(&url, text, err), STILE_OK);
    enum stile_status status = url_check_params(url, maria_options_params, err);
    if (!status)
        status = maria_options_read(options, url, err);
    url_free(url);
    return status;
}

static void the_url_is_taken_apart(void **state)
{
    struct options o;
    struct stile_error err;
    (void)state;
    assert_int_equal(read_url(&o, "mysql://ann:p%40ss@127.0.0.1:3307/db?sessions=9", &err), 0);
    assert_string_equal(o.user, "ann");
    assert_string_equal(o.password, "p@ss");
    assert_string_equal(o.host, "127.0.0.1");
    assert_string_equal(o.database, "db");
    assert_int_equal(o.port, 3307);
    assert_int_equal(o.sessions, 9);
    assert_null(o.socket);
    maria_options_free(&o);
    assert_int_equal(read_url(&o, "mysql:///db?socket=/run/x&mode=getlock", &err), 0);
    assert_null(o.host);
    assert_null(o.user);
    assert_string_equal(o.socket, "/run/x");
    maria_options_free(&o);
}

static void check_tls(const char *url, bool tls, bool insecure)
{
    struct options o;
    struct stile_error err;
    assert_int_equal(read_url(&o, url, &err), STILE_OK);
    assert_int_equal(o.tls, tls);
    assert_int_equal(o.insecure, insecure);
    maria_options_free(&o);
}

static void another_host_must_be_verified(void **state)
{
    (void)state;
    check_tls("mysql://127.0.0.1", false, false);
    check_tls("mysql://localhost", false, false);
    check_tls("mysql://[::1]", false, false);
    check_tls("mysql:///db", false, false);
    check_tls("mysql://db.example", true, false);
    check_tls("mysql://localhost.example", true, false);
    check_tls("mysql://db.example?insecure", false, true);
    check_tls("mysqls://db.example?insecure", true, true);
    check_tls("mysqls://localhost", true, false);
    check_tls("mysql://localhost?ca=/x", true, false);
    check_tls("mysql://localhost?tls", true, false);
}

static void what_is_wrong_is_refused(void **state)
{
    static const char *const bad[] = {"mysql://h?sessions=1",   "mysql://h?sessions=x",
                                      "mysql://h?sessions=",    "mysql://h?mode=other",
                                      "mysql://h?allow=all",    "mysql://h?nothing=1",
                                      "mysql://a,b/db",         "mysql://h/db?socket=/x",
                                      "mysqls:///db?socket=/x", "mysql:///db?insecure"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct options options;
        struct stile_error err;
        assert_int_equal(read_url(&options, bad[i], &err), STILE_MISUSE);
        maria_options_free(&options);
    }
}

/* The library would change it for the whole process. */
static void sigpipe_stays_as_it_was(void **state)
{
    struct options o;
    struct stile_error err;
    struct sigaction now;
    (void)state;
    assert_int_equal(read_url(&o, "mysql://localhost", &err), STILE_OK);
    MYSQL *conn = maria_options_prepare(&o);
    assert_non_null(conn);
    assert_int_equal(sigaction(SIGPIPE, NULL, &now), 0);
    assert_true(now.sa_handler == SIG_DFL);
    mysql_close(conn);
    maria_options_free(&o);
}

/* ---- what is said ---- */

static enum stile_status status_of(unsigned code)
{
    struct stile_error err;
    maria_error_of(&err, code, "text", NULL);
    assert_int_equal(err.native, code);
    return err.status;
}

static void codes_tell_the_status(void **state)
{
    (void)state;
    assert_int_equal(status_of(ER_CON_COUNT_ERROR), STILE_UNREACHABLE);
    assert_int_equal(status_of(ER_LOCK_DEADLOCK), STILE_UNREACHABLE);
    assert_int_equal(status_of(CR_SERVER_LOST), STILE_UNREACHABLE);
    assert_int_equal(status_of(CR_CONN_HOST_ERROR), STILE_UNREACHABLE);
    assert_int_equal(status_of(CR_SSL_CONNECTION_ERROR), STILE_REFUSED);
    assert_int_equal(status_of(ER_ACCESS_DENIED_ERROR), STILE_REFUSED);
    assert_int_equal(status_of(CR_OUT_OF_MEMORY), STILE_NOMEM);
    assert_true(maria_error_is_end(CR_SERVER_LOST));
    assert_true(maria_error_is_end(1927));
    assert_false(maria_error_is_end(ER_QUERY_INTERRUPTED));
    assert_true(maria_error_is_kill(ER_QUERY_INTERRUPTED));
}

static void assert_error(unsigned code, const char *said, const char *expected)
{
    struct stile_error err;
    maria_error_of(&err, code, said, NULL);
    assert_string_equal(err.message, expected);
}

static void errors_tell_what_to_do(void **state)
{
    (void)state;
    assert_error(CR_CONN_HOST_ERROR, "Can't connect to 'h' (111)",
                 "Can't connect to 'h' (Connection refused): is it running at this address?");
    assert_error(CR_CONN_HOST_ERROR, "Can't connect to 'h' (115)",
                 "Can't connect to 'h': is it running at this address?");
    assert_error(CR_CONN_HOST_ERROR, "(115)", ": is it running at this address?");
    assert_error(ER_TABLEACCESS_DENIED_ERROR, "CREATE command denied",
                 "CREATE command denied (without the privileges, give your DBA the `stile setup "
                 "--print` output)");
    assert_error(ER_TABLEACCESS_DENIED_ERROR, "INSERT, UPDATE command denied",
                 "INSERT, UPDATE command denied (grant this user SELECT, INSERT, UPDATE and DELETE "
                 "on the tables stile_%)");
}

static void a_secret_is_not_repeated(void **state)
{
    struct stile_error err;
    (void)state;
    maria_error_of(&err, ER_ACCESS_DENIED_ERROR, "no tell-nobody\nhere: tell-nobody",
                   "tell-nobody");
    assert_null(strstr(err.message, "nobody"));
    assert_non_null(strstr(err.message, "no *** here: ***"));
    maria_error_of(&err, ER_ACCESS_DENIED_ERROR, "tell", "t");
    assert_null(strstr(err.message, "tell"));
}

static void the_last_word_is_heard(void **state)
{
    static const unsigned char packet[] = "\x1a\0\0\0\xff\x87\x07#70100Connection was killed";
    struct stile_error err;
    (void)state;
    maria_error_of_last_word(&err, packet, sizeof packet - 1);
    assert_int_equal(err.native, 1927);
    assert_int_equal(err.status, STILE_UNREACHABLE);
    assert_string_equal(err.message,
                        "Connection was killed (KILL, by stile break or an administrator)");
    for (size_t n = 0; n < 14; n++) {
        maria_error_of_last_word(&err, packet, n);
        assert_int_equal(err.status, STILE_UNREACHABLE);
    }
    maria_error_of_last_word(&err, (const unsigned char *)"\x15\x03\x03\0\x13................", 20);
    assert_int_equal(err.status, STILE_UNREACHABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_names_are_themselves),
        cmocka_unit_test(what_mysql_mixes_up_is_hashed),
        cmocka_unit_test(what_looks_hashed_is_hashed),
        cmocka_unit_test(hex_is_hex),
        cmocka_unit_test(the_url_is_taken_apart),
        cmocka_unit_test(another_host_must_be_verified),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(sigpipe_stays_as_it_was),
        cmocka_unit_test(codes_tell_the_status),
        cmocka_unit_test(errors_tell_what_to_do),
        cmocka_unit_test(a_secret_is_not_repeated),
        cmocka_unit_test(the_last_word_is_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
