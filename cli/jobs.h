/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs about jobs share. */
#ifndef STILE_CLI_JOBS_H
#define STILE_CLI_JOBS_H

#include "cli.h"

/* "delayed" for a ready job that is not due. */
const char *job_state(const struct stile_job *job);
/* What `stile jobs ls --json` prints of a job, without the brackets. */
void job_json_members(struct json *json, const struct stile_job *job);

/* All arguments behind QUEUE: 0, or EXIT_USAGE after a message. */
int job_ids_check(const struct options *options, const char *verb);
bool job_id_parse(uint64_t *id, const char *text);

#endif
