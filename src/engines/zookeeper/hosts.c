/* The servers of the URL. They are looked up in open(): the library would do it in the loop, and
 * wait for a name server there. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/url.h"
#include "engines/zookeeper/zookeeper.h"

#define DEFAULT_PORT 2181
#define SERVERS_MAX  8192

static void set_port(struct sockaddr_storage *address, uint16_t port)
{
    if (address->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)address)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)address)->sin_port = htons(port);
}

/* For the library: numbers with a comma between them. */
static void add_server(struct zoo *zoo, const struct addrinfo *found, uint16_t port)
{
    char host[NI_MAXHOST];
    size_t used = strlen(zoo->servers);
    int n = -1;
    if (getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host, NULL, 0,
                    NI_NUMERICHOST) == 0)
        n = snprintf(zoo->servers + used, SERVERS_MAX - used, "%s%s:%u", used ? "," : "", host,
                     (unsigned)port);
    if (n > 0 && (size_t)n < SERVERS_MAX - used)
        zoo->n_addresses++;
    else
        zoo->servers[used] = '\0'; /* there is no room for it, and half of it is another one */
}

static int look_up(struct zoo *zoo, const struct url_host *named)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    struct zoo_host *host = &zoo->hosts[zoo->n_hosts++];
    uint16_t port = named->port ? named->port : DEFAULT_PORT;
    snprintf(host->where, sizeof host->where, "%s:%u", named->host, (unsigned)port);
    int rc = getaddrinfo(named->host, NULL, &hints, &list);
    if (rc)
        return rc;
    for (const struct addrinfo *found = list; found; found = found->ai_next) {
        add_server(zoo, found, port);
        if (host->n_addresses == HOST_ADDRESSES_MAX)
            continue;
        struct sockaddr_storage *address = &host->addresses[host->n_addresses++];
        memcpy(address, found->ai_addr, found->ai_addrlen);
        set_port(address, port);
    }
    freeaddrinfo(list);
    return 0;
}

enum stile_status hosts_read(struct zoo *zoo, const struct url *url, struct stile_error *err)
{
    static const struct url_host here = {"127.0.0.1", DEFAULT_PORT};
    const struct url_host *hosts = url->n_hosts ? url->hosts : &here;
    size_t n = url->n_hosts ? url->n_hosts : 1;
    zoo->servers = calloc(1, SERVERS_MAX);
    zoo->hosts = calloc(n, sizeof *zoo->hosts);
    if (!zoo->servers || !zoo->hosts)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    for (size_t i = 0; i < n; i++) {
        int rc = look_up(zoo, &hosts[i]);
        if (rc)
            error_set(err, STILE_UNREACHABLE, rc, "%.80s: %s", hosts[i].host, gai_strerror(rc));
    }
    return *zoo->servers ? STILE_OK : STILE_UNREACHABLE; /* one that is known will do */
}

bool hosts_are_one(const struct zoo_host *a, const struct zoo_host *b)
{
    for (size_t i = 0; i < a->n_addresses; i++) {
        for (size_t j = 0; j < b->n_addresses; j++) {
            if (memcmp(&a->addresses[i], &b->addresses[j], sizeof a->addresses[i]) == 0)
                return true;
        }
    }
    return false;
}
