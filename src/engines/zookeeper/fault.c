#include "engines/zookeeper/zookeeper.h"

/* "Inconsistent" is the library's word when an answer is missing: a server whose session has moved
 * away leaves out those to what would change something, and hangs up. */
bool fault_may_pass(int rc)
{
    return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZCLOSING ||
           rc == ZSESSIONEXPIRED || rc == ZSESSIONMOVED || rc == ZINVALIDSTATE ||
           rc == ZRUNTIMEINCONSISTENCY;
}

static const char *cure_of(int rc)
{
    if (rc == ZNOAUTH)
        return ": the ACL of the node does not let us; give user and password in the URL";
    if (rc == ZAUTHFAILED)
        return ": it takes no digest users; give none in the URL, or see its authProvider settings";
    if (rc == ZNOCHILDRENFOREPHEMERALS)
        return ": somebody has put an ephemeral node where the locks should be";
    if (rc == ZUNIMPLEMENTED)
        return ": 3.5 or newer is needed";
    return "";
}

enum stile_status fault_set(struct stile_error *err, int rc, bool maybe)
{
    if (fault_may_pass(rc))
        return error_set(err, maybe ? STILE_UNCERTAIN : STILE_UNREACHABLE, rc,
                         "no ZooKeeper server answers, or none follows a leader (%s); stile doctor "
                         "asks each of them",
                         zerror(rc));
    if (rc == ZSYSTEMERROR || rc == ZMARSHALLINGERROR) /* so the library says it */
        return error_set(err, STILE_NOMEM, rc, "out of memory");
    return error_set(err, STILE_REFUSED, rc, "the server says: %s%s", zerror(rc), cure_of(rc));
}
