/* What libpq and the server say, as a status and a sentence without secrets. */
#ifndef STILE_POSTGRES_FAULT_H
#define STILE_POSTGRES_FAULT_H

#include <libpq-fe.h>

#include "base/error.h"

/* Why there is no connection, or none any more. conn may be NULL. */
void fault_of_connection(struct stile_error *err, const PGconn *conn, const char *secret);

/* By the class of the server's code. */
enum stile_status fault_status(const char *sqlstate);

#endif
