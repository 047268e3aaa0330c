/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes are read as a CRDT, or refused with a sentence. What is read is written back as it was, and
 * merges with a state of ours in either order to the same one, which still accepts changes. */
#include "fuzz.h"
#include "stile.h"

static int64_t no_clock(void *data)
{
    (void)data;
    return INT64_MAX; /* no register is too far ahead */
}

static struct stile_crdt *ours(enum stile_crdt_kind kind)
{
    static const unsigned char id[STILE_REPLICA_SIZE] = {'m', 'e'};
    struct stile_crdt *crdt;
    MUST(!stile_crdt_new(&crdt, kind, STILE_CRDT_OPTIONS(.replica = id, .clock = no_clock), NULL));
    if (kind == STILE_CRDT_ORSET)
        MUST(!stile_orset_add(crdt, "x", 1, NULL));
    else if (kind == STILE_CRDT_LWW)
        MUST(!stile_lww_set(crdt, "x", 1, NULL));
    else
        MUST(!stile_counter_add(crdt, 7, NULL));
    return crdt;
}

/* The largest input that is read is STILE_CRDT_MAX; merged, it may be larger. */
static void write_back(const struct stile_crdt *crdt, const uint8_t *bytes, size_t size)
{
    size_t written;
    char *out = malloc(size);
    MUST(out && !stile_crdt_encode(&written, out, size, crdt, NULL));
    MUST(written == size && memcmp(out, bytes, size) == 0);
    free(out);
}

static void merge(const struct stile_crdt *theirs, const uint8_t *bytes, size_t size)
{
    struct stile_crdt *a = ours(stile_crdt_kind(theirs)), *b, *mine = ours(stile_crdt_kind(theirs));
    MUST(!stile_crdt_decode(&b, bytes, size, STILE_CRDT_OPTIONS(.clock = no_clock), NULL));
    MUST(stile_crdt_equal(b, theirs));
    MUST(!stile_crdt_merge(a, theirs, NULL) && !stile_crdt_merge(b, mine, NULL));
    MUST(stile_crdt_equal(a, b));
    MUST(!stile_crdt_merge(a, theirs, NULL) && stile_crdt_equal(a, b));
    (void)stile_orset_remove(b, "x", 1, NULL);
    MUST(!stile_orset_has(b, "x", 1));
    stile_crdt_free(a);
    stile_crdt_free(b);
    stile_crdt_free(mine);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct stile_crdt *crdt;
    struct stile_error err = {0};
    if (stile_crdt_decode(&crdt, bytes, size, STILE_CRDT_OPTIONS(.clock = no_clock), &err)) {
        MUST(!crdt && err.status == STILE_CORRUPT && fuzz_is_line(err.message));
        return 0;
    }
    write_back(crdt, bytes, size);
    merge(crdt, bytes, size);
    (void)stile_counter_value(crdt);
    stile_crdt_free(crdt);
    return 0;
}
