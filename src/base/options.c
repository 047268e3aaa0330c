/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"

#include <string.h>

static bool is_zero(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i])
            return false;
    }
    return true;
}

/* No member after the size is read before the size has been checked. */
static enum stile_status check_size(const void *from, size_t size, const struct options_kind *kind,
                                    struct stile_error *err)
{
    if (size < kind->least || size > 16 * kind->size)
        return error_set(err, STILE_MISUSE, 0, "%s have size %zu, this library knows %zu: use %s",
                         kind->name, size, kind->size, kind->macro);
    if (size > kind->size && !is_zero((const char *)from + kind->size, size - kind->size))
        return error_set(err, STILE_MISUSE, 0,
                         "%s of a later version are set, which this library does not know",
                         kind->name);
    return STILE_OK;
}

enum stile_status options_read(void *to, const void *from, const struct options_kind *kind,
                               struct stile_error *err)
{
    size_t size = 0;
    memset(to, 0, kind->size);
    if (from) {
        memcpy(&size, from, sizeof size);
        enum stile_status status = check_size(from, size, kind, err);
        if (status)
            return status;
        memcpy(to, from, size < kind->size ? size : kind->size);
    }
    memcpy(to, &kind->size, sizeof kind->size);
    return STILE_OK;
}
