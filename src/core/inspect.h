/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* list, show and break: ask, collect copies, and hand them to the user without the mutex. watch.c
 * is made of the same parts. */
#ifndef STILE_INSPECT_H
#define STILE_INSPECT_H

#include "core/question.h"

/* A stile_info with everything it points to, in one allocation. */
struct result {
    struct result *next;
    struct stile_info info;
};

struct result *result_copy(const struct stile_info *info); /* NULL: out of memory */

struct inspection;

struct inspection_class {
    const char *doing; /* for errors: "showing" */
    bool unnamed;      /* it is about no name in particular */
    /* Takes what the engine reports; NULL: inspection_keep(). */
    void (*take)(struct inspection *inspection, const struct stile_info *info);
    void (*stop)(struct inspection *inspection); /* NULL: the question is all there is to stop */
    /* The user has seen all that was kept, and wants no more if `enough`. May be NULL. */
    void (*handed_out)(struct inspection *inspection, bool enough);
};

/* One call. A blocking one is on its caller's stack. */
struct inspection {
    struct question q;
    const struct inspection_class *class;
    struct stile_client *client;
    struct result *first, **last; /* not yet handed out */
    char record[RECORD_MAX + 1];  /* of the name that is shown; "": none */
    bool ended;
    struct stile_error error; /* its outcome */

    /* async */
    struct inspection *next, **link; /* of the client's */
    uint64_t number;                 /* of a watch */
    struct callback callback;
    bool delivering;
    stile_info_fn *fn;
    stile_query_done_fn *done; /* NULL: it blocks */
    void *data;
};

/* ---- all with the mutex ---- */

void inspection_init(struct inspection *inspection, const struct inspection_class *class,
                     struct stile_client *client, const char *name);
/* An async call, with a copy of the name behind so many bytes. NULL: out of memory. */
void *inspection_new(size_t size, const struct inspection_class *class, struct stile_client *client,
                     const char *name);
void inspection_defer(struct inspection *inspection, stile_info_fn *fn, stile_query_done_fn *done,
                      void *data);

void inspection_keep(struct inspection *inspection, const struct stile_info *info);
/* There is something to hand out. */
void inspection_notify(struct inspection *inspection);
/* The outcome is decided; err NULL: OK. The engine has nothing of it afterwards. */
void inspection_end(struct inspection *inspection, const struct stile_error *err);
void inspection_cancel(struct inspection *inspection);
/* What was kept is no longer wanted. */
void inspection_drop(struct inspection *inspection);

/* Blocking calls: asks, hands out the answer, and leaves the client. */
enum stile_status inspection_run(struct inspection *inspection, question_slot *slot,
                                 stile_info_fn *fn, void *data, struct stile_error *err);
/* Blocking calls: hands out what was kept, without the mutex. */
void inspection_hand_out(struct inspection *inspection, stile_info_fn *fn, void *data);
/* Blocking calls: the outcome, and leaves the client. */
enum stile_status inspection_leave(struct inspection *inspection, struct stile_error *err);

/* Checks the name and enters. */
enum stile_status inspection_enter(struct stile_client *client, const char *name,
                                   struct stile_error *err);

/* With the mutex: as stile_watch_cancel(). In watch.c. */
void watch_cancel(struct stile_client *client, uint64_t number);

/* Closing: ends all async calls with CANCELLED. */
void inspect_cancel_all(struct stile_client *client);

/* As engine_events has them. */
void inspect_info(struct query *query, const struct stile_info *info);
void inspect_record(struct query *query, const char *text, size_t len);

#endif
