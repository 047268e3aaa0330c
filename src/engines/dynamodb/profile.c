/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/dynamodb/profile.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES 9216
#define PATH_ROOM      4096
#define FILE_MAX_BYTES (1 << 20)

const char *ddb_profile_name(void)
{
    const char *name = secure_getenv("AWS_PROFILE");
    return name && *name ? name : "default";
}

static FILE *open_file(const char *variable, const char *usual)
{
    char path[PATH_ROOM];
    struct stat st;
    const char *given = secure_getenv(variable), *home = secure_getenv("HOME");
    if (!given && !home)
        return NULL;
    int len = snprintf(path, sizeof path, "%s%s", given ? given : home, given ? "" : usual);
    if (len < 0 || (size_t)len >= sizeof path)
        return NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    bool good = !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size <= FILE_MAX_BYTES;
    FILE *file = good ? fdopen(fd, "r") : NULL;
    if (!file)
        close(fd);
    return file;
}

/* Without space around it; in place. */
static char *trim(char *text)
{
    static const char space[] = " \t\r\n";
    text += strspn(text, space);
    size_t len = strlen(text);
    while (len && strchr(space, text[len - 1]))
        text[--len] = '\0';
    return text;
}

/* "[name]", and in the other file "[profile name]". */
static bool is_section(char *line, const char *name)
{
    char *end = strchr(line, ']');
    if (!end)
        return false;
    *end = '\0';
    line = trim(line + 1);
    if (strncmp(line, "profile", 7) == 0 && (line[7] == ' ' || line[7] == '\t'))
        line = trim(line + 7);
    return strcmp(line, name) == 0;
}

static void take_line(char *line, const struct profile_key *keys)
{
    char *equals = strchr(line, '=');
    if (!equals)
        return;
    *equals = '\0';
    const char *name = trim(line), *value = trim(equals + 1);
    for (; keys->name; keys++) {
        if (strcmp(keys->name, name) == 0 && !*keys->value && strlen(value) < keys->size)
            strcpy(keys->value, value);
    }
}

static bool read_file(const char *variable, const char *usual, const struct profile_key *keys)
{
    char line[LINE_MAX_BYTES];
    bool inside = false, found = false;
    FILE *file = open_file(variable, usual);
    while (file && fgets(line, sizeof line, file)) {
        char *text = trim(line);
        if (*text == '[')
            found |= inside = is_section(text, ddb_profile_name());
        else if (inside && *text != '#' && *text != ';')
            take_line(text, keys);
    }
    explicit_bzero(line, sizeof line);
    if (file)
        fclose(file);
    return found;
}

bool ddb_profile_read(const struct profile_key *keys)
{
    for (const struct profile_key *key = keys; key->name; key++)
        *key->value = '\0';
    bool found = read_file("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials", keys);
    return read_file("AWS_CONFIG_FILE", "/.aws/config", keys) || found;
}
