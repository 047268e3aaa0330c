/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes/nap.h"

#include "core/retry.h"

struct nap {
    struct timer timer;
    struct follower follower;
    bool interrupted;
};

static void wake(struct timer *timer)
{
    drive_done(&((struct nap *)timer)->follower);
}

static void interrupt(struct follower *follower)
{
    struct nap *nap = (struct nap *)((char *)follower - offsetof(struct nap, follower));
    nap->interrupted = true;
    drive_done(follower);
}

enum stile_status nap_take(struct stile_client *client, uint64_t first_ns, unsigned tried,
                           struct stile_error *err)
{
    struct nap nap = {.timer.fn = wake, .follower.interrupt = interrupt};
    enum stile_status status = client_enter(client, err);
    if (status)
        return status;
    if (loop_reserve(client->loop, 1)) {
        client_leave(client);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    uint64_t pause = retry_pause(client->loop, first_ns, tried);
    loop_arm(client->loop, &nap.timer, loop_now(client->loop) + pause);
    drive_until(client, &nap.follower);
    loop_disarm(client->loop, &nap.timer);
    loop_unreserve(client->loop, 1);
    client_leave(client);
    return nap.interrupted
               ? error_set(err, STILE_CANCELLED, 0, "%s", stile_status_text(STILE_CANCELLED))
               : STILE_OK;
}
