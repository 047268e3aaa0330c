/* The line of a name: which of its keys are in the way of one claim. */
#ifndef STILE_ETCD_LINE_H
#define STILE_ETCD_LINE_H

#include "engines/etcd/etcd.h"

struct line {
    const Pb__KeyValue *nearest; /* the last one before us that must go; NULL: none */
    const Pb__KeyValue *own;
    size_t in_the_way;
    size_t slots; /* of those before us, how many hold or will hold one */
    bool blocked;
    bool unclear; /* there is more before us than was looked at */
};

/* Last created first, as line_weigh() wants it. */
void line_order(const Pb__RangeResponse *range);

/* Whether the key stands before us on this very name, be it in our way or not. */
bool line_has(const struct claim *claim, const struct key *name, int64_t below,
              const Pb__KeyValue *kv);

/* own NULL: not looked for; below: only keys created before this revision count. */
void line_weigh(struct line *line, const struct claim *claim, const struct key *name,
                const struct key *own, int64_t below, const Pb__RangeResponse *range);

/* Slots: remembers who is before us. OK or NOMEM. */
enum stile_status line_remember(struct etcd_claim *part, const struct key *name,
                                const Pb__RangeResponse *range, struct stile_error *err);
void line_forget(struct etcd_claim *part);
/* True: one of them has gone, and there is room now. */
bool line_has_room(struct etcd_claim *part, const Pb__KeyValue *gone);

#endif
