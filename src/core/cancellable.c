/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cancellable.h"

void cancellable_add(struct stile_client *client, struct cancellable *call)
{
    call->number = ++client->last_watch;
    call->next = client->cancellables;
    call->link = &client->cancellables;
    if (call->next)
        call->next->link = &call->next;
    client->cancellables = call;
}

void cancellable_remove(struct cancellable *call)
{
    *call->link = call->next;
    if (call->next)
        call->next->link = call->link;
}

void cancellable_cancel(struct stile_client *client, uint64_t number)
{
    struct cancellable *at = client->cancellables;
    while (at && at->number != number)
        at = at->next;
    if (at)
        at->cancel(at);
}

void cancellable_cancel_all(struct stile_client *client)
{
    for (struct cancellable *at = client->cancellables; at; at = at->next)
        at->cancel(at);
}
