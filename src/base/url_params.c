/* What an engine asks of the parameters of its URL. */
#include "base/url.h"

#include <stdio.h>
#include <string.h>

static const struct url_param *find(const struct url *url, const char *key)
{
    for (size_t i = 0; i < url->n_params; i++)
        if (strcmp(url->params[i].key, key) == 0)
            return &url->params[i];
    return NULL;
}

const char *url_param(const struct url *url, const char *key)
{
    const struct url_param *param = find(url, key);
    return param ? param->value : NULL;
}

/* ---- strict readers ---- */

/* Even numbers: true. */
static const char *const boolean_words[] = {"true", "false", "yes", "no", "on", "off", "1", "0"};

enum stile_status url_param_bool(bool *out, const struct url *url, const char *key,
                                 struct stile_error *err)
{
    const struct url_param *param = find(url, key);
    if (!param)
        return STILE_OK;
    *out = true;
    if (param->bare)
        return STILE_OK;
    for (size_t i = 0; i < sizeof boolean_words / sizeof *boolean_words; i++) {
        if (strcmp(param->value, boolean_words[i]) == 0) {
            *out = i % 2 == 0;
            return STILE_OK;
        }
    }
    return error_set(err, STILE_MISUSE, 0,
                     "%s= is true, yes, on or 1, or false, no, off or 0, not \"%.32s\"", key,
                     param->value);
}

bool url_read_number(unsigned *out, const char *text, unsigned max)
{
    unsigned long long value = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (unsigned)(*text - '0');
        if (value > max)
            return false;
    }
    *out = (unsigned)value;
    return true;
}

enum stile_status url_param_number(unsigned *out, const struct url *url, const char *key,
                                   unsigned min, unsigned max, struct stile_error *err)
{
    const char *text = url_param(url, key);
    unsigned value;
    if (!text)
        return STILE_OK;
    if (!url_read_number(&value, text, max) || value < min)
        return error_set(err, STILE_MISUSE, 0, "%s= is a number from %u to %u, not \"%.32s\"", key,
                         min, max, text);
    *out = value;
    return STILE_OK;
}

/* ---- what an engine knows ---- */

static bool is_known(const char *key, const char *const *known)
{
    for (; known && *known; known++)
        if (strcmp(key, *known) == 0)
            return true;
    return false;
}

static enum stile_status unknown_param(const char *key, const char *const *known,
                                       struct stile_error *err)
{
    char list[128] = "";
    size_t used = 0;

    if (!known || !*known)
        return error_set(err, STILE_MISUSE, 0,
                         "the engine URL has the parameter \"%.64s\": this engine knows none", key);
    for (; *known && used + strlen(*known) + sizeof(", , ...") <= sizeof(list); known++)
        used +=
            (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "", *known);
    if (*known)
        snprintf(list + used, sizeof(list) - used, ", ...");
    return error_set(err, STILE_MISUSE, 0,
                     "the engine URL has the parameter \"%.64s\", which this engine does not know; "
                     "it knows %s",
                     key, list);
}

enum stile_status url_check_params(const struct url *url, const char *const *known,
                                   struct stile_error *err)
{
    for (size_t i = 0; i < url->n_params; i++) {
        const char *key = url->params[i].key;
        if (!is_known(key, known))
            return unknown_param(key, known, err);
        if (url_param(url, key) != url->params[i].value)
            return error_set(err, STILE_MISUSE, 0,
                             "the engine URL has the parameter \"%.64s\" twice", key);
    }
    return STILE_OK;
}
