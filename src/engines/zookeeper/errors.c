/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The errors of servers, connections and sessions, in words. */
#include "engines/zookeeper/requests.h"

/* ZTHROTTLEDOP: the server was overloaded and did not execute the request. */
bool zk_error_is_transient(int rc)
{
    return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZSESSIONEXPIRED ||
           rc == ZSESSIONMOVED || rc == ZTHROTTLEDOP;
}

static const char *code_text(int rc)
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

static const char *code_advice(int rc)
{
    if (rc == ZNOAUTH)
        return ": the node's ACL denies access; give user and password in the URL";
    if (rc == ZAUTHFAILED)
        return ": it accepts no digest users; give none in the URL, or check its authProvider "
               "settings";
    if (rc == ZNOCHILDRENFOREPHEMERALS)
        return ": an ephemeral node exists where the locks should be";
    if (rc == ZUNIMPLEMENTED)
        return ": 3.5 or newer is needed";
    return "";
}

enum stile_status zk_error_set(struct stile_error *err, int rc, bool maybe)
{
    if (zk_error_is_transient(rc))
        return error_set(err, maybe ? STILE_UNCERTAIN : STILE_UNREACHABLE, rc,
                         "no ZooKeeper server answers, or none has a leader (%s); stile doctor "
                         "checks each of them",
                         code_text(rc));
    if (rc == ZNOMEMORY)
        return error_set(err, STILE_NOMEM, rc, "out of memory");
    return error_set(err, STILE_REFUSED, rc, "the server reports: %s (%d)%s", code_text(rc), rc,
                     code_advice(rc));
}
