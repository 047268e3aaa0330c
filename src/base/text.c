#include "base/text.h"

#include <string.h>

void hex_encode(char *out, const void *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *from = bytes;
    for (size_t i = 0; i < n; i++) {
        *out++ = digits[from[i] >> 4];
        *out++ = digits[from[i] & 15];
    }
    *out = '\0';
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
