/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a client, it resolves names as a test says, which can change its mind at any
 * moment: $STILE_TEST_HOSTS names a file with lines of a name and its address. Other names are
 * resolved as ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef int getaddrinfo_fn(const char *, const char *, const struct addrinfo *, struct addrinfo **);

/* False: the file does not name it. */
static int find(char address[64], const char *name)
{
    char line[256], known[128];
    const char *path = getenv("STILE_TEST_HOSTS");
    FILE *file = path ? fopen(path, "re") : NULL;
    int found = 0;

    while (file && !found && fgets(line, sizeof line, file))
        found = sscanf(line, "%127s %63s", known, address) == 2 && strcmp(known, name) == 0;
    if (file)
        fclose(file);
    return found;
}

EXPORT int getaddrinfo(const char *restrict name, const char *restrict service,
                       const struct addrinfo *restrict hints, struct addrinfo **restrict found)
{
    char address[64];
    getaddrinfo_fn *real = (getaddrinfo_fn *)dlsym(RTLD_NEXT, "getaddrinfo");
    int numeric = hints && hints->ai_flags & AI_NUMERICHOST;

    return real(name && !numeric && find(address, name) ? address : name, service, hints, found);
}
