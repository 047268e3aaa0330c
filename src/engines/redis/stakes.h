/* The leases that depend on a connection, of which the shortest says how long its silence may last:
 * it must end early enough for a second connection, and a third one, to renew in time. */
#ifndef STILE_REDIS_STAKES_H
#define STILE_REDIS_STAKES_H

#include <stdint.h>

#define LEASES_KINDS 64

/* All zero at the start. Counted by powers of two, so that neither end of a claim looks at others.
 */
struct leases {
    uint32_t n[LEASES_KINDS];
};

/* Returns what redis_leases_remove() needs. */
unsigned redis_leases_add(struct leases *stakes, uint64_t lease_ns);
void redis_leases_remove(struct leases *stakes, unsigned kind);

/* At most the shortest lease and more than half of it; UINT64_MAX: there is none. */
uint64_t redis_leases_shortest(const struct leases *stakes);

#endif
