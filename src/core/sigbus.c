/* stile_sigbus_trap(): for programs with a SIGBUS handler of their own that want no signal from a
 * file that was cut off. */
#include "base/error.h"
#include "io/trap.h"

enum stile_status stile_sigbus_trap(struct stile_error *err)
{
    int rc = trap_install(true);
    return rc ? error_errno(err, STILE_REFUSED, rc, "handling SIGBUS") : STILE_OK;
}
