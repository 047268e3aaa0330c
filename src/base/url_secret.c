/* A password that stands in a file, so that it need not stand in a URL. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/url.h"

/* All of it, as far as there is room; -1 and errno. */
static ssize_t read_all(char *room, size_t size, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t n = fd < 0 ? -1 : 1;
    while (n > 0 && used < size) {
        n = read(fd, room + used, size - used);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            used += (size_t)n;
    }
    int number = errno;
    if (fd >= 0)
        close(fd);
    errno = number;
    return n < 0 ? -1 : (ssize_t)used;
}

enum stile_status url_secret(const char **password, const struct url *url, const char *key,
                             char room[URL_SECRET_MAX], struct stile_error *err)
{
    const char *path = url_param(url, key);
    if (!path)
        return STILE_OK;
    ssize_t n = read_all(room, URL_SECRET_MAX, path);
    if (n < 0)
        return error_errno(err, STILE_REFUSED, errno, "reading %s", key);
    const char *end = memchr(room, '\n', (size_t)n);
    if (!end && n == URL_SECRET_MAX)
        return error_set(err, STILE_REFUSED, 0, "the first line of %s has more than %d bytes", key,
                         URL_SECRET_MAX - 1);
    room[end ? end - room : n] = '\0';
    room[strcspn(room, "\r")] = '\0';
    *password = room;
    return STILE_OK;
}
