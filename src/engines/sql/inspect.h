/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* show, list and break of both databases. */
#ifndef STILE_SQL_INSPECT_H
#define STILE_SQL_INSPECT_H

#include "engines/sql/pool.h"

/* One name. Its texts point into the answer, or into texts of its own. */
struct view {
    struct stile_info info;
    struct stile_claim_info *claims;
    size_t n;
    char *texts;
    char name[STILE_NAME_MAX + 1];
    const char *record; /* of its last holder; NULL: none */
    size_t record_len;
    char record_text[RECORD_MAX + 1];
    bool undescribed;   /* a holder is about to describe its grant: worth another look */
    uint64_t *backends; /* for each claim, the session that has it; 0: none that is known */
};

/* For this many claims, each with a text of its own. */
enum stile_status sql_view_alloc(struct view *view, size_t n, size_t text_size,
                                 struct stile_error *err);
void sql_view_free(struct view *view);

void sql_inspect_show(struct engine *engine, struct query *query);
/* Whether to ask once more before that is reported. */
bool sql_inspect_again(struct query *query, const struct view *view);
void sql_inspect_list(struct engine *engine, struct query *query);
void sql_inspect_cancel(struct engine *engine, struct query *query);

extern const struct engine_history sql_history;
void sql_inspect_recorded(struct query *query, const struct stile_error *err);

/* ---- rows of mode=table ---- */

/* The columns that an engine selects, in this order. A row without an owner is a name that has
 * neither a holder nor a waiter. */
enum lease_column {
    ROW_NAME,
    ROW_HELD,
    ROW_GHOST,
    ROW_MODE,
    ROW_TOKEN,
    ROW_AGE_MS,
    ROW_LEFT_MS,
    ROW_PID,
    ROW_HOST,
    ROW_COMMAND,
    ROW_OWNER,
    ROW_COUNTER,
    ROW_COLUMNS,
};

/* Its texts point into the cells, of which each may be NULL. */
void sql_inspect_row(struct stile_claim_info *claim, const char *const cells[ROW_COLUMNS]);

/* ---- break: finds the holders, asks them to give up or ends their sessions, and polls until they
 * are gone ---- */

/* A grant that is to be broken. */
struct target {
    uint64_t backend, token;
};

struct breaking {
    struct query *query;
    struct timer timer;
    uint64_t begun_ns;
    answer_fn *looked; /* reads what is left of them */
    struct target *targets;
    size_t n;
    bool foreign; /* one of the holders is not a stile client, and cannot be asked to give up */
    bool ended;   /* the server has been asked to end their sessions */
    struct stile_error denied; /* why the server refused to end one */
};

/* seen: reads the first answer, before anything was done. */
void sql_break_begin(struct query *query, answer_fn *seen, answer_fn *looked);
void sql_break_look(struct breaking *breaking);
uint64_t sql_break_age_ns(const struct breaking *breaking);
void sql_break_wait(struct breaking *breaking); /* some are left: looks again later, or gives up */
void sql_break_end(struct breaking *breaking, const struct stile_error *err);
void sql_break_end_with(struct breaking *breaking, enum stile_status status, const char *why);
/* There is no holder, or none with the token that was given. */
void sql_break_end_not_meant(struct breaking *breaking, bool held);
/* Why a broken claim is lost. by: "HOST PID" of the process that broke it, as it came from the
 * server; "": not known. */
void sql_break_blame(struct stile_error *err, const char *by);
/* mode=table, where one statement breaks n grants. 0: none has that token; -1: it is not held. */
void sql_break_done(struct query *query, int n, const struct stile_error *err);

#endif
