#include "engines/mysql/errors.h"

#include <errmsg.h>
#include <errno.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/sql/options.h"

#define TEXT_MAX 512

/* Not in Debian's list of codes: MySQL's words for wait_timeout, max_execution_time and NOWAIT,
 * and what MariaDB says of KILL. */
#define INTERACTION_TIMEOUT 4031
#define CONNECTION_KILLED   1927
#define QUERY_TIMEOUT       3024
#define LOCK_NOWAIT         3572

static void tidy(char *text)
{
    for (char *c = text; *c; c++)
        *c = (unsigned char)*c < ' ' || *c == 127 ? ' ' : *c;
}

/* Of what was wrong with connecting the library tells a number alone, and of a time that is over
 * the wrong one. */
static void spell_number(char text[TEXT_MAX])
{
    char *at = strrchr(text, '(');
    int number = at ? atoi(at + 1) : 0;
    if (number == EINPROGRESS)
        at[at > text && at[-1] == ' ' ? -1 : 0] = '\0';
    else if (number > 0)
        snprintf(at, (size_t)(text + TEXT_MAX - at), "(%s)", strerror(number));
}

static bool is_library(unsigned code)
{
    return code >= CR_MIN_ERROR && code < 3000;
}

bool maria_error_is_end(unsigned code)
{
    return is_library(code) || code == CONNECTION_KILLED || code == INTERACTION_TIMEOUT ||
           code == ER_SERVER_SHUTDOWN || code == ER_NORMAL_SHUTDOWN;
}

bool maria_error_is_kill(unsigned code)
{
    return code == ER_QUERY_INTERRUPTED || code == ER_STATEMENT_TIMEOUT || code == QUERY_TIMEOUT;
}

bool maria_error_is_busy(unsigned code)
{
    return code == ER_LOCK_WAIT_TIMEOUT || code == LOCK_NOWAIT;
}

bool maria_error_is_undone(unsigned code)
{
    return code == ER_LOCK_DEADLOCK || code == ER_LOCK_WAIT_TIMEOUT || code == ER_CHECKREAD ||
           code == ER_AUTOINC_READ_FAILED;
}

/* It may be otherwise the next time. */
static bool may_pass(unsigned code)
{
    static const unsigned passing[] = {
        ER_CON_COUNT_ERROR,     ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED,
        ER_SERVER_SHUTDOWN,     ER_NORMAL_SHUTDOWN,           ER_LOCK_DEADLOCK,
        ER_LOCK_WAIT_TIMEOUT,   ER_QUERY_INTERRUPTED,         CONNECTION_KILLED,
        INTERACTION_TIMEOUT,    ER_OUT_OF_RESOURCES,          ER_CANT_CREATE_THREAD,
        ER_CHECKREAD,           ER_STATEMENT_TIMEOUT,         QUERY_TIMEOUT,
        ER_AUTOINC_READ_FAILED, ER_OPTION_PREVENTS_STATEMENT};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        if (code == passing[i])
            return true;
    }
    return is_library(code) && code != CR_SSL_CONNECTION_ERROR &&
           code != CR_AUTH_PLUGIN_CANNOT_LOAD;
}

static const char *what_to_do(unsigned code, const char *said)
{
    static const char makes[] = "CREATE DROP ALTER INDEX REFERENCES";
    size_t verb = strcspn(said, " ,");
    if (code == ER_TABLEACCESS_DENIED_ERROR && verb > 0 && memmem(makes, sizeof makes, said, verb))
        return " (let somebody who may run what `stile setup --print` prints)";
    switch (code) {
    case CR_CONNECTION_ERROR:
    case CR_CONN_HOST_ERROR:
        return ": is it running, and this its place?";
    case ER_CON_COUNT_ERROR:
        return " (max_connections is reached)";
    case ER_TOO_MANY_USER_CONNECTIONS:
    case ER_USER_LIMIT_REACHED:
        return " (max_user_connections is reached)";
    case ER_TABLEACCESS_DENIED_ERROR:
        return " (grant this user SELECT, INSERT, UPDATE and DELETE on the tables stile_%)";
    case ER_PROCACCESS_DENIED_ERROR:
        return " (grant this user EXECUTE on the procedures stile_%)";
    case ER_DBACCESS_DENIED_ERROR:
        return " (grant this user what it needs there; stile setup needs CREATE ROUTINE, too)";
    case ER_SP_DOES_NOT_EXIST:
    case ER_NO_SUCH_TABLE:
        return " (run `stile setup URL`)";
    case ER_DATA_TOO_LONG:
        return " (the table has no room for it: widen its column, or shorten the name)";
    case ER_KILL_DENIED_ERROR:
        return " (it is another user's session: CONNECTION ADMIN is needed to end it)";
    case ER_OPTION_PREVENTS_STATEMENT:
        return " (the server is read-only: connect to its primary)";
    case CR_SSL_CONNECTION_ERROR:
        return " (TLS is verified for other hosts: ca= names the CA's file; insecure turns it off)";
    default:
        return "";
    }
}

void maria_error_of(struct stile_error *err, unsigned code, const char *said, const char *secret)
{
    char text[TEXT_MAX];
    if (code == ER_BINLOG_STMT_MODE_AND_ROW_ENGINE) /* what it says has no room for what to do */
        said = "binlog_format is STATEMENT, which InnoDB does not take with READ COMMITTED: set it "
               "to MIXED or ROW";
    snprintf(text, sizeof text, "%s", *said ? said : "the server closed the connection");
    tidy(text);
    sql_hide_secret(text, secret);
    if (code == CR_CONNECTION_ERROR || code == CR_CONN_HOST_ERROR)
        spell_number(text);
    enum stile_status status = code == CR_OUT_OF_MEMORY ? STILE_NOMEM
                               : may_pass(code)         ? STILE_UNREACHABLE
                                                        : STILE_REFUSED;
    error_set(err, status, (int)code, "%s%s", text, what_to_do(code, text));
}

/* An error packet: its length in three bytes, a number, 0xff, the code, '#' and five for SQL's
 * state, the text. Over TLS it can't be read here. */
void maria_error_of_last_word(struct stile_error *err, const unsigned char *said, size_t n)
{
    char text[TEXT_MAX];
    if (n < 14 || said[4] != 0xff || said[7] != '#') {
        error_set(err, STILE_UNREACHABLE, 0, "the server has ended the session");
        return;
    }
    unsigned code = said[5] | (unsigned)said[6] << 8;
    size_t len = n - 13 < sizeof text ? n - 13 : sizeof text - 1;
    memcpy(text, said + 13, len);
    text[len] = '\0';
    maria_error_of(err, code, text, NULL);
}
