/* A queue of bytes, first in, first out. Zero-initialised means empty. */
#ifndef STILE_BUFFER_H
#define STILE_BUFFER_H

#include <stddef.h>

struct buffer {
    char *bytes;
    size_t head, end, cap; /* bytes[head .. end) wait */
};

static inline size_t buffer_len(const struct buffer *buffer)
{
    return buffer->end - buffer->head;
}

static inline const char *buffer_at(const struct buffer *buffer)
{
    return buffer->bytes + buffer->head;
}

int buffer_put(struct buffer *buffer, const void *bytes, size_t n); /* 0 or ENOMEM */
void buffer_drop(struct buffer *buffer, size_t n);                  /* the first n */
void buffer_free(struct buffer *buffer);                            /* wiped: may be secrets */

#endif
