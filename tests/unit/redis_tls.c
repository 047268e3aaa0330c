/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* TLS against a real redis-server, with certificates made for this run. */
#include <stdio.h>
#include <stdlib.h>

#include "io/tls.h"
#include "servers/redis_server.h"
#include "support/conn_kit.h"

static struct redis_server server;
static struct tls_context *context;
static char certs[64];

static const char *file(const char *name)
{
    static char paths[8][96];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof paths[0], "%s/%s", certs, name);
    return path;
}

/* A server that shows this certificate, and asks for the client's ("yes") or not ("no"). */
static void start(const char *cert, const char *key, const char *auth_clients)
{
    static const char *args[16];
    const char *const line[] = {
        "--tls-port",
        "@TLS@",
        "--tls-cert-file",
        cert,
        "--tls-key-file",
        key,
        "--tls-ca-cert-file",
        file("ca.pem"),
        "--tls-auth-clients",
        auth_clients,
        NULL,
    };

    memcpy(args, line, sizeof line);
    redis_server_start(&server, args);
    kit_open();
    kit.options.target.port = server.tls_port;
}

static int set_up(void **state)
{
    (void)state;
    context = NULL;
    start(file("server.pem"), file("server.key"), "no");
    return 0;
}

static int set_up_expired(void **state)
{
    (void)state;
    context = NULL;
    start(file("expired.pem"), file("expired.key"), "no");
    return 0;
}

static int set_up_elsewhere(void **state)
{
    (void)state;
    context = NULL;
    start(file("elsewhere.pem"), file("elsewhere.key"), "no");
    return 0;
}

static int set_up_mutual(void **state)
{
    (void)state;
    context = NULL;
    start(file("server.pem"), file("server.key"), "yes");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kit_close();
    tls_context_free(context);
    redis_server_stop(&server);
    return 0;
}

static bool has(const struct stile_error *err, const char *words)
{
    return strstr(err->message, words);
}

static void trust(const struct tls_options *options)
{
    struct stile_error err;

    if (tls_context_new(&context, options, &err))
        fail_msg("%s", err.message);
    kit.options.target.tls = context;
}

static void comes_up(void)
{
    struct heard a;

    kit_connect_up();
    kit_ask_and_wait(&a, "PING");
    assert_string_equal(a.text, "PONG");
}

static void is_refused(const char *words)
{
    kit_connect();
    run_until(kit.loop, kit.down || kit.up);
    assert_int_equal(kit.up, 0);
    assert_status(kit.why.status, REFUSED);
    if (!has(&kit.why, words))
        fail_msg("\"%s\" lacks \"%s\"", kit.why.message, words);
}

/* ---- the server's certificate ---- */

static void verified_by_address(void **state)
{
    (void)state;
    trust(&(struct tls_options){.ca = file("ca.pem")});
    comes_up();
}

static void verified_by_name(void **state)
{
    (void)state;
    trust(&(struct tls_options){.ca = file("ca.pem")});
    kit.options.target.host = "localhost";
    comes_up();
}

static void much_goes_both_ways(void **state)
{
    static char big[512 << 10];
    static struct heard set, get;
    struct conn_arg args[] = {CONN_TEXT("SET"), CONN_TEXT("a"), {big, sizeof big}};

    (void)state;
    memset(big, 'x', sizeof big);
    trust(&(struct tls_options){.ca = file("ca.pem")});
    kit_connect_up();
    for (int i = 0; i < 8; i++) {
        set.times = 0;
        assert_status(redis_conn_send(kit.conn, args, 3, kit_hear, &set, NULL), OK);
    }
    run_until(kit.loop, kit.answers == 8);
    kit_ask_and_wait(&get, "GET a");
    assert_int_equal(get.type, REDIS_REPLY_STRING);
    assert_int_equal(kit.down, 0);
}

static void a_stranger_is_not_trusted(void **state)
{
    (void)state;
    trust(&(struct tls_options){.ca = file("stranger.pem")});
    is_refused("ca=");
}

static void nor_by_the_systems_authorities(void **state)
{
    (void)state;
    trust(&(struct tls_options){0});
    is_refused("not trusted");
}

static void an_expired_one_is_not_trusted(void **state)
{
    (void)state;
    trust(&(struct tls_options){.ca = file("ca.pem")});
    is_refused("expired");
}

static void one_for_another_host_is_not_trusted(void **state)
{
    (void)state;
    trust(&(struct tls_options){.ca = file("ca.pem")});
    kit.options.target.host = "localhost";
    is_refused("another host");
}

static void nor_for_another_address(void **state)
{
    (void)state;
    trust(&(struct tls_options){.ca = file("ca.pem")});
    is_refused("another host");
}

static void unless_that_host_is_expected(void **state)
{
    (void)state;
    trust(&(struct tls_options){.ca = file("ca.pem"), .server_name = "elsewhere.test"});
    comes_up();
}

static void insecure_must_be_written_out(void **state)
{
    (void)state;
    trust(&(struct tls_options){.insecure = true});
    comes_up();
}

/* ---- the client's ---- */

static void a_client_certificate_opens(void **state)
{
    (void)state;
    trust(&(struct tls_options){
        .ca = file("ca.pem"), .cert = file("client.pem"), .key = file("client.key")});
    comes_up();
}

static void without_one_it_says_what_is_missing(void **state)
{
    (void)state;
    trust(&(struct tls_options){.ca = file("ca.pem")});
    is_refused("cert=");
}

static void files_that_cannot_be_used(void **state)
{
    static const char *const wanted[] = {"No such file", "client certificate", "passphrase",
                                         "without cert="};
    struct tls_options options[] = {
        {.ca = "/nonexistent/ca.pem"},
        {.ca = file("ca.pem"), .cert = file("ca.key")},
        {.ca = file("ca.pem"), .cert = file("client.pem"), .key = file("locked.key")},
        {.ca = file("ca.pem"), .key = file("client.key")},
    };
    struct tls_context *none;
    struct stile_error err;

    (void)state;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        assert_true(tls_context_new(&none, &options[i], &err) != STILE_OK);
        if (!has(&err, wanted[i]))
            fail_msg("\"%s\" lacks \"%s\"", err.message, wanted[i]);
    }
}

/* ---- the wrong port ---- */

static void tls_to_a_plain_port(void **state)
{
    (void)state;
    trust(&(struct tls_options){.ca = file("ca.pem")});
    kit.options.target.port = server.port;
    kit.options.target.timeout_ns = NS_PER_SEC / 2;
    kit_connect();
    run_until(kit.loop, kit.down);
    assert_true(kit.why.status == STILE_REFUSED || kit.why.status == STILE_UNREACHABLE);
}

static void plain_to_a_tls_port(void **state)
{
    (void)state;
    kit_connect();
    run_until(kit.loop, kit.down);
    assert_int_equal(kit.up, 0);
}

#define TEST(set_up, name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(set_up, verified_by_address),
        TEST(set_up, verified_by_name),
        TEST(set_up, much_goes_both_ways),
        TEST(set_up, a_stranger_is_not_trusted),
        TEST(set_up, nor_by_the_systems_authorities),
        TEST(set_up_expired, an_expired_one_is_not_trusted),
        TEST(set_up_elsewhere, one_for_another_host_is_not_trusted),
        TEST(set_up_elsewhere, nor_for_another_address),
        TEST(set_up_elsewhere, unless_that_host_is_expected),
        TEST(set_up_expired, insecure_must_be_written_out),
        TEST(set_up_mutual, a_client_certificate_opens),
        TEST(set_up_mutual, without_one_it_says_what_is_missing),
        TEST(set_up, files_that_cannot_be_used),
        TEST(set_up, tls_to_a_plain_port),
        TEST(set_up, plain_to_a_tls_port),
    };

    make_directory(certs, sizeof certs);
    make_certificates(certs);
    int failed = cmocka_run_group_tests_name("redis-tls", tests, NULL, NULL);
    remove_tree(certs);
    return failed;
}
