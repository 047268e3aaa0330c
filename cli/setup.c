/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile setup: creates what an engine needs in its server, or prints the statements. */
#include "cli.h"

static int setup_verb(struct options *options)
{
    struct stile_error err = {0};
    const char *script = "";
    bool dry_run = options->given & OPT_PRINT;
    engine_from_argument(options);
    enum stile_status status = stile_setup(engine_url(options), dry_run, &script, &err);
    if (status != STILE_OK)
        return status == STILE_UNSUPPORTED ? say_failure("setup", status, &err)
                                           : engine_say_failure(options, status, &err);
    if (dry_run)
        fputs(script, stdout);
    return finish_output(0);
}

const struct verb verb_setup = {
    .name = "setup",
    .accepts = OPT_PRINT,
    .max_args = 1,
    .operands = "[URL]",
    .about = "Creates what the engine needs in its server (the schema `stile` of a database), or "
             "brings it up to date. --print only prints the statements.",
    .run = setup_verb,
};
