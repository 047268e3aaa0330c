/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The header alone, in strict C++11, 17 and 20: options as each can write them. */
#include <stile.h>

#include <stile.h>

#include <cstdio>
#include <cstring>

static int case_number;

static void check(bool ok, const char *what)
{
    std::printf("%sok %d - %s\n", ok ? "" : "not ", ++case_number, what);
}

static stile_status new_lock(const stile_lock_options *options, stile_error *err)
{
    stile_lock *lock = nullptr;
    return stile_lock_new(&lock, nullptr, "x", options, err);
}

static bool is_about_client(const stile_error &err)
{
    return std::strstr(err.message, "client") != nullptr;
}

int main()
{
    stile_client *no_client = nullptr;
    stile_error err{};

    check(std::strcmp(stile_version(), STILE_VERSION) == 0, "functions have C linkage");
    check(stile_client_open(&no_client, "nonesuch:", nullptr, &err) != STILE_OK && !no_client,
          "an engine that does not exist is refused");
    check(err.message[0] != '\0', "with a message");

    stile_lock_options lock = stile_lock_options_init();
    lock.mode = STILE_SHARED;
    check(lock.size == sizeof lock && !lock.ttl_ms && !lock.on_lost, "lock options");
    check(new_lock(&lock, &err) == STILE_MISUSE && is_about_client(err), "are read");
    stile_client_options client = stile_client_options_init();
    check(client.size == sizeof client && !client.threadless && !client.log, "client options");
    check(stile_client_open(&no_client, "nonesuch:", &client, &err) != STILE_OK, "are read");
    stile_jobs_options job = stile_jobs_options_init();
    check(job.size == sizeof job, "job options");
#if __cplusplus >= 202002L
    check(STILE_LOCK_OPTIONS(.ttl_ms = 5000)->ttl_ms == 5000, "designated initialisers");
    check(new_lock(STILE_LOCK_OPTIONS(.mode = STILE_SLOTS, .slots = 3), &err) == STILE_MISUSE &&
              is_about_client(err),
          "as an argument");
    check(STILE_OPTIONS()->size == sizeof lock, "without any");
    check(STILE_CLIENT_OPTIONS(.threadless = true)->threadless, "of a client");
#endif
    std::printf("1..%d\n", case_number);
    return 0;
}
