/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MESSAGE_MAX (sizeof(((struct stile_error *)0)->message))

/* A message that was cut ends in an ellipsis, and is not cut inside a character. */
static void mark_cut(char *text, size_t size)
{
    static const char dots[] = "...";
    size_t at = size - sizeof(dots);

    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    memcpy(text + at, dots, sizeof(dots));
}

/* Formats into a buffer of its own first: the arguments may point into the message itself. */
static void format_message(struct stile_error *err, const char *format, va_list args,
                           const char *rest)
{
    char text[MESSAGE_MAX] = "";
    int n = vsnprintf(text, sizeof(text), format, args);

    if (n < 0)
        n = 0;
    if ((size_t)n < sizeof(text) && rest)
        n += snprintf(text + n, sizeof(text) - (size_t)n, ": %s", rest);
    if ((size_t)n >= sizeof(text))
        mark_cut(text, sizeof(text));
    memcpy(err->message, text, sizeof(text));
}

enum stile_status error_set(struct stile_error *err, enum stile_status status, int native,
                            const char *format, ...)
{
    va_list args;

    if (!err)
        return status;
    va_start(args, format);
    format_message(err, format, args, NULL);
    va_end(args);
    err->status = status;
    err->native = native;
    return status;
}

enum stile_status error_wrap(struct stile_error *err, enum stile_status status, const char *format,
                             ...)
{
    va_list args;

    if (!err)
        return status;
    va_start(args, format);
    format_message(err, format, args, err->message);
    va_end(args);
    return status;
}

enum stile_status error_errno(struct stile_error *err, enum stile_status status, int number,
                              const char *format, ...)
{
    char buffer[128];
    va_list args;

    if (number == ENOMEM)
        status = STILE_NOMEM;
    if (!err)
        return status;
    va_start(args, format);
    format_message(err, format, args, strerror_r(number, buffer, sizeof(buffer)));
    va_end(args);
    err->status = status;
    err->native = number;
    return status;
}

void error_copy(struct stile_error *to, const struct stile_error *from)
{
    static const struct stile_error ok = {.status = STILE_OK};

    if (to)
        *to = from ? *from : ok;
}
