/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile.conf: whatever is in the file, it sets one URL or none, or is refused with one line that
 * repeats no more of it than a word. */
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/config.h"
#include "fuzz.h"

#define SECRET "5ecret" /* what follows it may be a password */

static int fd = -1;
static char path[32];

static void open_once(void)
{
    if (fd >= 0)
        return;
    fd = memfd_create("stile.conf", MFD_CLOEXEC);
    MUST(fd >= 0 && fchmod(fd, 0600) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct default_engine found;
    struct stile_error err = {0};
    open_once();
    MUST(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    if (config_read(&found, path, 0600, &err)) {
        MUST(err.status == STILE_MISUSE && fuzz_is_line(err.message));
        MUST(!strstr(err.message, SECRET));
    } else {
        size_t len = strlen(found.url);
        MUST(len <= STILE_URL_MAX && !found.too_open && strcmp(found.path, path) == 0);
        MUST(!strpbrk(found.url, "\n") && (found.line > 0) == (len > 0));
    }
    config_forget(&found);
    return 0;
}
