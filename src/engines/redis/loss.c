/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/redis/loss.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/self.h"
#include "io/loop.h"

/* Any client may write anything there, and it ends up on a terminal. */
static bool is_host(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    }
    return len > 0 && len <= SELF_HOST_MAX;
}

void redis_loss_broken(char text[LOSS_MAX], const char *by)
{
    char *host = NULL;
    long long pid = by ? strtoll(by, &host, 10) : 0;
    size_t len = pid > 0 && *host == ' ' ? strcspn(++host, " ") : 0;
    if (pid > 0 && is_host(host, len))
        snprintf(text, LOSS_MAX, "taken by stile break (%.*s pid %lld)", (int)len, host, pid);
    else
        snprintf(text, LOSS_MAX, "taken by stile break");
}

void redis_loss_explain(char text[LOSS_MAX], const char *reason, uint64_t age_ns, uint64_t lease_ns)
{
    char kind = reason ? reason[0] : 'x';
    bool expired = age_ns >= lease_ns;
    if (kind == 'b')
        redis_loss_broken(text, reason[1] == ' ' ? reason + 2 : NULL);
    else if (expired)
        snprintf(text, LOSS_MAX, "expired in the server: not renewed for %.1f s%s",
                 (double)age_ns / NS_PER_SEC,
                 kind == 'o' || kind == 'v' ? ", and another client holds the lock now" : "");
    else if (kind == 'o')
        snprintf(text, LOSS_MAX,
                 "its key was deleted or forgotten by the server, and another stile client holds "
                 "the lock now");
    else if (kind == 'v')
        snprintf(text, LOSS_MAX, "its key now has another client's value");
    else
        snprintf(text, LOSS_MAX,
                 "its key is gone: deleted by another client, or forgotten by the server in a "
                 "restart or failover");
}

bool redis_loss_is_more_exact(const char *reason, const char *before)
{
    static const char kinds[] = "xvob"; /* from the least exact on */
    const char *a = strchr(kinds, reason[0]), *b = strchr(kinds, before[0]);
    return reason[0] && a && (!before[0] || (b && a > b));
}
