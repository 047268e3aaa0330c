/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile_lock_record_start() and _end(): one line of text for each name,
 *
 *     1 TOKEN FROM UNTIL EXIT PID HOST COMMAND
 *
 * which people can read with their server's own tools, too. The times are Unix milliseconds. The
 * command comes last, since it may have spaces. EXIT is -1 if there is none. The engine keeps the
 * line with the largest token, or the latest start where there are no tokens. */
#include "core/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/container.h"
#include "base/self.h"
#include "core/lock.h"
#include "core/question.h"

#define RECORD_VERSION "1"
#define RECORD_FORMAT  RECORD_VERSION " %" PRIu64 " %" PRId64 " %" PRId64 " %d %" PRId64 " %s %s"

/* One write that the engine has not answered. A lock has one at a time: an end that overtook its
 * start on the way would be overwritten by it. */
struct record_write {
    struct question q;
    struct stile_client *client;
    struct stile_lock *lock; /* NULL: it was freed */
    struct record_write *next;
    char name[STILE_NAME_MAX + 1];
    char text[RECORD_MAX + 1];
    char later[RECORD_MAX + 1]; /* to be written after the answer; "": nothing */
    uint64_t later_token;
    struct task task; /* writes it: not from inside the engine's answer */
};

/* ---- the text ---- */

/* Nothing but digits: strtoull() would take spaces, signs and what is too large, too. */
static bool read_number(uint64_t *number, char **at, uint64_t max)
{
    const char *start = *at;
    *number = 0;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        uint64_t digit = (uint64_t)(**at - '0');
        if (*number > (max - digit) / 10)
            return false;
        *number = *number * 10 + digit;
    }
    if (*at == start || **at != ' ')
        return false;
    ++*at;
    return true;
}

static bool read_signed(int64_t *number, char **at)
{
    uint64_t value;
    if (!read_number(&value, at, INT64_MAX))
        return false;
    *number = (int64_t)value;
    return true;
}

static bool read_exit_code(int *code, char **at)
{
    uint64_t value;
    *code = -1;
    if (strncmp(*at, "-1 ", 3) == 0) {
        *at += 3;
        return true;
    }
    if (!read_number(&value, at, 255))
        return false;
    *code = (int)value;
    return true;
}

/* Others can write to the server, too, and this is printed on terminals. */
static bool has_control_characters(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 127)
            return true;
    }
    return false;
}

bool record_read(struct stile_last_holder *last, char *text)
{
    size_t version = strlen(RECORD_VERSION " ");
    *last = (struct stile_last_holder){0};
    if (strncmp(text, RECORD_VERSION " ", version) != 0 || has_control_characters(text))
        return false;
    char *at = text + version;
    if (!read_number(&last->token, &at, UINT64_MAX) || !read_signed(&last->from_ms, &at) ||
        !read_signed(&last->until_ms, &at) || !read_exit_code(&last->exit_code, &at) ||
        !read_signed(&last->pid, &at))
        return false;
    char *space = strchr(at, ' ');
    if (!space)
        return false;
    *space = '\0';
    last->host = at;
    last->command = space + 1;
    return true;
}

static int64_t wall_clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void write_text(char text[RECORD_MAX + 1], const struct stile_lock *lock, int64_t until_ms,
                       int exit_code)
{
    const struct stile_client *client = lock->client;
    char host[SELF_HOST_MAX + 1];
    self_host(host);
    (void)snprintf(text, RECORD_MAX + 1, RECORD_FORMAT, lock->token, lock->record_from_ms, until_ms,
                   exit_code, client->engine->pid, host, client->command);
}

/* ---- writing ---- */

/* One at a time for a client: what keeps its locks must never wait behind a crowd of records. */
static void ask_first(struct stile_client *client)
{
    struct record_write *first = client->records;
    question_ask(&first->q, client->engine->class->history->record);
}

static void drop_first(struct stile_client *client)
{
    struct record_write *write = client->records;
    if (write->lock)
        write->lock->record = NULL;
    loop_forget(client->loop, &write->task);
    client->records = write->next;
    free(write);
}

/* It is for people to read: a record that could not be stored is no reason to disturb a holder. */
static void on_answered(struct question *q)
{
    struct record_write *write = container_of(q, struct record_write, q);
    struct stile_client *client = write->client;
    if (q->error.status)
        CLIENT_LOG(client, STILE_LOG_INFO, "'%s': not recorded for `stile show`: %s", write->name,
                   q->error.message);
    if (!write->later[0])
        drop_first(client);
    if (client->records)
        loop_soon(client->loop, &client->records->task);
}

static void on_task(struct task *task)
{
    struct record_write *write = container_of(task, struct record_write, task);
    if (write->later[0]) {
        strcpy(write->text, write->later);
        write->later[0] = '\0';
        write->q.query.token = write->later_token;
    }
    ask_first(write->client);
}

void record_lock_freed(struct stile_lock *lock)
{
    if (lock->record)
        lock->record->lock = NULL;
}

void record_cancel_all(struct stile_client *client)
{
    if (client->records)
        question_cancel(&client->records->q);
    while (client->records)
        drop_first(client);
}

/* NULL: out of memory. */
static struct record_write *write_new(struct stile_lock *lock)
{
    struct record_write *write = malloc(sizeof *write);
    if (!write)
        return NULL;
    write->client = lock->client;
    write->lock = lock;
    write->next = NULL;
    strcpy(write->name, lock->claim->name);
    write->later[0] = '\0';
    write->task = (struct task){.fn = on_task};
    question_init(&write->q, lock->client, write->name);
    write->q.answered = on_answered;
    write->q.query.record = write->text;
    lock->record = write;
    return write;
}

static void append(struct stile_client *client, struct record_write *write)
{
    if (client->records) {
        client->last_record->next = write;
        client->last_record = write;
        return;
    }
    client->records = client->last_record = write;
    ask_first(client); /* may be answered inside, and gone */
}

/* What has not been sent is replaced: the end of a holder says all that its start does. */
static enum stile_status store(struct stile_lock *lock, int64_t until_ms, int exit_code,
                               struct stile_error *err)
{
    uint64_t token = lock->token ? lock->token : (uint64_t)lock->record_from_ms;
    struct record_write *write = lock->record;
    if (write && write->q.asked) {
        write_text(write->later, lock, until_ms, exit_code);
        write->later_token = token;
        return STILE_OK;
    }
    bool is_new = !write;
    if (is_new && !(write = write_new(lock)))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    write_text(write->text, lock, until_ms, exit_code);
    write->later[0] = '\0';
    write->q.query.token = token;
    if (is_new)
        append(lock->client, write);
    return STILE_OK;
}

enum stile_status record_start(struct stile_lock *lock, struct stile_error *err)
{
    lock->record_from_ms = wall_clock_ms();
    return store(lock, 0, -1, err);
}

enum stile_status record_end(struct stile_lock *lock, int exit_code, struct stile_error *err)
{
    if (exit_code < -1 || exit_code > 255)
        return error_set(err, STILE_MISUSE, 0, "there is no exit code %d", exit_code);
    if (!lock->record_from_ms)
        return error_set(err, STILE_MISUSE, 0, "its start was not recorded");
    enum stile_status status = store(lock, wall_clock_ms(), exit_code, err);
    if (!status)
        lock->record_from_ms = 0;
    return status;
}
