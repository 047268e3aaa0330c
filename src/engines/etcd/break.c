/* break: the keys of who holds it go, ghosts included. Its holder hears of it by its watch. */
#include <stdlib.h>

#include "engines/etcd/reading.h"

#define BREAKS_MAX 4

struct breaking {
    struct query *query;
    struct key start, end, plain;
    struct view view;
    struct reading reading;
    unsigned tries;
};

static void break_now(struct breaking *breaking);

static void broken(struct breaking *breaking, const struct stile_error *err)
{
    struct query *query = breaking->query;
    struct stile_error why;
    error_copy(&why, err);
    query->state = NULL;
    view_empty(&breaking->view);
    free(breaking);
    query->engine->events->done(query, why.status ? &why : NULL);
}

static void on_broken(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct breaking *breaking = data;
    const Pb__TxnResponse *answer = (const Pb__TxnResponse *)message;
    struct stile_error why;
    if (err) {
        broken(breaking, err);
    } else if (answer->succeeded) {
        broken(breaking, NULL);
    } else if (++breaking->tries < BREAKS_MAX) {
        break_now(breaking);
    } else {
        error_set(&why, STILE_CONFLICT, 0, "its holders change all the time");
        broken(breaking, &why);
    }
}

static bool is_held(const struct stile_info *info, int64_t revision, uint64_t token)
{
    for (size_t i = 0; i < info->holders; i++) {
        if (info->claims[i].token == (uint64_t)revision && (!token || token == (uint64_t)revision))
            return true;
    }
    return false;
}

/* How many keys go. More than one transaction can take stay for the next `stile break`. */
static size_t add_deletions(struct txn *txn, struct view *view, const struct stile_info *info,
                            uint64_t token, const struct key *plain)
{
    size_t n = 0;
    for (size_t i = 0; i < view->n && n < TXN_OPS; i++) {
        const struct entry *entry = &view->entries[i];
        if (entry->foreign || !is_held(info, entry->revision, token))
            continue;
        txn_if_created(txn, entry->key, entry->revision);
        txn_delete(txn, THEN, entry->key);
        n++;
        if (plain && entry->tail.mode == STILE_EXCLUSIVE && !entry->tail.plain && n == 1)
            txn_delete_leased(txn, THEN, plain, entry->lease);
    }
    return n;
}

/* Nothing but locks is ever deleted. */
static const struct entry *foreign_holder(const struct view *view, const struct stile_info *info)
{
    for (size_t i = 0; i < view->n; i++) {
        const struct entry *entry = &view->entries[i];
        if (entry->foreign && is_held(info, entry->revision, 0))
            return entry;
    }
    return NULL;
}

static enum stile_status explain_nothing(const struct view *view, const struct stile_info *info,
                                         struct stile_error *err)
{
    const struct entry *foreign = foreign_holder(view, info);
    if (foreign)
        return error_set(err, STILE_REFUSED, 0,
                         "what keeps it is the key '%.*s' of another program, which is not a "
                         "lock; if nobody needs it, `etcdctl del` removes it",
                         (int)foreign->key->len, (const char *)foreign->key->bytes);
    return error_set(err, STILE_CONFLICT, 0,
                     info->holders ? "the grant with that token is over" : "it isn't held");
}

static enum stile_status break_view(struct breaking *breaking, struct stile_error *err)
{
    struct etcd *etcd = etcd_of(breaking->query->engine);
    struct view *view = &breaking->view;
    struct stile_info info = {0};
    struct txn txn;
    struct stile_claim_info *claims = calloc(view->n + 1, sizeof *claims);
    enum stile_status status = STILE_OK;
    if (!claims)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    if (view->n > 0)
        view_name(view, 0, &info, claims);
    txn_init(&txn);
    if (add_deletions(&txn, view, &info, breaking->query->token,
                      etcd->plain_key ? &breaking->plain : NULL) == 0)
        status = explain_nothing(view, &info, err);
    free(claims);
    return status ? status : txn_send(&txn, etcd, on_broken, breaking, err);
}

static void on_holders(struct reading *reading, const struct stile_error *err)
{
    struct breaking *breaking =
        (struct breaking *)((char *)reading - offsetof(struct breaking, reading));
    struct stile_error why;
    if (err) {
        broken(breaking, err);
        return;
    }
    enum stile_status status = view_sort(&breaking->view, 0, &why);
    if (!status)
        status = break_view(breaking, &why);
    if (status)
        broken(breaking, &why);
}

static void break_now(struct breaking *breaking)
{
    view_empty(&breaking->view);
    reading_start(&breaking->reading, etcd_of(breaking->query->engine), &breaking->view,
                  &breaking->start, &breaking->end, on_holders);
}

void people_break(struct engine *engine, struct query *query)
{
    struct stile_error err;
    struct breaking *breaking = calloc(1, sizeof *breaking);
    if (!breaking) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    breaking->query = query;
    breaking->view.only = query->name;
    query->state = breaking;
    keys_of_name(&breaking->start, &breaking->end, etcd_of(engine), query->name, query->name_len);
    key_of_plain(&breaking->plain, etcd_of(engine), query->name, query->name_len);
    break_now(breaking);
}
