/* stile_setup(): what an engine needs in its server before it can keep all its promises. */
#include <stdlib.h>

#include "base/url.h"
#include "core/client.h"
#include "core/find.h"

static enum stile_status set_up(const struct url *url, bool dry_run, const char **script,
                                struct stile_error *err)
{
    const struct engine_class *class;
    enum stile_status status = find_engine(&class, url->scheme, err);
    if (!status)
        status = url_check_params(url, class->params, err);
    if (status)
        return status;
    if (!class->admin || !class->admin->setup)
        return error_set(err, STILE_UNSUPPORTED, 0, "%s needs nothing to be set up",
                         class->caps.engine);
    fork_block();
    status = class->admin->setup(url, dry_run, script, err);
    fork_unblock();
    return status;
}

enum stile_status stile_setup(const char *text, bool dry_run, const char **script,
                              struct stile_error *err)
{
    const char *unwanted;
    struct url *url;
    if (!text)
        text = secure_getenv("STILE_ENGINE");
    enum stile_status status = url_parse(&url, text && *text ? text : "local:", err);
    if (status)
        return error_wrap(err, status, "reading the engine's URL");
    status = set_up(url, dry_run, script ? script : &unwanted, err);
    if (status)
        error_wrap(err, status, "setting up %s", url->scheme);
    url_free(url);
    return status;
}
