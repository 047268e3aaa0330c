/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A lock in C++: released on every path, its token sent along with each write.
 *
 *     c++ -std=c++17 guard.cpp $(pkg-config --cflags --libs stile)
 *
 * Engine: $STILE_ENGINE, else the machine's own. */
#include <stile.hpp>

#include <chrono>
#include <cinttypes>
#include <cstdio>

using namespace std::chrono_literals;

/* Stands for a database, or a service, that refuses a token smaller than the largest it has seen.
 */
static void write_report(std::uint64_t token)
{
    std::printf("report written with token %" PRIu64 "\n", token);
}

int main()
{
    try {
        stile_lock_options options = stile_lock_options_init();
        options.ttl_ms = 5000;

        stile::client client;
        stile::lock lock(client, "report", options);
        stile::guard guard(lock, 2s);

        write_report(guard.token());
        guard.release(); /* throws if the lock did not last until here */
        return 0;
    } catch (const stile::error &e) {
        std::fprintf(stderr, "guard: %s\n", e.what());
        return e.status() == STILE_TIMEOUT ? 75 : 69;
    }
}
