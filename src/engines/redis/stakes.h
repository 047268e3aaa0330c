/* The leases that depend on a connection, of which the shortest says how long its silence may last:
 * it must end early enough for a second connection, and a third one, to renew in time. */
#ifndef STILE_REDIS_STAKES_H
#define STILE_REDIS_STAKES_H

#include <stdint.h>

#define STAKES_KINDS 64

/* All zero at the start. Counted by powers of two, so that neither end of a claim looks at others.
 */
struct stakes {
    uint32_t n[STAKES_KINDS];
};

/* Returns what stakes_remove() needs. */
unsigned stakes_add(struct stakes *stakes, uint64_t lease_ns);
void stakes_remove(struct stakes *stakes, unsigned kind);

/* At most the shortest lease and more than half of it; UINT64_MAX: there is none. */
uint64_t stakes_shortest(const struct stakes *stakes);

#endif
