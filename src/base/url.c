/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A URL is cut into raw pieces first, then each piece is decoded and checked.
 *
 * An unescaped '/', '?' or '@' in a password moves the cuts, and what then looks like a port, a
 * path or a parameter may be half of the password. So no error repeats a piece of the URL, and a
 * '@' behind the host is refused before anything else is parsed. */
#include "base/url.h"

#include <stdlib.h>
#include <string.h>

struct piece {
    const char *at; /* NULL: not there */
    size_t len;
};

struct pieces {
    struct piece scheme, user, password, hosts, path, query;
};

/* All text is wiped: parameters can be secrets, too. */
struct url_block {
    struct url url;
    size_t size, used;
    char text[];
};

static enum stile_status refuse(struct stile_error *err, const char *why)
{
    return error_set(err, STILE_MISUSE, 0, "the engine URL %s", why);
}

/* ASCII only: <ctype.h> would follow the program's locale. */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_made_of(struct piece piece, const char *punctuation)
{
    for (size_t i = 0; i < piece.len; i++) {
        char c = piece.at[i];
        if (!is_letter(c) && !is_digit(c) && !strchr(punctuation, c))
            return false;
    }
    return true;
}

static bool has(struct piece piece, char c)
{
    return piece.len > 0 && memchr(piece.at, c, piece.len);
}

/* Cuts *head off at the first c, which is dropped. False: there is none, *head is all of it. */
static bool cut(struct piece *head, struct piece *tail, char c)
{
    const char *at = head->len ? memchr(head->at, c, head->len) : NULL;

    if (!at)
        return false;
    *tail = (struct piece){at + 1, head->len - (size_t)(at + 1 - head->at)};
    head->len = (size_t)(at - head->at);
    return true;
}

/* ---- cutting ---- */

static bool is_scheme(struct piece scheme)
{
    return scheme.len > 0 && is_letter(scheme.at[0]) && is_made_of(scheme, "+.-");
}

static enum stile_status split_authority(struct pieces *p, struct piece authority,
                                         struct stile_error *err)
{
    struct piece hosts;

    if (has(p->path, '@') || has(p->query, '@'))
        return refuse(err, "has a '@' behind the host: write '/' in a password as %2F, '?' as %3F, "
                           "and '@' in a path as %40");
    if (!cut(&authority, &hosts, '@')) {
        p->hosts = authority;
        return STILE_OK;
    }
    if (has(hosts, '@'))
        return refuse(err, "has two '@': write the one in the password as %40");
    p->hosts = hosts;
    p->user = authority;
    cut(&p->user, &p->password, ':');
    return STILE_OK;
}

/* In redis:/user:password@host a '/' is missing, and the password would be printed as a path. */
static enum stile_status check_path_alone(struct piece path, struct stile_error *err)
{
    struct piece behind;

    if (cut(&path, &behind, ':') && has(behind, '@'))
        return refuse(err, "has a password, but no '//' in front of the user: write "
                           "engine://user:password@host, and '@' in a path as %40");
    return STILE_OK;
}

static enum stile_status split(struct pieces *p, const char *text, struct stile_error *err)
{
    struct piece rest, authority;

    *p = (struct pieces){.scheme = {text, strlen(text)}};
    if (!cut(&p->scheme, &rest, ':') || !is_scheme(p->scheme))
        return refuse(err, "does not start with an engine's name: local:, redis://host, ...");
    if (has(rest, '#'))
        return refuse(err, "has a '#', which means nothing here: write it as %23");
    cut(&rest, &p->query, '?');
    p->path = rest;
    if (rest.len < 2 || memcmp(rest.at, "//", 2) != 0)
        return check_path_alone(rest, err);
    authority = (struct piece){rest.at + 2, rest.len - 2};
    p->path = (struct piece){authority.at + authority.len, 0};
    const char *slash = memchr(authority.at, '/', authority.len);
    if (slash) {
        p->path = (struct piece){slash, authority.len - (size_t)(slash - authority.at)};
        authority.len = (size_t)(slash - authority.at);
    }
    return split_authority(p, authority, err);
}

/* ---- decoding ---- */

static int hex_digit(char c)
{
    if (is_digit(c))
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static char *room(struct url_block *block)
{
    return block->text + block->used;
}

static const char *keep(struct url_block *block, size_t len)
{
    char *text = room(block);

    text[len] = '\0';
    block->used += len + 1;
    return text;
}

static enum stile_status decode(const char **out, struct url_block *block, struct piece piece,
                                struct stile_error *err)
{
    char *to = room(block);
    size_t n = 0;

    for (size_t i = 0; i < piece.len; i++) {
        if (piece.at[i] != '%') {
            to[n++] = piece.at[i];
            continue;
        }
        int high = i + 2 < piece.len ? hex_digit(piece.at[i + 1]) : -1;
        int low = i + 2 < piece.len ? hex_digit(piece.at[i + 2]) : -1;
        if (high < 0 || low < 0)
            return refuse(err, "has a '%' without two hex digits behind it: write '%' as %25");
        if (high == 0 && low == 0)
            return refuse(err, "has a %00: no name, path or password can contain a NUL byte");
        to[n++] = (char)(high << 4 | low);
        i += 2;
    }
    *out = keep(block, n);
    return STILE_OK;
}

static void decode_scheme(struct url_block *block, struct piece scheme)
{
    for (size_t i = 0; i < scheme.len; i++) {
        char c = scheme.at[i];
        room(block)[i] = (char)(is_letter(c) ? c | 0x20 : c);
    }
    block->url.scheme = keep(block, scheme.len);
}

/* ---- hosts ---- */

static enum stile_status parse_port(uint16_t *port, struct piece digits, struct stile_error *err)
{
    unsigned long value = 0;

    for (size_t i = 0; i < digits.len && value <= UINT16_MAX; i++) {
        if (!is_digit(digits.at[i]))
            return refuse(err, "has a port that is not a number");
        value = value * 10 + (unsigned long)(digits.at[i] - '0');
    }
    if (value < 1 || value > UINT16_MAX)
        return refuse(err, "has a port that is not between 1 and 65535");
    *port = (uint16_t)value;
    return STILE_OK;
}

/* Cuts "[...]" off; what is left is empty or ":port". */
static enum stile_status take_bracketed(struct piece *host, struct piece *rest,
                                        struct stile_error *err)
{
    struct piece inside = {host->at + 1, host->len - 1};

    if (!cut(&inside, rest, ']') || (rest->len > 0 && rest->at[0] != ':'))
        return refuse(err, "has an IPv6 address whose brackets don't match: [::1]:6379");
    if (!has(inside, ':'))
        return refuse(err, "has brackets around what is no IPv6 address");
    *host = inside;
    return STILE_OK;
}

static enum stile_status parse_host(struct url_block *block, struct piece host,
                                    struct stile_error *err)
{
    struct url_host *to = &block->url.hosts[block->url.n_hosts];
    bool bracketed = host.len > 0 && host.at[0] == '[';
    struct piece port = {NULL, 0}, rest = {NULL, 0};
    enum stile_status status = STILE_OK;

    if (bracketed) {
        status = take_bracketed(&host, &rest, err);
        if (!status && rest.len > 0)
            port = (struct piece){rest.at + 1, rest.len - 1};
    } else if (cut(&host, &port, ':') && has(port, ':')) {
        status = refuse(err, "has an IPv6 address without brackets: write [::1]:6379");
    }
    if (!status && port.at)
        status = parse_port(&to->port, port, err);
    if (!status)
        status = decode(&to->host, block, host, err);
    if (status)
        return status;
    if (to->host[0] == '\0')
        return refuse(err, "lacks a host before a port or a comma");
    if (!is_made_of((struct piece){to->host, strlen(to->host)}, bracketed ? ":.%-_" : ".-_"))
        return refuse(err, "has a character in a host that no host name has");
    block->url.n_hosts++;
    return STILE_OK;
}

static enum stile_status parse_hosts(struct url_block *block, struct piece hosts,
                                     struct stile_error *err)
{
    struct piece next = {NULL, 0};
    bool more = hosts.len > 0;

    while (more) {
        more = cut(&hosts, &next, ',');
        if (block->url.n_hosts == URL_HOSTS_MAX)
            return error_set(err, STILE_MISUSE, 0, "the engine URL has more than %d hosts",
                             URL_HOSTS_MAX);
        enum stile_status status = parse_host(block, hosts, err);
        if (status)
            return status;
        hosts = next;
    }
    return STILE_OK;
}

/* ---- parameters ---- */

static enum stile_status parse_param(struct url_block *block, struct piece key,
                                     struct stile_error *err)
{
    struct url_param *to = &block->url.params[block->url.n_params];
    struct piece value = {NULL, 0};
    enum stile_status status;

    cut(&key, &value, '=');
    to->bare = !value.at;
    status = decode(&to->key, block, key, err);
    if (!status)
        status = decode(&to->value, block, value, err);
    if (status)
        return status;
    if (to->key[0] == '\0')
        return refuse(err, "has a parameter without a name: write ?name=value&name=value");
    if (!is_made_of((struct piece){to->key, strlen(to->key)}, "._-"))
        return refuse(err, "has a parameter whose name has other than letters, digits, '.-_'");
    block->url.n_params++;
    return STILE_OK;
}

static enum stile_status parse_params(struct url_block *block, struct piece query,
                                      struct stile_error *err)
{
    struct piece next = {NULL, 0};
    bool more = query.len > 0;

    while (more) {
        more = cut(&query, &next, '&');
        if (block->url.n_params == URL_PARAMS_MAX)
            return error_set(err, STILE_MISUSE, 0, "the engine URL has more than %d parameters",
                             URL_PARAMS_MAX);
        enum stile_status status = parse_param(block, query, err);
        if (status)
            return status;
        query = next;
    }
    return STILE_OK;
}

/* ---- the whole ---- */

static enum stile_status decode_all(struct url_block *block, const struct pieces *p,
                                    struct stile_error *err)
{
    struct url *url = &block->url;
    enum stile_status status = STILE_OK;

    decode_scheme(block, p->scheme);
    if (p->user.len > 0)
        status = decode(&url->user, block, p->user, err);
    if (!status && p->password.at)
        status = decode(&url->password, block, p->password, err);
    if (!status)
        status = parse_hosts(block, p->hosts, err);
    if (!status)
        status = decode(&url->path, block, p->path, err);
    if (!status && url->path[0] != '\0' && url->path[0] != '/')
        status = refuse(err, "has a path that does not start with '/': local:/path");
    if (!status)
        status = parse_params(block, p->query, err);
    return status;
}

enum stile_status url_check_text(const char *text, struct stile_error *err)
{
    size_t len = strnlen(text, STILE_URL_MAX + 1);

    if (len == 0)
        return refuse(err, "is empty: give one such as local: or redis://host");
    if (len > STILE_URL_MAX)
        return error_set(err, STILE_MISUSE, 0, "the engine URL has more than %d bytes",
                         STILE_URL_MAX);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f)
            return error_set(err, STILE_MISUSE, 0,
                             "the engine URL has a control character (0x%02x) at byte %zu", c,
                             i + 1);
    }
    return STILE_OK;
}

enum stile_status url_parse(struct url **url, const char *text, struct stile_error *err)
{
    struct pieces pieces;
    enum stile_status status = url_check_text(text, err);

    if (!status)
        status = split(&pieces, text, err);
    if (status)
        return status;
    /* Each string is at most as long as its piece; a NUL behind it may have no byte in the text. */
    size_t size = 2 * strlen(text) + 16;
    struct url_block *block = calloc(1, sizeof(*block) + size);
    if (!block)
        return error_set(err, STILE_NOMEM, 0, "no memory to read the engine URL");
    block->size = size;
    status = decode_all(block, &pieces, err);
    if (status)
        url_free(&block->url);
    else
        *url = &block->url;
    return status;
}

void url_free(struct url *url)
{
    struct url_block *block = (struct url_block *)url;

    if (!block)
        return;
    explicit_bzero(block->text, block->size);
    free(block);
}

/* ---- printing, without secrets ---- */

struct output {
    char *at;
    size_t size, len; /* len goes on counting when size is reached */
};

/* Dropped by name: an engine's parameter that is a secret has one of these in its name. A false
 * alarm costs a parameter in a log, a miss costs a password. */
static bool is_secret(const char *key)
{
    static const char *const hints[] = {"pass", "pwd", "secret", "token", "auth", "cred", "apikey"};

    if (strcmp(key, "user") == 0)
        return true; /* as the one before the host */
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
        if (strcasestr(key, hints[i]))
            return true;
    return false;
}

static bool names_file(const char *key)
{
    static const char ending[] = "_file";
    size_t len = strlen(key), n = sizeof(ending) - 1;

    return len > n && strcmp(key + len - n, ending) == 0;
}

bool url_has_secret(const struct url *url)
{
    if (url->password && url->password[0])
        return true;
    for (size_t i = 0; i < url->n_params; i++) {
        const char *key = url->params[i].key;
        if (is_secret(key) && strcmp(key, "user") != 0 && !names_file(key))
            return true;
    }
    return false;
}

static void put_char(struct output *out, char c)
{
    if (out->len < out->size)
        out->at[out->len] = c;
    out->len++;
}

static void put_text(struct output *out, const char *text)
{
    for (; *text; text++)
        put_char(out, *text);
}

/* Escapes bytes that would move a cut, or that a URL or a terminal cannot contain. */
static void put_escaped(struct output *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c > 0x20 && c != 0x7f && !strchr("%?#@&", c)) {
            put_char(out, *text);
            continue;
        }
        put_char(out, '%');
        put_char(out, "0123456789ABCDEF"[c >> 4]);
        put_char(out, "0123456789ABCDEF"[c & 15]);
    }
}

static void put_host(struct output *out, const struct url_host *host)
{
    bool brackets = strchr(host->host, ':');
    char digits[5];
    size_t n = 0;

    put_text(out, brackets ? "[" : "");
    put_escaped(out, host->host);
    put_text(out, brackets ? "]" : "");
    for (unsigned port = host->port; port > 0; port /= 10)
        digits[n++] = (char)('0' + port % 10);
    put_text(out, n ? ":" : "");
    while (n > 0)
        put_char(out, digits[--n]);
}

static void put_url(struct output *out, const struct url *url)
{
    char separator = '?';

    put_text(out, url->scheme);
    put_text(out, ":");
    /* A path that starts with "//" would be read as hosts. */
    if (url->n_hosts > 0 || strncmp(url->path, "//", 2) == 0)
        put_text(out, "//");
    for (size_t i = 0; i < url->n_hosts; i++) {
        put_text(out, i ? "," : "");
        put_host(out, &url->hosts[i]);
    }
    put_escaped(out, url->path);
    for (size_t i = 0; i < url->n_params; i++) {
        const struct url_param *param = &url->params[i];
        if (is_secret(param->key))
            continue;
        put_char(out, separator);
        put_text(out, param->key);
        put_text(out, param->value[0] ? "=" : "");
        put_escaped(out, param->value);
        separator = '&';
    }
}

bool url_print_redacted(char *out, size_t size, const struct url *url)
{
    struct output text = {.at = out, .size = size};

    put_url(&text, url);
    put_char(&text, '\0');
    return text.len <= text.size && text.len <= STILE_URL_MAX + 1;
}
