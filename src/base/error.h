/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Errors are built from the inside out: error_set() says why, error_wrap() puts before it what was
 * being done. Both take NULL and return the status, so that a failing function is one line. */
#ifndef STILE_ERROR_H
#define STILE_ERROR_H

#include "stile.h"

#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

enum stile_status error_set(struct stile_error *err, enum stile_status status, int native,
                            const char *format, ...) PRINTF_LIKE(4, 5);

/* message becomes "format: message". Returns the given status; err's own stays as it is. */
enum stile_status error_wrap(struct stile_error *err, enum stile_status status, const char *format,
                             ...) PRINTF_LIKE(3, 4);

/* From an errno value: ENOMEM is NOMEM, everything else `status`; the message gets ": strerror". */
enum stile_status error_errno(struct stile_error *err, enum stile_status status, int number,
                              const char *format, ...) PRINTF_LIKE(4, 5);

void error_copy(struct stile_error *to, const struct stile_error *from); /* NULL from: OK */

#endif
