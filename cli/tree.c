/* The tree of processes below us: finding it, signalling it, ending it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"

/* Linux gives out no larger pid. One bit for each: no allocation can fail while we kill. */
#define PIDS_MAX (1 << 22)

/* Deeper ones move up when what is above them has been killed, and are found by the next walk. */
#define DEPTH_MAX 64

#define PATH_ROOM 96

struct walk {
    const char *proc;
    tree_visit_fn *visit;
    void *data;
};

static unsigned char members[PIDS_MAX / 8];

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

/* ---- else /proc/PID/stat of everybody ---- */

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
        /* Visited at once: a process that forks and ends all the time is gone a moment later. */
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
    /* Again as long as it helps: a child's pid may be smaller than its parent's. */
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

/* ---- signals ---- */

struct shot {
    int sig;
    pid_t refused;
};

/* A pid can't have become another process's since it was read: the kernel gives a number out again
 * only after all others. */
static void shoot(pid_t pid, void *data)
{
    struct shot *shot = data;
    if (kill(pid, shot->sig) < 0 && errno == EPERM)
        shot->refused = pid;
    if (shot->sig == SIGTERM)
        kill(pid, SIGCONT);
}

pid_t tree_signal(pid_t child, int sig)
{
    struct shot shot = {.sig = sig};
    if (!tree_walk("/proc", getpid(), shoot, &shot) && child > 0)
        shoot(child, &shot);
    return shot.refused;
}

void tree_end(void)
{
    struct timespec pause = {.tv_nsec = 2000000};
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    for (;;) {
        tree_signal(0, SIGKILL);
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
