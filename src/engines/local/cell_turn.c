/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/local/cell_turn.h"

#include <errno.h>
#include <sys/stat.h>
#include <time.h>

#include "engines/local/liveness.h"

/* The first in line looks often: it waits for a disk at most. The others only have to notice that
 * the place behind it is free. */
#define FIRST_NAP_NS INT64_C(50000)
#define LINE_NAP_NS  INT64_C(400000)
#define STUCK_NS     INT64_C(2000000000)
#define LONGEST_NS   INT64_C(20000000000)

/* How long a process has waited, and for what. */
struct patience {
    int fd;
    int64_t began_ns, moved_ns; /* moved: another process has written since */
    struct timespec seen;
};

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void note_progress(struct patience *patience, int64_t now_ns)
{
    struct stat st;
    if (patience->fd < 0 || fstat(patience->fd, &st) != 0 ||
        (st.st_mtim.tv_sec == patience->seen.tv_sec &&
         st.st_mtim.tv_nsec == patience->seen.tv_nsec))
        return;
    patience->seen = st.st_mtim;
    patience->moved_ns = now_ns;
}

static bool is_over(struct patience *patience)
{
    int64_t now_ns = clock_ns();
    note_progress(patience, now_ns);
    return now_ns - patience->moved_ns > STUCK_NS || now_ns - patience->began_ns > LONGEST_NS;
}

/* 0, EAGAIN when patience is over, or another errno value. */
static int lock(int live_fd, enum live_byte byte, bool exclusive, struct patience *patience,
                int64_t nap_ns)
{
    struct timespec nap = {.tv_nsec = nap_ns};
    int rc;
    while ((rc = local_liveness_lock(live_fd, byte, exclusive)) == EAGAIN && !is_over(patience))
        (void)nanosleep(&nap, NULL);
    return rc;
}

enum stile_status local_turn_take(int live_fd, int fd, bool to_write, struct stile_error *err)
{
    struct patience patience = {.fd = fd, .began_ns = clock_ns()};
    patience.moved_ns = patience.began_ns;
    int rc = lock(live_fd, LIVE_CELLS_NEXT, true, &patience, LINE_NAP_NS);
    if (!rc) {
        rc = lock(live_fd, LIVE_CELLS, to_write, &patience, FIRST_NAP_NS);
        local_liveness_unlock(live_fd, LIVE_CELLS_NEXT);
    }
    if (rc == EAGAIN)
        return error_set(err, STILE_UNREACHABLE, 0,
                         "another process stays inside `cells` in the state directory (is it "
                         "stopped, or does its disk hang?): let it continue or kill it");
    return rc ? error_errno(err, STILE_REFUSED, rc, "locking `live`") : STILE_OK;
}

void local_turn_end(int live_fd)
{
    local_liveness_unlock(live_fd, LIVE_CELLS);
}
