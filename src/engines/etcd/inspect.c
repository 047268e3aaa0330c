/* list, show and watch: the keys of one name, or of all, read at one revision; then who is
 * behind their leases, and how long those last. */
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/looking.h"

#define AGAIN_NS (200 * NS_PER_MS)

static void look(struct looking *looking);

static void be_patient_no_more(struct etcd *etcd, struct looking *looking)
{
    struct looking **at = &etcd->patient;
    while (*at && *at != looking)
        at = &(*at)->patient_next;
    if (*at)
        *at = looking->patient_next;
}

static void looking_free(struct looking *looking)
{
    struct etcd *etcd = etcd_of_looking(looking);
    conn_forget(etcd->conn, looking);
    reading_stop(&looking->reading);
    be_patient_no_more(etcd, looking);
    watching_stop(etcd, &looking->watching);
    if (looking->watches) {
        loop_disarm(etcd->engine.loop, &looking->timer);
        loop_unreserve(etcd->engine.loop, 1);
    }
    view_empty(&looking->view);
    looking->query->state = NULL;
    free(looking);
}

static void end(struct looking *looking, const struct stile_error *err)
{
    struct query *query = looking->query;
    struct stile_error why;
    error_copy(&why, err);
    looking_free(looking);
    query->engine->events->done(query, why.status ? &why : NULL);
}

/* ---- telling ---- */

static uint64_t mix(uint64_t sum, uint64_t value)
{
    return (sum ^ value) * UINT64_C(0x100000001b3) + 1;
}

/* Of all that isn't just time going by. */
static uint64_t fingerprint(const struct stile_info *info)
{
    uint64_t sum = mix(info->holders, info->waiters);
    for (size_t i = 0; i < info->holders + info->waiters; i++) {
        const struct stile_claim_info *claim = &info->claims[i];
        sum = mix(mix(mix(sum, claim->held), claim->token), claim->ghost);
        for (const char *c = claim->owner; *c; c++)
            sum = mix(sum, (unsigned char)*c);
        for (const char *c = claim->proclaimed; *c; c++)
            sum = mix(sum, (unsigned char)*c);
    }
    return sum;
}

static void tell(struct looking *looking, const struct stile_info *info)
{
    uint64_t seen = fingerprint(info);
    if (looking->watches && looking->told && seen == looking->seen)
        return;
    looking->told = true;
    looking->seen = seen;
    looking->query->engine->events->info(looking->query, info);
}

static enum stile_status tell_all(struct looking *looking)
{
    struct view *view = &looking->view;
    struct stile_info info = {.name = looking->query->name, .token = (uint64_t)view->revision};
    struct stile_claim_info *claims = calloc(view->n + 1, sizeof *claims);
    if (!claims)
        return error_set(&looking->error, STILE_NOMEM, 0, "out of memory");
    if (view->n == 0 && !looking->many)
        tell(looking, &info);
    for (size_t at = 0; at < view->n;) {
        at = view_name(view, at, &info, claims);
        tell(looking, &info);
    }
    free(claims);
    return STILE_OK;
}

/* ---- watching ---- */

static void look_later(struct timer *timer)
{
    look((struct looking *)((char *)timer - offsetof(struct looking, timer)));
}

static void on_event(struct watching *watching, const Pb__KeyValue *kv, bool deleted)
{
    struct looking *looking =
        (struct looking *)((char *)watching - offsetof(struct looking, watching));
    (void)kv, (void)deleted;
    looking->changed = true;
    if (!looking->busy)
        look(looking);
}

static void watch_on(struct looking *looking)
{
    struct etcd *etcd = etcd_of_looking(looking);
    struct stile_error err;
    looking->watching.puts = true;
    looking->watching.fn = on_event;
    if (!looking->watching.id && watching_start(etcd, &looking->watching, &looking->start,
                                                &looking->end, looking->view.revision + 1, &err)) {
        end(looking, &err);
        return;
    }
    view_empty(&looking->view);
    looking->busy = false;
    if (looking->changed)
        look(looking);
}

void looking_finish(struct looking *looking)
{
    struct stile_error *err = &looking->error;
    if (looking->watches && looking->told && fault_passes(err)) {
        struct loop *loop = looking->query->engine->loop;
        looking->timer.fn = look_later;
        loop_arm(loop, &looking->timer, loop_now(loop) + AGAIN_NS);
        return;
    }
    if (!err->status)
        tell_all(looking);
    if (looking->watches && !err->status)
        watch_on(looking);
    else
        end(looking, err->status ? err : NULL);
}

/* ---- the keys ---- */

static void on_read(struct reading *reading, const struct stile_error *err)
{
    struct looking *looking =
        (struct looking *)((char *)reading - offsetof(struct looking, reading));
    if (err)
        error_copy(&looking->error, err);
    if (err || view_sort(&looking->view, TENANTS_MAX, &looking->error))
        looking_finish(looking);
    else
        looking_ask_tenants(looking);
}

static void look(struct looking *looking)
{
    view_empty(&looking->view);
    looking->error = (struct stile_error){0};
    looking->busy = true;
    looking->changed = false;
    reading_start(&looking->reading, etcd_of_looking(looking), &looking->view, &looking->start,
                  &looking->end, on_read);
}

static struct looking *looking_new(struct engine *engine, struct query *query)
{
    struct stile_error err;
    struct looking *looking = calloc(1, sizeof *looking);
    if (!looking) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return NULL;
    }
    looking->query = query;
    query->state = looking;
    keys_of_name(&looking->start, &looking->end, etcd_of(engine), query->name, query->name_len);
    return looking;
}

/* ---- after what was asked before ---- */

static bool is_leaving(const struct etcd_claim *part, uint64_t left_as)
{
    return part->standing == LEAVING && part->in_flight && part->left_as <= left_as;
}

static bool may_begin(const struct etcd *etcd, const struct looking *looking)
{
    for (const struct lease *lease = etcd->leases; lease; lease = lease->next) {
        for (const struct etcd_claim *part = lease->claims; part; part = part->next) {
            if (is_leaving(part, looking->left_as))
                return false;
        }
    }
    return true;
}

void people_leave_answered(struct etcd *etcd)
{
    for (struct looking *looking = etcd->patient, *next; looking; looking = next) {
        next = looking->patient_next;
        if (!may_begin(etcd, looking))
            continue;
        be_patient_no_more(etcd, looking);
        look(looking);
    }
}

static void begin(struct looking *looking)
{
    struct etcd *etcd = etcd_of_looking(looking);
    looking->left_as = etcd->last_left;
    if (may_begin(etcd, looking)) {
        look(looking);
        return;
    }
    looking->patient_next = etcd->patient;
    etcd->patient = looking;
}

/* ---- the slots of the engine ---- */

void people_show(struct engine *engine, struct query *query)
{
    struct looking *looking = looking_new(engine, query);
    if (!looking)
        return;
    looking->view.only = query->name;
    begin(looking);
}

void people_list(struct engine *engine, struct query *query)
{
    struct looking *looking = looking_new(engine, query);
    if (!looking)
        return;
    looking->many = true;
    looking->view.prefix = query->name;
    key_of_list(&looking->start, etcd_of(engine), query->name, query->name_len);
    key_end(&looking->end, &looking->start);
    begin(looking);
}

void people_watch(struct engine *engine, struct query *query)
{
    struct stile_error err;
    struct looking *looking = looking_new(engine, query);
    if (!looking)
        return;
    if (loop_reserve(engine->loop, 1)) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        end(looking, &err);
        return;
    }
    looking->watches = true;
    looking->view.only = query->name;
    begin(looking);
}

void people_unwatch(struct engine *engine, struct query *query)
{
    (void)engine;
    if (query->state)
        looking_free(query->state);
}
