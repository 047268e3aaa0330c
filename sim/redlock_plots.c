/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/redlock_plots.h"

#include <stdlib.h>
#include <string.h>

#include "sim/operators.h"
#include "sim/redis_server.h"

#define STEP_NS    (20 * US) /* how often a plot looks whether its moment has come */
#define ERRAND_NS  (50 * MS) /* within which an operator gets to it */
#define GIVE_UP_NS (8 * SEC)
#define LAST_NS    (36 * SEC) /* when no plot has anything left to do */
#define MEMBERS    5
#define FARTHEST   4

/* One at a time: they would be in each other's way. */
static struct {
    struct redlock_group *group;
    bool busy;
} plots;

struct plot {
    unsigned number;            /* any */
    struct server *of[MEMBERS]; /* the members of the group, from any of them on */
    struct process *process;    /* the operator's */
    uint64_t until_ns;
    const char *group, *highest; /* of the first, when the plot began */
    struct process *cut_off[USERS_MAX];
    unsigned user, name; /* the holder, and what it holds */
    const char *owner;
    unsigned had; /* the members that had its key when the operator came, by bits */
    unsigned turn;
    bool away;  /* some members are down */
    bool armed; /* the next claim is awaited */
};

void redlock_plots_begin(struct redlock_group *group)
{
    plots.group = group;
    plots.busy = false;
}

/* ---- steps ---- */

static struct plot *begin_plot(const struct fault *fault, unsigned first, uint64_t lasts_ns)
{
    if (plots.busy || plots.group->sizes || world_now() + lasts_ns > LAST_NS)
        return NULL;
    struct plot *plot = world_alloc(sizeof *plot);
    *plot = (struct plot){.number = fault->number, .user = fault->user};
    for (unsigned i = 0; i < plots.group->size; i++) {
        plot->of[i] = net_server((first + i) % plots.group->size);
        if (!server_runs(plot->of[i]))
            return NULL;
    }
    plots.busy = true;
    return plot;
}

static void end_plot(void *data)
{
    (void)data;
    plots.busy = false;
}

static void mark(enum event_kind kind)
{
    history_add(world_history(), &(struct event){.ns = world_now(), .kind = kind});
}

static void again(happening_fn *fn, struct plot *plot, uint64_t in_ns)
{
    world_at(world_now() + in_ns, fn, plot);
}

static void crash(struct server *server)
{
    if (!server->down)
        sim_redis_crash(server);
}

static void restart(struct server *server)
{
    if (server->down)
        sim_redis_restart(server, LEFT_ALL);
}

static void forget(struct server *server)
{
    plots.group->forgot |= 1u << server->number;
    crash(server);
    sim_redis_restart(server, LEFT_NONE);
}

static void block(const struct process *process, const struct server *server, bool blocked)
{
    net_path(process, server)->blocked[TO_SERVER] = blocked;
}

static void unblock(const struct process *process, struct server *server)
{
    block(process, server, false);
    server_continue(server);
}

/* What users send to these members does not arrive; but that of one user. */
static void cut_off(struct plot *plot, unsigned first, unsigned last, const struct process *but)
{
    for (unsigned i = 0; i < USERS_MAX; i++) {
        plot->cut_off[i] = workload_process(i);
        bool is_cut = plot->cut_off[i] != NULL && plot->cut_off[i] != but;
        for (unsigned k = first; k <= last && is_cut; k++)
            block(plot->cut_off[i], plot->of[k], true);
    }
}

static void let_through(const struct plot *plot, unsigned first, unsigned last)
{
    for (unsigned i = 0; i < USERS_MAX; i++) {
        for (unsigned k = first; k <= last && plot->cut_off[i] != NULL; k++)
            unblock(plot->cut_off[i], plot->of[k]);
    }
}

static bool has_key(const struct plot *plot, unsigned i)
{
    struct stored stored = {0};
    return plot->of[i]->class->stored(&stored, plot->of[i], workload_name_text(plot->name)) &&
           strcmp(stored.holder, plot->owner) == 0;
}

static bool is_held(const struct server *server, unsigned name)
{
    struct stored stored = {0};
    return server->class->stored(&stored, server, workload_name_text(name)) &&
           stored.holder[0] != '\0';
}

/* ---- an adoption that is cut short ----
 *
 * An operator dies when one server has gone to the next epoch. A client learns of that epoch and
 * gets that server's vote, and the server loses its data. A second operator, unaware of
 * all this, makes an epoch and adopts. The rest of the client's votes are given in that one, by
 * servers that leave then. Those that stay do not know the token. */

static const char *field_of(struct server *server, const char *field)
{
    const struct bytes args[] = {{"HGET", 4}, {"stile:node", 10}, {field, strlen(field)}};
    struct buffer out = {0};
    sim_redis_execute(server, args, sizeof args / sizeof *args, &out);
    buffer_put(&out, "", 1);
    const char *answer = buffer_at(&out), *value = strchr(answer, '\n');
    const char *copy = world_print("%s", value != NULL ? value + 1 : "");
    buffer_free(&out);
    return copy;
}

static void adopt_later(void *data)
{
    (void)data;
    operator_adopt(operator_new(), NULL);
}

static void end_adoption(struct plot *plot)
{
    let_through(plot, 1, 3);
    for (unsigned i = 0; i < plots.group->size; i++)
        restart(plot->of[i]);
    mark(EVENT_HEALED);
    end_plot(plot);
    again(adopt_later, plot, 100 * MS);
}

static void bring_back(void *data)
{
    end_adoption(data);
}

/* Clients that have just been opened know of no token but those of the servers that are left. Those
 * that stay have to leave an epoch of which nothing is left. */
static void begin_anew(void *data)
{
    struct plot *plot = data;
    restart(plot->of[3]);
    for (unsigned i = 0; i < USERS_MAX && plot->number / 4 % 4 != 3; i++)
        workload_kill(i, false);
}

/* Only the second and the third know the token, and go with it. */
static void part(void *data)
{
    struct plot *plot = data;
    uint64_t longest_ms = strtoull(field_of(plot->of[1], "longest"), NULL, 10);
    crash(plot->of[1]);
    crash(plot->of[2]);
    again(begin_anew, plot, longest_ms * MS - plot->number % 300 * MS);
    again(bring_back, plot, (longest_ms + 2000) * MS);
}

static bool has_majority(struct plot *plot)
{
    bool has = false;
    for (plot->user = 0; plot->user < USERS_MAX && !has; plot->user++) {
        plot->owner = workload_owner(plot->user);
        plot->name = workload_name(plot->user);
        has = plot->owner != NULL && has_key(plot, 1) && has_key(plot, 2);
    }
    return has;
}

static void watch_majority(void *data)
{
    struct plot *plot = data;
    if (has_majority(plot) || world_now() >= plot->until_ns)
        part(plot);
    else
        again(watch_majority, plot, MS);
}

/* What was on its way to the fourth is lost. */
static void adopt_anew(void *data)
{
    struct plot *plot = data;
    forget(plot->of[0]);
    operator_adopt(operator_new(), NULL);
    crash(plot->of[3]);
    let_through(plot, 1, 3);
    plot->until_ns = world_now() + 500 * MS;
    watch_majority(plot);
}

/* The first has given a vote in its epoch, and the next two are free to do so. */
static bool has_voted(const struct plot *plot)
{
    bool voted = false;
    for (unsigned i = 0; i < USERS_MAX; i++) {
        unsigned name = workload_name(i);
        voted |= is_held(plot->of[0], name) && !is_held(plot->of[1], name) &&
                 !is_held(plot->of[2], name);
    }
    return voted && strcmp(field_of(plot->of[0], "highest"), plot->highest) != 0;
}

static void watch_vote(void *data)
{
    struct plot *plot = data;
    if (has_voted(plot))
        again(adopt_anew, plot, (1 + plot->number % 4) * MS);
    else if (world_now() < plot->until_ns)
        again(watch_vote, plot, MS);
    else
        end_adoption(plot);
}

static bool has_moved(const struct plot *plot, unsigned i)
{
    return strcmp(field_of(plot->of[i], "group"), plot->group) != 0;
}

/* The one that has moved becomes the first. */
static void watch_epoch(void *data)
{
    struct plot *plot = data;
    struct server *first = plot->of[0];
    unsigned i = 0;
    if (plot->process->dead || world_now() >= plot->until_ns)
        return;
    while (i < FARTHEST && !has_moved(plot, i))
        i++;
    if (i == FARTHEST) {
        again(watch_epoch, plot, STEP_NS);
        return;
    }
    plot->of[0] = plot->of[i];
    plot->of[i] = first;
    cut_off(plot, 1, 3, NULL);
    operator_die(plot->process, 0);
}

/* At most two servers of a run lose their data: of a majority that has, nothing is known. */
static bool is_alone_in_its_epoch(const struct plot *plot)
{
    unsigned forgot = plots.group->forgot | 1u << plot->of[0]->number;
    bool alone = has_moved(plot, 0) && __builtin_popcount(forgot) <= 2;
    for (unsigned i = 1; i <= 3; i++)
        alone = alone && !has_moved(plot, i);
    return alone;
}

static void cut_adoption_short(struct fault *fault)
{
    struct plot *plot = plots.group->size == MEMBERS
                            ? begin_plot(fault, (unsigned)world_seed() % MEMBERS, 14 * SEC)
                            : NULL;
    if (plot == NULL)
        return;
    mark(EVENT_FAULT);
    forget(plot->of[FARTHEST]);
    plot->group = field_of(plot->of[0], "group");
    plot->process = operator_new();
    plot->until_ns = world_now() + ERRAND_NS;
    watch_epoch(plot);
    operator_adopt(plot->process, NULL);
    plot->highest = field_of(plot->of[0], "highest");
    plot->until_ns = world_now() + GIVE_UP_NS;
    if (is_alone_in_its_epoch(plot))
        watch_vote(plot);
    else
        end_adoption(plot);
}

/* ---- breaks that reach one server after the other ---- */

static unsigned keys_of(const struct plot *plot)
{
    unsigned keys = 0;
    for (unsigned i = 0; i < plots.group->size; i++)
        keys |= has_key(plot, i) ? 1u << i : 0;
    return keys;
}

static bool still_holds(const struct plot *plot)
{
    const char *owner = workload_owner(plot->user);
    return owner != NULL && strcmp(owner, plot->owner) == 0;
}

/* An operator breaks what the user of this plot holds. False: it holds nothing. */
static bool send_operator(struct plot *plot, happening_fn *watch)
{
    const char *owner = workload_owner(plot->user);
    if (owner == NULL)
        return false;
    plot->owner = world_print("%s", owner);
    plot->name = workload_name(plot->user);
    plot->had = keys_of(plot);
    plot->process = operator_new();
    plot->until_ns = world_now() + ERRAND_NS;
    operator_start_break(plot->process, plot->name);
    again(watch, plot, STEP_NS);
    return true;
}

/* True: some members have executed the break, and these (bits) have not. */
static bool has_begun(const struct plot *plot, unsigned *left)
{
    *left = keys_of(plot);
    return *left != plot->had && *left != 0 && still_holds(plot);
}

static void release_next(void *data)
{
    struct plot *plot = data;
    while (plot->turn < plots.group->size && !has_key(plot, plot->turn))
        unblock(plot->process, plot->of[plot->turn++]);
    if (plot->turn >= plots.group->size) {
        again(end_plot, plot, SEC);
        return;
    }
    unblock(plot->process, plot->of[plot->turn++]);
    again(release_next, plot, (25 + plot->number % 125) * MS);
}

/* The others hear of it one by one. Between two of them a waiter that was handed a key has time to
 * see that the holder has most, and to give it back. */
static void watch_first(void *data)
{
    struct plot *plot = data;
    unsigned left;
    if (has_begun(plot, &left)) {
        for (unsigned i = 0; i < plots.group->size; i++)
            block(plot->process, plot->of[i], true);
        again(release_next, plot, (25 + plot->number % 125) * MS);
    } else if (world_now() < plot->until_ns) {
        again(watch_first, plot, STEP_NS);
    } else {
        end_plot(plot);
    }
}

static void begin_one_by_one(void *data)
{
    const struct fault *fault = data;
    struct plot *plot = begin_plot(fault, fault->number / 1000, 3 * SEC);
    if (plot != NULL && !send_operator(plot, watch_first))
        end_plot(plot);
}

static void break_one_by_one(struct fault *fault)
{
    workload_await(fault->user, WHEN_GRANTED, fault->number % 300 * MS, begin_one_by_one, fault);
}

/* ---- a break that reaches one server only ----
 *
 * The last members were away when the lock was granted, and the others are all that its holder has.
 * The operator dies when one of these has executed the break: the next claim gets that one and the
 * last ones. */

static unsigned n_away(void)
{
    return plots.group->size / 2;
}

static void let_back(struct plot *plot)
{
    if (plot->away)
        mark(EVENT_HEALED);
    plot->away = false;
    for (unsigned i = 0; i < plots.group->size; i++)
        restart(plot->of[i]);
}

static void send_away(struct plot *plot, unsigned first)
{
    plot->away = true;
    mark(EVENT_FAULT);
    for (unsigned i = 0; i < n_away(); i++)
        crash(plot->of[(first + i) % plots.group->size]);
}

static void end_half_break(struct plot *plot)
{
    let_through(plot, plots.group->size - n_away(), plots.group->size - 1);
    again(end_plot, plot, SEC);
}

static void watch_half_break(void *data)
{
    struct plot *plot = data;
    unsigned left;
    if (has_begun(plot, &left)) {
        operator_die(plot->process, 0);
        end_half_break(plot);
    } else if (world_now() < plot->until_ns) {
        again(watch_half_break, plot, STEP_NS);
    } else {
        end_half_break(plot);
    }
}

static void begin_half_break(void *data)
{
    struct plot *plot = data;
    if (!send_operator(plot, watch_half_break))
        end_half_break(plot);
}

static void let_back_unused(void *data)
{
    struct plot *plot = data;
    let_back(plot);
    cut_off(plot, plots.group->size - n_away(), plots.group->size - 1,
            workload_process(plot->user));
    again(begin_half_break, plot, 3100 * MS + plot->number % 900 * MS);
}

static void begin_bare(void *data)
{
    const struct fault *fault = data;
    struct plot *plot = begin_plot(fault, fault->number / 1000, 7 * SEC);
    if (plot == NULL)
        return;
    send_away(plot, plots.group->size - n_away());
    again(let_back_unused, plot, (50 + plot->number % 300) * MS);
}

static void break_half(struct fault *fault)
{
    workload_await(fault->user, WHEN_ASKED, 0, begin_bare, fault);
}

/* ---- a break that reaches one server when its vote is another claim's ----
 *
 * The operator has its answer when it has waited for that server for long enough. The next claim is
 * granted while other members are away, and has no vote to spare. */

static void arrive_late(void *data)
{
    struct plot *plot = data;
    unblock(plot->process, plot->of[plot->turn]);
    again(end_plot, plot, SEC);
}

static void on_next_granted(void *data)
{
    struct plot *plot = data;
    if (!plot->away)
        return;
    let_back(plot);
    again(arrive_late, plot, (200 + plot->number % 600) * MS);
}

static void on_next_asked(void *data)
{
    struct plot *plot = data;
    if (!plot->armed)
        return;
    plot->armed = false;
    send_away(plot, plot->turn + 1);
    workload_await(plot->user, WHEN_GRANTED, 50 * MS, on_next_granted, plot);
}

static void give_up_late(void *data)
{
    struct plot *plot = data;
    if (plot->armed || plot->away) {
        let_back(plot);
        arrive_late(plot);
    }
    plot->armed = false;
}

/* Until the operator has had its answer: what is asked for later was not there when it looked. */
static void watch_answer(void *data)
{
    struct plot *plot = data;
    if (!plot->process->dead) {
        again(watch_answer, plot, 10 * MS);
        return;
    }
    plot->armed = true;
    plot->user++;
    workload_await(plot->user, WHEN_ASKED, 0, on_next_asked, plot);
    again(give_up_late, plot, GIVE_UP_NS);
}

static void watch_late(void *data)
{
    struct plot *plot = data;
    unsigned left;
    if (has_begun(plot, &left)) {
        plot->turn = (unsigned)__builtin_ctz(left);
        block(plot->process, plot->of[plot->turn], true);
        watch_answer(plot);
    } else if (world_now() < plot->until_ns) {
        again(watch_late, plot, STEP_NS);
    } else {
        end_plot(plot);
    }
}

static void begin_late(void *data)
{
    const struct fault *fault = data;
    struct plot *plot = begin_plot(fault, fault->number / 1000, 9 * SEC);
    if (plot != NULL && !send_operator(plot, watch_late))
        end_plot(plot);
}

static void break_late(struct fault *fault)
{
    workload_await(fault->user, WHEN_GRANTED, fault->number % 300 * MS, begin_late, fault);
}

const struct fault_class redlock_plots[] = {
    {"an adoption is cut short, and another operator, unaware of it, adopts", 1, 0, IN_ORDER,
     cut_adoption_short, NULL},
    {"an operator breaks a lock, and the servers hear of it one by one", 1, 0, IN_ORDER,
     break_one_by_one, NULL},
    {"an operator dies during a break, when one server has executed it", 1, 0, IN_ORDER, break_half,
     NULL},
    {"an operator breaks a lock, and a server hears of it when it has another grant", 1, 0,
     IN_ORDER, break_late, NULL},
    {0},
};
