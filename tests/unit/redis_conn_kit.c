/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/redis_conn_kit.h"

struct fake server;

int scene_open(void **state)
{
    (void)state;
    kit_open();
    fake_listen(&server);
    kit.options.target.port = server.port;
    return 0;
}

int scene_close(void **state)
{
    (void)state;
    kit_close();
    fake_free(&server);
    return 0;
}

void scene_flush(void)
{
    loop_prepare(kit.loop);
}

/* The next connection comes, and is welcome. */
void scene_welcome(void)
{
    unsigned up = kit.up;

    run_until(kit.loop, kit.conn->link.state == LINK_GREETING);
    scene_flush();
    fake_accept(&server);
    fake_hear(&server, SETNAME);
    fake_say(&server, "+OK\r\n");
    run_until(kit.loop, kit.up > up);
}

void scene_connect(void)
{
    kit_connect();
    scene_welcome();
}

/* Time flies for the next attempt, too. */
void scene_fail_attempts(unsigned n)
{
    while (kit.down < n) {
        unsigned down = kit.down;
        if (kit.conn->link.state == LINK_PAUSED)
            loop_arm(kit.loop, &kit.conn->link.retry, loop_now(kit.loop));
        run_until(kit.loop, kit.down > down);
    }
}

bool error_has(const struct stile_error *err, const char *words)
{
    return strstr(err->message, words);
}
