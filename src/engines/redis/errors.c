/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/redis/errors.h"

#include <string.h>

/* Of the server's text, where it is shown at all. */
#define WORDS_MAX 120

static const struct meaning {
    const char *start; /* of the server's text */
    enum redis_error fault;
    enum stile_status status;
    const char *sentence;
    bool quoted; /* append the server's text; never where it repeats arguments */
} meanings[] = {
    {"ASK ", REDIS_ERROR_ASK, STILE_UNREACHABLE, "the key is moving to another node of the cluster",
     true},
    {"BUSY ", REDIS_ERROR_BUSY, STILE_UNREACHABLE,
     "the server is busy with a slow script (BUSY); SCRIPT KILL ends it", false},
    {"CLUSTERDOWN ", REDIS_ERROR_CLUSTER_DOWN, STILE_UNREACHABLE,
     "the Redis Cluster is down or has no node for this key", true},
    {"CROSSSLOT ", REDIS_ERROR_CROSS_SLOT, STILE_REFUSED,
     "the keys of one request are in different slots of the cluster", false},
    {"ERR ACL failure in script", REDIS_ERROR_NO_PERMISSION, STILE_REFUSED,
     "the ACL of this user does not allow it", true},
    {"ERR Script killed by user", REDIS_ERROR_KILLED, STILE_UNREACHABLE,
     "the script was ended by SCRIPT KILL before it changed anything", false},
    {"ERR The user executing the script can't", REDIS_ERROR_NO_PERMISSION, STILE_REFUSED,
     "the ACL of this user does not allow it", true},
    {"ERR Unknown Redis command called from", REDIS_ERROR_UNKNOWN_COMMAND, STILE_UNSUPPORTED,
     "the server does not know a command: it is too old, or the command was renamed", false},
    {"ERR Unknown command called from", REDIS_ERROR_UNKNOWN_COMMAND, STILE_UNSUPPORTED,
     "the server does not know a command: it is too old, or the command was renamed", false},
    {"ERR WAIT cannot be used with replica", REDIS_ERROR_DEMOTED, STILE_UNREACHABLE,
     "this server has become a replica", false},
    {"DENIED ", REDIS_ERROR_DENIED, STILE_REFUSED,
     "the server is in protected mode and takes clients from its own host only: set a password, or "
     "bind and protected-mode",
     false},
    {"ERR AUTH ", REDIS_ERROR_AUTH, STILE_REFUSED,
     "a password is given, but the server has none for the default user: leave it out, or set "
     "requirepass or an ACL user",
     false},
    {"ERR Client sent AUTH, but no password is set", REDIS_ERROR_AUTH, STILE_REFUSED,
     "a password is given, but the server has none: leave it out, or set requirepass", false},
    {"ERR invalid password", REDIS_ERROR_AUTH, STILE_REFUSED, "the password is wrong", false},
    {"ERR DB index is out of range", REDIS_ERROR_NO_DB, STILE_REFUSED,
     "the server has no database of this number (databases in its configuration)", false},
    {"ERR SELECT is not allowed", REDIS_ERROR_NO_DB, STILE_REFUSED,
     "a Redis Cluster has database 0 only: leave the number out of the URL", false},
    {"ERR invalid DB index", REDIS_ERROR_NO_DB, STILE_REFUSED,
     "the server has no database of this number (databases in its configuration)", false},
    {"ERR max number of clients", REDIS_ERROR_MAX_CLIENTS, STILE_UNREACHABLE,
     "the server has as many clients as it takes: raise maxclients, or find the client with so "
     "many (CLIENT LIST)",
     false},
    {"ERR operation not permitted", REDIS_ERROR_AUTH, STILE_REFUSED,
     "the server wants a password: give it in the URL, redis://:PASSWORD@host", false},
    {"ERR unknown command", REDIS_ERROR_UNKNOWN_COMMAND, STILE_UNSUPPORTED,
     "the server does not know a command: it is too old, or the command was renamed", false},
    {"ERR unknown subcommand", REDIS_ERROR_UNKNOWN_COMMAND, STILE_UNSUPPORTED,
     "the server does not know a command: it is too old, or the command was renamed", false},
    {"LOADING ", REDIS_ERROR_LOADING, STILE_UNREACHABLE,
     "the server is still loading its data (LOADING); wait until it is done", false},
    {"MASTERDOWN ", REDIS_ERROR_MASTER_DOWN, STILE_UNREACHABLE,
     "this server is a replica that has lost its primary (MASTERDOWN)", false},
    {"MISCONF ", REDIS_ERROR_MISCONF, STILE_REFUSED,
     "the server can't save to its disk and takes no writes (MISCONF): see its log, free some "
     "space",
     false},
    {"MOVED ", REDIS_ERROR_MOVED, STILE_UNREACHABLE, "the key is on another node of the cluster",
     true},
    {"NOAUTH ", REDIS_ERROR_AUTH, STILE_REFUSED,
     "the server wants a password: give it in the URL, redis://[USER]:PASSWORD@host", false},
    {"NOPERM ", REDIS_ERROR_NO_PERMISSION, STILE_REFUSED, "the ACL of this user does not allow it",
     true},
    {"NOREPLICAS ", REDIS_ERROR_NO_REPLICAS, STILE_UNREACHABLE,
     "too few replicas are connected for the server to take writes (min-replicas-to-write)", false},
    {"NOSCRIPT ", REDIS_ERROR_NO_SCRIPT, STILE_UNREACHABLE, "the server has forgotten a script",
     false},
    {"OOM ", REDIS_ERROR_OOM, STILE_REFUSED,
     "the server has no memory left (OOM): raise maxmemory, or find what fills it", false},
    {"READONLY ", REDIS_ERROR_READ_ONLY, STILE_UNREACHABLE,
     "this server is a read-only replica (READONLY): should it stay one, name the primary in the "
     "URL, or use redis+sentinel://",
     false},
    {"TRYAGAIN ", REDIS_ERROR_TRY_AGAIN, STILE_UNREACHABLE,
     "the keys are moving to another node of the cluster (TRYAGAIN)", false},
    {"UNBLOCKED ", REDIS_ERROR_DEMOTED, STILE_UNREACHABLE,
     "this server has become a replica (UNBLOCKED)", false},
    {"WRONGPASS ", REDIS_ERROR_AUTH, STILE_REFUSED,
     "user or password is wrong, or the user is disabled", false},
    {"WRONGTYPE ", REDIS_ERROR_WRONG_TYPE, STILE_REFUSED,
     "the key holds something other than a lock: another program uses it, choose another prefix",
     false},
};

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* "@user_script:12: " or "@user_script: 12: ", or NULL. */
static const char *after_location(const char *text)
{
    static const char script[] = "user_script:";

    text += *text == '@';
    if (!starts(text, script))
        return NULL;
    text += strlen(script);
    text += *text == ' ';
    size_t digits = strspn(text, "0123456789");
    return digits && starts(text + digits, ": ") ? text + digits + 2 : NULL;
}

/* Before Redis 7 an error inside a script came wrapped, with the place in the script once if a
 * command had failed, twice and with a dash if the command was refused:
 *
 *     ERR Error running script (call to f_...): @user_script:1: WRONGTYPE ...
 *     ERR Error running script (call to f_...): @user_script:1: @user_script: 1: -NOREPLICAS ...
 */
static const char *unwrap(const char *text)
{
    const char *inner = starts(text, "ERR Error running script") ? strstr(text, "): ") : NULL;

    if (!inner)
        return text;
    text = inner + strlen("): ");
    for (const char *behind; (behind = after_location(text));)
        text = behind;
    return text + (*text == '-');
}

/* Inside a script, errors without a code of their own can also come without ERR. */
static bool means(const struct meaning *meaning, const char *text)
{
    const char *start = meaning->start;
    return starts(text, start) || (starts(start, "ERR ") && starts(text, start + strlen("ERR ")));
}

static const struct meaning *find(const redisReply *reply)
{
    const char *text = unwrap(reply->str);

    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
        if (means(&meanings[i], text))
            return &meanings[i];
    return NULL;
}

enum redis_error redis_error_of(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ERROR)
        return REDIS_ERROR_NONE;
    const struct meaning *meaning = find(reply);
    return meaning ? meaning->fault : REDIS_ERROR_OTHER;
}

bool redis_error_is_denial(const struct stile_error *err)
{
    return err && err->status &&
           (err->native == REDIS_ERROR_NO_PERMISSION || err->native == REDIS_ERROR_UNKNOWN_COMMAND);
}

bool redis_error_is_replica(int native)
{
    return native == REDIS_ERROR_READ_ONLY || native == REDIS_ERROR_MASTER_DOWN ||
           native == REDIS_ERROR_DEMOTED;
}

/* Printable, and short enough to leave room for what is put before it. */
static const char *clean(char out[WORDS_MAX + 1], const redisReply *reply)
{
    const char *text = unwrap(reply->str);
    size_t n = strnlen(text, WORDS_MAX);

    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        out[i] = (char)(c < 0x20 || c >= 0x7f ? '?' : c);
    }
    out[n] = '\0';
    return out;
}

enum stile_status redis_error_explain(const redisReply *reply, struct stile_error *err)
{
    char words[WORDS_MAX + 1];

    if (reply->type != REDIS_REPLY_ERROR)
        return STILE_OK;
    const struct meaning *meaning = find(reply);
    if (!meaning)
        return error_set(err, STILE_REFUSED, REDIS_ERROR_OTHER, "the server says: %s",
                         clean(words, reply));
    if (!meaning->quoted)
        return error_set(err, meaning->status, (int)meaning->fault, "%s", meaning->sentence);
    return error_set(err, meaning->status, (int)meaning->fault, "%s: %s", meaning->sentence,
                     clean(words, reply));
}
