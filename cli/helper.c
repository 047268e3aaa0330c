/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs that are programs of their own: they need libraries that the command should not load. The
 * program has the options and their help, and its exit code is that of the verb. */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/build_tree.h"

#define PATH_ROOM 4096

/* As for modules: $STILE_LIBEXEC, else the build tree that this program is in, else where they are
 * installed. */
static const char *helper_directory(const char *part)
{
    static char tree[PATH_ROOM];
    const char *given = secure_getenv("STILE_LIBEXEC");
    if (given != NULL && *given != '\0')
        return given;
    return build_tree_find(tree, sizeof tree, part) ? tree : STILE_LIBEXEC_DIR;
}

static int not_started(const struct verb *verb, const char *path)
{
    if (errno == ENOENT && verb->helper->package == NULL)
        say("%s: %s is missing; build stile with %s", verb->name, path, verb->helper->needs);
    else if (errno == ENOENT)
        say("%s: %s is missing; install the package %s, or build stile with %s", verb->name, path,
            verb->helper->package, verb->helper->needs);
    else
        say("%s: %s: %s", verb->name, path, strerror(errno));
    return EXIT_ENGINE;
}

int helper_run(const struct verb *verb, char **argv)
{
    char path[PATH_ROOM + 64];
    snprintf(path, sizeof path, "%s/%s", helper_directory(verb->helper->part),
             verb->helper->program);
    execv(path, argv);
    return not_started(verb, path);
}
