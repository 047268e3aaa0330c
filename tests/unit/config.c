/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The file that sets the default engine: what it may contain, and whose it must be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/config.h"

static char directory[64], path[96];
static struct default_engine found;
static struct stile_error err;

static int set_up(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/stile-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/stile.conf", directory);
    setenv("XDG_CONFIG_HOME", directory, 1);
    unsetenv("STILE_ENGINE");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(directory);
}

static void put_bytes(const char *text, size_t len, mode_t mode)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static enum stile_status read_of(const char *text)
{
    put_bytes(text, strlen(text), 0600);
    memset(&err, 0, sizeof err);
    return config_read(&found, path, 0600, &err);
}

static void sets(const char *text, const char *url, unsigned line)
{
    assert_int_equal(read_of(text), STILE_OK);
    assert_string_equal(found.url, url);
    assert_int_equal(found.line, line);
}

static void refused(enum stile_status status, enum stile_status wanted, const char *words)
{
    assert_int_equal(status, wanted);
    if (!strstr(err.message, words))
        fail_msg("\"%s\" lacks \"%s\"", err.message, words);
    assert_null(strstr(err.message, "s3cret"));
}

static void what_a_file_may_contain(void **state)
{
    (void)state;
    sets("engine = redis://h", "redis://h", 1);
    sets("engine=redis://h\n", "redis://h", 1);
    sets("# a comment\r\n\r\n \t engine\t= redis://h?a=b \t\r\n#engine = x\n", "redis://h?a=b", 3);
    sets("engine = redis://h # the main one", "redis://h", 1);
    sets("engine = host=/run/pg dbname=x", "host=/run/pg dbname=x", 1);
    sets("engine = redis://h/a#b", "redis://h/a#b", 1); /* for the URL's parser to refuse */
    sets("\xef\xbb\xbf"
         "engine = redis://h\r\n",
         "redis://h", 1); /* as Windows writes it */
    sets("", "", 0);
    sets("\xef\xbb\xbf", "", 0);
    sets("\n\n  # nothing", "", 0);
}

static void what_it_may_not_contain(void **state)
{
    (void)state;
    refused(read_of("engin = x"), STILE_MISUSE, ":1: unknown setting 'engin'; there is: engine");
    refused(read_of("\n# c\nttl = 3s"), STILE_MISUSE, ":3: unknown setting 'ttl'");
    refused(read_of("engine"), STILE_MISUSE, ":1: write engine = URL");
    refused(read_of("engine ="), STILE_MISUSE, ":1: the engine URL is empty");
    refused(read_of("engine = # later"), STILE_MISUSE, ":1: the engine URL is empty");
    refused(read_of("engine = a:\nengine = b:"), STILE_MISUSE, ":2: engine is set twice");
    refused(read_of("redis://u:s3cret@h"), STILE_MISUSE, ":1: write engine = URL");
    refused(read_of("redis://u:s3cret@h?prefix=x"), STILE_MISUSE, ":1: write engine = URL");
    refused(read_of("engine: redis://u:s3cret@h?a=b"), STILE_MISUSE, ":1: write engine = URL");
    refused(read_of("#\n\xef\xbb\xbf"
                    "engine = x"),
            STILE_MISUSE, ":2: write engine = URL");
}

static void its_size_is_bounded(void **state)
{
    static char text[20000];
    (void)state;
    memset(text, 'x', sizeof text - 1);
    memcpy(text, "engine = ", 9);
    text[9 + STILE_URL_MAX + 1] = '\0';
    refused(read_of(text), STILE_MISUSE, ":1: the engine URL is too long");
    text[9 + STILE_URL_MAX] = '\0';
    sets(text, text + 9, 1);
    memset(text, '#', sizeof text - 1);
    refused(read_of(text), STILE_MISUSE, "has more than 16384 bytes");
    text[16384] = '\0';
    sets(text, "", 0);
    put_bytes("engine = a:\0b", 13, 0600);
    refused(config_read(&found, path, 0600, &err), STILE_MISUSE, "NUL byte");
    assert_string_equal(found.url, "");
}

static void one_that_is_not_there(void **state)
{
    (void)state;
    assert_int_equal(config_read(&found, path, 0600, &err), STILE_OK);
    assert_string_equal(found.url, "");
    assert_int_equal(config_read(&found, "/dev/null/x", 0600, &err), STILE_OK);
}

static void one_that_is_no_file(void **state)
{
    (void)state;
    refused(config_read(&found, directory, 0600, &err), STILE_REFUSED, "not a regular file");
    refused(config_read(&found, "/dev/zero", 0600, &err), STILE_REFUSED, "not a regular file");
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(config_read(&found, path, 0600, &err), STILE_REFUSED, "not a regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(path, path), 0);
    refused(config_read(&found, path, 0600, &err), STILE_REFUSED, "reading the default engine");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/null/not-mounted", path), 0);
    refused(config_read(&found, path, 0600, &err), STILE_REFUSED, "reading the default engine");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("not-there", path), 0);
    refused(config_read(&found, path, 0600, &err), STILE_REFUSED, "No such file");
}

static void one_that_others_can_change(void **state)
{
    (void)state;
    for (mode_t mode = 0600; mode <= 0677; mode++) {
        put_bytes("engine = a:", 11, mode);
        enum stile_status status = config_read(&found, path, 0640, &err);
        if (mode & 022) {
            refused(status, STILE_REFUSED, "run: chmod go-w /tmp/stile-test-");
        } else {
            assert_int_equal(status, STILE_OK);
            assert_int_equal(found.too_open, mode & 037);
        }
    }
}

static void one_of_another_user(void **state)
{
    (void)state;
    put_bytes("engine = a:", 11, 0644);
    if (geteuid() != 0) {
        print_message("# only root can make a file of another user\n");
        return;
    }
    assert_int_equal(chown(path, 65534, -1), 0);
    refused(config_read(&found, path, 0600, &err), STILE_REFUSED,
            "belongs to user 65534 and must be yours or root's; run: chown 0 /tmp/stile-test-");
}

/* ---- as a program sees it ---- */

static char url[STILE_URL_MAX + 1], from[STILE_FROM_MAX];

static enum stile_status engine_of(const char *text, mode_t mode)
{
    put_bytes(text, strlen(text), mode);
    return stile_engine_default(url, sizeof url, from, sizeof from, &err);
}

static void the_variable_comes_first(void **state)
{
    char line[128];
    (void)state;
    assert_int_equal(engine_of("#\nengine = redis://h", 0644), STILE_OK);
    snprintf(line, sizeof line, "%s:2", path);
    assert_string_equal(url, "redis://h");
    assert_string_equal(from, line);
    setenv("STILE_ENGINE", "etcd://x", 1);
    assert_int_equal(engine_of("nonsense", 0666), STILE_OK); /* not even read */
    assert_string_equal(url, "etcd://x");
    assert_string_equal(from, "$STILE_ENGINE");
    setenv("STILE_ENGINE", "", 1);
    assert_int_equal(engine_of("engine = redis://h", 0644), STILE_OK);
    assert_string_equal(url, "redis://h");
}

static void a_password_is_kept_from_others(void **state)
{
    static const char *const open[] = {"engine = redis://h", "engine = redis://user@h",
                                       "engine = redis://user@h?password_file=/x",
                                       "engine = host=db user=me"};
    static const char *const secret[] = {"engine = redis://:s3cret@h",
                                         "engine = redis://h?password=s3cret",
                                         "engine = host=db password=s3cret"};
    (void)state;
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++)
        assert_int_equal(engine_of(open[i], 0644), STILE_OK);
    for (size_t i = 0; i < sizeof secret / sizeof secret[0]; i++) {
        refused(engine_of(secret[i], 0604), STILE_REFUSED, "run: chmod 600 /tmp/stile-test-");
        refused(engine_of(secret[i], 0640), STILE_REFUSED, "run: chmod 600 /tmp/stile-test-");
        assert_string_equal(url, "");
        assert_int_equal(engine_of(secret[i], 0600), STILE_OK);
        assert_non_null(strstr(url, "s3cret"));
    }
}

static void a_client_uses_it(void **state)
{
    struct stile_client *client;
    (void)state;
    put_bytes("\nengine = nosuch://u:s3cret@h", 29, 0600);
    refused(stile_client_open(&client, NULL, NULL, &err), STILE_MISUSE,
            "/stile.conf:2: no engine for 'nosuch:'");
    put_bytes("engine = redis://h:99999", 24, 0600);
    refused(stile_client_open(&client, NULL, NULL, &err), STILE_MISUSE, "/stile.conf:1: ");
    put_bytes("engin = x", 9, 0600);
    refused(stile_client_open(&client, NULL, NULL, &err), STILE_MISUSE, "unknown setting");
    refused(stile_setup(NULL, true, NULL, &err), STILE_MISUSE, "unknown setting");
}

static void misuse(void **state)
{
    char small[4];
    (void)state;
    assert_int_equal(stile_engine_default(NULL, 1, from, 1, NULL), STILE_MISUSE);
    assert_int_equal(stile_engine_default(url, 1, NULL, 1, NULL), STILE_MISUSE);
    put_bytes("engine = redis://h", 18, 0600);
    refused(stile_engine_default(small, sizeof small, from, sizeof from, &err), STILE_MISUSE,
            "too little room");
    assert_string_equal(small, "");
    refused(stile_engine_default(url, sizeof url, small, sizeof small, &err), STILE_MISUSE,
            "too little room");
}

static void a_path_that_is_too_long(void **state)
{
    static char long_path[5000] = "/";
    (void)state;
    memset(long_path + 1, 'd', sizeof long_path - 2);
    setenv("XDG_CONFIG_HOME", long_path, 1);
    refused(stile_engine_default(url, sizeof url, from, sizeof from, &err), STILE_REFUSED,
            "too long");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_a_file_may_contain),
        TEST(what_it_may_not_contain),
        TEST(its_size_is_bounded),
        TEST(one_that_is_not_there),
        TEST(one_that_is_no_file),
        TEST(one_that_others_can_change),
        TEST(one_of_another_user),
        TEST(the_variable_comes_first),
        TEST(a_password_is_kept_from_others),
        TEST(a_client_uses_it),
        TEST(misuse),
        TEST(a_path_that_is_too_long),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
