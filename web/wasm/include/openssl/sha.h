/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The only part of OpenSSL that a simulated Redis needs: the names of scripts (sha1.c). */
#ifndef STILE_WASM_SHA_H
#define STILE_WASM_SHA_H

#include <stddef.h>

#define SHA_DIGEST_LENGTH 20

unsigned char *SHA1(const unsigned char *bytes, size_t n, unsigned char *sum);

#endif
