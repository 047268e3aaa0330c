/* The server's and the library's errors as ours: status, one line, what to do. Without secrets. */
#ifndef STILE_MYSQL_ERRORS_H
#define STILE_MYSQL_ERRORS_H

#include "base/error.h"

/* secret may be NULL. */
void maria_error_of(struct stile_error *err, unsigned code, const char *text, const char *secret);

/* What came from the server though nothing was asked; n 0: the connection was closed. */
void maria_error_of_last_word(struct stile_error *err, const unsigned char *said, size_t n);

/* The session is gone with it. */
bool maria_error_is_end(unsigned code);

/* The statement was stopped: by KILL QUERY, or as it took too long. */
bool maria_error_is_kill(unsigned code);

/* A lock that was not waited for is another's. */
bool maria_error_is_busy(unsigned code);

/* It was in the way of others, or they in its way: as if it had never been. */
bool maria_error_is_undone(unsigned code);

#endif
