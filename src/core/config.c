/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/config.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

/* Room for a URL and a page of comments. */
#define FILE_MAX 16384

/* A password in a file of the user is for the user alone; one in the system's file may be for a
 * group, as in `chgrp deploy /etc/stile.conf`. */
#define USER_MODE   0600
#define SYSTEM_MODE 0640

/* ---- one file ---- */

/* On the heap: callers may have small stacks. */
struct text {
    char bytes[FILE_MAX + 1];
    size_t len;
};

/* The file that was opened is what counts, so a symbolic link is followed: many users keep their
 * settings elsewhere. */
static enum stile_status check_file(const struct stat *st, const char *path,
                                    struct stile_error *err)
{
    if (!S_ISREG(st->st_mode))
        return error_set(err, STILE_REFUSED, 0, "%s is not a regular file", path);
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return error_set(err, STILE_REFUSED, 0,
                         "the file belongs to user %u and must be yours or root's; run: chown %u "
                         "%s",
                         (unsigned)st->st_uid, (unsigned)geteuid(), path);
    if (st->st_mode & (S_IWGRP | S_IWOTH))
        return error_set(err, STILE_REFUSED, 0,
                         "other users can change the engine in this file; run: chmod go-w %s",
                         path);
    return STILE_OK;
}

/* 0 or errno. */
static int read_text(struct text *text, int fd)
{
    ssize_t n;
    text->len = 0;
    do {
        n = read(fd, text->bytes + text->len, sizeof text->bytes - text->len);
        if (n > 0)
            text->len += (size_t)n;
    } while ((n > 0 && text->len < sizeof text->bytes) || (n < 0 && errno == EINTR));
    return n < 0 ? errno : 0;
}

static enum stile_status load(struct text *text, struct stat *st, int fd, const char *path,
                              struct stile_error *err)
{
    if (fstat(fd, st) != 0)
        return error_errno(err, STILE_REFUSED, errno, "%s", path);
    enum stile_status status = check_file(st, path, err);
    int rc = status ? 0 : read_text(text, fd);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "%s", path);
    if (!status && text->len > FILE_MAX)
        return error_set(err, STILE_MISUSE, 0, "%s has more than %d bytes", path, FILE_MAX);
    if (!status && memchr(text->bytes, '\0', text->len))
        return error_set(err, STILE_MISUSE, 0, "%s has a NUL byte: it is not a text file", path);
    text->bytes[status ? 0 : text->len] = '\0';
    return status;
}

#define BLANK           " \t\r"
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

static void cut_end(char *line)
{
    size_t len = strlen(line);
    while (len > 0 && strchr(BLANK, line[len - 1]))
        len--;
    line[len] = '\0';
}

/* A '#' at the start of the line or after a blank; no URL contains a blank. */
static void cut_comment(char *line)
{
    for (char *at = strchr(line, '#'); at; at = strchr(at + 1, '#')) {
        if (at == line || strchr(BLANK, at[-1])) {
            *at = '\0';
            return;
        }
    }
}

static bool is_word(const char *text)
{
    return text[0] && !text[strspn(text, "abcdefghijklmnopqrstuvwxyz_-")];
}

/* Messages repeat no more than a plain word: a line may be a URL with a password. */
static enum stile_status read_line(struct default_engine *found, char *line, const char *path,
                                   unsigned number, struct stile_error *err)
{
    cut_comment(line);
    cut_end(line);
    line += strspn(line, BLANK);
    if (line[0] == '\0')
        return STILE_OK;
    char *value = line + strcspn(line, "=");
    bool is_set = *value == '=';
    if (is_set)
        *value++ = '\0';
    value += strspn(value, BLANK);
    cut_end(line);
    if (!is_set || !is_word(line))
        return error_set(err, STILE_MISUSE, 0, "%s:%u: write engine = URL", path, number);
    if (strcmp(line, "engine") != 0)
        return error_set(err, STILE_MISUSE, 0, "%s:%u: unknown setting '%.40s'; there is: engine",
                         path, number, line);
    if (found->url[0])
        return error_set(err, STILE_MISUSE, 0, "%s:%u: engine is set twice", path, number);
    if (value[0] == '\0' || strlen(value) > STILE_URL_MAX)
        return error_set(err, STILE_MISUSE, 0, "%s:%u: the engine URL %s", path, number,
                         value[0] ? "is too long" : "is empty");
    strcpy(found->url, value);
    found->line = number;
    return STILE_OK;
}

static enum stile_status read_lines(struct default_engine *found, char *text, const char *path,
                                    struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    unsigned number = 1;
    /* Some editors put it at the start, where no user sees it. */
    if (strncmp(text, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0)
        text += strlen(BYTE_ORDER_MARK);
    for (char *line, *rest = text; !status && (line = strsep(&rest, "\n")); number++)
        status = read_line(found, line, path, number, err);
    return status;
}

static enum stile_status read_file(struct default_engine *found, int fd, const char *path,
                                   unsigned open_to, struct stile_error *err)
{
    struct stat st;
    struct text *text = malloc(sizeof *text);
    if (!text)
        return error_set(err, STILE_NOMEM, 0, "no memory to read %s", path);
    enum stile_status status = load(text, &st, fd, path, err);
    if (!status)
        status = read_lines(found, text->bytes, path, err);
    explicit_bzero(text, sizeof *text);
    free(text);
    if (status)
        return status;
    snprintf(found->path, sizeof found->path, "%s", path);
    found->too_open = st.st_mode & 0777 & ~open_to;
    found->mode = open_to;
    return STILE_OK;
}

/* A link to nothing: an engine has been set, perhaps on a disk that is not mounted yet. Taking
 * another engine would exclude nobody. Leaves errno alone. */
static bool is_link(const char *path)
{
    int saved = errno;
    struct stat st;
    bool is = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    errno = saved;
    return is;
}

enum stile_status config_read(struct default_engine *found, const char *path, unsigned open_to,
                              struct stile_error *err)
{
    *found = (struct default_engine){.url = ""};
    /* O_NONBLOCK: a named pipe must not keep a program waiting. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR) && !is_link(path))
        return STILE_OK;
    if (fd < 0)
        return error_errno(err, STILE_REFUSED, errno, "reading the default engine from %s", path);
    enum stile_status status = read_file(found, fd, path, open_to, err);
    close(fd);
    return status;
}

/* ---- which file ---- */

/* NULL: the user has none. */
static const char *home(char space[CONFIG_PATH_MAX])
{
    const char *given = getenv("HOME");
    struct passwd user, *found = NULL;
    if (given && given[0] == '/')
        return given;
    /* Services are often started without HOME. */
    if (getpwuid_r(geteuid(), &user, space, CONFIG_PATH_MAX, &found) != 0 || !found)
        return NULL;
    return user.pw_dir[0] == '/' ? user.pw_dir : NULL;
}

static enum stile_status read_users(struct default_engine *found, struct stile_error *err)
{
    const char *given = getenv("XDG_CONFIG_HOME");
    bool is_given = given && given[0] == '/';
    char path[CONFIG_PATH_MAX], space[CONFIG_PATH_MAX];
    const char *directory = is_given ? given : home(space);
    if (!directory)
        return STILE_OK;
    if (snprintf(path, sizeof path, "%s%s/stile.conf", directory, is_given ? "" : "/.config") >=
        (int)sizeof path)
        return error_set(err, STILE_REFUSED, ENAMETOOLONG,
                         "the path of the user's stile.conf is too long");
    return config_read(found, path, USER_MODE, err);
}

static enum stile_status take_variable(struct default_engine *found, const char *url,
                                       struct stile_error *err)
{
    if (strlen(url) > STILE_URL_MAX)
        return error_set(err, STILE_MISUSE, 0, "the engine URL has more than %d bytes",
                         STILE_URL_MAX);
    strcpy(found->url, url);
    strcpy(found->path, "$STILE_ENGINE");
    return STILE_OK;
}

enum stile_status config_find(struct default_engine *found, struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    const char *url = secure_getenv("STILE_ENGINE");
    *found = (struct default_engine){.url = ""};
    if (url && *url)
        return take_variable(found, url, err);
    /* A program with more rights than its user must not let that user choose where its locks are.
     */
    if (!getauxval(AT_SECURE))
        status = read_users(found, err);
    if (!status && !found->url[0])
        status = config_read(found, STILE_CONFIG_FILE, SYSTEM_MODE, err);
    if (!status && !found->url[0])
        *found = (struct default_engine){.url = "local:"};
    if (status)
        config_forget(found);
    return status;
}

void config_forget(struct default_engine *found)
{
    explicit_bzero(found, sizeof *found);
}
