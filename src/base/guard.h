/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The rule of every guard, for engines and recipes that compare tokens themselves. The SQL and Lua
 * guards have the same rule in their own languages. */
#ifndef STILE_BASE_GUARD_H
#define STILE_BASE_GUARD_H

#include <string.h>

#include "stile.h"

/* What a guard has seen of one resource. */
struct guard_seen {
    uint64_t token;     /* 0: none */
    const char *issuer; /* "": not known */
};

/* OK: the token passes. Token 0, none, passes only where none was seen. Both issuers must be known
 * to differ. */
static inline enum stile_status guard_judge(struct guard_seen seen, uint64_t token,
                                            const char *issuer, bool strict)
{
    if (token && *issuer && *seen.issuer && strcmp(issuer, seen.issuer) != 0)
        return STILE_FOREIGN;
    if (token < seen.token || (strict && token && token == seen.token))
        return STILE_STALE;
    return STILE_OK;
}

/* What is remembered of a token that passed: an issuer that is not given leaves the old one. */
static inline const char *guard_issuer(struct guard_seen seen, uint64_t token, const char *issuer)
{
    return token && *issuer ? issuer : seen.issuer;
}

#endif
