/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* break: deletes the keys of the holders, in two steps.
 *
 * A holder is notified by the watch on its own key, with the key's last value. So a first
 * transaction adds to that value which process breaks the lock: the reason of the loss comes
 * together with the loss. A holder that is cut off meanwhile looks for its key when it is back. For
 * that holder, the same is put into another key, which lives as long as the holder's lease. */
#include <stdio.h>
#include <stdlib.h>

#include "engines/etcd/reading.h"

#define BREAKS_MAX 4
#define MARKS_MAX  16 /* holders; more are broken without a mark */
#define MARK_MAX   (VALUE_MAX + sizeof BROKEN_BY + SELF_MAX)

struct breaking {
    struct inquiry inquiry; /* first */
    struct query *query;
    struct key start, end, plain;
    struct view view;
    struct reading reading;
    unsigned tries;
};

static void break_now(struct breaking *breaking);

static void breaking_free(struct breaking *breaking)
{
    etcd_conn_forget(etcd_of(breaking->query->engine)->conn, breaking);
    etcd_reading_stop(&breaking->reading);
    etcd_view_empty(&breaking->view);
    breaking->query->state = NULL;
    free(breaking);
}

static void breaking_discard(struct inquiry *inquiry)
{
    breaking_free((struct breaking *)inquiry);
}

static void broken(struct breaking *breaking, const struct stile_error *err)
{
    struct query *query = breaking->query;
    struct stile_error why;
    error_copy(&why, err);
    breaking_free(breaking);
    query->engine->events->done(query, why.status ? &why : NULL);
}

static void on_broken(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct breaking *breaking = data;
    const Etcd__TxnResponse *answer = (const Etcd__TxnResponse *)message;
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

/* ---- the mark ---- */

static void on_marked(void *data, const ProtobufCMessage *message, const struct stile_error *err);

/* A proclaimed value is for observers, and stays what it is. */
static bool can_be_marked(const struct entry *entry)
{
    int64_t pid;
    return !entry->foreign && !entry->suffix.ghost && etcd_value_self(&pid, entry->value);
}

struct mark {
    char value[MARK_MAX];
    struct key key;
};

static void write_mark(char mark[MARK_MAX], const struct entry *entry, const struct etcd *etcd)
{
    char slots[16] = "";
    if (entry->suffix.mode == STILE_SLOTS)
        snprintf(slots, sizeof slots, "%u ", entry->slots);
    snprintf(mark, MARK_MAX, "%s%s" BROKEN_BY "%s", slots, entry->value, etcd->self);
}

static size_t add_marks(struct txn *txn, struct mark *marks, struct breaking *breaking,
                        const struct stile_info *info)
{
    const struct etcd *etcd = etcd_of(breaking->query->engine);
    const struct view *view = &breaking->view;
    size_t n = 0;
    for (size_t i = 0; i < view->n && n < MARKS_MAX; i++) {
        const struct entry *entry = &view->entries[i];
        if (!can_be_marked(entry) || !is_held(info, entry->revision, breaking->query->token))
            continue;
        write_mark(marks[n].value, entry, etcd);
        etcd_txn_if_created(txn, entry->key, entry->revision);
        etcd_txn_put(txn, THEN, entry->key, marks[n].value, entry->lease);
        etcd_key_of_break(&marks[n].key, etcd, entry->lease, entry->revision);
        if (!etcd->no_info_keys)
            etcd_txn_put(txn, THEN, &marks[n].key, etcd->self, entry->lease);
        n++;
    }
    return n;
}

/* False: there is nothing to mark, or it can't be done. The lock is broken all the same. */
static bool mark_holders(struct breaking *breaking, const struct stile_info *info)
{
    struct txn txn;
    struct mark *marks = malloc(MARKS_MAX * sizeof *marks);
    etcd_txn_init(&txn);
    bool sent = marks && add_marks(&txn, marks, breaking, info) > 0 &&
                etcd_txn_send(&txn, etcd_of(breaking->query->engine), on_marked, breaking, NULL) ==
                    STILE_OK;
    free(marks);
    return sent;
}

/* ---- the deletion ---- */

/* Returns how many keys are deleted. What does not fit into one transaction is left for the next
 * `stile break`. */
static size_t add_deletions(struct txn *txn, struct view *view, const struct stile_info *info,
                            uint64_t token, const struct key *plain)
{
    size_t n = 0;
    for (size_t i = 0; i < view->n && n < TXN_OPS; i++) {
        const struct entry *entry = &view->entries[i];
        if (entry->foreign || !is_held(info, entry->revision, token))
            continue;
        etcd_txn_if_created(txn, entry->key, entry->revision);
        etcd_txn_delete(txn, THEN, entry->key);
        n++;
        if (plain && entry->suffix.mode == STILE_EXCLUSIVE && !entry->suffix.plain && n == 1)
            etcd_txn_delete_leased(txn, THEN, plain, entry->lease);
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
                         "the key '%.*s' of another program is in the way, and is not a lock; "
                         "if it is no longer needed, `etcdctl del` removes it",
                         (int)foreign->key->len, (const char *)foreign->key->bytes);
    return error_set(err, STILE_CONFLICT, 0,
                     info->holders ? "the grant with that token is over" : "it is not held");
}

static enum stile_status delete_holders(struct breaking *breaking, const struct stile_info *info,
                                        struct stile_error *err)
{
    struct etcd *etcd = etcd_of(breaking->query->engine);
    struct txn txn;
    etcd_txn_init(&txn);
    if (add_deletions(&txn, &breaking->view, info, breaking->query->token,
                      etcd->plain_key ? &breaking->plain : NULL) == 0)
        return explain_nothing(&breaking->view, info, err);
    return etcd_txn_send(&txn, etcd, on_broken, breaking, err);
}

/* marked: the next step is the deletion. */
static enum stile_status break_view(struct breaking *breaking, bool marked, struct stile_error *err)
{
    struct view *view = &breaking->view;
    struct stile_info info = {0};
    struct stile_claim_info *claims = calloc(view->n + 1, sizeof *claims);
    enum stile_status status = STILE_OK;
    if (!claims)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    if (view->n > 0)
        etcd_view_name(view, 0, &info, claims);
    if (marked || !mark_holders(breaking, &info))
        status = delete_holders(breaking, &info, err);
    free(claims);
    return status;
}

/* Whether it was marked or not: if a holder has gone meanwhile, the deletion finds out. A role for
 * the name alone does not cover the second key. */
static void on_marked(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct breaking *breaking = data;
    struct etcd *etcd = etcd_of(breaking->query->engine);
    struct stile_error why;
    bool again = err && err->native == ETCD_ERROR_DENIED && !etcd->no_info_keys;
    (void)message;
    etcd->no_info_keys = etcd->no_info_keys || again;
    if (break_view(breaking, !again, &why))
        broken(breaking, &why);
}

static void on_holders(struct reading *reading, const struct stile_error *err)
{
    struct breaking *breaking = container_of(reading, struct breaking, reading);
    struct stile_error why;
    if (err) {
        broken(breaking, err);
        return;
    }
    enum stile_status status = etcd_view_sort(&breaking->view, 0, &why);
    if (!status)
        status = break_view(breaking, false, &why);
    if (status)
        broken(breaking, &why);
}

static void break_now(struct breaking *breaking)
{
    etcd_view_empty(&breaking->view);
    etcd_reading_start(&breaking->reading, etcd_of(breaking->query->engine), &breaking->view,
                       &breaking->start, &breaking->end, on_holders);
}

void etcd_inspect_break(struct engine *engine, struct query *query)
{
    struct stile_error err;
    struct breaking *breaking = calloc(1, sizeof *breaking);
    if (!breaking) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    breaking->inquiry.discard = breaking_discard;
    breaking->query = query;
    breaking->view.only = query->name;
    query->state = breaking;
    etcd_keys_of_name(&breaking->start, &breaking->end, etcd_of(engine), query->name,
                      query->name_len);
    etcd_key_of_plain(&breaking->plain, etcd_of(engine), query->name, query->name_len);
    break_now(breaking);
}
