/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The shared files of Amazon's tools: whatever is in them, what is taken fits its place and is one
 * line, and a file without the profile gives nothing. A zero byte divides the two files. */
#include <sys/mman.h>
#include <unistd.h>

#include "engines/dynamodb/profile.h"
#include "fuzz.h"

static int fds[2] = {-1, -1};

static void open_once(void)
{
    static const char *const variables[] = {"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"};
    char path[32];
    for (size_t i = 0; fds[1] < 0 && i < 2; i++) {
        fds[i] = memfd_create("profile", MFD_CLOEXEC);
        MUST(fds[i] >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fds[i]);
        setenv(variables[i], path, 1);
    }
    unsetenv("AWS_PROFILE");
}

static void write_file(int fd, const uint8_t *data, size_t size)
{
    MUST(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
}

static bool is_trimmed(const char *value)
{
    size_t len = strlen(value);
    return !strpbrk(value, "\n") &&
           (len == 0 || (!strchr(" \t\r", value[0]) && !strchr(" \t\r", value[len - 1])));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char key[16], region[8];
    const struct profile_key keys[] = {
        {"aws_access_key_id", key, sizeof key}, {"region", region, sizeof region}, {.name = NULL}};
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t first = zero ? (size_t)(zero - data) : size;
    open_once();
    write_file(fds[0], data, first);
    write_file(fds[1], data + first, size - first);
    bool found = ddb_profile_read(keys);
    MUST(memchr(key, 0, sizeof key) && memchr(region, 0, sizeof region));
    MUST(is_trimmed(key) && is_trimmed(region));
    MUST(found || (!*key && !*region));
    return 0;
}
