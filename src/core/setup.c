/* stile_setup(): what an engine needs in its server before it can keep all its promises. */
#include "core/client.h"
#include "core/find.h"

static enum stile_status set_up(const struct engine_class *class, const struct url *url,
                                bool dry_run, const char **script, struct stile_error *err)
{
    if (!class->admin || !class->admin->setup)
        return error_set(err, STILE_UNSUPPORTED, 0, "%s needs nothing to be set up",
                         class->caps.engine);
    fork_block();
    enum stile_status status = class->admin->setup(url, dry_run, script, err);
    fork_unblock();
    return status;
}

enum stile_status stile_setup(const char *text, bool dry_run, const char **script,
                              struct stile_error *err)
{
    const struct engine_class *class;
    const char *unwanted;
    struct url *url;
    enum stile_status status = find_from_text(&url, &class, text, err);
    if (status)
        return status;
    status = set_up(class, url, dry_run, script ? script : &unwanted, err);
    if (status)
        error_wrap(err, status, "setting up %s", url->scheme);
    url_free(url);
    return status;
}
