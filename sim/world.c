/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define STEPS_MAX 3000000 /* of a run; most have some 10,000 */

struct happening {
    uint64_t at_ns, turn;
    happening_fn *fn;
    void *data;
};

/* Freed at the end, first to last. */
struct memory {
    struct memory *next;
    max_align_t bytes[];
};

static struct world {
    uint64_t now_ns, turn, steps, seed, sum;
    struct happening *heap;
    size_t n, room;
    struct memory *memory;
    struct history history;
    FILE *trace;
    bool trace_ended;
    const struct world_observer *observer; /* NULL: there is none */
} world;

/* ---- randomness ---- */

uint64_t random_next(struct random *random)
{
    uint64_t x = random->state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

struct random random_stream(uint64_t seed, uint64_t label)
{
    struct random random = {.state = seed};
    random.state = random_next(&random) ^ (label * UINT64_C(0xd6e8feb86659fd93));
    random_next(&random);
    return random;
}

uint64_t random_below(struct random *random, uint64_t n)
{
    return n == 0 ? 0 : random_next(random) % n;
}

uint64_t random_between(struct random *random, uint64_t low, uint64_t high)
{
    return low + random_below(random, high - low + 1);
}

bool random_once_in(struct random *random, uint64_t n)
{
    return random_below(random, n) == 0;
}

/* ---- memory ---- */

static void no_memory(void)
{
    fputs("stile: sim: out of memory\n", stderr);
    exit(69);
}

void *world_alloc(size_t size)
{
    struct memory *memory = calloc(1, sizeof *memory + size);
    if (memory == NULL)
        no_memory();
    memory->next = world.memory;
    world.memory = memory;
    return memory->bytes;
}

char *world_print(const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    char *copy = world_alloc((size_t)n + 1);
    memcpy(copy, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
    return copy;
}

/* ---- time ---- */

void world_begin(uint64_t seed, FILE *trace)
{
    struct happening *heap = world.heap;
    size_t room = world.room;
    world =
        (struct world){.heap = heap, .room = room, .seed = seed, .sum = FNV_START, .trace = trace};
    history_init(&world.history);
}

void world_end(void)
{
    history_free(&world.history);
    while (world.memory != NULL) {
        struct memory *next = world.memory->next;
        free(world.memory);
        world.memory = next;
    }
    world.n = 0;
}

uint64_t world_now(void)
{
    return world.now_ns;
}

uint64_t world_seed(void)
{
    return world.seed;
}

struct history *world_history(void)
{
    return &world.history;
}

static bool comes_first(const struct happening *a, const struct happening *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->turn < b->turn);
}

static void swap(size_t a, size_t b)
{
    struct happening kept = world.heap[a];
    world.heap[a] = world.heap[b];
    world.heap[b] = kept;
}

void world_at(uint64_t at_ns, happening_fn *fn, void *data)
{
    if (world.n == world.room) {
        world.room = world.room != 0 ? 2 * world.room : 1024;
        world.heap = realloc(world.heap, world.room * sizeof *world.heap);
        if (world.heap == NULL)
            no_memory();
    }
    if (at_ns < world.now_ns)
        at_ns = world.now_ns;
    size_t i = world.n++;
    world.heap[i] = (struct happening){at_ns, world.turn++, fn, data};
    for (; i > 0 && comes_first(&world.heap[i], &world.heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(i, (i - 1) / 2);
}

static struct happening take_first(void)
{
    struct happening first = world.heap[0];
    world.heap[0] = world.heap[--world.n];
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2; child++) {
            if (child < world.n && comes_first(&world.heap[child], &world.heap[least]))
                least = child;
        }
        if (least == i)
            return first;
        swap(i, least);
        i = least;
    }
}

bool world_step(uint64_t until_ns)
{
    if (world.n == 0 || world.heap[0].at_ns > until_ns || world_is_endless())
        return false;
    world.steps++;
    struct happening next = take_first();
    world.now_ns = next.at_ns;
    next.fn(next.data);
    if (world.observer != NULL)
        world.observer->stepped();
    return true;
}

bool world_is_endless(void)
{
    return world.steps >= STEPS_MAX;
}

void world_run(uint64_t until_ns)
{
    while (world_step(until_ns))
        ;
    world.now_ns = until_ns;
}

/* ---- the trace ---- */

void world_observe(const struct world_observer *observer)
{
    world.observer = observer;
}

void world_trace(const char *format, ...)
{
    char line[400];
    if (world.trace_ended)
        return;
    int n = snprintf(line, sizeof line, "%" PRIu64 ".%09" PRIu64 " ", world.now_ns / SEC,
                     world.now_ns % SEC);
    va_list args;
    va_start(args, format);
    vsnprintf(line + n, sizeof line - (size_t)n, format, args);
    va_end(args);
    world.sum = fnv_add(world.sum, line, strlen(line));
    if (world.trace != NULL)
        fprintf(world.trace, "%s\n", line);
    if (world.observer != NULL)
        world.observer->traced(line + n);
}

uint64_t world_trace_sum(void)
{
    return world.sum;
}

uint64_t world_trace_end(void)
{
    world.trace_ended = true;
    return world.sum;
}
