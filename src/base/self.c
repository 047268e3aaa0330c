/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/self.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
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

void self_command(char *out, size_t size, const char *label)
{
    /* Not the command line: what is stored in an engine is read by others, and arguments may be
     * passwords. */
    snprintf(out, size, "%s", label ? label : program_invocation_short_name);
    if (!*out)
        snprintf(out, size, "?");
    clean(out);
}
