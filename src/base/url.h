/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Engine URLs: scheme:[//[user[:password]@]host[:port][,host[:port]...]][/path][?key=value[&...]]
 *
 * `local:`, `local:/path`, `redis://u:p@h:1/0?prefix=x`. Percent-escapes are decoded in user,
 * password, path and parameters; %00 and malformed escapes are refused. Errors never contain the
 * password. Everything is bounded: STILE_URL_MAX bytes, URL_HOSTS_MAX hosts, URL_PARAMS_MAX
 * parameters. */
#ifndef STILE_URL_H
#define STILE_URL_H

#include "base/error.h"

#define URL_HOSTS_MAX  16
#define URL_PARAMS_MAX 32
#define URL_SECRET_MAX 512

struct url_host {
    const char *host; /* without brackets for IPv6 */
    uint16_t port;    /* 0: not given */
};

struct url_param {
    const char *key, *value; /* value "" where there was no '=' */
    bool bare;               /* there was none: "insecure" is not "insecure=" */
};

/* All strings live in one allocation behind the struct. */
struct url {
    const char *scheme;
    const char *user, *password; /* NULL: not given */
    struct url_host hosts[URL_HOSTS_MAX];
    size_t n_hosts;
    const char *path; /* with its leading '/', or "" */
    struct url_param params[URL_PARAMS_MAX];
    size_t n_params;
};

/* Not empty, not too long, without control characters: the checks before any parsing. */
enum stile_status url_check_text(const char *text, struct stile_error *err);
enum stile_status url_parse(struct url **url, const char *text, struct stile_error *err);
/* known: the parameter names an engine has, NULL-terminated. */
enum stile_status url_check_params(const struct url *url, const char *const *known,
                                   struct stile_error *err);
void url_free(struct url *url); /* wipes the password first */

/* Without user, password and secret parameters. False: there is no room, and out has no end. */
bool url_print_redacted(char *out, size_t size, const struct url *url);

/* Whether it contains a password or a secret parameter, and not only the name of a file with one.
 */
bool url_has_secret(const struct url *url);

const char *url_param(const struct url *url, const char *key); /* NULL: not given */

/* Strict readers: any other value is MISUSE, with a message. If the parameter is not given, *out
 * stays as it is. */

/* true, yes, on, 1 and the bare name; false, no, off, 0. An empty value is refused: it is usually
 * an unset variable. */
enum stile_status url_param_bool(bool *out, const struct url *url, const char *key,
                                 struct stile_error *err);
/* Decimal digits and nothing else. */
enum stile_status url_param_number(unsigned *out, const struct url *url, const char *key,
                                   unsigned min, unsigned max, struct stile_error *err);
bool url_read_number(unsigned *out, const char *text, unsigned max); /* the same for any text */

/* If the parameter is given, *password becomes the first line of the file that it names. The caller
 * wipes the room afterwards. */
enum stile_status url_secret(const char **password, const struct url *url, const char *key,
                             char room[URL_SECRET_MAX], struct stile_error *err);

#endif
