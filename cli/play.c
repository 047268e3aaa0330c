/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile play: the page, which a program of its own contains (web/). */
#include "cli.h"

const struct verb verb_play = {
    .name = "play",
    .helper = &(const struct helper){.program = "stile-play", .part = "web", .needs = "make page"},
};
