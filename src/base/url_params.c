/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a URL, as engines read them. */
#include "base/url.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* ---- a password in a file, so that no URL has to contain it ---- */

/* All of it, as far as there is room; -1 and errno. */
static ssize_t read_all(char *room, size_t size, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t n = fd < 0 ? -1 : 1;
    while (n > 0 && used < size) {
        n = read(fd, room + used, size - used);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            used += (size_t)n;
    }
    int number = errno;
    if (fd >= 0)
        close(fd);
    errno = number;
    return n < 0 ? -1 : (ssize_t)used;
}

enum stile_status url_secret(const char **password, const struct url *url, const char *key,
                             char room[URL_SECRET_MAX], struct stile_error *err)
{
    const char *path = url_param(url, key);
    if (!path)
        return STILE_OK;
    ssize_t n = read_all(room, URL_SECRET_MAX, path);
    if (n < 0)
        return error_errno(err, STILE_REFUSED, errno, "reading %s", key);
    const char *end = memchr(room, '\n', (size_t)n);
    if (!end && n == URL_SECRET_MAX)
        return error_set(err, STILE_REFUSED, 0, "the first line of %s has more than %d bytes", key,
                         URL_SECRET_MAX - 1);
    room[end ? end - room : n] = '\0';
    room[strcspn(room, "\r")] = '\0';
    *password = room;
    return STILE_OK;
}
