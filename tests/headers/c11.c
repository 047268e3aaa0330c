/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The header alone, in strict C11: nothing of ours or of the system's comes before it. */
#include <stile.h>

#include <stdio.h>
#include <string.h>

static int case_number;

static void check(int ok, const char *what)
{
    printf("%sok %d - %s\n", ok ? "" : "not ", ++case_number, what);
}

int main(void)
{
    const struct stile_lock_options *lock = STILE_OPTIONS(.mode = STILE_SLOTS, .slots = 3);
    const struct stile_client_options *client = STILE_CLIENT_OPTIONS(.threadless = true);

    puts("1..5");
    check(lock->size == sizeof *lock && lock->slots == 3 && lock->ttl_ms == 0, "lock options");
    check(client->size == sizeof *client && client->threadless, "client options");
    check(strcmp(stile_version(), STILE_VERSION) == 0, "library and header are of one version");
    check(strcmp(stile_status_name(STILE_TIMEOUT), "TIMEOUT") == 0, "the name of a status");
    check(STILE_OK == 0, "OK is zero");
    return 0;
}
