#include "base/buffer.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 1024
/* An empty buffer that has grown beyond this served a burst, and is freed. */
#define KEEP_CAP 65536

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

int buffer_put(struct buffer *b, const void *bytes, size_t n)
{
    if (n == 0)
        return 0;
    if (n > b->cap - b->end && b->head > 0) {
        memmove(b->bytes, buffer_at(b), buffer_len(b));
        b->end -= b->head;
        b->head = 0;
    }
    if (n > b->cap - b->end && grow(b, n))
        return ENOMEM;
    memcpy(b->bytes + b->end, bytes, n);
    b->end += n;
    return 0;
}

void buffer_drop(struct buffer *b, size_t n)
{
    b->head += n;
    if (b->head < b->end)
        return;
    if (b->cap > KEEP_CAP)
        buffer_free(b);
    else
        b->head = b->end = 0;
}

void buffer_free(struct buffer *b)
{
    if (b->bytes)
        explicit_bzero(b->bytes, b->cap);
    free(b->bytes);
    *b = (struct buffer){0};
}
