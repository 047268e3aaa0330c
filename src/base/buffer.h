/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A queue of bytes, first in, first out. Zero-initialised means empty. */
#ifndef STILE_BUFFER_H
#define STILE_BUFFER_H

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* An empty buffer that has grown beyond this served a burst, and is freed. */
#define BUFFER_KEEP 65536

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

void buffer_free(struct buffer *buffer); /* wiped: may be secrets */

/* Room for n more at the end; 0 or ENOMEM. */
int buffer_make_room(struct buffer *buffer, size_t n);

static inline int buffer_put(struct buffer *buffer, const void *bytes, size_t n) /* 0 or ENOMEM */
{
    if (n == 0)
        return 0;
    if (n > buffer->cap - buffer->end && buffer_make_room(buffer, n))
        return ENOMEM;
    memcpy(buffer->bytes + buffer->end, bytes, n);
    buffer->end += n;
    return 0;
}

static inline void buffer_drop(struct buffer *buffer, size_t n) /* the first n */
{
    buffer->head += n;
    if (buffer->head < buffer->end)
        return;
    if (buffer->cap > BUFFER_KEEP)
        buffer_free(buffer);
    else
        buffer->head = buffer->end = 0;
}

#endif
