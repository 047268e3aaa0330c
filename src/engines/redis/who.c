#include "engines/redis/who.h"

#include <stdio.h>
#include <string.h>

#include "base/self.h"

static void write_hex(char *out, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *out++ = digits[bytes[i] >> 4];
        *out++ = digits[bytes[i] & 15];
    }
    *out = '\0';
}

int who_introduce(char channel[CHANNEL_MAX], char info[INFO_MAX], const struct engine *engine)
{
    unsigned char random[SESSION_LEN / 2];
    char host[SELF_HOST_MAX + 1];
    int rc = loop_random(engine->loop, random, sizeof random);
    strcpy(channel, "stile:");
    write_hex(channel + strlen(channel), random, sizeof random);
    self_host(host);
    int n = snprintf(info, INFO_MAX, "%lld %s ", (long long)engine->pid, host);
    self_command(info + n, INFO_MAX - (size_t)n, engine->label);
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
