/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The counters that the workers of `stile torture` update: cells, or files where the engine has no
 * cells. Text: how often it was changed, and the number of the last change. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "torture.h"

#define TEXT_MAX  64
#define SOON_MS   1 /* the end of a cell that is no longer needed */
#define PATH_ROOM (PATH_MAX + KEY_MAX + 16)

void counter_key(char key[KEY_MAX], const struct plan *plan, enum counter_kind kind, uint32_t name)
{
    snprintf(key, KEY_MAX, "%s:%s:%" PRIu32, plan->prefix, kind == GUARDED ? "guarded" : "plain",
             name);
}

static void parse(struct counter *counter, const char *text)
{
    *counter = (struct counter){0};
    if (text != NULL)
        sscanf(text, "%" SCNu64 " %" SCNu64, &counter->count, &counter->value);
}

static size_t format(char text[TEXT_MAX], const struct counter *counter)
{
    return (size_t)snprintf(text, TEXT_MAX, "%" PRIu64 " %" PRIu64 "\n", counter->count,
                            counter->value);
}

/* ---- files ---- */

static void path_of(char path[PATH_ROOM], const struct plan *plan, const char *key)
{
    snprintf(path, PATH_ROOM, "%s/%s", plan->dir, key);
}

static enum stile_status refused(struct stile_error *err, const char *path)
{
    if (err != NULL) {
        err->status = STILE_REFUSED;
        err->native = errno;
        snprintf(err->message, sizeof err->message, "%.180s: %s", path, strerror(errno));
    }
    return STILE_REFUSED;
}

static enum stile_status file_read(struct counter *counter, const char *path,
                                   struct stile_error *err)
{
    char text[TEXT_MAX] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n < 0 && errno != ENOENT)
        return refused(err, path);
    parse(counter, text);
    return STILE_OK;
}

/* As a program without a guard replaces a file. */
static enum stile_status file_replace(const char *path, const char *text, size_t len)
{
    char room[PATH_ROOM + 32];
    snprintf(room, sizeof room, "%s.%d", path, (int)getpid());
    int fd = open(room, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool written = fd >= 0 && write(fd, text, len) == (ssize_t)len;
    if (fd >= 0)
        close(fd);
    return written && rename(room, path) == 0 ? STILE_OK : STILE_REFUSED;
}

/* ---- both ---- */

enum stile_status counter_read(struct counter *counter, const struct plan *plan,
                               struct stile_client *client, const char *key,
                               struct stile_error *err)
{
    char path[PATH_ROOM];
    struct stile_cell *cell = NULL;
    path_of(path, plan, key);
    if (plan->dir[0] != '\0')
        return file_read(counter, path, err);
    enum stile_status status = stile_cell_get(&cell, client, key, err);
    if (status == STILE_OK)
        parse(counter, cell->value);
    stile_cell_free(cell);
    return status;
}

enum stile_status counter_raise(const struct plan *plan, struct stile_client *client,
                                const char *key, uint64_t token)
{
    char path[PATH_ROOM];
    path_of(path, plan, key);
    if (plan->dir[0] != '\0')
        return stile_file_raise(path, token, NULL, NULL);
    return stile_guard_raise(client, key, token, NULL, NULL);
}

enum stile_status counter_write(const struct counter *counter, const struct plan *plan,
                                struct stile_client *client, const char *key, uint64_t token)
{
    char path[PATH_ROOM], text[TEXT_MAX];
    size_t len = format(text, counter);
    path_of(path, plan, key);
    if (plan->dir[0] != '\0')
        return token != 0 ? stile_file_replace(path, text, len, token, NULL, NULL)
                          : file_replace(path, text, len);
    return stile_cell_put(NULL, client, key, text, len, STILE_CELL_OPTIONS(.token = token), NULL);
}

/* A cell that is there from the start has an end once it is put for the last time. */
enum stile_status counter_begin(const struct plan *plan, struct stile_client *client,
                                const char *key, struct stile_error *err)
{
    char text[TEXT_MAX];
    const uint64_t none = 0;
    size_t len = format(text, &(struct counter){0});
    if (plan->dir[0] != '\0')
        return STILE_OK;
    return stile_cell_put(NULL, client, key, text, len, STILE_CELL_OPTIONS(.if_version = &none),
                          err);
}

enum stile_status counter_end(const struct plan *plan, struct stile_client *client, const char *key,
                              struct stile_error *err)
{
    const struct stile_cell_options last = {
        .size = sizeof last, .token = STILE_TOKEN_MAX, .keep_ms = plan->keeps ? SOON_MS : 0};
    if (plan->dir[0] != '\0')
        return STILE_OK; /* the whole directory goes */
    if (plan->keeps)
        return stile_cell_put(NULL, client, key, "", 0, &last, err);
    return stile_cell_remove(client, key, &last, err);
}
