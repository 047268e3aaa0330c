#include "engines/redis/stakes.h"

unsigned stakes_add(struct stakes *s, uint64_t lease_ns)
{
    unsigned kind = lease_ns ? 63u - (unsigned)__builtin_clzll(lease_ns) : 0;
    s->n[kind]++;
    return kind;
}

void stakes_remove(struct stakes *s, unsigned kind)
{
    s->n[kind]--;
}

uint64_t stakes_shortest(const struct stakes *s)
{
    for (unsigned kind = 0; kind < STAKES_KINDS; kind++)
        if (s->n[kind])
            return UINT64_C(1) << kind;
    return UINT64_MAX;
}
