#include "engines/redis/who.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void write_command(char *out, size_t size, const char *label)
{
    char line[256] = "?";
    if (label) {
        snprintf(line, sizeof line, "%s", label);
    } else {
        int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
        if (fd >= 0)
            close(fd);
        line[n > 0 ? n : 1] = '\0';
        for (ssize_t i = 0; i + 1 < n; i++)
            line[i] = line[i] ? line[i] : ' ';
    }
    for (char *c = line; *c; c++)
        *c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;
    snprintf(out, size, "%s", line);
}

static void write_hex(char *out, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *out++ = digits[bytes[i] >> 4];
        *out++ = digits[bytes[i] & 15];
    }
    *out = '\0';
}

int who_introduce(char channel[CHANNEL_MAX], char info[INFO_MAX], struct loop *loop,
                  const char *label)
{
    unsigned char random[SESSION_LEN / 2];
    char host[65] = "?";
    int rc = loop_random(loop, random, sizeof random);
    strcpy(channel, "stile:");
    write_hex(channel + strlen(channel), random, sizeof random);
    gethostname(host, sizeof host - 1);
    host[strcspn(host, " ")] = '\0';
    int n = snprintf(info, INFO_MAX, "%ld %s ", (long)getpid(), host);
    write_command(info + n, INFO_MAX - (size_t)n, label);
    return rc;
}

int who_draw_owner(char owner[OWNER_LEN + 1], const char *channel, struct loop *loop)
{
    unsigned char random[(OWNER_LEN - SESSION_LEN) / 2];
    int rc = loop_random(loop, random, sizeof random);
    memcpy(owner, channel + strlen("stile:"), SESSION_LEN);
    write_hex(owner + SESSION_LEN, random, sizeof random);
    return rc;
}
