/* What an engine asks of the parameters of its URL. */
#include "core/url.h"

#include <stdio.h>
#include <string.h>

const char *url_param(const struct url *url, const char *key)
{
    for (size_t i = 0; i < url->n_params; i++)
        if (strcmp(url->params[i].key, key) == 0)
            return url->params[i].value;
    return NULL;
}

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
