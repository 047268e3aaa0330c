/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What libpq and the server report, as a status and a sentence without secrets. */
#ifndef STILE_POSTGRES_ERRORS_H
#define STILE_POSTGRES_ERRORS_H

#include <libpq-fe.h>

#include "base/error.h"

/* Why there is no connection, or no longer one. conn may be NULL. */
void postgres_connection_error(struct stile_error *err, const PGconn *conn, const char *secret);

/* By the class of the server's code. */
enum stile_status postgres_error_status(const char *sqlstate);

/* From an answer or notice of the server. */
void postgres_result_error(struct stile_error *err, char sqlstate[6], const PGresult *result);

#endif
