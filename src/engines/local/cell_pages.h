/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of an LMDB file, checked before LMDB walks over them.
 *
 * LMDB believes what its file says: a damaged page lets it read and write outside of its memory, or
 * report that a key is not there. A cell that is not found has no guard any longer, so that would
 * let a stale token pass. Before each request the pages it will touch are checked: their numbers,
 * kinds and bounds, the order of their keys, and that each page has only keys that belong there.
 * What LMDB writes to, its lists of free pages included, is checked in full. The format is that of
 * data version 1, which all of LMDB 0.9 has. */
#ifndef STILE_LOCAL_CELL_PAGES_H
#define STILE_LOCAL_CELL_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* A tree of pages; laid out as in the file. */
struct page_tree {
    uint32_t pad; /* of the first tree: the size of a page */
    uint16_t flags, depth;
    size_t n_branches, n_leaves, n_overflows, n_entries;
    size_t root;
};

struct pages {
    const char *map; /* of the whole file */
    size_t bytes;
    size_t page_bytes;
    /* of the transaction that was committed last */
    size_t transaction;
    size_t last; /* page */
    struct page_tree free, main;
};

/* Each returns NULL, or what is wrong with the file. */

/* Reads what stands at the file's start. */
const char *local_pages_begin(struct pages *pages, const void *map, size_t bytes);

/* Everything that LMDB needs to find free pages. */
const char *local_pages_check_free(const struct pages *pages);

/* An entry of a page: returns NULL, or what is wrong with it. */
typedef const char *page_entry_fn(const void *key, size_t key_len, const void *data, size_t size);

/* All pages on the way to this key. *data is where its data is, in this map; or NULL if it is not
 * there. Then *neighbour looks at the entries on both sides of its place: one of them may be the
 * key, damaged. neighbour NULL: any may stand there. */
const char *local_pages_check_key(const void **data, const struct pages *pages, const void *key,
                                  size_t len, page_entry_fn *neighbour);

/* All pages with keys that begin with this prefix, and how many there are. */
const char *local_pages_check_prefix(size_t *count, const struct pages *pages, const void *prefix,
                                     size_t len);

struct page_entry {
    const void *key, *data; /* in this map */
    size_t key_len, size;
};

/* The same, up to the first max keys. entries may be NULL. */
const char *local_pages_check_first(struct page_entry *entries, size_t *count, size_t max,
                                    const struct pages *pages, const void *prefix, size_t len);

/* All pages that LMDB may touch when it deletes this key: a page that becomes almost empty is
 * merged with the one beside it. */
const char *local_pages_check_around(const struct pages *pages, const void *key, size_t len);

#endif
