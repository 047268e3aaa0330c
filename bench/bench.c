/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_NS 30000000000

noreturn void bench_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

long bench_number(const char *text)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value <= 0)
        bench_die("'%s': want a number above 0", text);
    return value;
}

int64_t bench_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

void bench_sleep_us(long us)
{
    struct timespec ts = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    while (nanosleep(&ts, &ts) && errno == EINTR)
        ;
}

void bench_pin(int nth)
{
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof(allowed), &allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE && nth >= 0; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && nth-- == 0)
            CPU_SET(cpu, &one);
    }
    if (nth >= 0)
        bench_die("this figure needs one more core than we may use");
    if (sched_setaffinity(0, sizeof(one), &one))
        bench_die("cannot pin to a core: %s", strerror(errno));
}

void bench_many_files(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

void *bench_share(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        bench_die("mmap of %zu bytes: %s", size, strerror(errno));
    return memory;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t bench_percentile(int64_t *values, size_t n, unsigned p)
{
    qsort(values, n, sizeof(*values), compare);
    size_t rank = (n * p + 99) / 100;
    return values[rank ? rank - 1 : 0];
}

pid_t bench_fork(void)
{
    pid_t parent = getpid();
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        bench_die("fork: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
    }
    return pid;
}

void bench_reap(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

void bench_word_wait(const uint32_t *word, uint32_t seen)
{
    const struct timespec limit = {.tv_sec = 1};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

void bench_word_set(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void bench_word_await(const uint32_t *word, uint32_t value)
{
    int64_t end_ns = bench_now_ns() + PATIENCE_NS;
    uint32_t seen;
    while ((seen = __atomic_load_n(word, __ATOMIC_SEQ_CST)) < value) {
        if (bench_now_ns() > end_ns)
            bench_die("a process of the bench did not get ready within 30 s");
        bench_word_wait(word, seen);
    }
}

int bench_open_state(pid_t pid)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        bench_die("%s: %s", path, strerror(errno));
    return fd;
}

/* The letter after the parenthesised command in /proc/PID/stat. */
char bench_state(int fd)
{
    char text[512];
    ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
    if (size <= 0)
        return '?';
    text[size] = 0;
    const char *end = strrchr(text, ')');
    return end && end[1] ? end[2] : '?';
}

void bench_await_asleep(pid_t pid)
{
    int fd = bench_open_state(pid);
    int64_t end_ns = bench_now_ns() + PATIENCE_NS;
    /* Three looks: a process may sleep for a moment on its way to the place where it waits. */
    for (int asleep = 0; asleep < 3; bench_sleep_us(1000)) {
        asleep = bench_state(fd) == 'S' ? asleep + 1 : 0;
        if (bench_now_ns() > end_ns)
            bench_die("process %d does not wait", (int)pid);
    }
    close(fd);
}
