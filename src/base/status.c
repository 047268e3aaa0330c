/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "stile.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *stile_status_name(enum stile_status status)
{
#define NAME(name, text) #name,
    static const char *const names[] = {STILE_STATUS_MAP(NAME)};
#undef NAME

    return (size_t)status < COUNT(names) ? names[status] : "UNKNOWN";
}

const char *stile_status_text(enum stile_status status)
{
#define TEXT(name, text) text,
    static const char *const texts[] = {STILE_STATUS_MAP(TEXT)};
#undef TEXT

    return (size_t)status < COUNT(texts) ? texts[status] : "unknown status";
}

const char *stile_version(void)
{
    return STILE_VERSION;
}
