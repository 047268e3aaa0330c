/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/postgres/errors.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "engines/sql/options.h"

#define TEXT_MAX 1024

/* One line, without the server's source location that PQERRORS_VERBOSE adds. */
static void tidy(char text[TEXT_MAX])
{
    char lines[TEXT_MAX], *to = text, *location = strstr(text, "\nLOCATION:");
    if (location)
        *location = '\0';
    memcpy(lines, text, strlen(text) + 1);
    for (const char *from = lines; *from && to < text + TEXT_MAX - 2; from++) {
        bool space = isspace((unsigned char)*from) || (unsigned char)*from < ' ';
        if (*from == '\n' && from[1] && to > text && isalnum((unsigned char)to[-1]))
            *to++ = ';';
        if (!space)
            *to++ = *from;
        else if (to > text && to[-1] != ' ')
            *to++ = ' ';
    }
    while (to > text && to[-1] == ' ')
        to--;
    *to = '\0';
}

/* Five capital letters and digits, at least one digit: FATAL and PANIC are no codes. */
static bool is_code(const char *at)
{
    bool figure = false;
    for (int i = 0; i < 5; i++) {
        if (!isdigit((unsigned char)at[i]) && !isupper((unsigned char)at[i]))
            return false;
        figure |= isdigit((unsigned char)at[i]) != 0;
    }
    return figure && at[5] == ':';
}

/* Takes the code out of "FATAL: 53300: sorry". If several hosts failed, the last code counts. */
static void take_code(char code[6], char *text)
{
    code[0] = '\0';
    for (char *at = text; (at = strstr(at, ": ")); at++) {
        char *word = at + 2;
        if (!is_code(word))
            continue;
        memcpy(code, word, 5);
        code[5] = '\0';
        memmove(word, word + 7, strlen(word + 7) + 1);
    }
}

enum stile_status postgres_error_status(const char *code)
{
    static const char *const passing[] = {"08", "25006", "53300", "55P03", "57P", "57014", "40"};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        if (strncmp(code, passing[i], strlen(passing[i])) == 0)
            return STILE_UNREACHABLE;
    }
    return STILE_REFUSED;
}

static const char *what_to_do(const char *code, const char *text)
{
    if (strcmp(code, "22P05") == 0)
        return " (use a database in UTF8, or a name without that character)";
    if (strcmp(code, "22001") == 0)
        return " (the name does not fit the table: widen its column, or shorten the name)";
    if (strcmp(code, "53300") == 0)
        return " (max_connections is reached)";
    if (strcmp(code, "55P03") == 0)
        return " (another transaction holds a lock that is needed: try again when it has ended)";
    if (strcmp(code, "42501") == 0 && (strstr(text, "for database") || strstr(text, "be owner")))
        return " (as the owner, run stile setup or the output of `stile setup --print`)";
    if (strcmp(code, "42501") == 0)
        return " (as owner: GRANT USAGE ON SCHEMA stile to this role, and run what stile doctor "
               "URL prints)";
    if (strcmp(code, "57P01") == 0)
        return " (by stile break or an administrator, or because the server stops)";
    if (strcmp(code, "57P05") == 0 || strcmp(code, "25P03") == 0)
        return " (the lease ran out: not renewed)";
    if (!*code && strstr(text, "root certificate file"))
        return ""; /* libpq's text is long, and says what to do */
    if (!*code && (strstr(text, "certificate") || strstr(text, "SSL")))
        return " (verify-full is the default for other hosts; sslrootcert= names the CA's file)";
    return "";
}

static bool will_not_pass(const PGconn *conn, const char *text)
{
    static const char *const words[] = {"certificate", "SSL", "password", "invalid", "service"};
    if (PQconnectionNeedsPassword(conn))
        return true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strstr(text, words[i]))
            return true;
    }
    return false;
}

void postgres_connection_error(struct stile_error *err, const PGconn *conn, const char *secret)
{
    char text[TEXT_MAX], code[6];
    if (!conn) {
        error_set(err, STILE_NOMEM, 0, "out of memory");
        return;
    }
    snprintf(text, sizeof text, "%s", PQerrorMessage(conn));
    tidy(text);
    sql_hide_secret(text, secret);
    take_code(code, text);
    enum stile_status status = *code                       ? postgres_error_status(code)
                               : will_not_pass(conn, text) ? STILE_REFUSED
                                                           : STILE_UNREACHABLE;
    error_set(err, status, 0, "%s%s", *text ? text : "the server closed the connection",
              what_to_do(code, text));
}

void postgres_result_error(struct stile_error *err, char sqlstate[6], const PGresult *result)
{
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *said = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    char text[TEXT_MAX];
    snprintf(sqlstate, 6, "%s", code ? code : "");
    snprintf(text, sizeof text, "%s", said ? said : PQresultErrorMessage(result));
    tidy(text);
    enum stile_status status = code ? postgres_error_status(sqlstate) : STILE_UNREACHABLE;
    error_set(err, status, 0, "%s%s", *text ? text : "the server closed the connection",
              what_to_do(sqlstate, text));
}
