/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <stdbool.h>
#include <string.h>

size_t utf8_length(uint32_t *code, const char *s, size_t left)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *at = (const unsigned char *)s;
    size_t n = at[0] < 0x80         ? 1
               : at[0] >> 5 == 0x06 ? 2
               : at[0] >> 4 == 0x0e ? 3
               : at[0] >> 3 == 0x1e ? 4
                                    : 0;
    if (n == 0 || n > left)
        return 0;
    uint32_t value = n == 1 ? at[0] : at[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (at[i] & 0x3f);
    }
    if (code)
        *code = value;
    bool surrogate = value >= 0xd800 && value <= 0xdfff;
    return value >= least[n] && value <= 0x10ffff && !surrogate ? n : 0;
}

size_t text_size(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

const char *text_pack(char **at, const char *text)
{
    if (!text)
        return NULL;
    char *copy = *at;
    *at = stpcpy(copy, text) + 1;
    return copy;
}
