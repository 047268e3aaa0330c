/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The shared files of Amazon's tools, as far as keys and a region go. */
#ifndef STILE_DYNAMODB_PROFILE_H
#define STILE_DYNAMODB_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

struct profile_key {
    const char *name; /* "region" */
    char *value;      /* "" if it is not there; wiped by the caller */
    size_t size;
};

/* Fills in what the profile has of these keys, from ~/.aws/credentials and then ~/.aws/config. Of
 * a key that is in both, the first counts. False: no file has the profile. */
bool ddb_profile_read(const struct profile_key *keys);
const char *ddb_profile_name(void); /* AWS_PROFILE, or "default" */

#endif
