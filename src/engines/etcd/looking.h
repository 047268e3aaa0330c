/* One look at names, as people.c carries it out and tenants.c completes it. */
#ifndef STILE_ETCD_LOOKING_H
#define STILE_ETCD_LOOKING_H

#include "engines/etcd/reading.h"

#define TENANTS_MAX 256 /* more are not looked up */

/* Repeated for a watch. */
struct looking {
    struct query *query;
    struct view view;
    struct key start, end;
    struct reading reading;
    size_t pending; /* answers about leases */
    struct stile_error error;
    bool many; /* list: every name, and none if there is none */
    bool watches, busy, changed;
    bool told;
    uint64_t seen; /* fingerprint of what was told */
    struct watching watching;
    struct timer timer;
    struct looking *patient_next; /* of etcd->patient, while it has not begun */
    uint64_t left_as;             /* requests to leave after this one need not be waited for */
};

static inline struct etcd *etcd_of_looking(const struct looking *looking)
{
    return etcd_of(looking->query->engine);
}

/* The keys are there: asks who has them. Ends in looking_finish(). */
void looking_ask_tenants(struct looking *looking);
void looking_finish(struct looking *looking);

#endif
