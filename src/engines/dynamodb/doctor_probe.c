/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* examine(): asks what the rules need. Each question shows a right, too; the write has a condition
 * that never holds, so it changes nothing. */
#include <stdio.h>

#include "engines/dynamodb/doctor.h"

#define NOWHERE "stile/doctor" /* no name's key: those have another prefix */

struct question {
    struct visit *visit;
    struct call call;
};

struct visit {
    struct doctor_visit base;
    struct doctor_facts facts;
    struct question questions[DOCTOR_QUESTIONS];
};

static struct visit *visit_of(struct doctor_visit *base)
{
    return container_of(base, struct visit, base);
}

static struct dynamo *dynamo_of_visit(const struct visit *visit)
{
    return dynamo_of(visit->base.query->engine);
}

static bool is_type(const struct call *call, const char *type)
{
    return strcmp(call->type, type) == 0;
}

static void note_clock(struct visit *visit, int64_t date)
{
    visit->facts.clock_known |= date > 0;
    if (date > 0)
        visit->facts.ahead_s = (int64_t)time(NULL) - date;
}

static void note_content(struct visit *visit, size_t i, const struct json *reply)
{
    const struct json *ttl = ddb_json_get(reply, "TimeToLiveDescription");
    const char *status = ddb_json_text(ddb_json_get(ttl, "TimeToLiveStatus"));
    const char *name = ddb_json_text(ddb_json_get(ttl, "AttributeName"));
    if (i == ASK_DESCRIBE) {
        ddb_table_read(&visit->facts.table, dynamo_of_visit(visit), reply);
        visit->facts.described = true;
    } else if (i == ASK_TTL && status) {
        visit->facts.ttl_known = true;
        visit->facts.ttl =
            strncmp(status, "ENABL", 5) == 0 && name && strcmp(name, TTL_ATTRIBUTE) == 0;
    }
}

static void on_answer(struct call *call)
{
    struct question *question = container_of(call, struct question, call);
    struct visit *visit = question->visit;
    size_t i = (size_t)(question - visit->questions);
    struct doctor_reply *reply = &visit->facts.replies[i];
    bool granted = call->result != CALL_FAILED;
    *reply = (struct doctor_reply){.asked = true,
                                   .answered = granted || *call->type,
                                   .denied = is_type(call, "AccessDeniedException"),
                                   .missing = is_type(call, "ResourceNotFoundException"),
                                   .unsigned_ = is_type(call, "InvalidSignatureException") ||
                                                is_type(call, "UnrecognizedClientException") ||
                                                is_type(call, "ExpiredTokenException")};
    if (!granted)
        reply->err = call->err;
    note_clock(visit, call->date);
    if (granted)
        note_content(visit, i, call->reply);
    doctor_answered(&visit->base);
}

static void write_question(struct call *call, struct dynamo *d, size_t i)
{
    ddb_json_write(&call->body, "{'TableName':%s", d->table);
    if (i == ASK_READ || i == ASK_WRITE)
        ddb_json_write(&call->body, ",'Key':{%s:{'S':'" NOWHERE "'}}", d->key);
    if (i == ASK_WRITE)
        ddb_json_write(&call->body, ",'UpdateExpression':'REMOVE #c',"
                                    "'ConditionExpression':'attribute_exists(#c)',"
                                    "'ExpressionAttributeNames':{'#c':'claims'}");
    if (i == ASK_SCAN)
        ddb_json_write(&call->body, ",'Limit':1");
    ddb_json_write(&call->body, "}");
}

static void prepare(struct visit *visit)
{
    const struct dynamo *d = dynamo_of_visit(visit);
    struct doctor_facts *facts = &visit->facts;
    snprintf(facts->where, sizeof facts->where, "%s in %s", d->table, d->region);
    facts->plain = strncmp(d->url, "http://", 7) == 0 &&
                   strncmp(d->url, "http://127.0.0.1", 16) != 0 &&
                   strncmp(d->url, "http://localhost", 16) != 0;
    facts->allow_global = d->allow_global;
    facts->key = d->key;
    for (size_t i = 0; i < DOCTOR_QUESTIONS; i++)
        error_set(&facts->replies[i].err, STILE_UNREACHABLE, 0, "no answer came in time");
}

static bool visit_ask(struct doctor_visit *base, unsigned round)
{
    struct visit *visit = visit_of(base);
    struct dynamo *d = dynamo_of_visit(visit);
    if (round > 0)
        return false;
    prepare(visit);
    for (size_t i = 0; i < DOCTOR_QUESTIONS; i++) {
        struct question *question = &visit->questions[i];
        question->visit = visit;
        doctor_asked(base);
        write_question(&question->call, d, i);
        ddb_call_start(d, &question->call, ddb_doctor_operations[i], PATIENCE_NS, on_answer);
    }
    return true;
}

/* Without any answer the only thing to report is why. */
static void visit_judge(struct doctor_visit *base, struct stile_error *err)
{
    struct visit *visit = visit_of(base);
    bool any = false;
    for (size_t i = 0; i < DOCTOR_QUESTIONS; i++)
        any |= visit->facts.replies[i].answered;
    if (any)
        doctor_apply(ddb_doctor_rules, &visit->facts, visit->facts.where, doctor_report_to_query,
                     base->query);
    else
        *err = visit->facts.replies[ASK_READ].err;
}

static void visit_leave(struct doctor_visit *base)
{
    for (size_t i = 0; i < DOCTOR_QUESTIONS; i++)
        ddb_call_cancel(&visit_of(base)->questions[i].call);
}

static void visit_forked(struct doctor_visit *base)
{
    (void)base; /* its connections are the client's */
}

void ddb_doctor_examine(struct engine *engine, struct query *query)
{
    static const struct doctor_plan plan = {
        .ask = visit_ask, .judge = visit_judge, .leave = visit_leave, .forked = visit_forked};
    doctor_visit_begin(&plan, sizeof(struct visit), PATIENCE_NS + NS_PER_SEC, query,
                       &dynamo_of(engine)->visits);
}
