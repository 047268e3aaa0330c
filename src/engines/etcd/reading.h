/* Reading the keys of one name, or of all, for people: first the keys alone, page by page, for
 * those of other programs may be large; then what the keys of locks say. */
#ifndef STILE_ETCD_READING_H
#define STILE_ETCD_READING_H

#include "engines/etcd/view.h"

/* Embedded by its owner. */
struct reading {
    struct etcd *etcd;
    struct view *view;
    struct key at, end;
    int64_t limit; /* keys a page */
    size_t told;   /* entries whose values are known */
    size_t batch;  /* values asked for at once */
    void (*done)(struct reading *reading,
                 const struct stile_error *err); /* err NULL: it went well */
};

/* view has been emptied; it is as of view->revision then, and not sorted. */
void reading_start(struct reading *reading, struct etcd *etcd, struct view *view,
                   const struct key *start, const struct key *end,
                   void (*done)(struct reading *reading, const struct stile_error *err));
void reading_stop(struct reading *reading);

#endif
