/* examine(): the member we speak with, its alarms, and how many members there are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/etcd.h"

enum { ALARM_NO_SPACE = 1, ALARM_CORRUPT = 2 };

struct visit {
    struct query *query;
    size_t pending;
    struct stile_error error; /* of the first question: without its answer there is nothing */
};

static struct etcd *etcd_of_visit(const struct visit *visit)
{
    return etcd_of(visit->query->engine);
}

static void tell(struct visit *visit, struct stile_finding finding)
{
    finding.where = conn_address(etcd_of_visit(visit)->conn);
    visit->query->engine->events->finding(visit->query, &finding);
}

static void answered(struct visit *visit)
{
    struct query *query = visit->query;
    struct stile_error err = visit->error;
    if (--visit->pending > 0)
        return;
    query->state = NULL;
    free(visit);
    query->engine->events->done(query, err.status ? &err : NULL);
}

/* ---- the member ---- */

static void tell_version(struct visit *visit, const char *version)
{
    unsigned major = 0, minor = 0, patch = 0;
    char what[80];
    sscanf(version, "%u.%u.%u", &major, &minor, &patch);
    snprintf(what, sizeof what, "etcd %.40s", version);
    if (major < 3 || (major == 3 && minor < 4))
        tell(visit, (struct stile_finding){.severity = STILE_DANGER,
                                           .id = "old",
                                           .what = what,
                                           .why = "stile refuses it: it needs what came with 3.4.",
                                           .cure = "Upgrade it, member by member."});
    else if (major == 3 && minor == 5 && patch < 3)
        tell(visit, (struct stile_finding){
                        .severity = STILE_DANGER,
                        .id = "old",
                        .what = what,
                        .why = "Releases 3.5.0 to 3.5.2 may lose writes when a member crashes: "
                               "members then disagree, and with them two holders may.",
                        .cure = "Upgrade it to 3.5.3 or later, member by member."});
    else if (major == 3 && minor == 4 && patch < 38)
        tell(visit, (struct stile_finding){
                        .severity = STILE_NOTE,
                        .id = "old",
                        .what = what,
                        .why = "Before 3.4.38 a keep-alive may be answered as if all was well "
                               "though the lease is revoked. stile looks at its keys instead; "
                               "other clients on the same locks may not.",
                        .cure = "Upgrade it where others use the same locks."});
    else
        tell(visit, (struct stile_finding){.severity = STILE_FINE, .id = "version", .what = what});
}

static void on_status(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct visit *visit = data;
    const Pb__StatusResponse *status = (const Pb__StatusResponse *)message;
    if (err) {
        error_copy(&visit->error, err);
        answered(visit);
        return;
    }
    tell_version(visit, status->version);
    if (status->leader == 0)
        tell(visit, (struct stile_finding){
                        .severity = STILE_DANGER,
                        .id = "no-leader",
                        .what = "it sees no leader",
                        .why = "Nothing can be locked, and who holds something loses it at its "
                               "deadline.",
                        .cure = "Start the members that are down; more than half must reach one "
                                "another.",
                        .command = "etcdctl endpoint status --cluster"});
    else
        tell(visit, (struct stile_finding){
                        .severity = STILE_FINE, .id = "leader", .what = "there is a leader"});
    if (status->is_learner)
        tell(visit, (struct stile_finding){.severity = STILE_WARNING,
                                           .id = "learner",
                                           .what = "it is only a learner",
                                           .why = "It answers no requests of clients.",
                                           .cure = "Name the voting members in the URL."});
    answered(visit);
}

/* ---- alarms ---- */

static void tell_alarm(struct visit *visit, int64_t alarm)
{
    if (alarm == ALARM_NO_SPACE)
        tell(visit, (struct stile_finding){
                        .severity = STILE_DANGER,
                        .id = "no-space",
                        .what = "the alarm NOSPACE is on: the database is full",
                        .why = "Nothing can be locked until somebody makes room.",
                        .cure = "Compact the history, defragment each member, then disarm.",
                        .command = "etcdctl compact REVISION\netcdctl defrag --cluster\n"
                                   "etcdctl alarm disarm"});
    else if (alarm == ALARM_CORRUPT)
        tell(visit, (struct stile_finding){
                        .severity = STILE_DANGER,
                        .id = "corrupt",
                        .what = "the alarm CORRUPT is on: members disagree about their data",
                        .why = "Two holders may each be right on their own member.",
                        .cure = "Replace the member that differs, from a snapshot of another.",
                        .command = "etcdctl endpoint hashkv --cluster"});
}

static void on_alarms(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct visit *visit = data;
    const Pb__AlarmResponse *answer = (const Pb__AlarmResponse *)message;
    for (size_t i = 0; !err && i < answer->n_alarms; i++)
        tell_alarm(visit, answer->alarms[i]->alarm);
    if (!err && answer->n_alarms == 0)
        tell(visit, (struct stile_finding){
                        .severity = STILE_FINE, .id = "alarms", .what = "no alarm is on"});
    answered(visit);
}

/* ---- all of them ---- */

static void tell_members(struct visit *visit, size_t voters)
{
    char what[64];
    snprintf(what, sizeof what, "%zu voting member%s", voters, voters == 1 ? "" : "s");
    if (voters == 1)
        tell(visit, (struct stile_finding){
                        .severity = STILE_WARNING,
                        .id = "one-member",
                        .what = what,
                        .why = "While it is down nothing can be locked, and what is lost with its "
                               "disk is lost: tokens begin again.",
                        .cure = "Three members go on while one of them is down."});
    else if (voters % 2 == 0)
        tell(visit, (struct stile_finding){.severity = STILE_NOTE,
                                           .id = "even",
                                           .what = what,
                                           .why = "No more of them may be down than with one less.",
                                           .cure = "Add one, or take one away."});
    else
        tell(visit, (struct stile_finding){.severity = STILE_FINE, .id = "members", .what = what});
}

static void on_members(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct visit *visit = data;
    const Pb__MemberListResponse *answer = (const Pb__MemberListResponse *)message;
    size_t voters = 0;
    for (size_t i = 0; !err && i < answer->n_members; i++)
        voters += !answer->members[i]->is_learner;
    if (voters > 0)
        tell_members(visit, voters);
    answered(visit);
}

static void ask(struct visit *visit, enum rpc rpc, const ProtobufCMessage *request, conn_fn *fn)
{
    struct stile_error err;
    visit->pending++;
    if (conn_ask(etcd_of_visit(visit)->conn, rpc, request, fn, visit, &err))
        fn(visit, NULL, &err);
}

void doctor_examine(struct engine *engine, struct query *query)
{
    Pb__StatusRequest status = PB__STATUS_REQUEST__INIT;
    Pb__AlarmRequest alarms = PB__ALARM_REQUEST__INIT;
    Pb__MemberListRequest members = PB__MEMBER_LIST_REQUEST__INIT;
    struct stile_error err;
    struct visit *visit = calloc(1, sizeof *visit);
    if (!visit) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    visit->query = query;
    query->state = visit;
    visit->pending = 1;
    ask(visit, RPC_STATUS, &status.base, on_status);
    ask(visit, RPC_ALARM, &alarms.base, on_alarms);
    ask(visit, RPC_MEMBER_LIST, &members.base, on_members);
    answered(visit);
}
