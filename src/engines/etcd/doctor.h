/* What follows for locks from what the members of a cluster say: findings, without any asking. */
#ifndef STILE_ETCD_DIAGNOSIS_H
#define STILE_ETCD_DIAGNOSIS_H

#include "engines/etcd/connection.h"

#define LISTED_MAX 64
#define ALARMS_MAX 16

/* An endpoint of the URL, and what its member says. */
struct seen_member {
    char where[300];
    struct stile_error error; /* OK: the rest is known */
    uint64_t cluster, id, leader, applied;
    char version[40];
    bool learner;
};

/* A member that the others have on their list. */
struct seen_listed {
    uint64_t id;
    char name[64];
    bool learner;
};

struct seen_alarm {
    uint64_t id; /* of the member, 0: not known */
    int64_t kind;
};

struct seen {
    struct seen_member members[CONN_ENDPOINTS_MAX];
    size_t n_members;
    struct seen_listed listed[LISTED_MAX];
    size_t n_listed; /* 0: nobody has told */
    struct seen_alarm alarms[ALARMS_MAX];
    size_t n_alarms;
    struct stile_error alarm_error, lease_error;
    int64_t lease_seconds; /* given where one was asked for; 0: not known */
};

typedef void tell_fn(void *data, const struct stile_finding *finding);

void diagnose(const struct seen *seen, tell_fn *tell, void *data);

/* Whether the others can be asked through it. */
bool seen_is_sound(const struct seen *seen, size_t i);

/* ---- the inside of it ---- */

struct telling {
    const struct seen *seen;
    tell_fn *fn;
    void *data;
};

void seen_tell(const struct telling *telling, const char *where, struct stile_finding finding);
bool seen_answers(const struct seen_member *member);
const struct seen_member *seen_first(const struct seen *seen); /* that answers; NULL: none */
bool seen_any_leader(const struct seen *seen);
size_t seen_voters(const struct seen *seen);
size_t seen_voters_there(const struct seen *seen); /* and answer */

/* diagnosis_member.c */
void seen_tell_member(const struct telling *telling, const struct seen_member *member);

/* ---- defects.c: what is known of a release ---- */

struct defect {
    unsigned fixed[3]; /* in 3.4.N, 3.5.N, 3.6.N; 0: never had it */
    enum stile_severity severity;
    bool alone; /* where there is one member only */
    const char *id, *what, *why;
};

/* The next one behind `last` (NULL: the first) that this release has, or NULL. */
const struct defect *defect_next(const struct defect *last, const char *version, size_t voters);
/* What to do about it. */
void defect_cure(char *cure, size_t size, const struct defect *defect, const char *version);

#endif
