#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "engines/local/life.h"
#include "engines/local/local.h"

#define SESSIONS_PER_TX 32

static enum stile_status no_memory(struct stile_error *err)
{
    return error_set(err, STILE_NOMEM, 0, "out of memory");
}

/* ---- names ---- */

static struct snapshot_name *add_name(struct snapshot *snapshot)
{
    if (snapshot->n_names == snapshot->cap_names) {
        size_t cap = snapshot->cap_names ? 2 * snapshot->cap_names : 16;
        struct snapshot_name *names = realloc(snapshot->names, cap * sizeof *names);
        if (!names)
            return NULL;
        snapshot->names = names;
        snapshot->cap_names = cap;
    }
    struct snapshot_name *name = &snapshot->names[snapshot->n_names];
    *name = (struct snapshot_name){0};
    return name;
}

static void copy_claims(struct tx *tx, struct snapshot_name *to, uint32_t first, uint32_t n)
{
    for (uint32_t index = first; index && to->n_claims < n && tx_is_ok(tx);) {
        struct claim_cell *claim = &to->claims[to->n_claims++];
        *claim = *tx_claim(tx, index);
        claim->check = index;
        index = claim->next;
    }
}

/* False: out of memory. */
static bool copy_name(struct snapshot *snapshot, struct tx *tx, const struct name_cell *name,
                      const char *text)
{
    struct snapshot_name *to = add_name(snapshot);
    uint32_t n = (uint32_t)name->n_held + name->n_waiting;
    if (!to)
        return false;
    to->name = strdup(text);
    to->claims = calloc(n ? n : 1, sizeof *to->claims);
    to->token = name->token;
    snapshot->n_names++;
    if (!to->name || !to->claims)
        return false;
    copy_claims(tx, to, name->first, n);
    return true;
}

struct choice {
    const char *prefix;
    size_t len;
};

static bool copy_if_chosen(struct snapshot *snapshot, struct tx *tx, const struct name_cell *name,
                           const struct choice *choice)
{
    char text[NAME_TEXT_MAX + 1];
    if (!name->first)
        return true;
    names_text(tx, text, name);
    if (strncmp(text, choice->prefix, choice->len) != 0)
        return true;
    return copy_name(snapshot, tx, name, text);
}

static bool copy_bucket(struct snapshot *snapshot, struct tx *tx, uint32_t bucket,
                        const struct choice *choice)
{
    uint32_t next = names_bucket(tx, bucket);
    while (next && tx_is_ok(tx)) {
        const union cell *cell = tx_peek(tx, next);
        if (cell->kind == CELL_NAME && !copy_if_chosen(snapshot, tx, &cell->name, choice))
            return false;
        next = cell->chained.chain;
    }
    return true;
}

static enum stile_status copy_all(struct snapshot *snapshot, struct store *store,
                                  const struct choice *choice, struct stile_error *err)
{
    for (uint32_t bucket = 0; bucket < BUCKETS;) {
        struct tx tx;
        bool room = true;
        if (!tx_begin(&tx, store))
            return tx_error(&tx, err);
        while ((bucket = names_next_bucket(&tx, bucket)) < BUCKETS && room &&
               tx.n_reads < TX_READS_STEP && tx_is_ok(&tx))
            room = copy_bucket(snapshot, &tx, bucket++, choice);
        if (!tx_commit(&tx))
            return tx_error(&tx, err);
        if (!room)
            return no_memory(err);
    }
    return STILE_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct snapshot_name *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* ---- sessions ---- */

static int by_id(const void *a, const void *b)
{
    const struct snapshot_session *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

const struct snapshot_session *snapshot_session(const struct snapshot *snapshot, uint64_t id)
{
    struct snapshot_session key = {.id = id};
    return snapshot->n_sessions
               ? bsearch(&key, snapshot->sessions, snapshot->n_sessions, sizeof key, by_id)
               : NULL;
}

static size_t count_claims(const struct snapshot *snapshot)
{
    size_t n = 0;
    for (size_t i = 0; i < snapshot->n_names; i++)
        n += snapshot->names[i].n_claims;
    return n;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The distinct ids of all claims, in order; NULL: out of memory. */
static uint64_t *collect_ids(const struct snapshot *snapshot, size_t *n_ids)
{
    size_t n = 0, distinct = 0;
    uint64_t *ids = calloc(count_claims(snapshot) + 1, sizeof *ids);
    if (!ids)
        return NULL;
    for (size_t i = 0; i < snapshot->n_names; i++)
        for (uint32_t j = 0; j < snapshot->names[i].n_claims; j++)
            if (snapshot->names[i].claims[j].state != CLAIM_GHOST)
                ids[n++] = snapshot->names[i].claims[j].session;
    qsort(ids, n, sizeof *ids, by_number);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || ids[i] != ids[i - 1])
            ids[distinct++] = ids[i];
    *n_ids = distinct;
    return ids;
}

static void copy_session(struct tx *tx, struct snapshot_session *to)
{
    char text[SESSION_HOST_MAX + SESSION_COMMAND_MAX];
    uint32_t index = sessions_find(tx, to->id);
    if (!index)
        return;
    const struct session_cell *session = &tx_read(tx, index, CELL_SESSION)->session;
    size_t host_len = session->host_len, command_len = session->command_len;
    if (host_len > SESSION_HOST_MAX || command_len > SESSION_COMMAND_MAX)
        return;
    text_load(tx, session->text, text, host_len + command_len);
    memcpy(to->host, text, host_len);
    memcpy(to->command, text + host_len, command_len);
    to->pid = session->pid;
}

/* Life is asked for outside of transactions: it is a system call each. */
static void ask_for_life(struct snapshot *snapshot, const struct local *local)
{
    for (size_t i = 0; i < snapshot->n_sessions; i++) {
        struct snapshot_session *session = &snapshot->sessions[i];
        session->is_alive =
            session->id == local->id || life_is_alive(local->env->store.live_fd, session->id);
    }
}

static enum stile_status copy_sessions(struct snapshot *snapshot, struct local *local,
                                       struct stile_error *err)
{
    size_t n = 0;
    uint64_t *ids = collect_ids(snapshot, &n);
    snapshot->sessions = ids ? calloc(n + 1, sizeof *snapshot->sessions) : NULL;
    if (!snapshot->sessions) {
        free(ids);
        return no_memory(err);
    }
    snapshot->n_sessions = n;
    for (size_t i = 0; i < n; i++)
        snapshot->sessions[i].id = ids[i];
    free(ids);
    for (size_t i = 0; i < n;) {
        struct tx tx;
        if (!tx_begin(&tx, &local->env->store))
            return tx_error(&tx, err);
        for (int j = 0; j < SESSIONS_PER_TX && i < n; j++)
            copy_session(&tx, &snapshot->sessions[i++]);
        if (!tx_commit(&tx))
            return tx_error(&tx, err);
    }
    ask_for_life(snapshot, local);
    return STILE_OK;
}

/* ---- both ---- */

enum stile_status snapshot_list(struct snapshot *snapshot, struct local *local, const char *prefix,
                                size_t len, struct stile_error *err)
{
    struct choice choice = {.prefix = prefix, .len = len};
    *snapshot = (struct snapshot){.now_ns = local_now(local)};
    enum stile_status status = copy_all(snapshot, &local->env->store, &choice, err);
    if (!status)
        status = copy_sessions(snapshot, local, err);
    if (status)
        snapshot_free(snapshot);
    else if (snapshot->n_names)
        qsort(snapshot->names, snapshot->n_names, sizeof *snapshot->names, by_name);
    return status;
}

static enum stile_status copy_one(struct snapshot *snapshot, struct store *store, const char *text,
                                  size_t len, struct stile_error *err)
{
    struct tx tx;
    struct name_cell unknown = {0};
    if (!tx_begin(&tx, store))
        return tx_error(&tx, err);
    uint32_t index = names_find(&tx, name_hash(text, len), text, len);
    unknown.token = tx_ledger(&tx)->floor;
    bool room = copy_name(snapshot, &tx, index ? tx_name(&tx, index) : &unknown, text);
    if (!tx_commit(&tx))
        return tx_error(&tx, err);
    return room ? STILE_OK : no_memory(err);
}

enum stile_status snapshot_show(struct snapshot *snapshot, struct local *local, const char *name,
                                size_t len, struct stile_error *err)
{
    *snapshot = (struct snapshot){.now_ns = local_now(local)};
    enum stile_status status = copy_one(snapshot, &local->env->store, name, len, err);
    if (!status)
        status = copy_sessions(snapshot, local, err);
    if (status)
        snapshot_free(snapshot);
    return status;
}

void snapshot_free(struct snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->n_names; i++) {
        free(snapshot->names[i].name);
        free(snapshot->names[i].claims);
    }
    free(snapshot->names);
    free(snapshot->sessions);
    *snapshot = (struct snapshot){0};
}
