/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of buffers: the linker sends calls of buffer_make_room() here (--wrap), natively and
 * for the page. A process that lacks memory gets none for one of them. */
#include <errno.h>

#include "base/buffer.h"
#include "sim/process.h"

int __real_buffer_make_room(struct buffer *buffer, size_t n);
int __wrap_buffer_make_room(struct buffer *buffer, size_t n);

int __wrap_buffer_make_room(struct buffer *buffer, size_t n)
{
    bool none = process_lacks_memory();
    if (none)
        world_trace("there is no memory for a buffer");
    return none ? ENOMEM : __real_buffer_make_room(buffer, n);
}
