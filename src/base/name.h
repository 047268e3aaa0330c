/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Names: 1 to STILE_NAME_MAX bytes, no NUL, no control characters. Any other byte is allowed and
 * significant; distinct bytes are distinct names. */
#ifndef STILE_NAME_H
#define STILE_NAME_H

#include "base/error.h"

enum stile_status name_check(const char *name, size_t len, struct stile_error *err);
uint64_t name_hash(const char *name, size_t len);

#endif
