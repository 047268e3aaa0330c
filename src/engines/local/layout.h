/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The state file: 64-byte cells, addressed by 32-bit index; 0 stands for "none".
 *
 *     0 header    what this file is, and of which boot
 *     1 ledger    counts, free list, token floor
 *     2 lock      which process is inside a transaction (unchecked)
 *     3 journal   how far the transaction under way has come (own check)
 *     4 tags      sequence and index of each journalled cell
 *    36 before    each journalled cell as it was
 *   292 segments  where the hash chains are that have been added to the first (chains.h)
 *   293 buckets   heads of the first hash chains of names and sessions
 *  5755 words     65536, shared by the names in all cells behind (quick.h; own check)
 * 22139 marks     one for each word (quick.h; own check)
 * 30331 ...       names, claims, texts, sessions, observers, segments, free cells
 *
 * A bucket cell counts only if it has the ledger's generation, so that the table is emptied,
 * however much is in it, by one change of the ledger.
 *
 * Each cell begins with a check word over the rest of it and its own index, so that a flipped bit
 * and a cell in the wrong place are both noticed before the cell is used. */
#ifndef STILE_LOCAL_LAYOUT_H
#define STILE_LOCAL_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

/* A fuzzer reads the whole table thousands of times. */
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
#define BUCKET_BITS       5
#define QUICK_SLOTS       64
#define STATE_BYTES_FIRST (UINT64_C(2) << 20)
#define STATE_BYTES_MAX   (UINT64_C(4) << 20)
#else
#define BUCKET_BITS       16
#define QUICK_SLOTS       65536
#define STATE_BYTES_FIRST (UINT64_C(4) << 20)
#define STATE_BYTES_MAX   (UINT64_C(4) << 30)
#endif

#define STATE_MAGIC   "stile-local"
#define STATE_VERSION 4

#define CELL_BYTES       64
#define JOURNAL_MAX      256
#define BUCKETS          (1 << BUCKET_BITS)
#define BUCKETS_PER_CELL 12
#define SEGMENTS_MAX     8
#define BUCKETS_MAX      (BUCKETS << SEGMENTS_MAX)
#define TEXT_BYTES       51
#define QUICK_BYTES      16
#define QUICK_MARK_BYTES 8

#define STATE_CELLS_MAX ((uint32_t)(STATE_BYTES_MAX / CELL_BYTES))

enum cell_place {
    AT_HEADER,
    AT_LEDGER,
    AT_LOCK,
    AT_JOURNAL,
    AT_TAGS,
    AT_BEFORE = AT_TAGS + JOURNAL_MAX * 8 / CELL_BYTES,
    AT_SEGMENTS = AT_BEFORE + JOURNAL_MAX,
    AT_BUCKETS,
    AT_QUICK = AT_BUCKETS + (BUCKETS + BUCKETS_PER_CELL - 1) / BUCKETS_PER_CELL,
    AT_QUICK_MARKS = AT_QUICK + QUICK_SLOTS * QUICK_BYTES / CELL_BYTES,
    AT_FIRST = AT_QUICK_MARKS + QUICK_SLOTS * QUICK_MARK_BYTES / CELL_BYTES,
};

#define BUCKET_CELLS (AT_QUICK - AT_BUCKETS)

enum cell_kind {
    CELL_FREE = 1,
    CELL_HEADER,
    CELL_LEDGER,
    CELL_BUCKETS,
    CELL_NAME,
    CELL_CLAIM,
    CELL_TEXT,
    CELL_SESSION,
    CELL_OBSERVER,
    CELL_SEGMENTS,
};

enum cell_claim_state {
    CLAIM_SPARE,
    CLAIM_WAITING,
    CLAIM_HELD,
    CLAIM_BROKEN, /* held, and its holder is being notified that it is taken away */
    CLAIM_GHOST,  /* no longer held, but it keeps its place until until_ns */
};

struct header_cell {
    uint64_t check;
    char magic[16];
    uint8_t boot[16];
    uint32_t version;
    uint32_t abi;
    uint8_t unused[15];
    uint8_t kind;
};

struct ledger_cell {
    uint64_t check;
    uint64_t floor; /* a name that is not in the file gets tokens above it only */
    uint32_t epoch; /* the upper half of tokens that is durable */
    uint32_t first_free;
    uint32_t n_free;
    uint32_t n_used;  /* cells below it have been used since the file was made */
    uint32_t n_cells; /* how many cells the file has room for */
    uint32_t n_names;
    uint32_t first_observer;
    uint32_t n_born;
    uint32_t generation; /* of the bucket cells that count */
    uint32_t n_kept;     /* claims that hold_at_least or a lock-delay may keep without a holder */
    uint16_t sweep;      /* the bucket cell to be searched next for names to forget */
    uint16_t n_observers;
    uint16_t n_sessions; /* at its maximum: that many or more */
    uint8_t unused;
    uint8_t kind;
};

struct buckets_cell {
    uint64_t check;
    uint32_t first[BUCKETS_PER_CELL];
    uint32_t generation;
    uint8_t unused[3];
    uint8_t kind;
};

struct segments_cell {
    uint64_t check;
    uint32_t n_buckets;
    uint32_t first[SEGMENTS_MAX]; /* its first cell; 0: there is no such segment */
    uint8_t unused[19];
    uint8_t kind;
};

struct free_cell {
    uint64_t check;
    uint32_t next, prev;
    uint8_t unused[47];
    uint8_t kind;
};

/* Names and sessions share the hash chains; key and chain are in the same place in both. */
struct chained_cell {
    uint64_t check;
    uint64_t key;
    uint8_t other[16];
    uint32_t chain;
    uint8_t others[27];
    uint8_t kind;
};

/* Claims stand in one list, in order of arrival; the granted ones are its first n_held. */
struct name_cell {
    uint64_t check;
    uint64_t hash;
    uint64_t token;     /* of the latest grant */
    uint32_t touched_s; /* when a claim last came or went; CLOCK_BOOTTIME */
    uint32_t born;      /* distinguishes it from an earlier name in the same cell */
    uint32_t chain;
    uint32_t first, last, held_last;
    uint32_t text;
    uint32_t spare; /* an unused claim cell, so that the next claim need not touch the ledger */
    uint16_t n_held, n_waiting, n_ghosts;
    uint8_t n_watched : 6; /* observers; the name is not forgotten while there are any */
    uint8_t is_quick : 1;  /* open: its word names the holder (quick.h) */
    uint8_t was_quick : 1; /* its latest token is in a block of its own */
    uint8_t kind;
};

struct claim_cell {
    uint64_t check;
    union {
        uint64_t session;
        uint64_t until_ns; /* of a ghost */
    };
    uint64_t token;
    uint64_t since_ns; /* enqueued, later granted */
    uint32_t id;       /* the session's own number for it; of a ghost with has_pid: its pid */
    uint32_t prev, next;
    uint32_t name;
    uint32_t slots;
    uint32_t hold_ms, delay_ms;
    uint8_t mode;
    uint8_t state;
    union {
        uint8_t has_pid; /* of a ghost; unset in what earlier versions have left */
        uint8_t woken;   /* of a waiter: the lock was free, and it has not looked since */
    };
    uint8_t kind;
};

/* A name's text is filled up with NULs. */
struct text_cell {
    uint64_t check;
    uint32_t next;
    char bytes[TEXT_BYTES];
    uint8_t kind;
};

struct session_cell {
    uint64_t check;
    uint64_t id;
    uint64_t since_ns;
    uint32_t pid, uid;
    uint32_t chain;
    uint32_t text; /* host, then command */
    uint16_t host_len, command_len;
    uint8_t has_tag; /* no older session has the same low bits of the id: it may take words */
    uint8_t unused[18];
    uint8_t kind;
};

struct observer_cell {
    uint64_t check;
    uint64_t session;
    uint32_t name; /* the name it watches */
    uint32_t id;
    uint32_t prev, next;
    uint8_t unused[31];
    uint8_t kind;
};

/* Word: the id in `live` of the process inside, shifted left by one; lowest bit: others wait. */
struct lock_cell {
    uint64_t word;
    uint64_t top; /* no token above it was ever granted */
    uint64_t top_check;
    uint32_t pid; /* of the process inside, for messages; may be outdated */
    uint8_t unused[36];
};

/* Neither in the journal nor under a check word: only ever a word, whatever its cell holds. */
struct quick {
    uint64_t word;
    uint64_t since_ns; /* written after the word was taken: may be that of the holder before */
};

/* Word: sequence << 32 | check << 16 | number of journalled cells. */
struct journal_cell {
    uint64_t word;
    uint8_t unused[56];
};

/* Cells are written as structs and summed up as words. */
typedef uint64_t __attribute__((may_alias)) cell_word;

union cell {
    cell_word words[CELL_BYTES / 8];
    struct {
        uint64_t check;
        uint8_t payload[55];
        uint8_t kind;
    };
    struct header_cell header;
    struct ledger_cell ledger;
    struct buckets_cell buckets;
    struct segments_cell segments;
    struct free_cell free;
    struct chained_cell chained;
    struct name_cell name;
    struct claim_cell claim;
    struct text_cell text;
    struct session_cell session;
    struct observer_cell observer;
    struct lock_cell lock;
    struct journal_cell journal;
};

_Static_assert(sizeof(union cell) == CELL_BYTES, "every kind of cell fills one cell");
_Static_assert(sizeof(struct quick) == QUICK_BYTES, "the words fill their cells");
_Static_assert(BUCKET_CELLS <= UINT16_MAX, "the sweep's place fits into the ledger");
_Static_assert(offsetof(struct name_cell, chain) == offsetof(struct chained_cell, chain) &&
                   offsetof(struct session_cell, chain) == offsetof(struct chained_cell, chain),
               "names and sessions share the hash chains");

static inline uint64_t cell_rotate(uint64_t word, int by)
{
    return word << by | word >> (64 - by);
}

/* The sum notices every single flipped bit (a power of two times an odd number is never 0); the
 * second lane notices pairs of top bits, which a sum alone lets cancel out. No word waits for
 * another, so the processor works on all of them at once. */
static inline uint64_t cell_sum(const union cell *cell, uint32_t index)
{
    const cell_word *w = cell->words;
    uint64_t a = (w[1] + index) * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t b = cell_rotate(w[1], 7);

    a += w[2] * UINT64_C(0xd6e8feb86659fd93) + w[3] * UINT64_C(0xa0761d6478bd642f);
    a += w[4] * UINT64_C(0xe7037ed1a0b428db) + w[5] * UINT64_C(0x8ebc6af09c88c6e3);
    a += w[6] * UINT64_C(0x589965cc75374cc3) + w[7] * UINT64_C(0x1d8e4e27c47d124f);
    b ^= cell_rotate(w[2], 13) ^ cell_rotate(w[3], 19) ^ cell_rotate(w[4], 29);
    b ^= cell_rotate(w[5], 37) ^ cell_rotate(w[6], 43) ^ cell_rotate(w[7], 53);
    return a + b * UINT64_C(0xff51afd7ed558ccd) + UINT64_C(0x5851f42d4c957f2d);
}

#endif
