/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of one name, or of many, read at one revision into a view. */
#ifndef STILE_ETCD_READING_H
#define STILE_ETCD_READING_H

#include "engines/etcd/view.h"

/* Embedded by its owner. */
struct reading {
    struct etcd *etcd;
    struct view *view;
    struct key at, end;
    int64_t limit; /* keys a page */
    size_t read;   /* entries whose values are known */
    size_t batch;  /* values asked for at once */
    void (*done)(struct reading *reading,
                 const struct stile_error *err); /* err NULL: it went well */
};

/* done() is called once, perhaps from inside. */
void etcd_reading_start(struct reading *reading, struct etcd *etcd, struct view *view,
                        const struct key *start, const struct key *end,
                        void (*done)(struct reading *reading, const struct stile_error *err));
void etcd_reading_stop(struct reading *reading);

#endif
