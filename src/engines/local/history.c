/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The record of each name's last holder: the file `history`, with room for 8192 names.
 *
 * A name belongs to one set of slots, and the oldest record of the set gives way to a new name's.
 * The file is neither mapped nor synced nor tied to the boot. A slot has a sum, so that half a
 * write, or damage, is an empty slot and nothing more. Processes that write to one set take turns
 * with a byte lock: the record of a late holder must not slip in between the reading and the
 * writing of its successor's. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/name.h"
#include "engines/local/local.h"

#define SLOT_BYTES    2048
#define SLOTS_PER_SET 8
#define SETS          1024
#define SET_BYTES     (SLOTS_PER_SET * SLOT_BYTES)
#define KEPT_MS       (INT64_C(30) * 24 * 3600 * 1000)
/* A process inside takes microseconds; one that was stopped there must not stop us. */
#define LOCK_TRIES 200
#define READ_TRIES 3

static const char slot_magic[8] = "stileh1";

struct slot_head {
    char magic[8];
    uint64_t sum; /* of all that follows */
    uint64_t token;
    int64_t stored_ms; /* Unix time */
    uint16_t name_len, text_len;
};

struct history_slot {
    struct slot_head head;
    char bytes[SLOT_BYTES - sizeof(struct slot_head)]; /* name, then text */
};

_Static_assert(sizeof(struct history_slot) == SLOT_BYTES, "a slot has no padding");
_Static_assert(SLOT_BYTES - sizeof(struct slot_head) >= STILE_NAME_MAX + RECORD_MAX,
               "every record fits into a slot");

struct history_set {
    off_t at;
    struct history_slot slots[SLOTS_PER_SET];
};

static int64_t wall_clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- slots ---- */

static size_t slot_used(const struct slot_head *head)
{
    return sizeof *head + head->name_len + head->text_len;
}

static uint64_t slot_sum(const struct history_slot *slot)
{
    size_t from = offsetof(struct slot_head, token);
    return fnv_add(FNV_START, (const char *)slot + from, slot_used(&slot->head) - from);
}

static bool is_blank(const struct history_slot *slot)
{
    static const struct slot_head blank;
    return memcmp(&slot->head, &blank, sizeof blank) == 0;
}

static bool is_sound(const struct history_slot *slot)
{
    const struct slot_head *head = &slot->head;
    return memcmp(head->magic, slot_magic, sizeof slot_magic) == 0 &&
           head->name_len <= STILE_NAME_MAX && head->text_len <= RECORD_MAX &&
           head->sum == slot_sum(slot);
}

/* Also the answer to a number of tokens that has begun anew: an old record stays for 30 days. */
static bool is_outdated(const struct history_slot *slot)
{
    return wall_clock_ms() - slot->head.stored_ms > KEPT_MS;
}

static bool is_of(const struct history_slot *slot, const struct query *query)
{
    return slot->head.name_len == query->name_len &&
           memcmp(slot->bytes, query->name, query->name_len) == 0;
}

static void fill(struct history_slot *slot, const struct query *query)
{
    size_t len = strlen(query->record);
    memset(slot, 0, sizeof *slot);
    memcpy(slot->head.magic, slot_magic, sizeof slot_magic);
    slot->head.token = query->token;
    slot->head.stored_ms = wall_clock_ms();
    slot->head.name_len = (uint16_t)query->name_len;
    slot->head.text_len = (uint16_t)len;
    memcpy(slot->bytes, query->name, query->name_len);
    memcpy(slot->bytes + query->name_len, query->record, len);
    slot->head.sum = slot_sum(slot);
}

/* ---- sets ---- */

static off_t set_place(const struct query *query)
{
    return (off_t)(name_hash(query->name, query->name_len) % SETS) * SET_BYTES;
}

/* What is behind the end of the file, or cannot be read, is empty. damaged: a slot is, or was being
 * written just now. */
static void read_set(struct history_set *set, bool *damaged, int fd, const struct query *query)
{
    set->at = set_place(query);
    memset(set->slots, 0, sizeof set->slots);
    (void)!pread(fd, set->slots, sizeof set->slots, set->at);
    *damaged = false;
    for (size_t i = 0; i < SLOTS_PER_SET; i++) {
        struct history_slot *slot = &set->slots[i];
        if (is_blank(slot))
            continue;
        if (!is_sound(slot))
            *damaged = true;
        if (!is_sound(slot) || is_outdated(slot))
            memset(&slot->head, 0, sizeof slot->head);
    }
}

static struct history_slot *find(struct history_set *set, const struct query *query)
{
    for (size_t i = 0; i < SLOTS_PER_SET; i++) {
        if (is_of(&set->slots[i], query))
            return &set->slots[i];
    }
    return NULL;
}

/* An empty slot is the oldest of all. */
static struct history_slot *oldest(struct history_set *set)
{
    struct history_slot *old = &set->slots[0];
    for (size_t i = 1; i < SLOTS_PER_SET; i++) {
        if (set->slots[i].head.stored_ms < old->head.stored_ms)
            old = &set->slots[i];
    }
    return old;
}

/* ---- showing ---- */

void local_history_show(struct engine *engine, struct query *query)
{
    struct history_set set;
    struct history_slot *slot = NULL;
    struct stile_error error;
    bool damaged = true;
    int fd;
    if (local_dir_open_file(&fd, &local_of(engine)->env->dir, "history", 0, &error))
        return;
    for (int i = 0; i < READ_TRIES && !slot && damaged; i++) {
        read_set(&set, &damaged, fd, query);
        slot = find(&set, query);
    }
    close(fd);
    if (slot)
        engine->events->record(query, slot->bytes + slot->head.name_len, slot->head.text_len);
}

/* ---- recording ---- */

/* Closing the descriptor gives it back. */
static int lock_set(int fd, off_t at)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = SET_BYTES};
    for (int i = 0; fcntl(fd, F_OFD_SETLK, &lock) != 0; i++) {
        if ((errno != EAGAIN && errno != EACCES && errno != EINTR) || i == LOCK_TRIES)
            return errno;
        sched_yield();
    }
    return 0;
}

/* 0 or an errno value. */
static int write_slot(int fd, const struct history_set *set, const struct history_slot *slot)
{
    off_t at = set->at + (slot - set->slots) * SLOT_BYTES;
    if (local_store_exceeds_limit((uint64_t)at + SLOT_BYTES))
        return EFBIG;
    ssize_t n = pwrite(fd, slot, slot_used(&slot->head), at);
    if (n < 0)
        return errno;
    return (size_t)n == slot_used(&slot->head) ? 0 : ENOSPC;
}

static int store(int fd, const struct query *query)
{
    struct history_set set;
    bool damaged;
    int rc = lock_set(fd, set_place(query));
    if (rc)
        return rc;
    read_set(&set, &damaged, fd, query);
    struct history_slot *slot = find(&set, query);
    if (slot && slot->head.token > query->token)
        return 0;
    slot = slot ? slot : oldest(&set);
    fill(slot, query);
    return write_slot(fd, &set, slot);
}

static void record(struct engine *engine, struct query *query)
{
    struct stile_error error;
    int fd;
    enum stile_status status =
        local_dir_open_file(&fd, &local_of(engine)->env->dir, "history", O_CREAT, &error);
    if (!status) {
        int rc = store(fd, query);
        close(fd);
        if (rc)
            status = error_errno(&error, STILE_UNREACHABLE, rc,
                                 "writing to `history` in the state directory");
    }
    engine->events->done(query, status ? &error : NULL);
}

const struct engine_history local_history = {.record = record};
