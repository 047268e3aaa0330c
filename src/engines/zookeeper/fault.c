#include "engines/zookeeper/zookeeper.h"

/* Throttled: the server had too much to do, and did not do it. */
bool fault_may_pass(int rc)
{
    return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZSESSIONEXPIRED ||
           rc == ZSESSIONMOVED || rc == ZTHROTTLEDOP;
}

static const char *text_of(int rc)
{
    static const struct {
        int rc;
        const char *text;
    } texts[] = {{ZCONNECTIONLOSS, "connection loss"},
                 {ZOPERATIONTIMEOUT, "no answer in time"},
                 {ZSESSIONEXPIRED, "session expired"},
                 {ZSESSIONMOVED, "session moved"},
                 {ZTHROTTLEDOP, "throttled"},
                 {ZUNIMPLEMENTED, "unimplemented"},
                 {ZNONODE, "no node"},
                 {ZNOAUTH, "not authenticated"},
                 {ZBADVERSION, "bad version"},
                 {ZNOCHILDRENFOREPHEMERALS, "ephemeral nodes have no children"},
                 {ZNODEEXISTS, "node exists"},
                 {ZINVALIDACL, "invalid ACL"},
                 {ZAUTHFAILED, "authentication failed"},
                 {ZQUOTAEXCEEDED, "quota exceeded"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].rc == rc)
            return texts[i].text;
    }
    return "an error";
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
                         text_of(rc));
    if (rc == ZNOMEMORY)
        return error_set(err, STILE_NOMEM, rc, "out of memory");
    return error_set(err, STILE_REFUSED, rc, "the server says: %s (%d)%s", text_of(rc), rc,
                     cure_of(rc));
}
