#include "base/text.h"

#include <string.h>

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
