/* The header alone, in strict C++17. */
#include <stile.h>

#include <stile.h>

#include <cstdio>
#include <cstring>

static int case_number;

static void check(bool ok, const char *what)
{
    std::printf("%sok %d - %s\n", ok ? "" : "not ", ++case_number, what);
}

int main()
{
    stile_lock_options lock{};
    lock.size = sizeof lock;
    lock.mode = STILE_SHARED;
    stile_client *no_client = nullptr;
    stile_error err{};

    std::puts("1..3");
    check(std::strcmp(stile_version(), STILE_VERSION) == 0, "functions have C linkage");
    check(stile_client_open(&no_client, "nonesuch:", nullptr, &err) != STILE_OK && !no_client,
          "an engine that does not exist is refused");
    check(err.message[0] != '\0', "with a message");
    return 0;
}
