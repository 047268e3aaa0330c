/* mode=table: being told. MySQL has no NOTIFY; but a statement that sleeps in the server can be
 * ended by another session (KILL QUERY), which is how who releases wakes who is next. Whose sleep
 * it is, only a lock tells that ends with its session (GET_LOCK): so nobody else's statement is
 * ever hit.
 *
 * One session a client sleeps for all its claims that wait. When it is woken, one question finds
 * out which of them were granted, however many wait. A ring may be missed while it is awake, and
 * another user's may not ring: so the same is asked a few times a second as well. */
#include "engines/mysql/my.h"
#include "engines/mysql/sql.h"
#include "engines/mysql/table.h"

#define CHECK_NS (300 * NS_PER_MS) /* who was granted it has a second to say so */
#define AGAIN_NS (5 * NS_PER_SEC)  /* after one that could not be had */

static void sleep_again(struct session *session);

/* ---- what the rings were for ---- */

static void on_granted(void *data, const struct answer *a)
{
    struct my *my = data;
    MYSQL_RES *rows = a->err ? NULL : answer_last(a)->rows;
    MYSQL_ROW row;
    while (rows && (row = mysql_fetch_row(rows)))
        lease_hear_granted(&my->leases, row[0]);
}

static void check(struct my *my)
{
    struct session *shared;
    if (!my_shared(&shared, my, NULL))
        session_send(shared, sql_rung(my), on_granted, my, NULL);
    loop_arm(my->engine.loop, &my->bell_check, loop_now(my->engine.loop) + CHECK_NS);
}

static void on_check(struct timer *timer)
{
    struct my *my = (struct my *)((char *)timer - offsetof(struct my, bell_check));
    if (my->leases.hearing && lease_is_waiting(&my->leases))
        check(my);
}

/* ---- asleep ---- */

static void on_woken(void *data, const struct answer *a)
{
    struct session *session = data;
    struct my *my = session->my;
    if (session->state != UP)
        return;
    (void)a; /* it was ended, or slept long enough */
    if (lease_is_waiting(&my->leases)) {
        sleep_again(session);
        check(my);
    } else {
        my->leases.hearing = false;
        my->bell = NULL;
        session_free(session);
    }
}

static void sleep_again(struct session *session)
{
    session->seat.waits = true;
    session_send(session, sql_sleep(), on_woken, session, NULL);
}

static void on_hung(void *data, const struct answer *a)
{
    struct session *session = data;
    struct my *my = session->my;
    if (a->err || session->state != UP)
        return;
    my->leases.hearing = true;
    sleep_again(session);
    check(my);
    lease_ask_again(&my->leases); /* they have not said that they can hear */
}

static void ignore(void *data, const struct answer *a)
{
    (void)data, (void)a;
}

static void on_up(struct session *session)
{
    session_send(session, sql_table_settings(session->my), ignore, NULL, NULL);
    session_send(session, sql_hang_bell(session->my), on_hung, session, NULL);
}

static void on_down(struct session *session)
{
    session->my->bell = NULL;
    session->my->leases.hearing = false;
}

static void on_ended(struct session *session, const struct stile_error *why)
{
    (void)session, (void)why;
}

static const struct session_events events = {.up = on_up, .down = on_down, .ended = on_ended};

/* Behind a proxy it would sleep in a session that others need. */
static bool is_direct(const struct my *my)
{
    const struct session *shared = my->pool.shared;
    return shared && shared->state == UP && shared->seat.backend == mysql_thread_id(shared->conn);
}

void bell_init(struct my *my)
{
    my->bell_check.fn = on_check;
}

void bell_hang(struct my *my)
{
    uint64_t now = loop_now(my->engine.loop);
    if (my->bell || my->options.table || now < my->bell_again_ns || !is_direct(my))
        return;
    my->bell_again_ns = now + AGAIN_NS;
    if (my_connect(&my->bell, my, &events, NULL))
        my->bell = NULL;
}
