/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/admin.h"

#include <stdlib.h>
#include <string.h>

#include "base/url.h"
#include "core/client.h"
#include "core/inspect.h"
#include "core/lookup.h"
#include "io/trap.h"

/* ---- doctor ---- */

/* A finding with its texts, in one allocation. */
struct copy {
    struct copy *next;
    struct stile_finding finding;
};

struct examination {
    struct question q;
    struct copy *worst; /* first; then less and less severe */
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

static struct copy *copy_finding(const struct stile_finding *finding)
{
    struct stile_finding given = *finding;
    const char **from[TEXTS], **to[TEXTS];
    size_t size = sizeof(struct copy);
    texts_of(from, &given);
    for (size_t i = 0; i < TEXTS; i++) {
        *from[i] = *from[i] ? *from[i] : "";
        size += strlen(*from[i]) + 1;
    }
    struct copy *copy = malloc(size);
    if (!copy)
        return NULL;
    *copy = (struct copy){.finding = given};
    char *at = (char *)(copy + 1);
    texts_of(to, &copy->finding);
    for (size_t i = 0; i < TEXTS; i++) {
        *to[i] = at;
        at = stpcpy(at, *from[i]) + 1;
    }
    return copy;
}

void admin_finding(struct query *query, const struct stile_finding *finding)
{
    struct examination *exam = query->core;
    struct copy *copy = copy_finding(finding), **at = &exam->worst;
    if (!copy) {
        exam->q.out_of_memory = true;
        return;
    }
    while (*at && (*at)->finding.severity >= finding->severity)
        at = &(*at)->next;
    copy->next = *at;
    *at = copy;
}

/* Without the mutex. True: the callback asked to stop. */
static bool hand_out(struct examination *exam, struct stile_client *client, stile_finding_fn *fn,
                     void *data)
{
    struct outside outside;
    bool enough = false;
    client_step_out(client, &outside);
    for (struct copy *copy = exam->worst, *next; copy; copy = next) {
        next = copy->next;
        if (fn && !enough)
            enough = fn(&copy->finding, data) != 0;
        free(copy);
    }
    client_step_in(client, &outside);
    return enough;
}

static enum stile_status run_examination(struct stile_client *client, question_slot *slot,
                                         stile_finding_fn *fn, void *data, bool *enough,
                                         struct stile_error *err)
{
    struct examination exam = {0};
    question_init(&exam.q, client, "");
    question_ask(&exam.q, slot);
    drive_until(client, &exam.q.follower);
    *enough = hand_out(&exam, client, fn, data);
    return question_outcome(&exam.q, err);
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
                             "there is nothing to adopt on the engine %s: its servers need not be "
                             "taken back when they have lost their data",
                             class->caps.engine);
        status = run_examination(client, admin->adopt, fn, data, &enough, err);
    }
    if (flags & STILE_RESIZE) {
        if (!admin->resize)
            return error_set(err, STILE_UNSUPPORTED, 0,
                             "there is nothing to resize on the engine %s: it keeps no record of "
                             "which servers it has",
                             class->caps.engine);
        status = run_examination(client, admin->resize, fn, data, &enough, err);
    }
    if (!status && !enough && admin->examine)
        status = run_examination(client, admin->examine, fn, data, &enough, err);
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

/* ---- setup ---- */

typedef enum stile_status setup_slot(const struct url *url, bool dry_run, const char **script,
                                     struct stile_error *err);

/* One of these for each call. */
struct setup_kind {
    const char *doing;   /* for errors: "setting up" */
    const char *nothing; /* what an engine without the slot needs nothing for */
    setup_slot *(*slot)(const struct engine_admin *admin);
};

static enum stile_status set_up(const struct setup_kind *kind, const char *text, bool dry_run,
                                const char **script, struct stile_error *err)
{
    static const struct engine_admin none;
    const struct engine_class *class;
    const char *unwanted;
    struct url *url;
    enum stile_status status = lookup_from_text(&url, &class, text, err);
    if (status)
        return status;
    setup_slot *slot = kind->slot(class->admin ? class->admin : &none);
    if (slot) {
        fork_block();
        status = slot(url, dry_run, script ? script : &unwanted, err);
        fork_unblock();
    } else {
        status = error_set(err, STILE_UNSUPPORTED, 0, "%s needs nothing %s", class->caps.engine,
                           kind->nothing);
    }
    if (status)
        error_wrap(err, status, "%s %s", kind->doing, url->scheme);
    url_free(url);
    return status;
}

static setup_slot *setup_of(const struct engine_admin *admin)
{
    return admin->setup;
}

static setup_slot *install_guard_of(const struct engine_admin *admin)
{
    return admin->install_guard;
}

enum stile_status stile_setup(const char *text, bool dry_run, const char **script,
                              struct stile_error *err)
{
    static const struct setup_kind kind = {"setting up", "to be set up", setup_of};
    return set_up(&kind, text, dry_run, script, err);
}

enum stile_status stile_guard_install(const char *text, bool dry_run, const char **script,
                                      struct stile_error *err)
{
    static const struct setup_kind kind = {"installing guards in", "to be installed for guards",
                                           install_guard_of};
    return set_up(&kind, text, dry_run, script, err);
}

/* ---- SIGBUS ---- */

/* For programs with a SIGBUS handler of their own that must survive a truncated state file. */
enum stile_status stile_sigbus_trap(struct stile_error *err)
{
    int rc = trap_install(true);
    return rc ? error_errno(err, STILE_REFUSED, rc, "handling SIGBUS") : STILE_OK;
}
