/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buffer.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 1024

/* Not realloc(): the old memory could not be wiped. */
static int grow(struct buffer *b, size_t n)
{
    size_t len = buffer_len(b), cap = b->cap ? b->cap : FIRST_CAP;

    if (n > SIZE_MAX / 2 - len)
        return ENOMEM;
    while (cap < len + n)
        cap *= 2;
    char *bytes = malloc(cap);
    if (!bytes)
        return ENOMEM;
    if (len > 0)
        memcpy(bytes, buffer_at(b), len);
    buffer_free(b);
    *b = (struct buffer){.bytes = bytes, .end = len, .cap = cap};
    return 0;
}

int buffer_make_room(struct buffer *b, size_t n)
{
    if (b->head > 0) {
        memmove(b->bytes, buffer_at(b), buffer_len(b));
        b->end -= b->head;
        b->head = 0;
    }
    return n > b->cap - b->end ? grow(b, n) : 0;
}

void buffer_free(struct buffer *b)
{
    if (b->bytes)
        explicit_bzero(b->bytes, b->cap);
    free(b->bytes);
    *b = (struct buffer){0};
}
