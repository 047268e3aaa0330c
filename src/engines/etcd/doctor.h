/* What the state of a cluster's members means for locks: findings, without any request. */
#ifndef STILE_ETCD_DOCTOR_H
#define STILE_ETCD_DOCTOR_H

#include "engines/etcd/connection.h"

#define LISTED_MAX 64
#define ALARMS_MAX 16

/* An endpoint of the URL, and the status of its member. */
struct member_status {
    char where[300];
    struct stile_error error; /* OK: the rest is known */
    uint64_t cluster, id, leader, applied;
    char version[40];
    bool learner;
};

/* A member on the cluster's own list. */
struct listed_member {
    uint64_t id;
    char name[64];
    bool learner;
};

struct active_alarm {
    uint64_t id; /* of the member, 0: not known */
    int64_t kind;
};

struct cluster_status {
    struct member_status members[CONN_ENDPOINTS_MAX];
    size_t n_members;
    struct listed_member listed[LISTED_MAX];
    size_t n_listed; /* 0: no member has answered */
    struct active_alarm alarms[ALARMS_MAX];
    size_t n_alarms;
    struct stile_error alarm_error, lease_error;
    int64_t lease_seconds; /* granted where 1 s was asked for; 0: not known */
};

typedef void finding_fn(void *data, const struct stile_finding *finding);

void etcd_doctor_diagnose(const struct cluster_status *cluster, finding_fn *fn, void *data);

/* Whether it can be asked about the whole cluster. */
bool etcd_member_is_sound(const struct cluster_status *cluster, size_t i);

/* ---- known defects of releases ---- */

struct defect {
    unsigned fixed[3]; /* in 3.4.N, 3.5.N, 3.6.N; 0: never had it */
    enum stile_severity severity;
    bool alone; /* where there is one member only */
    const char *id, *what, *why;
};

/* The next one after `last` (NULL: the first) that this release has, or NULL. */
const struct defect *etcd_defect_next(const struct defect *last, const char *version,
                                      size_t voters);

#endif
