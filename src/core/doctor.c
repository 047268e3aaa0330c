#include "core/doctor.h"

#include <stdlib.h>
#include <string.h>

#include "core/client.h"
#include "core/query.h"

/* A finding with its texts, in one allocation. */
struct kept {
    struct kept *next;
    struct stile_finding finding;
};

struct visit {
    struct question q;
    struct kept *worst; /* and on to the finest */
};

#define TEXTS 6

/* The texts of a finding, all of which are copied. */
static void texts_of(const char **texts[TEXTS], struct stile_finding *f)
{
    texts[0] = &f->id;
    texts[1] = &f->where;
    texts[2] = &f->what;
    texts[3] = &f->why;
    texts[4] = &f->cure;
    texts[5] = &f->command;
}

static struct kept *write_down(const struct stile_finding *finding)
{
    struct stile_finding given = *finding;
    const char **from[TEXTS], **to[TEXTS];
    size_t size = sizeof(struct kept);
    texts_of(from, &given);
    for (size_t i = 0; i < TEXTS; i++) {
        *from[i] = *from[i] ? *from[i] : "";
        size += strlen(*from[i]) + 1;
    }
    struct kept *kept = malloc(size);
    if (!kept)
        return NULL;
    *kept = (struct kept){.finding = given};
    char *at = (char *)(kept + 1);
    texts_of(to, &kept->finding);
    for (size_t i = 0; i < TEXTS; i++) {
        *to[i] = at;
        at = stpcpy(at, *from[i]) + 1;
    }
    return kept;
}

void doctor_finding(struct query *query, const struct stile_finding *finding)
{
    struct visit *visit = query->core;
    struct kept *kept = write_down(finding), **at = &visit->worst;
    if (!kept) {
        visit->q.out_of_memory = true;
        return;
    }
    while (*at && (*at)->finding.severity >= finding->severity)
        at = &(*at)->next;
    kept->next = *at;
    *at = kept;
}

/* Without the mutex. True: the user has heard enough. */
static bool tell(struct visit *visit, struct stile_client *client, stile_finding_fn *fn, void *data)
{
    bool enough = false;
    pthread_mutex_unlock(&client->mutex);
    for (struct kept *kept = visit->worst, *next; kept; kept = next) {
        next = kept->next;
        if (fn && !enough)
            enough = fn(&kept->finding, data) != 0;
        free(kept);
    }
    pthread_mutex_lock(&client->mutex);
    return enough;
}

typedef void slot(struct engine *engine, struct query *query);

static enum stile_status pay_visit(struct stile_client *client, slot *ask, stile_finding_fn *fn,
                                   void *data, bool *enough, struct stile_error *err)
{
    struct visit visit = {0};
    question_put(&visit.q, client, "");
    ask(client->engine, &visit.q.query);
    drive_until(client, &visit.q.follower);
    *enough = tell(&visit, client, fn, data);
    return question_outcome(&visit.q, err);
}

static enum stile_status examine(struct stile_client *client, unsigned flags, stile_finding_fn *fn,
                                 void *data, struct stile_error *err)
{
    static const struct engine_admin none;
    const struct engine_class *class = client->engine->class;
    const struct engine_admin *admin = class->admin ? class->admin : &none;
    enum stile_status status = STILE_OK;
    bool enough = false;
    if (flags & ~(STILE_ADOPT | STILE_RESIZE) || flags == (STILE_ADOPT | STILE_RESIZE))
        return error_set(err, STILE_MISUSE, 0, "unknown flags %#x, or both adopt and resize",
                         flags);
    if (flags & STILE_ADOPT) {
        if (!admin->adopt)
            return error_set(err, STILE_UNSUPPORTED, 0,
                             "there is nothing to adopt on the engine %s: only nodes of redlock:// "
                             "that have lost their data can be taken back",
                             class->caps.engine);
        status = pay_visit(client, admin->adopt, fn, data, &enough, err);
    }
    if (flags & STILE_RESIZE) {
        if (!admin->resize)
            return error_set(err, STILE_UNSUPPORTED, 0,
                             "the engine %s keeps no record of which servers it has: only the "
                             "nodes of redlock:// are changed in this way",
                             class->caps.engine);
        status = pay_visit(client, admin->resize, fn, data, &enough, err);
    }
    if (!status && !enough && admin->examine)
        status = pay_visit(client, admin->examine, fn, data, &enough, err);
    return status;
}

enum stile_status stile_doctor(struct stile_client *client, unsigned flags, stile_finding_fn *fn,
                               void *data, struct stile_error *err)
{
    enum stile_status status = client_enter(client, err);
    if (!status) {
        status = examine(client, flags, fn, data, err);
        client_leave(client);
    }
    return status ? error_wrap(err, status, "examining the engine") : STILE_OK;
}
