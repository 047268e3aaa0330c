/* The servers of the URL. Their names are looked up beside the loop, by whoever connects. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/url.h"
#include "engines/zookeeper/zookeeper.h"

#define DEFAULT_PORT 2181

enum stile_status hosts_read(struct zoo *zoo, const struct url *url, struct stile_error *err)
{
    static const struct url_host here = {"127.0.0.1", DEFAULT_PORT};
    const struct url_host *named = url->n_hosts ? url->hosts : &here;
    size_t n = url->n_hosts ? url->n_hosts : 1;
    zoo->hosts = calloc(n, sizeof *zoo->hosts);
    if (!zoo->hosts)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    for (size_t i = 0; i < n; i++) {
        struct zoo_host *host = &zoo->hosts[zoo->n_hosts];
        if (strlen(named[i].host) >= sizeof host->name)
            return error_set(err, STILE_MISUSE, 0, "the name of a host has more than %zu bytes",
                             sizeof host->name - 1);
        strcpy(host->name, named[i].host);
        host->port = named[i].port ? named[i].port : DEFAULT_PORT;
        snprintf(host->where, sizeof host->where, strchr(host->name, ':') ? "[%s]:%u" : "%s:%u",
                 host->name, (unsigned)host->port);
        zoo->n_hosts++;
    }
    return STILE_OK;
}
