/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of processes below us: finding it, signalling it, ending it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"

/* The largest pid on Linux. One bit for each: no allocation can fail during a kill. */
#define PIDS_MAX (1 << 22)

/* Deeper processes move up when their ancestors have been killed; the next walk finds them. */
#define DEPTH_MAX 64

#define PATH_ROOM 96

#define NAMESPACES_MAX 40 /* the kernel nests 32 */

struct walk {
    const char *proc;
    tree_visit_fn *visit;
    void *data;
};

static unsigned char members[PIDS_MAX / 8];

/* ---- descriptors for the walk ---- */

/* One directory and one file at a time; the next walk finds deeper ones. A tree that could not be
 * found for lack of descriptors would outlive its lock. */
#define SPARES 4

static int spares[SPARES] = {-1, -1, -1, -1};

bool tree_reserve(void)
{
    bool all = true;
    for (int i = 0; i < SPARES; i++) {
        if (spares[i] < 0)
            spares[i] = open("/", O_PATH | O_CLOEXEC);
        all = all && spares[i] >= 0;
    }
    return all;
}

static void use_spares(void)
{
    for (int i = 0; i < SPARES; i++) {
        if (spares[i] >= 0)
            close(spares[i]);
        spares[i] = -1;
    }
}

/* ---- members ---- */

static bool is_member(pid_t pid)
{
    return pid > 0 && pid < PIDS_MAX && (members[pid / 8] & 1U << pid % 8);
}

static bool add_member(pid_t pid)
{
    if (pid <= 0 || pid >= PIDS_MAX || is_member(pid))
        return false;
    members[pid / 8] |= (unsigned char)(1U << pid % 8);
    return true;
}

/* ---- /proc/PID/task/TID/children: only the tree itself is read, where the kernel has it ---- */

static void walk_children(const struct walk *walk, pid_t pid, int depth);

static void meet_child(const struct walk *walk, pid_t child, int depth)
{
    if (!add_member(child))
        return;
    walk->visit(child, walk->data);
    if (depth < DEPTH_MAX)
        walk_children(walk, child, depth + 1);
}

/* The file is numbers, each with a blank behind it, and may be of any length. */
static void walk_thread(const struct walk *walk, pid_t pid, const char *tid, int depth)
{
    char path[PATH_ROOM], part[512];
    snprintf(path, sizeof path, "%s/%d/task/%.20s/children", walk->proc, (int)pid, tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    pid_t child = 0;
    for (ssize_t got; (got = read(fd, part, sizeof part)) > 0;) {
        for (ssize_t i = 0; i < got; i++) {
            if (part[i] >= '0' && part[i] <= '9') {
                child = child < PIDS_MAX ? child * 10 + (part[i] - '0') : PIDS_MAX;
                continue;
            }
            meet_child(walk, child, depth);
            child = 0;
        }
    }
    close(fd);
}

static void walk_children(const struct walk *walk, pid_t pid, int depth)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/%d/task", walk->proc, (int)pid);
    DIR *dir = opendir(path);
    if (dir == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.')
            walk_thread(walk, pid, entry->d_name, depth);
    }
    closedir(dir);
}

/* ---- else /proc/PID/stat of all processes ---- */

/* 0: gone, or a zombie. */
static pid_t parent_of(const char *proc, const char *pid)
{
    char path[PATH_ROOM], stat[512], state;
    int parent;
    snprintf(path, sizeof path, "%s/%.20s/stat", proc, pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t len = read(fd, stat, sizeof stat - 1);
    close(fd);
    stat[len > 0 ? len : 0] = '\0';
    /* The name of the program stands in parentheses and may itself contain any. */
    const char *behind = strrchr(stat, ')');
    if (behind == NULL || sscanf(behind + 1, " %c %d", &state, &parent) != 2 || state == 'Z')
        return 0;
    return parent;
}

static bool scan_once(const struct walk *walk, DIR *dir)
{
    bool found = false;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid <= 0 || is_member(pid) || !is_member(parent_of(walk->proc, entry->d_name)))
            continue;
        /* Visited at once: a process that keeps forking and ending is gone a moment later. */
        found = add_member(pid);
        walk->visit(pid, walk->data);
    }
    return found;
}

static bool scan_all(const struct walk *walk)
{
    DIR *dir = opendir(walk->proc);
    if (dir == NULL)
        return false;
    /* Repeated until nothing new is found: a child's pid may be smaller than its parent's. */
    while (scan_once(walk, dir))
        rewinddir(dir);
    closedir(dir);
    return true;
}

bool tree_walk(const char *proc, pid_t root, tree_visit_fn *visit, void *data)
{
    const struct walk walk = {.proc = proc, .visit = visit, .data = data};
    char path[PATH_ROOM];
    memset(members, 0, sizeof members);
    add_member(root);
    snprintf(path, sizeof path, "%s/%d/task/%d/children", proc, (int)root, (int)root);
    if (access(path, R_OK) != 0)
        return scan_all(&walk);
    walk_children(&walk, root, 0);
    return true;
}

/* ---- how /proc shows us ---- */

/* A /proc of an outer pid namespace shows other pids for this process and its tree; the line NSpid
 * has those of all namespaces from there inwards. */
struct view {
    pid_t of;   /* the process that read it */
    pid_t self; /* its pid there; 0: it is not shown */
    int level;  /* which column of the line has the pids of our namespace */
};

/* The numbers of /proc/PID/status; returns how many. */
static int numbers_of(const char *pid, pid_t *numbers, int max)
{
    char path[PATH_ROOM], status[4096];
    snprintf(path, sizeof path, "/proc/%.20s/status", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC), n = 0;
    if (fd < 0)
        return 0;
    ssize_t len = read(fd, status, sizeof status - 1);
    close(fd);
    status[len > 0 ? len : 0] = '\0';
    char *at = strstr(status, "\nNSpid:");
    for (at = at ? at + strlen("\nNSpid:") : NULL; at && n < max && *at == '\t'; n++)
        numbers[n] = (pid_t)strtol(at + 1, &at, 10);
    return n;
}

static struct view look(void)
{
    static struct view view;
    pid_t numbers[NAMESPACES_MAX];
    char link[24] = "";
    if (view.of == getpid())
        return view;
    view = (struct view){.of = getpid()};
    ssize_t len = readlink("/proc/self", link, sizeof link - 1);
    if (len > 0 && (pid_t)strtol(link, NULL, 10) == getpid()) {
        view.self = getpid();
        return view;
    }
    int n = numbers_of("self", numbers, NAMESPACES_MAX);
    if (n > 0 && numbers[n - 1] == getpid()) {
        view.self = numbers[0];
        view.level = n - 1;
    }
    return view;
}

/* The process's pid in our namespace; 0: it has gone. */
static pid_t own_number(const struct view *view, pid_t shown)
{
    char pid[24];
    pid_t numbers[NAMESPACES_MAX];
    if (view->level == 0)
        return shown;
    snprintf(pid, sizeof pid, "%d", (int)shown);
    return numbers_of(pid, numbers, NAMESPACES_MAX) > view->level ? numbers[view->level] : 0;
}

bool tree_is_visible(void)
{
    return look().self != 0;
}

/* ---- signals ---- */

struct shot {
    struct view view;
    int sig;
    bool spare_group;
    pid_t refused;
};

/* The pid still belongs to the process it was read from: the kernel reuses a pid only after all
 * others. */
static void shoot_at(struct shot *shot, pid_t pid)
{
    if (pid <= 0 || (shot->spare_group && getpgid(pid) == getpgrp()))
        return;
    if (kill(pid, shot->sig) < 0 && errno == EPERM)
        shot->refused = pid;
    if (signals_asks_to_end(shot->sig))
        kill(pid, SIGCONT);
}

static void shoot(pid_t pid, void *data)
{
    struct shot *shot = data;
    shoot_at(shot, own_number(&shot->view, pid));
}

pid_t tree_signal(pid_t child, int sig, bool spare_group)
{
    use_spares();
    struct shot shot = {.view = look(), .sig = sig, .spare_group = spare_group};
    bool seen = shot.view.self != 0 && tree_walk("/proc", shot.view.self, shoot, &shot);
    if (!seen && child > 0)
        shoot_at(&shot, child);
    (void)tree_reserve();
    return shot.refused;
}

struct listing {
    struct view view;
    pid_t *pids;
    size_t n, max;
};

static void list_one(pid_t pid, void *data)
{
    struct listing *listing = data;
    pid_t number = own_number(&listing->view, pid);
    if (number > 0 && listing->n++ < listing->max)
        listing->pids[listing->n - 1] = number;
}

size_t tree_list(pid_t *pids, size_t max)
{
    use_spares();
    struct listing listing = {.view = look(), .pids = pids, .max = max};
    if (listing.view.self != 0)
        tree_walk("/proc", listing.view.self, list_one, &listing);
    (void)tree_reserve();
    return listing.n;
}

/* A line such as "SigCgt:\t0000000000004002"; true also where it is not there. */
static bool mask_has(const char *status, const char *name, int sig)
{
    const char *at = strstr(status, name);
    return at == NULL || strtoull(at + strlen(name), NULL, 16) >> (sig - 1) & 1;
}

/* The text of /proc/PID/file; "" where there is none. */
static void read_text(char *text, size_t size, pid_t pid, const char *file)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[len > 0 ? len : 0] = '\0';
}

/* While a process is in sigwait(3), /proc shows the awaited signals as neither blocked nor handled.
 * So it must be seen in one other system call, before and after. */
bool tree_has_default_action(pid_t pid, int sig)
{
    char status[4096], before[256], after[256], *end;
    const struct view view = look();
    if (view.self == 0 || view.level > 0)
        return false;
    read_text(before, sizeof before, pid, "syscall");
    read_text(status, sizeof status, pid, "status");
    read_text(after, sizeof after, pid, "syscall");
    long number = strtol(before, &end, 10);
    if (end == before || number == SYS_rt_sigtimedwait || strcmp(before, after) != 0)
        return false;
    return !mask_has(status, "\nSigBlk:\t", sig) && !mask_has(status, "\nSigIgn:\t", sig) &&
           !mask_has(status, "\nSigCgt:\t", sig);
}

void tree_end(void)
{
    struct timespec pause = {.tv_nsec = 2000000};
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    for (;;) {
        tree_signal(0, SIGKILL, false);
        pid_t ended;
        while ((ended = waitpid(-1, NULL, WNOHANG)) > 0)
            continue;
        if (ended < 0 && errno == ECHILD)
            return;
        sigtimedwait(&children, NULL, &pause);
        if (pause.tv_nsec < 100000000)
            pause.tv_nsec *= 2;
    }
}
