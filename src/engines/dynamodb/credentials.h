/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Where the keys come from, in the order of Amazon's own tools:
 *
 *     environment    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
 *     shared files   ~/.aws/credentials, ~/.aws/config (AWS_SHARED_CREDENTIALS_FILE,
 *                    AWS_CONFIG_FILE), the profile of AWS_PROFILE or "default"
 *     container      AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI
 *     instance       the metadata service of EC2, version 2
 *
 * The last two end; they are fetched again before that, while requests use the old ones. A
 * set-user-ID program reads no environment. Nothing of this is ever printed. */
#ifndef STILE_DYNAMODB_CREDENTIALS_H
#define STILE_DYNAMODB_CREDENTIALS_H

#include "engines/dynamodb/http.h"

#define KEY_ID_MAX 255
#define SECRET_MAX 511
#define TOKEN_MAX  8191

enum credentials_source {
    SOURCE_NONE,
    SOURCE_ENVIRONMENT,
    SOURCE_FILE,
    SOURCE_CONTAINER,
    SOURCE_INSTANCE_TOKEN, /* the three steps of the metadata service */
    SOURCE_INSTANCE_ROLE,
    SOURCE_INSTANCE,
};

struct credentials {
    struct loop *loop;
    struct http *http;
    void (*changed)(
        struct credentials *credentials); /* from the loop: they came, or cannot be had */
    enum credentials_source source;
    bool ready;
    unsigned generation;    /* grows when they change */
    struct stile_error err; /* status 0: none */
    char key_id[KEY_ID_MAX + 1];
    char secret[SECRET_MAX + 1];
    char token_header[TOKEN_MAX + 32]; /* "X-Amz-Security-Token: ..."; "": there is none */
    unsigned failures;                 /* of fetching, in a row */
    struct timer timer;                /* when to fetch again */
    struct transfer transfer;
    char url[512];
    char authorization[4096]; /* of the container; the session token of the metadata service */
};

/* Reserves a timer of the loop: 0 or ENOMEM. Reads the environment and the files, or begins to
 * fetch. */
int ddb_credentials_open(struct credentials *credentials, struct loop *loop, struct http *http,
                         void (*changed)(struct credentials *));
void ddb_credentials_close(struct credentials *credentials);

static inline bool credentials_ready(const struct credentials *credentials)
{
    return credentials->ready;
}

/* NULL: they are there, or on their way. */
const struct stile_error *ddb_credentials_error(const struct credentials *credentials);

enum credentials_renewal {
    CREDENTIALS_SAME,    /* there can be no others */
    CREDENTIALS_RENEWED, /* or they are being fetched */
    CREDENTIALS_LATER,   /* their file has none at this moment */
};

/* The service has refused them. They are fetched once for each request: *fetched is its own. */
enum credentials_renewal ddb_credentials_renew(struct credentials *credentials, bool *fetched);

/* The region of the environment or of the profile; "": none. */
void ddb_credentials_region(char *region, size_t size);

#endif
