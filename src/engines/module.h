/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A module: engines that are loaded when a URL first asks for them.
 *
 * Loading their client libraries would slow down every start of a command that never speaks to a
 * server (OpenSSL alone takes more than a millisecond). A module is a shared object in
 * $libdir/stile. It exports one symbol and contains its own copies of what it needs of base/ and
 * io/, which keep no state; library and module exchange structs and pointers to functions. So both
 * must come from the same build of the same version: core compares the first two fields. */
#ifndef STILE_MODULE_H
#define STILE_MODULE_H

#include "engines/engine.h"

/* Grows with every change of engine.h, loop.h, url.h and error.h within a version. */
#define ENGINE_ABI 18

struct engine_module {
    uint32_t abi;
    const char *version;                       /* STILE_VERSION */
    const struct engine_class *const *classes; /* NULL-terminated */
};

#define ENGINE_MODULE_SYMBOL "stile_engines"

/* In the module, once: the symbol with this array of classes. */
#define ENGINE_MODULE(array)                                                                       \
    extern STILE_API const struct engine_module stile_engines;                                     \
    const struct engine_module stile_engines = {                                                   \
        .abi = ENGINE_ABI, .version = STILE_VERSION, .classes = (array)}

#endif
