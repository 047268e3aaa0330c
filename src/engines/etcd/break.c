/* break: the keys of who holds it go, ghosts included. Its holder hears of it by its watch. */
#include <stdlib.h>

#include "engines/etcd/view.h"

#define BREAKS_MAX 4

struct breaking {
    struct query *query;
    struct key start, end, plain;
    unsigned tries;
};

static void break_now(struct breaking *breaking);

static void broken(struct breaking *breaking, const struct stile_error *err)
{
    struct query *query = breaking->query;
    struct stile_error why;
    error_copy(&why, err);
    query->state = NULL;
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
        if (!is_held(info, entry->revision, token))
            continue;
        txn_if_created(txn, entry->key, entry->revision);
        txn_delete(txn, THEN, entry->key);
        n++;
        if (plain && entry->tail.mode == STILE_EXCLUSIVE && !entry->tail.plain && n == 1)
            txn_delete_leased(txn, THEN, plain, entry->lease);
    }
    return n;
}

static enum stile_status break_view(struct breaking *breaking, struct view *view,
                                    struct stile_error *err)
{
    struct etcd *etcd = etcd_of(breaking->query->engine);
    struct stile_info info = {0};
    struct txn txn;
    struct stile_claim_info *claims = calloc(view->n + 1, sizeof *claims);
    if (!claims)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    if (view->n > 0)
        view_name(view, 0, &info, claims);
    txn_init(&txn);
    size_t n = add_deletions(&txn, view, &info, breaking->query->token,
                             etcd->plain_key ? &breaking->plain : NULL);
    free(claims);
    if (n == 0)
        return error_set(err, STILE_CONFLICT, 0,
                         info.holders ? "the grant with that token is over" : "it isn't held");
    return txn_send(&txn, etcd, on_broken, breaking, err);
}

static void on_holders(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct breaking *breaking = data;
    struct view view = {.only = breaking->query->name};
    struct stile_error why;
    if (err) {
        broken(breaking, err);
        return;
    }
    enum stile_status status =
        view_add(&view, etcd_of(breaking->query->engine), (const Pb__RangeResponse *)message, &why);
    if (!status)
        status = view_sort(&view, 0, &why);
    if (!status)
        status = break_view(breaking, &view, &why);
    view_empty(&view);
    if (status)
        broken(breaking, &why);
}

static void break_now(struct breaking *breaking)
{
    Pb__RangeRequest request = PB__RANGE_REQUEST__INIT;
    struct stile_error err;
    request.key = data_of(&breaking->start);
    request.range_end = data_of(&breaking->end);
    if (conn_ask(etcd_of(breaking->query->engine)->conn, RPC_RANGE, &request.base, on_holders,
                 breaking, &err))
        broken(breaking, &err);
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
    query->state = breaking;
    keys_of_name(&breaking->start, &breaking->end, etcd_of(engine), query->name, query->name_len);
    key_of_plain(&breaking->plain, etcd_of(engine), query->name, query->name_len);
    break_now(breaking);
}
