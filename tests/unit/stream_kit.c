/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/stream_kit.h"

struct loop *loop;
struct fake server;
struct stream *stream;

struct record record;

static void free_in_event(int event)
{
    if ((int)record.free_in != event)
        return;
    stream_free(stream);
    stream = NULL;
}

static void on_opened(struct stream *s)
{
    assert_ptr_equal(stream_owner(s), &record);
    record.opened++;
    free_in_event(FREE_OPENED);
}

static void on_data(struct stream *s, const void *bytes, size_t n)
{
    (void)s;
    if (record.n + n <= sizeof record.bytes) {
        memcpy(record.bytes + record.n, bytes, n);
        record.n += n;
    }
    record.n_all += n;
    free_in_event(FREE_DATA);
}

static void on_closed(struct stream *s, const struct stile_error *why)
{
    (void)s;
    record.closed++;
    record.why = *why;
    free_in_event(FREE_CLOSED);
}

static const struct stream_events events = {
    .opened = on_opened, .data = on_data, .closed = on_closed};

int scene_open(void **state)
{
    (void)state;
    memset(&record, 0, sizeof record);
    stream = NULL;
    loop = net_loop();
    fake_listen(&server);
    return 0;
}

int scene_close(void **state)
{
    (void)state;
    stream_free(stream);
    fake_free(&server);
    assert_int_equal(loop->n_timers, 0);
    assert_null(loop->tasks);
    assert_null(loop->senders);
    assert_int_equal(loop->reserved, 1);
    loop_free(loop);
    return 0;
}

enum stile_status scene_open_to(const struct stream_target *target, struct stile_error *err)
{
    return stream_open(&stream, loop, target, &events, &record, err);
}

void scene_open_tcp(const char *host)
{
    struct stream_target target = {.host = host, .port = server.port};

    assert_status(scene_open_to(&target, NULL), OK);
    assert_int_equal(record.opened + record.closed, 0);
}

void scene_open_up(void)
{
    scene_open_tcp("127.0.0.1");
    run_until(loop, record.opened);
    fake_accept(&server);
}
