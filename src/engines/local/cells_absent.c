/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* In place of cells, where LMDB was missing when the library was built. */
#include "engines/local/local.h"

static void run(struct engine *engine, struct cell_request *request)
{
    struct stile_error err;
    error_set(&err, STILE_UNSUPPORTED, 0,
              "this build of stile keeps no cells and no guards in local: install LMDB (Debian: "
              "liblmdb-dev) and build it again");
    engine->events->cell_done(request, &err);
}

const struct engine_cells local_cells = {.run = run};

void local_cells_close(struct env *env)
{
    (void)env;
}

void local_cells_report_gone(struct local *local)
{
    (void)local;
}

void local_cells_end_watches(struct local *local)
{
    (void)local;
}

void local_cells_forked(struct local *local)
{
    (void)local;
}
