/* At open: whether all endpoints of the URL belong to one cluster. Each is asked beside the
 * connection, all at once; those that do not answer in time are looked at when the connection comes
 * to them (conn.h). */
#ifndef STILE_ETCD_MEMBERS_H
#define STILE_ETCD_MEMBERS_H

#include "engines/etcd/etcd.h"

struct members;

/* NULL: there is nothing to compare, or no memory for it. */
struct members *members_ask(struct etcd *etcd);
bool members_have_answered(const struct members *members);
/* REFUSED if one of those that have answered has another id. */
enum stile_status members_compare(const struct members *members, uint64_t cluster_id,
                                  struct stile_error *err);
void members_free(struct members *members);

#endif
