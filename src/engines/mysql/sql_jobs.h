/* What is said to the server about jobs. */
#ifndef STILE_MYSQL_SQL_JOBS_H
#define STILE_MYSQL_SQL_JOBS_H

#include <stdio.h>

#include "engines/mysql/my.h"

/* An errand, without what goes before or behind it. tag: of a claim. Where the server tells with
 * RETURNING what a statement has changed, it is the last statement and has told it; else only
 * sql_job_put_found() tells. */
void sql_job_put(FILE *out, const struct job_errand *errand, uint64_t tag);

/* The tokens that are acked, where there is RETURNING; else how many. */
void sql_job_put_add(FILE *out, const struct job_errand *errand, size_t from, size_t to);
void sql_job_put_ack(FILE *out, const struct my *my, const struct job_mark *marks, size_t n);

/* What a claim has claimed; the tokens of which all else was true. */
void sql_job_put_found(FILE *out, const struct job_errand *errand, uint64_t tag);

/* For how many milliseconds there will be nothing to claim. */
void sql_job_put_due(FILE *out, const struct job_errand *errand);

#endif
