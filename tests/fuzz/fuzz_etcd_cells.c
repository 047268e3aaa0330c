/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What an etcd server, and others that write to it, may answer to requests for cells: each request
 * ends once, after a bounded number of questions, and reports nothing that is no token or no
 * issuer. The connection is played here. The first byte says what is asked for; then come the
 * answers. */
#include <ctype.h>

#include "engines/etcd/cells.h"
#include "fuzz.h"

#define QUESTIONS_MAX 16 /* for one cell */
#define KVS_MAX       4
#define OPS_MAX       6

/* ---- the input ---- */

static struct {
    const uint8_t *data;
    size_t size, at;
} input;

static unsigned next(void)
{
    return input.at < input.size ? input.data[input.at++] : 0;
}

static unsigned pick(unsigned n)
{
    return next() % n;
}

/* ---- the connection ---- */

static struct {
    conn_fn *fn; /* NULL: nothing is asked */
    void *data;
    enum rpc rpc;
    unsigned questions;
} asked;

enum stile_status etcd_conn_request(struct conn *conn, enum rpc rpc,
                                    const ProtobufCMessage *message, conn_fn *fn, void *data,
                                    struct stile_error *err)
{
    (void)conn;
    MUST(!asked.fn && (rpc == RPC_TXN || rpc == RPC_RANGE));
    MUST(protobuf_c_message_check(message));
    if (pick(32) == 31)
        return error_set(err, STILE_UNREACHABLE, 0, "not connected");
    asked.fn = fn;
    asked.data = data;
    asked.rpc = rpc;
    asked.questions++;
    return STILE_OK;
}

/* What the other files of the engine would need. */
void etcd_conn_forget(struct conn *conn, const void *data)
{
    (void)conn, (void)data;
}

void *etcd_conn_owner(const struct conn *conn)
{
    (void)conn;
    return NULL;
}

bool etcd_conn_is_up(const struct conn *conn)
{
    (void)conn;
    return false;
}

enum stile_status etcd_conn_stream_open(struct conn *conn, struct conn_stream *stream, enum rpc rpc,
                                        struct stile_error *err)
{
    (void)conn, (void)stream, (void)rpc;
    return error_set(err, STILE_UNREACHABLE, 0, "not connected");
}

enum stile_status etcd_conn_stream_send(struct conn_stream *stream, const ProtobufCMessage *message,
                                        struct stile_error *err)
{
    (void)stream, (void)message;
    return error_set(err, STILE_UNREACHABLE, 0, "not connected");
}

void etcd_conn_stream_close(struct conn_stream *stream)
{
    (void)stream;
}

/* ---- answers ---- */

static const char *const values[] = {"0000000000000000005",
                                     "0000000000000000007",
                                     "0000000000000000006",
                                     "9223372036854775807",
                                     "9223372036854775808",
                                     "9999999999999999999",
                                     "0000000000000000000",
                                     "00000000000000000005",
                                     "5",
                                     "",
                                     "000000000000000000x",
                                     "i",
                                     "j",
                                     "two\nlines"};
static const char *const keys[] = {"p/\1stile/cell/x",
                                   "p/\1stile/cell/x\1token",
                                   "p/\1stile/cell/x\1issuer",
                                   "p/\1stile/cell/y",
                                   "p/\1stile/cell/y\1token",
                                   "p/\1stile/cell/y\1issuer",
                                   "p/\1stile/cell/",
                                   "p/\1stile/cell/\1token",
                                   "p/\1stile/cell/x\1other",
                                   "",
                                   "q"};

static ProtobufCBinaryData text(const char *text)
{
    return (ProtobufCBinaryData){.len = strlen(text), .data = *text ? (uint8_t *)text : NULL};
}

static ProtobufCBinaryData any_bytes(void)
{
    size_t n = pick(255);
    n = n < input.size - input.at ? n : input.size - input.at;
    ProtobufCBinaryData bytes = {.len = n, .data = (uint8_t *)input.data + input.at};
    input.at += n;
    return bytes;
}

/* One answer to a range, or one operation of a transaction. */
struct part {
    Etcd__ResponseOp op;
    Etcd__RangeResponse range;
    Etcd__PutResponse put;
    Etcd__KeyValue kvs[KVS_MAX], *list[KVS_MAX];
};

static void fill_range(struct part *part)
{
    static char long_value[700];
    memset(long_value, 'v', sizeof long_value - 1);
    etcd__range_response__init(&part->range);
    part->range.kvs = part->list;
    part->range.n_kvs = asked.rpc == RPC_TXN && pick(4) ? pick(2) : pick(KVS_MAX + 1);
    part->range.more = asked.rpc == RPC_RANGE && input.at < input.size && pick(2);
    for (size_t i = 0; i < part->range.n_kvs; i++) {
        Etcd__KeyValue *kv = part->list[i] = &part->kvs[i];
        etcd__key_value__init(kv);
        unsigned n = sizeof keys / sizeof *keys, key = pick(n + 1);
        kv->key = key < n ? text(keys[key]) : any_bytes();
        n = sizeof values / sizeof *values;
        unsigned value = pick(n + 2);
        kv->value = value < n ? text(values[value]) : value == n ? text(long_value) : any_bytes();
        kv->mod_revision = pick(4);
    }
}

static void fill(struct part *part)
{
    etcd__response_op__init(&part->op);
    fill_range(part);
    if (pick(4) == 3) {
        etcd__put_response__init(&part->put);
        part->op.response_case = ETCD__RESPONSE_OP__RESPONSE_PUT;
        part->op.put = &part->put;
    } else {
        part->op.response_case = ETCD__RESPONSE_OP__RESPONSE_RANGE;
        part->op.range = &part->range;
    }
}

static void answer_txn(conn_fn *fn, void *data)
{
    static struct part parts[OPS_MAX];
    Etcd__ResponseOp *ops[OPS_MAX];
    Etcd__TxnResponse answer = ETCD__TXN_RESPONSE__INIT;
    Etcd__Header header = ETCD__HEADER__INIT;
    header.revision = 9;
    answer.header = pick(8) ? &header : NULL;
    answer.succeeded = pick(2);
    answer.responses = ops;
    answer.n_responses = pick(4) ? 3 : pick(OPS_MAX + 1);
    for (size_t i = 0; i < answer.n_responses; i++) {
        fill(&parts[i]);
        ops[i] = &parts[i].op;
    }
    fn(data, &answer.base, NULL);
}

static void answer_error(conn_fn *fn, void *data)
{
    static const struct {
        enum stile_status status;
        enum etcd_error native;
    } errors[] = {{STILE_UNCERTAIN, ETCD_ERROR_OTHER},    {STILE_UNREACHABLE, ETCD_ERROR_NO_LEADER},
                  {STILE_UNCERTAIN, ETCD_ERROR_TOO_LONG}, {STILE_REFUSED, ETCD_ERROR_DENIED},
                  {STILE_REFUSED, ETCD_ERROR_NO_SPACE},   {STILE_NOMEM, ETCD_ERROR_NONE}};
    unsigned i = pick(sizeof errors / sizeof *errors);
    struct stile_error err;
    error_set(&err, errors[i].status, (int)errors[i].native, "because");
    fn(data, NULL, &err);
}

/* With nothing left of the input there is no further answer. */
static void answer(void)
{
    struct part page;
    conn_fn *fn = asked.fn;
    asked.fn = NULL;
    if (input.at >= input.size || pick(16) == 15) {
        answer_error(fn, asked.data);
    } else if (asked.rpc == RPC_TXN) {
        answer_txn(fn, asked.data);
    } else {
        fill_range(&page);
        fn(asked.data, &page.range.base, NULL);
    }
}

/* ---- core ---- */

static struct {
    unsigned cells, ends;
    enum stile_status status;
} told;

static void on_cell(struct cell_request *request, const struct stile_cell *cell)
{
    MUST(told.ends == 0 && cell->key && cell->token <= STILE_TOKEN_MAX);
    MUST(cell->issuer && strlen(cell->issuer) <= STILE_ISSUER_MAX);
    for (const char *c = cell->issuer; *c; c++)
        MUST(!iscntrl((unsigned char)*c));
    MUST(!cell->value || (request->verb == CELL_GET && cell->version));
    MUST(cell->value || request->verb != CELL_GET || !cell->version);
    MUST(cell->version <= INT64_MAX);
    told.cells++;
}

static void on_done(struct cell_request *request, const struct stile_error *err)
{
    (void)request;
    told.status = err ? err->status : STILE_OK;
    told.ends++;
}

static const struct engine_events events = {.cell = on_cell, .cell_done = on_done};

static bool reports(enum stile_status status)
{
    return status == STILE_OK || status == STILE_STALE || status == STILE_FOREIGN ||
           status == STILE_CONFLICT;
}

/* The order of the bytes is that of these lines. */
static struct cell_request read_request(struct engine *engine)
{
    struct cell_request request = {
        .engine = engine, .key = "x", .key_len = 1, .value = "value", .size = 5};
    request.verb = (enum cell_verb)pick(CELL_VERBS);
    request.issuer = pick(2) ? "i" : "";
    request.token = pick(2) || request.verb == CELL_RAISE ? 6 : 0;
    request.strict = pick(2);
    request.any_version = pick(2);
    request.if_version = pick(4);
    return request;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct etcd etcd = {.engine.events = &events, .prefix = "p/"};
    input.data = data;
    input.size = size;
    input.at = 0;
    memset(&asked, 0, sizeof asked);
    memset(&told, 0, sizeof told);
    struct cell_request request = read_request(&etcd.engine);
    etcd_cells_run(&etcd.engine, &request);
    while (asked.fn)
        answer();
    MUST(told.ends == 1 && !etcd.listings);
    MUST(request.verb == CELL_LIST || asked.questions <= QUESTIONS_MAX);
    MUST(request.verb == CELL_LIST || (told.cells == 1) == reports(told.status));
    MUST(told.cells <= 1 || request.verb == CELL_LIST);
    return 0;
}
