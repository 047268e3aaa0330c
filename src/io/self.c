#include "io/self.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void clean(char *text)
{
    for (; *text; text++)
        *text = (unsigned char)*text < ' ' || *text == 127 ? '?' : *text;
}

void self_host(char host[SELF_HOST_MAX + 1])
{
    if (gethostname(host, SELF_HOST_MAX))
        host[0] = '\0';
    host[SELF_HOST_MAX] = '\0';
    host[strcspn(host, " ")] = '\0';
    if (!*host)
        strcpy(host, "?");
    clean(host);
}

/* Its words end with a NUL each. */
static void read_command(char *out, size_t size)
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
    if (fd >= 0)
        close(fd);
    while (n > 0 && !out[n - 1])
        n--;
    for (ssize_t i = 0; i < n; i++)
        out[i] = out[i] ? out[i] : ' ';
    out[n > 0 ? n : 0] = '\0';
}

void self_command(char *out, size_t size, const char *label)
{
    if (label)
        snprintf(out, size, "%s", label);
    else
        read_command(out, size);
    if (!*out)
        snprintf(out, size, "?");
    clean(out);
}
