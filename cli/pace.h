/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile run --pace: awaits a start between the grant and the command. */
#ifndef STILE_CLI_PACE_H
#define STILE_CLI_PACE_H

#include "process.h"

/* It must outlive the client, which ends what is under way. */
struct pacing {
    const struct options *options;
    struct stile_client *client;
    struct stile_lock *const *locks; /* held */
    size_t n;
    const char *name;
    int64_t until_ms; /* the end of --wait; 0: there is none */
    struct inbox *inbox;

    int sig; /* what ended the wait, or 0 */
    bool answered;
    bool paused; /* Ctrl-Z: the command must not start before SIGCONT */
    bool missed; /* the start came meanwhile */
    enum stile_status status;
    struct stile_error err;
};

/* Before the wait for the lock. 0, or an exit code after a message. */
int pace_check(const struct options *options, struct stile_client *client);
/* 0 at the moment to start, or an exit code after a message. Without --pace it is 0 at once. */
int pace_await(struct pacing *pacing);

#endif
