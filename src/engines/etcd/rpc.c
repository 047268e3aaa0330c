#include "engines/etcd/rpc.h"

#include <stdio.h>
#include <string.h>

#include "mutant.h"

enum {
    CANCELLED = 1,
    INVALID = 3,
    DENIED = 7,
    UNIMPLEMENTED = 12,
    UNAVAILABLE = 14,
    UNAUTHENTICATED = 16
};

/* By the server's words, whatever code they come with: versions differ in the codes. */
static const struct meaning {
    const char *words;
    enum fault fault;
    enum stile_status status;
    const char *sentence;
} meanings[] = {
    {"no leader", FAULT_NO_LEADER, STILE_UNREACHABLE,
     "the members have no leader: too few of them are up, or can't reach one another"},
    {"not supported for learner", FAULT_LEARNER, STILE_UNREACHABLE,
     "this member is only a learner: name the voting members"},
    {"request timed out", FAULT_TIMED_OUT, STILE_UNCERTAIN,
     "the member got no answer from the others in time"},
    {"leader changed", FAULT_TIMED_OUT, STILE_UNCERTAIN, "the leader changed meanwhile"},
    {"server stopped", FAULT_TIMED_OUT, STILE_UNCERTAIN, "the member is shutting down"},
    {"too many requests", FAULT_BUSY, STILE_UNREACHABLE, "the member has too much to do"},
    {"database space exceeded", FAULT_NO_SPACE, STILE_REFUSED,
     "the database is full (NOSPACE): compact and defragment it, then `etcdctl alarm disarm`"},
    {"lease not found", FAULT_NO_LEASE, STILE_LOST, "the server has ended the lease"},
    {"has been compacted", FAULT_COMPACTED, STILE_UNREACHABLE, "that revision is compacted"},
    {"invalid auth token", FAULT_TOKEN, STILE_UNREACHABLE, "the login has expired"},
    {"auth store is old", FAULT_TOKEN, STILE_UNREACHABLE, "users or roles have changed"},
    {"authentication failed", FAULT_LOGIN, STILE_REFUSED, "user or password is wrong"},
    {"user name is empty", FAULT_LOGIN, STILE_REFUSED,
     "the server wants a user: give it in the URL, etcd://USER:PASSWORD@host"},
    {"authentication is not enabled", FAULT_NO_AUTH, STILE_REFUSED,
     "a user is given, but authentication is not enabled"},
    {"permission denied", FAULT_DENIED, STILE_REFUSED,
     "the roles of this user do not allow it: readwrite on the keys below the prefix is needed"},
};

enum stile_status fault_of_words(const char *words, struct stile_error *err)
{
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        if (strstr(words, meanings[i].words))
            return error_set(err, meanings[i].status, (int)meanings[i].fault, "%s",
                             meanings[i].sentence);
    }
    return error_set(err, STILE_UNCERTAIN, FAULT_OTHER, "the server says: %s", words);
}

bool fault_passes(const struct stile_error *err)
{
#ifdef MUTANT_ETCD_NOMEM_IS_FINAL
    if (err->status == STILE_NOMEM)
        return false;
#endif
    return err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN ||
           err->status == STILE_NOMEM;
}

static enum stile_status explain_silence(const struct h2_call *call, struct stile_error *err)
{
    if (call->refused)
        return error_set(err, STILE_UNREACHABLE, FAULT_BUSY, "the server takes no more requests");
    if (call->too_long)
        return error_set(err, STILE_UNCERTAIN, FAULT_TOO_LONG,
                         "the server's answer has more than %u MB", H2_MESSAGE_MAX >> 20);
    /* It may have passed the request on before it lost its server. */
    if (h2_is_passing(call->http_status))
        return error_set(err, STILE_UNCERTAIN, FAULT_PROXY,
                         "a proxy answers in place of etcd (HTTP status %d)", call->http_status);
    if (call->http_status > 0 && call->http_status != 200)
        return error_set(err, STILE_REFUSED, FAULT_OTHER,
                         "what answers is not etcd (HTTP status %d)", call->http_status);
    return error_set(err, STILE_UNCERTAIN, FAULT_OTHER, "no answer: %s",
                     call->words[0] ? call->words : "the server ended the request");
}

enum stile_status fault_explain(const struct h2_call *call, struct stile_error *err)
{
    if (call->status == 0)
        return STILE_OK;
    if (call->status == H2_NO_STATUS)
        return explain_silence(call, err);
    enum stile_status status = fault_of_words(call->words, err);
    if (!err || err->native != FAULT_OTHER)
        return status;
    if (call->status == UNAUTHENTICATED)
        return error_set(err, STILE_UNREACHABLE, FAULT_TOKEN, "the login has expired");
    if (call->status == UNAVAILABLE)
        err->native = FAULT_PROXY;
    /* These were looked at and turned down before anything was done. */
    if (call->status == INVALID || call->status == DENIED || call->status == UNIMPLEMENTED)
        err->status = STILE_REFUSED;
    return err->status;
}
