/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* From a member to the struct it is embedded in: how the function of a timer, task or callback
 * finds its owner. */
#ifndef STILE_CONTAINER_H
#define STILE_CONTAINER_H

#include <stddef.h>

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#endif
