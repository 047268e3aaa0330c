/* stile_lock_record_start() and _end(): one line of text for each name,
 *
 *     1 TOKEN FROM UNTIL EXIT PID HOST COMMAND
 *
 * which people can read with their server's own tools, too. The times are Unix milliseconds. The
 * command comes last, since it may have spaces. The engine keeps the line with the largest token,
 * or the latest start where there are no tokens. */
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

/* One write that the engine has not answered. */
struct record_write {
    struct question q;
    struct stile_client *client;
    struct record_write *next, **link;
    char name[STILE_NAME_MAX + 1];
    char text[RECORD_MAX + 1];
};

/* ---- the text ---- */

static bool read_number(int64_t *number, char **at)
{
    char *end;
    *number = strtoll(*at, &end, 10);
    if (end == *at || *end != ' ')
        return false;
    *at = end + 1;
    return true;
}

static bool read_token(uint64_t *token, char **at)
{
    char *end;
    *token = strtoull(*at, &end, 10);
    if (end == *at || *end != ' ')
        return false;
    *at = end + 1;
    return true;
}

bool record_read(struct stile_last_holder *last, char *text)
{
    int64_t exit_code;
    char *at = text + strlen(RECORD_VERSION " ");
    *last = (struct stile_last_holder){0};
    if (strncmp(text, RECORD_VERSION " ", strlen(RECORD_VERSION " ")) != 0)
        return false;
    if (!read_token(&last->token, &at) || !read_number(&last->from_ms, &at) ||
        !read_number(&last->until_ms, &at) || !read_number(&exit_code, &at) ||
        !read_number(&last->pid, &at))
        return false;
    char *space = strchr(at, ' ');
    if (!space)
        return false;
    *space = '\0';
    last->host = at;
    last->command = space + 1;
    last->exit_code = exit_code >= 0 && exit_code <= 255 ? (int)exit_code : -1;
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

static void forget(struct record_write *write)
{
    *write->link = write->next;
    if (write->next)
        write->next->link = write->link;
    free(write);
}

/* It is for people to read: a record that could not be stored is no reason to disturb a holder. */
static void on_answered(struct question *q)
{
    struct record_write *write = container_of(q, struct record_write, q);
    if (q->error.status)
        CLIENT_LOG(write->client, STILE_LOG_INFO, "'%s': not recorded for `stile show`: %s",
                   write->name, q->error.message);
    forget(write);
}

void record_cancel_all(struct stile_client *client)
{
    while (client->records) {
        question_cancel(&client->records->q);
        forget(client->records);
    }
}

static enum stile_status store(struct stile_lock *lock, int64_t until_ms, int exit_code,
                               struct stile_error *err)
{
    struct stile_client *client = lock->client;
    struct record_write *write = malloc(sizeof *write);
    if (!write)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    write->client = client;
    write->next = client->records;
    write->link = &client->records;
    if (write->next)
        write->next->link = &write->next;
    client->records = write;
    strcpy(write->name, lock->claim->name);
    write_text(write->text, lock, until_ms, exit_code);
    question_init(&write->q, client, write->name);
    write->q.answered = on_answered;
    write->q.query.record = write->text;
    write->q.query.token = lock->token ? lock->token : (uint64_t)lock->record_from_ms;
    question_ask(&write->q, client->engine->class->history->record);
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
    lock->record_from_ms = 0;
    return status;
}
