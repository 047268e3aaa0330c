/* Watches that wait for their next owner. Where several want one name again and again they stand
 * behind the same one each time: its key is watched already, and a watch that has told of something
 * is told of everything at once. So each turn saves the watch's beginning, the look for what was
 * missed before it, and its end. */
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/etcd.h"

#define KEPT_MAX 64
#define KEPT_NS  (1 * NS_PER_SEC)

struct kept {
    struct watching watching;
    struct kept *next; /* kept later */
    uint64_t since_ns;
};

static void ignore(struct watching *watching, const Pb__KeyValue *kv, bool deleted)
{
    (void)watching, (void)kv, (void)deleted; /* its revision counts, when it is taken up again */
}

static struct kept **last(struct etcd *etcd)
{
    struct kept **link = &etcd->kept;
    while (*link)
        link = &(*link)->next;
    return link;
}

static void drop(struct etcd *etcd, struct kept **link)
{
    struct kept *kept = *link;
    *link = kept->next;
    etcd->n_kept--;
    watching_stop(etcd, &kept->watching);
    free(kept);
}

void kept_expire(struct timer *timer)
{
    struct etcd *etcd = (struct etcd *)((char *)timer - offsetof(struct etcd, keeping));
    struct loop *loop = etcd->engine.loop;
    while (etcd->kept && etcd->kept->since_ns + KEPT_NS <= loop_now(loop))
        drop(etcd, &etcd->kept);
    if (etcd->kept)
        loop_arm(loop, timer, etcd->kept->since_ns + KEPT_NS);
}

void watching_keep(struct etcd *etcd, struct watching *watching)
{
    struct kept *kept = watching->id && !watching->end ? calloc(1, sizeof *kept) : NULL;
    if (!kept) {
        watching_stop(etcd, watching);
        return;
    }
    if (etcd->n_kept == KEPT_MAX)
        drop(etcd, &etcd->kept);
    watching_move(&kept->watching, watching);
    kept->watching.fn = ignore;
    kept->since_ns = loop_now(etcd->engine.loop);
    *last(etcd) = kept;
    etcd->n_kept++;
    if (!etcd->keeping.place)
        loop_arm(etcd->engine.loop, &etcd->keeping, kept->since_ns + KEPT_NS);
}

static bool starts_with(const struct key *key, const struct key *start)
{
    return key->len >= start->len && memcmp(key->bytes, start->bytes, start->len) == 0;
}

/* The others of this name are not needed any more: the line has changed. */
bool watching_resume(struct etcd *etcd, struct watching *watching, const struct key *name,
                     const struct key *key)
{
    struct kept **link = &etcd->kept;
    while (*link) {
        struct watching *w = &(*link)->watching;
        bool same_name = starts_with(w->key, name);
        if (w->key->len == key->len && starts_with(w->key, key))
            watching_move(watching, w);
        if (same_name)
            drop(etcd, link);
        else
            link = &(*link)->next;
    }
    return watching->id != 0;
}

void kept_close(struct etcd *etcd)
{
    loop_disarm(etcd->engine.loop, &etcd->keeping);
    while (etcd->kept)
        drop(etcd, &etcd->kept);
}
