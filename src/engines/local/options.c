/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/local/options.h"

#include <string.h>

#include "base/error.h"
#include "io/loop.h"

static enum stile_status check_url(const struct url *url, struct stile_error *err)
{
    if (url->n_hosts || url->user || url->password)
        return error_set(err, STILE_REFUSED, 0,
                         "the local engine has no host or user: local: or local:/path");
    if (strcmp(url->path, "/") == 0)
        return error_set(err, STILE_REFUSED, 0, "local:/ names the root directory; name another");
    return STILE_OK;
}

static enum stile_status read_allow(bool *fuse, const struct url *url, struct stile_error *err)
{
    const char *allow = url_param(url, "allow");
    *fuse = allow && strcmp(allow, "fuse") == 0;
    if (!allow || *fuse)
        return STILE_OK;
    return error_set(err, STILE_MISUSE, 0, "allow= is fuse, not \"%.32s\"", allow);
}

/* More is no use: the longer the turn, the rarer the hand-overs, but with 1 ms they are few
 * already.
 */
#define FAIR_MAX_MS 100

static enum stile_status read_fair(uint64_t *fair_ns, const struct url *url,
                                   struct stile_error *err)
{
    unsigned ms = 0;
    enum stile_status status = url_param_number(&ms, url, "fair", 0, FAIR_MAX_MS, err);
    *fair_ns = ms * NS_PER_MS;
    return status;
}

enum stile_status local_options_read(struct local_options *options, const struct url *url,
                                     struct stile_error *err)
{
    enum stile_status status = check_url(url, err);
    if (!status)
        status = read_allow(&options->allow_fuse, url, err);
    if (!status)
        status = read_fair(&options->fair_ns, url, err);
    return status;
}
