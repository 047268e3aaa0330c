/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/zookeeper_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "engines/zookeeper/jute.h"

#define LINE_MAX 400
#define GREETING 45 /* bytes of the first packet of a client, */
#define WELCOME  37 /* and of the answer */

static void put(struct buffer *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct buffer *text, const char *format, ...)
{
    char line[LINE_MAX];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    buffer_put(text, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
    buffer_put(text, "\n", 1);
}

static const char *name_of(int32_t type)
{
    static const struct {
        int32_t type;
        const char *name;
    } names[] = {{JUTE_DELETE, "delete"},
                 {JUTE_EXISTS, "exists"},
                 {JUTE_GET_DATA, "get"},
                 {JUTE_SET_DATA, "set"},
                 {JUTE_SYNC, "sync"},
                 {JUTE_GET_CHILDREN, "list"},
                 {JUTE_MULTI, "multi"},
                 {JUTE_CREATE, "create"},
                 {JUTE_CREATE_CONTAINER, "create container"},
                 {JUTE_SET_WATCHES, "set watches again"},
                 {JUTE_GET_EPHEMERALS, "list own nodes below"},
                 {JUTE_CLOSE_SESSION, "close the session"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].type == type)
            return names[i].name;
    }
    return "request";
}

static void describe_greeting(struct buffer *text, struct jute_reader *reader)
{
    int64_t zxid = zk_jute_read_long(reader);
    int32_t timeout_ms = zk_jute_read_int(reader);
    int64_t session = zk_jute_read_long(reader);
    if (session == 0)
        put(text, "a new session of %" PRId32 " ms", timeout_ms);
    else
        put(text, "session %" PRIx64 ", which has seen %" PRIx64, (uint64_t)session,
            (uint64_t)zxid);
}

static void describe_request(struct buffer *text, struct jute_reader *reader)
{
    bool greets = reader->end - reader->at == GREETING;
    int32_t xid = zk_jute_read_int(reader);
    if (greets && xid == 0) {
        describe_greeting(text, reader);
        return;
    }
    int32_t type = zk_jute_read_int(reader);
    bool has_path = type != JUTE_MULTI && type != JUTE_SET_WATCHES && type != JUTE_CLOSE_SESSION;
    const char *path = has_path ? zk_jute_read_string(reader) : NULL;
    put(text, "%" PRId32 " %s %s", xid, name_of(type), path != NULL ? path : "");
}

static void describe_answer(struct buffer *text, struct jute_reader *reader)
{
    static const char *const events[] = {"", "created", "deleted", "changed", "children changed"};
    bool welcomes = reader->end - reader->at == WELCOME;
    int32_t xid = zk_jute_read_int(reader);
    if (welcomes && xid == 0) {
        (void)zk_jute_read_int(reader);
        put(text, "session %" PRIx64, (uint64_t)zk_jute_read_long(reader));
        return;
    }
    int64_t zxid = zk_jute_read_long(reader);
    int32_t code = zk_jute_read_int(reader);
    if (xid != JUTE_XID_EVENT) { /* a precision of 0 leaves the code 0 out */
        put(text, "%" PRId32 " %s%.0" PRId32 ", transaction %" PRIx64, xid,
            code == 0 ? "ok" : "fails with ", code, (uint64_t)zxid);
        return;
    }
    int32_t type = zk_jute_read_int(reader);
    (void)zk_jute_read_int(reader);
    const char *path = zk_jute_read_string(reader);
    put(text, "%s: %s", type > 0 && type <= JUTE_EVENT_CHILD ? events[type] : "event",
        path != NULL ? path : "");
}

/* Reading changes the packet, so it reads a copy. */
void zk_describe(struct buffer *text, enum direction way, const void *bytes, size_t n)
{
    char *copy = malloc(n + 1);
    if (copy == NULL)
        return;
    memcpy(copy, bytes, n);
    struct jute_reader all = {.at = copy, .end = copy + n};
    while (all.end - all.at > 4) {
        int32_t len = zk_jute_read_int(&all);
        if (len < 0 || len > all.end - all.at)
            break;
        struct jute_reader packet = {.at = all.at, .end = all.at + len};
        if (way == TO_SERVER)
            describe_request(text, &packet);
        else
            describe_answer(text, &packet);
        all.at += len;
    }
    free(copy);
}
