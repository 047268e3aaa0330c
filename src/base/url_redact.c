/* A URL that may be shown: put together again from what was parsed, without what is secret. */
#include "base/url.h"

#include <string.h>

struct text {
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

static void put_char(struct text *out, char c)
{
    if (out->len < out->size)
        out->at[out->len] = c;
    out->len++;
}

static void put(struct text *out, const char *text)
{
    for (; *text; text++)
        put_char(out, *text);
}

/* Escapes what would move a cut, or could not stand in a URL or on a terminal. */
static void put_escaped(struct text *out, const char *text)
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

static void put_host(struct text *out, const struct url_host *host)
{
    bool brackets = strchr(host->host, ':');
    char digits[5];
    size_t n = 0;

    put(out, brackets ? "[" : "");
    put_escaped(out, host->host);
    put(out, brackets ? "]" : "");
    for (unsigned port = host->port; port > 0; port /= 10)
        digits[n++] = (char)('0' + port % 10);
    put(out, n ? ":" : "");
    while (n > 0)
        put_char(out, digits[--n]);
}

static void put_url(struct text *out, const struct url *url)
{
    char separator = '?';

    put(out, url->scheme);
    put(out, ":");
    /* A path that starts with "//" would be read as hosts. */
    if (url->n_hosts > 0 || strncmp(url->path, "//", 2) == 0)
        put(out, "//");
    for (size_t i = 0; i < url->n_hosts; i++) {
        put(out, i ? "," : "");
        put_host(out, &url->hosts[i]);
    }
    put_escaped(out, url->path);
    for (size_t i = 0; i < url->n_params; i++) {
        const struct url_param *param = &url->params[i];
        if (is_secret(param->key))
            continue;
        put_char(out, separator);
        put(out, param->key);
        put(out, param->value[0] ? "=" : "");
        put_escaped(out, param->value);
        separator = '&';
    }
}

enum stile_status stile_url_redact(char *out, size_t out_size, const char *url_text)
{
    struct text text = {.at = out, .size = out_size};
    struct url *url;

    if (!out || out_size == 0)
        return STILE_MISUSE;
    enum stile_status status = url_text ? url_parse(&url, url_text, NULL) : STILE_MISUSE;
    if (!status) {
        put_url(&text, url);
        put_char(&text, '\0');
        url_free(url);
        if (text.len > text.size || text.len > STILE_URL_MAX + 1)
            status = STILE_MISUSE;
    }
    if (status)
        strncpy(out, out_size > 1 ? "?" : "", out_size);
    return status;
}
