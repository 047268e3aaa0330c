/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Messages on stderr, and how the command exits. */
#include "cli.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOM_MS 50 /* a small part of any lease */

static bool never_waits;

void say_never_waits(void)
{
    never_waits = true;
}

/* Blocked: a pager that is not scrolled, a terminal after Ctrl-S. A reader that is only slower than
 * the command that has just filled the pipe makes room in time. */
static bool has_room(void)
{
    struct pollfd polled = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&polled, 1, ROOM_MS) != 0;
}

/* Messages repeat what servers and other users wrote. A terminal also obeys control characters of
 * two bytes. */
static void make_safe(char *text)
{
    char *to = text;
    for (const char *at = text; *at != '\0';) {
        uint32_t code = 0;
        size_t len = text_decode(&code, at);
        bool safe = len > 0 && !text_is_unsafe(code);
        memmove(to, safe ? at : "?", safe ? len : 1);
        to += safe ? len : 1;
        at += len > 0 ? len : 1;
    }
    *to = '\0';
}

void say(const char *format, ...)
{
    char text[1024], line[1100];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    make_safe(text);
    int len = snprintf(line, sizeof line, "stile: %s\n", text);
    /* One write, so that lines of processes that share a terminal don't mix. If stderr is gone
     * the message is dropped. */
    if (never_waits && !has_room())
        return;
    while (write(STDERR_FILENO, line, (size_t)len) < 0 && errno == EINTR)
        continue;
}

int exit_code_of(enum stile_status status)
{
    switch (status) {
    case STILE_OK:
        return 0;
    case STILE_HELD:
    case STILE_TIMEOUT:
    case STILE_CANCELLED:
    case STILE_CONFLICT:
        return EXIT_NOT_ACQUIRED;
    case STILE_LOST:
        return EXIT_LOST;
    case STILE_STALE:
        return EXIT_STALE;
    case STILE_FOREIGN:
        return EXIT_FOREIGN;
    case STILE_MISMATCH:
        return EXIT_MISMATCH;
    case STILE_MISUSE:
        return EXIT_USAGE;
    case STILE_UNREACHABLE:
    case STILE_REFUSED:
    case STILE_UNCERTAIN:
    case STILE_UNSUPPORTED:
    case STILE_CORRUPT:
    case STILE_NOMEM:
        return EXIT_ENGINE;
    }
    return EXIT_ENGINE;
}

int say_failure(const char *what, enum stile_status status, const struct stile_error *err)
{
    const char *why =
        err != NULL && err->message[0] != '\0' ? err->message : stile_status_text(status);
    say("%s: %s", what, why);
    return exit_code_of(status);
}

int finish_output(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    say("stdout: %s; the output above is not complete", strerror(errno));
    return EXIT_OUTPUT;
}

void *must_alloc(void *memory)
{
    if (memory == NULL) {
        say("out of memory");
        exit(EXIT_ENGINE);
    }
    return memory;
}
