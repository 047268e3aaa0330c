/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/url.h"

static struct url *parsed(const char *text)
{
    struct stile_error err = {.status = STILE_OK};
    struct url *url = NULL;

    if (url_parse(&url, text, &err) != STILE_OK)
        fail_msg("%s: %s", text, err.message);
    return url;
}

static void assert_same(const char *a, const char *b)
{
    if (!a || !b)
        assert_true(!a && !b);
    else
        assert_string_equal(a, b);
}

/* ---- what is understood ---- */

static void an_engine_alone(void **state)
{
    struct url *url = parsed("local:");

    (void)state;
    assert_string_equal(url->scheme, "local");
    assert_null(url->user);
    assert_null(url->password);
    assert_int_equal(url->n_hosts, 0);
    assert_string_equal(url->path, "");
    assert_int_equal(url->n_params, 0);
    url_free(url);
}

static void everything_at_once(void **state)
{
    struct url *url = parsed("Redis+TLS://us%65r:p%40ss%2F@a.b-c_1:6379,[::1]:1,[fe80::1%25eth0],d"
                             "/x%20y/z?prefix=a%26b&flag&empty=&eq=a=b?c");

    (void)state;
    assert_string_equal(url->scheme, "redis+tls");
    assert_string_equal(url->user, "user");
    assert_string_equal(url->password, "p@ss/");
    assert_int_equal(url->n_hosts, 4);
    assert_string_equal(url->hosts[0].host, "a.b-c_1");
    assert_int_equal(url->hosts[0].port, 6379);
    assert_string_equal(url->hosts[1].host, "::1");
    assert_int_equal(url->hosts[1].port, 1);
    assert_string_equal(url->hosts[2].host, "fe80::1%eth0");
    assert_int_equal(url->hosts[2].port, 0);
    assert_string_equal(url->hosts[3].host, "d");
    assert_string_equal(url->path, "/x y/z");
    assert_int_equal(url->n_params, 4);
    assert_string_equal(url_param(url, "prefix"), "a&b");
    assert_string_equal(url_param(url, "flag"), "");
    assert_string_equal(url_param(url, "empty"), "");
    assert_string_equal(url_param(url, "eq"), "a=b?c");
    assert_null(url_param(url, "prefi"));
    url_free(url);
}

static void paths_with_and_without_hosts(void **state)
{
    static const struct {
        const char *text, *path;
        size_t n_hosts;
    } cases[] = {
        {"local:/var/lib/x", "/var/lib/x", 0},
        {"local:///var/lib/x", "/var/lib/x", 0},
        {"local:////x", "//x", 0},
        {"local:/a@b", "/a@b", 0},
        {"local:?x=1", "", 0},
        {"local:?", "", 0},
        {"x://h", "", 1},
        {"x://h/", "/", 1},
        {"x://h?a", "", 1},
        {"x://", "", 0},
        {"x:///", "/", 0},
        {"local:/a:b,c", "/a:b,c", 0},
        {"local:/\xc3\xa4 b", "/\xc3\xa4 b", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct url *url = parsed(cases[i].text);
        assert_string_equal(url->path, cases[i].path);
        assert_int_equal(url->n_hosts, cases[i].n_hosts);
        url_free(url);
    }
}

static void who_is_given(void **state)
{
    static const struct {
        const char *text, *user, *password;
    } cases[] = {
        {"x://h", NULL, NULL},       {"x://u@h", "u", NULL}, {"x://u:p@h", "u", "p"},
        {"x://:p@h", NULL, "p"},     {"x://u:@h", "u", ""},  {"x://@h", NULL, NULL},
        {"x://u:a:b@h", "u", "a:b"}, {"x://u:p@", "u", "p"}, {"x://%3a:%3a@h", ":", ":"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct url *url = parsed(cases[i].text);
        assert_same(url->user, cases[i].user);
        assert_same(url->password, cases[i].password);
        url_free(url);
    }
}

/* ---- what is refused ---- */

static void bad_ones_are_refused_with_a_reason(void **state)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"", "is empty"},
        {"local", "does not start with an engine's name"},
        {"/var/lib", "does not start with an engine's name"},
        {":", "does not start with an engine's name"},
        {"1x:", "does not start with an engine's name"},
        {"a b:", "does not start with an engine's name"},
        {"local:x", "path that does not start with '/'"},
        {"local: ", "path that does not start with '/'"},
        {"local:/a\nb", "control character (0x0a) at byte 9"},
        {"local:/a\x7f", "control character (0x7f)"},
        {"local:/a#b", "%23"},
        {"local:/%", "two hex digits"},
        {"local:/%4", "two hex digits"},
        {"local:/%4g", "two hex digits"},
        {"local:/%g4", "two hex digits"},
        {"local:/%+1", "two hex digits"},
        {"local:/%00", "NUL"},
        {"x://%@h", "two hex digits"},
        {"x://u:%00@h", "NUL"},
        {"x://h:", "not between 1 and 65535"},
        {"x://h:0", "not between 1 and 65535"},
        {"x://h:65536", "not between 1 and 65535"},
        {"x://h:99999999999999999999999", "not between 1 and 65535"},
        {"x://h:18446744073709551617", "not between 1 and 65535"},
        {"x://h:6379x", "not a number"},
        {"x://h:-1", "not a number"},
        {"x://h: 1", "not a number"},
        {"x://:6379", "lacks a host"},
        {"x://a,,b", "lacks a host"},
        {"x://a,", "lacks a host"},
        {"x://,a", "lacks a host"},
        {"x://h h", "character in a host"},
        {"x://h%2fh", "character in a host"},
        {"x://\xc3\xa4", "character in a host"},
        {"x://::1", "without brackets"},
        {"x://[::1", "brackets don't match"},
        {"x://[::1]6379", "brackets don't match"},
        {"x://[h]", "no IPv6 address"},
        {"x://[]", "no IPv6 address"},
        {"x://[:/]", "brackets don't match"},
        {"x://[::1]:", "not between 1 and 65535"},
        {"x://u:p@w@h", "two '@'"},
        {"x:/u:p@h", "no '//' in front of the user"},
        {"x:/:p@h", "no '//' in front of the user"},
        {"x:u:p@h", "no '//' in front of the user"},
        {"x://u:p/w@h", "'@' behind the host"},
        {"x://u:p?w@h", "'@' behind the host"},
        {"x://u:p@w/d@h", "'@' behind the host"},
        {"x://h?=1", "parameter without a name"},
        {"x://h?a=1&&b=2", "parameter without a name"},
        {"x://h?a=1&", "parameter without a name"},
        {"x://h?a%1b=1", "other than letters"},
        {"x://h?a b=1", "other than letters"},
        {"x://h?a=%zz", "two hex digits"},
        {"host=db dbname=app", "does not start with an engine's name"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct url *url = (struct url *)&url;
        struct stile_error err = {.status = STILE_OK};
        if (url_parse(&url, cases[i].text, &err) != STILE_MISUSE || err.status != STILE_MISUSE)
            fail_msg("%s: not refused", cases[i].text);
        if (!strstr(err.message, cases[i].reason))
            fail_msg("%s: %s, not %s", cases[i].text, err.message, cases[i].reason);
        assert_ptr_equal(url, &url);
        assert_int_equal(url_parse(&url, cases[i].text, NULL), STILE_MISUSE);
    }
}

/* Half of a password looks like a port, a path, a host or a parameter when it is not escaped. */
static void errors_never_repeat_the_password(void **state)
{
    static const char *const texts[] = {
        "x://u:hunter/2@h",   "x://u:hunter?2@h",     "x://u:hunter@2@h",   "x://u:hunter%@h",
        "x://u:hunter%00@h",  "x://u:hunter#2@h",     "x://u:hunter\n@h",   "x://u:hunter@h:x",
        "x://u:hunter",       "x://u:hunter,a@b c",   "x://u:hunter@[::1",  "x://u:hunter@h?=",
        "x://u:hunter@h?a=%", "x://u:hunter@h,,",     "x://hunter:2:3",     "u:hunter@h",
        "x:u:hunter@h",       "x://u:hun&ter/?ter@h", "x://u:hunter[@h/%%", "hunter",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct stile_error err;
        struct url *url;
        assert_int_equal(url_parse(&url, texts[i], &err), STILE_MISUSE);
        if (strstr(err.message, "hunter"))
            fail_msg("%s: %s", texts[i], err.message);
    }
}

/* ---- bounds ---- */

static char *repeat(const char *head, const char *unit, size_t n)
{
    char *text = malloc(strlen(head) + n * strlen(unit) + 1);

    assert_non_null(text);
    strcpy(text, head);
    for (char *end = text + strlen(head); n > 0; n--, end += strlen(unit))
        strcpy(end, unit);
    return text;
}

static void assert_limit(const char *head, const char *unit, size_t most, const char *reason)
{
    struct stile_error err;
    struct url *url;
    char *fits = repeat(head, unit, most), *over = repeat(head, unit, most + 1);

    url_free(parsed(fits));
    assert_int_equal(url_parse(&url, over, &err), STILE_MISUSE);
    assert_non_null(strstr(err.message, reason));
    free(fits);
    free(over);
}

static void everything_is_bounded(void **state)
{
    (void)state;
    assert_limit("local:/", "x", STILE_URL_MAX - 7, "more than 4096 bytes");
    assert_limit("x://h", ",h", URL_HOSTS_MAX - 1, "more than 16 hosts");
    assert_limit("x:?a", "&a", URL_PARAMS_MAX - 1, "more than 32 parameters");
}

/* ---- parameters ---- */

static void parameters_must_be_known_and_single(void **state)
{
    static const char *const known[] = {"prefix", "db", NULL}, *const none[] = {NULL};
    struct stile_error err;
    struct url *url = parsed("x:?db=1&prefix=");

    (void)state;
    assert_int_equal(url_check_params(url, known, &err), STILE_OK);
    assert_int_equal(url_check_params(url, none, &err), STILE_MISUSE);
    assert_string_equal(err.message,
                        "the engine URL has the parameter \"db\": this engine knows none");
    assert_int_equal(url_check_params(url, NULL, &err), STILE_MISUSE);
    url_free(url);

    url = parsed("x:?db=1&dB=2");
    assert_int_equal(url_check_params(url, known, &err), STILE_MISUSE);
    assert_string_equal(err.message, "the engine URL has the parameter \"dB\", which this engine "
                                     "does not know; it knows prefix, db");
    url_free(url);

    url = parsed("x:?db=1&prefix=&db=1");
    assert_int_equal(url_check_params(url, known, &err), STILE_MISUSE);
    assert_string_equal(err.message, "the engine URL has the parameter \"db\" twice");
    url_free(url);

    url = parsed("x:");
    assert_int_equal(url_check_params(url, NULL, NULL), STILE_OK);
    url_free(url);
}

static void a_long_list_of_known_ones_is_cut(void **state)
{
    static const char *const known[] = {"a-rather-long-parameter-name-0",
                                        "a-rather-long-parameter-name-1",
                                        "a-rather-long-parameter-name-2",
                                        "a-rather-long-parameter-name-3",
                                        "a-rather-long-parameter-name-4",
                                        "a-rather-long-parameter-name-5",
                                        NULL};
    struct stile_error err;
    struct url *url = parsed("x:?y");

    (void)state;
    assert_int_equal(url_check_params(url, known, &err), STILE_MISUSE);
    assert_non_null(strstr(err.message, "parameter-name-2, ..."));
    assert_null(strstr(err.message, "parameter-name-3"));
    url_free(url);
}

/* ---- redaction ---- */

static void redaction_leaves_what_is_no_secret(void **state)
{
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"local:", "local:"},
        {"LOCAL:/x", "local:/x"},
        {"local:///x", "local:/x"},
        {"local:////x", "local:////x"},
        {"local:/a%20b@c%0a", "local:/a%20b%40c%0A"},
        {"redis://u:p@h:1/0?prefix=x", "redis://h:1/0?prefix=x"},
        {"redis://:p@[::1]:65535,b:80", "redis://[::1]:65535,b:80"},
        {"x://u@[fe80::1%25e0]", "x://[fe80::1%25e0]"},
        {"x://h?Password=a&b=c", "x://h?b=c"},
        {"x://h?b=%26%3d&auth-token=x", "x://h?b=%26="},
        {"x://h?apikey=1&sslpassword=2&client-secret=3&pwd=4&credentials=5", "x://h"},
        {"x://h?flag&a=", "x://h?flag&a"},
        {"x://h?user=ann&userx=1", "x://h?userx=1"},
        {"x://u:p@", "x:"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char shown[256];
        assert_int_equal(stile_url_redact(shown, sizeof(shown), cases[i].text), STILE_OK);
        assert_string_equal(shown, cases[i].shown);
    }
}

static void redaction_of_what_is_no_url_is_a_question_mark(void **state)
{
    char shown[64] = "untouched";

    (void)state;
    assert_int_equal(stile_url_redact(shown, sizeof(shown), "x://u:hunter/2@h"), STILE_MISUSE);
    assert_string_equal(shown, "?");
    assert_int_equal(stile_url_redact(shown, sizeof(shown), NULL), STILE_MISUSE);
    assert_string_equal(shown, "?");
    assert_int_equal(stile_url_redact(NULL, 0, "local:"), STILE_MISUSE);
    assert_int_equal(stile_url_redact(shown, 0, "local:"), STILE_MISUSE);
}

static void redaction_stays_in_its_buffer(void **state)
{
    static const char text[] = "x://u:p@host/path?a=b", full[] = "x://host/path?a=b";

    (void)state;
    for (size_t size = 1; size <= sizeof(full) + 1; size++) {
        char *shown = malloc(size);
        bool fits = size >= sizeof(full);
        assert_non_null(shown);
        assert_int_equal(stile_url_redact(shown, size, text), fits ? STILE_OK : STILE_MISUSE);
        assert_string_equal(shown, fits ? full : size > 1 ? "?" : "");
        free(shown);
    }
}

/* A program in Turkish or Latin-1 reads the same URLs. Any locale there is will do. */
static void the_locale_does_not_matter(void **state)
{
    static const char *const names[] = {"tr_TR.ISO-8859-9", "tr_TR.UTF-8", "de_DE.ISO-8859-1", ""};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct url *url;
        (void)setlocale(LC_ALL, names[i]);
        url = parsed("REDIS://h");
        assert_string_equal(url->scheme, "redis");
        url_free(url);
        assert_int_equal(url_parse(&url, "x://h\xe4", NULL), STILE_MISUSE);
        assert_int_equal(url_parse(&url, "x\xe4:", NULL), STILE_MISUSE);
    }
    (void)setlocale(LC_ALL, "C");
}

/* ---- a password in a file ---- */

/* The status, and what it is with a file that contains this. */
static enum stile_status read_secret(const char **password, char room[URL_SECRET_MAX],
                                     const char *content)
{
    char text[64];
    int fd = memfd_create("secret", MFD_CLOEXEC);
    assert_true(write(fd, content, strlen(content)) == (ssize_t)strlen(content));
    snprintf(text, sizeof text, "test://u:p@h?password_file=/proc/self/fd/%d", fd);
    struct url *url = parsed(text);
    enum stile_status status = url_secret(password, url, "password_file", room, NULL);
    url_free(url);
    close(fd);
    return status;
}

static void a_secret_is_the_first_line_of_its_file(void **state)
{
    static const char *const files[] = {"word", "word\n", "word\r\n", "word\nanother\n"};
    char room[URL_SECRET_MAX];
    const char *password = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_int_equal(read_secret(&password, room, files[i]), STILE_OK);
        assert_string_equal(password, "word");
    }
}

static void a_secret_is_never_cut(void **state)
{
    char room[URL_SECRET_MAX], content[URL_SECRET_MAX + 2] = "";
    const char *password = NULL;
    (void)state;
    memset(content, 'x', URL_SECRET_MAX);
    assert_int_equal(read_secret(&password, room, content), STILE_REFUSED);
    assert_null(password);
    content[URL_SECRET_MAX - 1] = '\n';
    assert_int_equal(read_secret(&password, room, content), STILE_OK);
    assert_int_equal(strlen(password), URL_SECRET_MAX - 1);
}

static void without_a_file_the_url_has_the_secret(void **state)
{
    char room[URL_SECRET_MAX];
    struct url *url = parsed("test://u:p@h"), *missing = parsed("test://h?password_file=/no/such");
    const char *password = url->password;
    struct stile_error err;
    (void)state;
    assert_int_equal(url_secret(&password, url, "password_file", room, NULL), STILE_OK);
    assert_string_equal(password, "p");
    assert_int_equal(url_secret(&password, missing, "password_file", room, &err), STILE_REFUSED);
    assert_non_null(strstr(err.message, "reading password_file"));
    url_free(url);
    url_free(missing);
}

/* ---- strict readers ---- */

static bool reads_bool(bool *out, const char *query)
{
    char text[128];
    struct stile_error err = {.status = STILE_OK};

    snprintf(text, sizeof text, "redis://h?%s", query);
    struct url *url = parsed(text);
    enum stile_status status = url_param_bool(out, url, "b", &err);
    assert_int_equal(status, err.status);
    assert_true(!status || (status == STILE_MISUSE && strstr(err.message, "b= is true")));
    url_free(url);
    return !status;
}

static void booleans_are_read_strictly(void **state)
{
    static const char *const good[] = {"b=true",  "b=yes", "b=on",  "b=1", "b",
                                       "b=false", "b=no",  "b=off", "b=0"};
    static const char *const bad[] = {"b=",   "b=2",    "b=TRUE", "b=tru", "b=true%20", "b=-1",
                                      "b=01", "b=nope", "b=n",    "b=+1",  "b=0x1",     "b=1.0"};
    bool value;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        value = i >= 5; /* the opposite */
        assert_true(reads_bool(&value, good[i]));
        assert_int_equal(value, i < 5);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (reads_bool(&value, bad[i]))
            fail_msg("%s is read as %d", bad[i], value);
    value = true;
    assert_true(reads_bool(&value, "c=no") && value); /* not given: as it was */
}

static void numbers_are_read_strictly(void **state)
{
    static const char *const bad[] = {"",
                                      "-1",
                                      "+5",
                                      "5x",
                                      "0x5",
                                      " 5",
                                      "5 ",
                                      "1",
                                      "101",
                                      "1e1",
                                      "5.0",
                                      "1,000",
                                      "five",
                                      "4294967301",
                                      "18446744073709551621",
                                      "99999999999999999999999"};
    struct stile_error err;
    unsigned value = 0;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[128];
        snprintf(text, sizeof text, "redis://h?n=%s", bad[i]);
        struct url *url = parsed(text);
        if (url_param_number(&value, url, "n", 2, 100, &err) != STILE_MISUSE)
            fail_msg("%s is read as %u", bad[i], value);
        assert_string_equal(strtok(err.message, ","), "n= is a number from 2 to 100");
        url_free(url);
    }
    struct url *url = parsed("redis://h?n=100&m=007");
    assert_int_equal(url_param_number(&value, url, "n", 2, 100, &err), STILE_OK);
    assert_int_equal(value, 100);
    assert_int_equal(url_param_number(&value, url, "m", 2, 100, &err), STILE_OK);
    assert_int_equal(value, 7);
    assert_int_equal(url_param_number(&value, url, "o", 2, 100, &err), STILE_OK);
    assert_int_equal(value, 7);
    url_free(url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(booleans_are_read_strictly),
        cmocka_unit_test(numbers_are_read_strictly),
        cmocka_unit_test(an_engine_alone),
        cmocka_unit_test(everything_at_once),
        cmocka_unit_test(paths_with_and_without_hosts),
        cmocka_unit_test(who_is_given),
        cmocka_unit_test(bad_ones_are_refused_with_a_reason),
        cmocka_unit_test(errors_never_repeat_the_password),
        cmocka_unit_test(everything_is_bounded),
        cmocka_unit_test(parameters_must_be_known_and_single),
        cmocka_unit_test(a_long_list_of_known_ones_is_cut),
        cmocka_unit_test(redaction_leaves_what_is_no_secret),
        cmocka_unit_test(redaction_of_what_is_no_url_is_a_question_mark),
        cmocka_unit_test(redaction_stays_in_its_buffer),
        cmocka_unit_test(the_locale_does_not_matter),
        cmocka_unit_test(a_secret_is_the_first_line_of_its_file),
        cmocka_unit_test(a_secret_is_never_cut),
        cmocka_unit_test(without_a_file_the_url_has_the_secret),
    };

    return cmocka_run_group_tests_name("url", tests, NULL, NULL);
}
