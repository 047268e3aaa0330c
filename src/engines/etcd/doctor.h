/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the doctor asks the members of a cluster, and what follows from the answers. */
#ifndef STILE_ETCD_DOCTOR_H
#define STILE_ETCD_DOCTOR_H

#include "engines/etcd/connection.h"
#include "engines/kit/doctor.h"

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
    int64_t lease_id;
    int64_t lease_seconds; /* granted where 1 s was asked for; 0: not known */
};

/* The rules, without any request. */
void etcd_doctor_diagnose(const struct cluster_status *cluster, doctor_report *report, void *data);

/* Whether it can be asked about the whole cluster. */
bool etcd_member_is_sound(const struct cluster_status *cluster, size_t i);

#endif
