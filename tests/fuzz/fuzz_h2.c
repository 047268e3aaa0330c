/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What an etcd server may send: whatever comes, and in whatever pieces, stays within its bounds,
 * and each call ends once at most. The first byte says how long the pieces are. The stream below is
 * played here; a call and a stream of messages are under way. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/requests.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool kept)
{
    if (!kept)
        abort();
}

/* ---- the stream ---- */

struct stream {
    uint64_t written;
};

static struct stream wire;

int stream_write(struct stream *stream, const void *bytes, size_t n)
{
    (void)bytes;
    stream->written += n;
    return 0;
}

uint64_t stream_sent(const struct stream *stream)
{
    return stream->written;
}

uint64_t stream_written(const struct stream *stream)
{
    return stream->written;
}

/* ---- the calls ---- */

static struct h2_call unary, watch;
static unsigned ended, failed;

static void on_message(struct h2_call *call, const uint8_t *bytes, size_t n)
{
    must(n <= H2_MESSAGE_MAX);
    const ProtobufCMessageDescriptor *kind =
        call == &unary ? &etcd__txn_response__descriptor : &etcd__watch_response__descriptor;
    ProtobufCMessage *message = protobuf_c_message_unpack(kind, NULL, n, bytes);
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
}

static void on_ended(struct h2_call *call)
{
    struct stile_error err = {.status = STILE_OK};
    must(!call->h2 && strlen(call->words) < H2_WORDS_MAX);
    must((etcd_error_explain(call, &err) == STILE_OK) == (call->status == 0));
    ended++;
    must(ended <= 2);
}

static void on_up(struct h2 *h2)
{
    (void)h2;
}

static void on_failed(struct h2 *h2, const struct stile_error *why)
{
    (void)h2;
    must(why->status && why->message[0]);
    failed++;
    must(failed == 1);
}

static const struct h2_call_events call_events = {.message = on_message, .ended = on_ended};
static const struct h2_events h2_events = {.up = on_up, .going = on_up, .failed = on_failed};

static struct h2 *open_one(void)
{
    struct h2 *h2;
    ended = failed = 0;
    wire.written = 0;
    must(etcd_h2_new(&h2, &wire, "etcd:2379", false, &h2_events, NULL, NULL) == STILE_OK);
    unary = (struct h2_call){.events = &call_events};
    watch = (struct h2_call){.events = &call_events};
    must(etcd_h2_start(h2, &unary, "/etcdserverpb.KV/Txn", NULL, true) == 0);
    must(etcd_h2_send(&unary, "", 0, true) == 0);
    must(etcd_h2_start(h2, &watch, "/etcdserverpb.Watch/Watch", "token", true) == 0);
    must(etcd_h2_send(&watch, "\x0a\x00", 2, false) == 0);
    return h2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct h2 *h2 = open_one();
    size_t piece = size > 0 && data[0] ? data[0] : 65536;
    for (size_t at = 1; at < size && !failed; at += piece)
        etcd_h2_receive(h2, data + at, size - at < piece ? size - at : piece);
    etcd_h2_cancel(&unary);
    etcd_h2_cancel(&watch);
    etcd_h2_free(h2);
    return 0;
}
