/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the URL of a local: engine says, besides the directory. */
#ifndef STILE_LOCAL_OPTIONS_H
#define STILE_LOCAL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/url.h"

struct local_options {
    bool allow_fuse;
    uint64_t fair_ns; /* how long a handle may take a name again ahead of its waiters; 0: never */
};

/* REFUSED or MISUSE if the URL is not one of local:. */
enum stile_status local_options_read(struct local_options *options, const struct url *url,
                                     struct stile_error *err);

#endif
