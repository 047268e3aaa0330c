/* A run inside a run uses the engine of the outer one, password included. STILE_ENGINE, which every
 * process below can read, log and pass on, has no secrets. The whole URL is in a sealed file in the
 * memory of the outer warden, and STILE_ENGINE_FROM says where: PID/DESCRIPTOR. Opening it takes
 * what reading the outer process's memory would: the same user, or root. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "process.h"

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

char *credentials_offer(const char *url)
{
    static int fd = -1;
    char place[40], redacted[STILE_URL_MAX + 1];
    stile_url_redact(redacted, sizeof redacted, url);
    if (strcmp(redacted, url) == 0)
        return NULL;
    if (fd < 0) {
        fd = memfd_create("engine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        size_t len = strlen(url);
        if (fd < 0 || write(fd, url, len) != (ssize_t)len || fcntl(fd, F_ADD_SEALS, SEALS) < 0) {
            say("a run inside this one will not find the password: %m");
            return NULL;
        }
    }
    snprintf(place, sizeof place, "%d/%d", (int)getpid(), fd);
    return must_alloc(strdup(place));
}

/* The descriptor of an outer run's file, or -1. Numbers only: the variable is no path of its
 * author's choice. */
static int open_place(const char *place)
{
    char path[64];
    int pid, number, end = 0;
    if (sscanf(place, "%d/%d%n", &pid, &number, &end) != 2 || place[end] != '\0')
        return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, number);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    /* That process may have ended, and its number be another's: only a file that nobody can write
     * to any more is ours. */
    if (fd >= 0 && fcntl(fd, F_GET_SEALS) != SEALS) {
        close(fd);
        return -1;
    }
    return fd;
}

char *credentials_find(const char *url)
{
    char whole[STILE_URL_MAX + 1], redacted[STILE_URL_MAX + 1];
    const char *engine = secure_getenv("STILE_ENGINE"), *place = secure_getenv("STILE_ENGINE_FROM");
    if (engine == NULL || place == NULL || strcmp(engine, url) != 0)
        return NULL;
    int fd = open_place(place);
    ssize_t len = fd < 0 ? -1 : read(fd, whole, sizeof whole - 1);
    if (fd >= 0)
        close(fd);
    if (len <= 0)
        return NULL;
    whole[len] = '\0';
    /* It must be this engine's, and not that of a run in between which changed the variable. */
    if (stile_url_redact(redacted, sizeof redacted, whole) != STILE_OK ||
        strcmp(redacted, url) != 0)
        return NULL;
    return must_alloc(strdup(whole));
}

bool credentials_are_missing(const char *url)
{
    const char *engine = secure_getenv("STILE_ENGINE");
    return engine != NULL && strcmp(engine, url) == 0 && secure_getenv("STILE_ENGINE_FROM") != NULL;
}
