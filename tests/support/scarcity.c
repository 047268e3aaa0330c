/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/scarcity.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

struct scarcity scarcity;
_Atomic long scarcity_outstanding;
const bool scarcity_of_memory = true;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t n);
int __real_vasprintf(char **text, const char *format, va_list args);
FILE *__real_open_memstream(char **text, size_t *size);
void __real_free(void *memory);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t n);
int __wrap_asprintf(char **text, const char *format, ...);
int __wrap_vasprintf(char **text, const char *format, va_list args);
FILE *__wrap_open_memstream(char **text, size_t *size);
void __wrap_free(void *memory);

void scarcity_begin(unsigned at, bool and_all_that_follow)
{
    scarcity =
        (struct scarcity){.armed = true, .at = at, .and_all_that_follow = and_all_that_follow};
}

void scarcity_end(void)
{
    scarcity.armed = false;
}

static bool refuse(void)
{
    if (!scarcity.armed)
        return false;
    unsigned now = scarcity.seen++;
    bool fails = now == scarcity.at || (scarcity.and_all_that_follow && now > scarcity.at);
    scarcity.failed += fails;
    if (fails)
        errno = ENOMEM;
    return fails;
}

static void *counted(void *memory)
{
    scarcity_outstanding += memory != NULL;
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return refuse() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : counted(__real_calloc(n, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    if (refuse())
        return NULL;
    scarcity_outstanding -= old != NULL;
    return counted(__real_realloc(old, size));
}

char *__wrap_strdup(const char *text)
{
    return refuse() ? NULL : counted(__real_strdup(text));
}

char *__wrap_strndup(const char *text, size_t n)
{
    return refuse() ? NULL : counted(__real_strndup(text, n));
}

int __wrap_vasprintf(char **text, const char *format, va_list args)
{
    if (refuse())
        return -1;
    int n = __real_vasprintf(text, format, args);
    counted(n < 0 ? NULL : *text);
    return n;
}

int __wrap_asprintf(char **text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = __wrap_vasprintf(text, format, args);
    va_end(args);
    return n;
}

/* Its text is the caller's to free once the stream is closed. */
FILE *__wrap_open_memstream(char **text, size_t *size)
{
    FILE *stream = refuse() ? NULL : __real_open_memstream(text, size);
    counted(stream);
    return stream;
}

void __wrap_free(void *memory)
{
    scarcity_outstanding -= memory != NULL;
    __real_free(memory);
}
