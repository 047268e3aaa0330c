/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile sim: the simulator, which is a program of its own (sim/). */
#include "cli.h"

const struct verb verb_sim = {
    .name = "sim",
    .helper = &(const struct helper){.program = "stile-sim",
                                     .part = "sim",
                                     .package = "stile-sim",
                                     .needs = "Lua 5.1 and -Dsim=enabled"},
};
