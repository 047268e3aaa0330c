/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The C++ wrapper on local:, as a program would use it. */
#include <stile.hpp>

#include <stile.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <type_traits>

using namespace std::chrono_literals;

static int case_number, failures;

static void check(bool ok, const char *what)
{
    std::printf("%sok %d - %s\n", ok ? "" : "not ", ++case_number, what);
    failures += !ok;
}

/* What is thrown by f, or OK. */
template <typename F> static stile_status thrown(F f)
{
    try {
        f();
        return STILE_OK;
    } catch (const stile::error &e) {
        return *e.what() ? e.status() : STILE_CORRUPT;
    }
}

static std::atomic<unsigned> allocations;

void *operator new(std::size_t size)
{
    allocations++;
    if (void *memory = std::malloc(size))
        return memory;
    throw std::bad_alloc();
}
void operator delete(void *memory) noexcept
{
    std::free(memory);
}
void operator delete(void *memory, std::size_t) noexcept
{
    std::free(memory);
}

static_assert(!std::is_copy_constructible_v<stile::client>, "");
static_assert(!std::is_copy_constructible_v<stile::lock>, "");
static_assert(!std::is_copy_constructible_v<stile::guard>, "");
static_assert(std::is_nothrow_move_constructible_v<stile::client>, "");
static_assert(std::is_nothrow_move_constructible_v<stile::lock>, "");
static_assert(std::is_nothrow_move_constructible_v<stile::guard>, "");
static_assert(std::is_nothrow_move_assignable_v<stile::lock>, "");
static_assert(!std::is_constructible_v<stile::guard, stile::lock &, std::chrono::microseconds>,
              "never rounded in silence");
static_assert(!std::is_constructible_v<stile::guard, stile::lock &, bool>, "private");

static void guards(stile::client &client)
{
    stile::lock lock(client, "guards"), other(client, "guards");
    std::uint64_t token;
    {
        stile::guard guard(lock);
        token = guard.token();
        check(guard.held() && lock.held() && token > 0, "a guard holds the lock");
        check(!other.try_acquire(), "try_acquire: held by another");
        check(!other.try_acquire_for(1ms), "try_acquire_for: not in time");
        check(!other.try_acquire_for(-1ms), "a negative wait is not for ever");
        check(thrown([&] { stile::guard late(other, 1ms); }) == STILE_TIMEOUT, "nor a guard");
        stile::guard moved(std::move(guard));
        check(moved.held() && !guard.held(), "a guard is moved");
        check(thrown([&] { guard.release(); }) == STILE_MISUSE, "and leaves nothing behind");
    }
    check(!lock.held() && other.try_acquire(), "its destructor releases");
    check(other.token() > token, "tokens grow");
    check(other.remaining() > 0ms, "time remains");
    other.release();
    check(thrown([&] { other.release(); }) == STILE_MISUSE, "release of what is not held");
    check(thrown([&] {
              stile::guard guard(lock);
              throw stile::error(STILE_STALE);
          }) == STILE_STALE &&
              !lock.held(),
          "an exception releases");
}

static void losses(stile::client &client)
{
    stile::lock lock(client, "losses");
    stile::guard guard(lock);
    check(stile_break(client.get(), "losses", 0, nullptr) == STILE_OK, "broken");
    check(thrown([&] { guard.release(); }) == STILE_LOST, "release reports the loss");
    check(lock.try_acquire(), "and it can be acquired again");
}

static void moves(stile::client &client)
{
    stile::lock first(client, "first"), second(client, "second");
    first.acquire();
    second.acquire();
    first = std::move(second);
    check(first.held() && !second.held(), "a lock is moved");
    check(!std::strcmp(stile_lock_name(first.get()), "second"), "with its name");
    check(thrown([&] { second.acquire(); }) == STILE_MISUSE, "a moved-from lock is refused");
    check(stile::lock(client, "first").try_acquire(), "what it replaced was released");
    stile::lock &same = first;
    first = std::move(same);
    check(first.held(), "moved to itself");
}

static void mistakes(stile::client &client)
{
    check(thrown([] { stile::client none("nonesuch:"); }) == STILE_MISUSE, "no such engine");
    check(thrown([&] { stile::lock none(client, ""); }) == STILE_MISUSE, "no name");
    stile_lock_options options = stile_lock_options_init();
    options.ttl_ms = -1;
    check(thrown([&] { stile::lock none(client, "x", options); }) == STILE_MISUSE, "bad options");
    stile::client moved(std::move(client));
    check(thrown([&] { stile::lock none(client, "x"); }) == STILE_MISUSE, "a moved-from client");
    client = std::move(moved);
}

int main()
{
    char folder[] = "/tmp/stile-hpp-XXXXXX";
    if (!mkdtemp(folder))
        return 1;
    {
        stile::client client(("local:" + std::string(folder)).c_str());
        guards(client);
        losses(client);
        moves(client);
        mistakes(client);
        stile::lock lock(client, "hot");
        unsigned before = allocations;
        for (int i = 0; i < 100; i++)
            stile::guard guard(lock);
        check(allocations == before, "nothing is allocated in a pair");
    }
    std::printf("1..%d\n", case_number);
    (void)!std::system(("rm -rf " + std::string(folder)).c_str());
    return failures != 0;
}
