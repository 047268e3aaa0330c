/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the cell of a key of once holds: a line, the fingerprint, and the output.
 *
 *     stile-once 1 STATE CODE TOKEN AT FINGERPRINT-SIZE OUTPUT-SIZE FORM\n
 *
 * STATE: running or done. AT: Unix time in milliseconds. FORM: whole, or cut if the output is not
 * there, because it was too large. There is one way to write a record, and the reader accepts no
 * other. */
#ifndef STILE_ONCE_FORM_H
#define STILE_ONCE_FORM_H

#include "base/error.h"

struct once_record {
    enum stile_once_state state;
    int code;
    uint64_t token;
    int64_t at_ms;
    const char *fingerprint; /* when read: not terminated */
    size_t fingerprint_size;
    const char *bytes; /* NULL: cut */
    size_t size;       /* of all bytes */
};

/* out has STILE_CELL_MAX bytes. Returns how many are used. Bytes that are too many are cut. */
size_t once_write(char *out, const struct once_record *record);
/* The record points into value. CORRUPT with a reason. */
enum stile_status once_read(struct once_record *record, const void *value, size_t size,
                            struct stile_error *err);

#endif
