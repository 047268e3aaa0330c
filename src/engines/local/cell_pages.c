/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/local/cell_pages.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>

#define LMDB_MAGIC   0xbeefc0deu
#define LMDB_VERSION 1
#define NO_PAGE      (~(size_t)0)
#define FIRST_PAGE   2 /* behind the two that describe the file */
#define DEPTH_MAX    32
#define KEY_MAX      511
#define PAGE_MIN     512
#define PAGE_MAX     32768

enum { KIND_BRANCH = 1, KIND_LEAF = 2, KIND_OVERFLOW = 4, KIND_META = 8 };
enum { TREE_KIND_BITS = 0x7f, TREE_OF_NUMBERS = 8 };
enum { NODE_IS_BIG = 1 }; /* its data is in pages of its own */

struct page {
    size_t number;
    uint16_t pad, kind;
    union {
        struct {
            uint16_t lower, upper; /* the free room */
        };
        uint32_t n_pages; /* of an overflow */
    };
    uint16_t nodes[]; /* where they are */
};

#define PAGE_HEAD offsetof(struct page, nodes)

struct node {
#if BYTE_ORDER == LITTLE_ENDIAN
    uint16_t low, high;
#else
    uint16_t high, low;
#endif
    uint16_t flags, key_len;
    char bytes[]; /* key, data */
};

#define NODE_HEAD offsetof(struct node, bytes)

struct meta {
    uint32_t magic, version;
    void *address;
    size_t map_bytes;
    struct page_tree free, main;
    size_t last, transaction;
};

/* ---- the start ---- */

static const struct page *page_at(const struct pages *pages, size_t number)
{
    return (const struct page *)(pages->map + number * pages->page_bytes);
}

static const struct meta *meta_at(const struct pages *pages, size_t number)
{
    return (const struct meta *)((const char *)page_at(pages, number) + PAGE_HEAD);
}

static bool is_meta(const struct pages *pages, size_t number)
{
    const struct meta *meta = meta_at(pages, number);
    return page_at(pages, number)->kind == KIND_META && meta->magic == LMDB_MAGIC &&
           meta->version == LMDB_VERSION && meta->free.pad == pages->page_bytes;
}

/* The two take turns, one transaction each. If one has another number than its turn gives it, the
 * other may look newer, and the last write would be forgotten. */
static const struct meta *newest(const struct pages *pages)
{
    const struct meta *even = meta_at(pages, 0), *odd = meta_at(pages, 1);
    if (even->transaction == 0 && odd->transaction == 0)
        return even;
    if (even->transaction % 2 == 0 && odd->transaction == even->transaction + 1)
        return odd;
    if (odd->transaction % 2 == 1 && even->transaction == odd->transaction + 1)
        return even;
    return NULL;
}

static bool is_tree(const struct pages *pages, const struct page_tree *tree, uint16_t kind)
{
    if ((tree->flags & TREE_KIND_BITS) != kind)
        return false;
    if (tree->root == NO_PAGE)
        return tree->depth == 0;
    return tree->depth > 0 && tree->depth < DEPTH_MAX && tree->root <= pages->last;
}

const char *local_pages_begin(struct pages *pages, const void *map, size_t bytes)
{
    *pages = (struct pages){.map = map, .bytes = bytes};
    if (bytes < 2 * PAGE_MIN)
        return "it has been truncated";
    size_t size = meta_at(pages, 0)->free.pad;
    if (size < PAGE_MIN || size > PAGE_MAX || (size & (size - 1)))
        return "its start is damaged";
    pages->page_bytes = size;
    if (bytes < 2 * size)
        return "it has been truncated";
    if (!is_meta(pages, 0) || !is_meta(pages, 1))
        return "its start is damaged";
    const struct meta *meta = newest(pages);
    if (!meta)
        return "its start is damaged";
    pages->transaction = meta->transaction;
    pages->last = meta->last;
    pages->free = meta->free;
    pages->main = meta->main;
    if (pages->last >= bytes / size)
        return "it has been truncated";
    if (pages->last < 1 || !is_tree(pages, &pages->free, TREE_OF_NUMBERS) ||
        !is_tree(pages, &pages->main, 0))
        return "its start is damaged";
    return NULL;
}

/* ---- one page ---- */

struct key {
    const void *bytes; /* NULL: no limit */
    size_t len;
};

struct walk {
    const struct pages *pages;
    bool numbers;    /* the keys are numbers, and all pages are visited */
    struct key from; /* else: pages that may have this key */
    bool is_prefix;  /* or one that begins with it */
    page_entry_fn *neighbour;
    bool is_around;             /* also the pages beside, which a deletion may touch */
    const void **found;         /* the key's data */
    size_t *count, max;         /* of keys with the prefix */
    struct page_entry *entries; /* NULL: they are only counted */
};

static size_t n_nodes(const struct page *page)
{
    return (page->lower - PAGE_HEAD) / sizeof *page->nodes;
}

static const struct node *node_at(const struct page *page, size_t i)
{
    return (const struct node *)((const char *)page + page->nodes[i]);
}

static struct key node_key(const struct node *node)
{
    return (struct key){node->bytes, node->key_len};
}

static size_t node_data_size(const struct node *node)
{
    return node->low | (size_t)node->high << 16;
}

static size_t node_child(const struct node *node)
{
    size_t number = node->low | (size_t)node->high << 16;
#if SIZE_MAX > 0xffffffff
    number |= (size_t)node->flags << 32;
#endif
    return number;
}

static size_t number_of(struct key key)
{
    size_t number;
    memcpy(&number, key.bytes, sizeof number);
    return number;
}

static int compare(const struct walk *walk, struct key a, struct key b)
{
    if (walk->numbers) {
        size_t x = number_of(a), y = number_of(b);
        return x < y ? -1 : x > y;
    }
    int order = memcmp(a.bytes, b.bytes, a.len < b.len ? a.len : b.len);
    return order ? order : a.len < b.len ? -1 : a.len > b.len;
}

/* What it takes of the page; 0: more than there is. */
static size_t node_room(const struct walk *walk, const struct page *page, size_t i)
{
    size_t at = page->nodes[i], end = walk->pages->page_bytes;
    if (at < page->upper || at % 2 || at + NODE_HEAD > end)
        return 0;
    const struct node *node = node_at(page, i);
    size_t room = NODE_HEAD + node->key_len;
    if (page->kind == KIND_LEAF)
        room += node->flags & NODE_IS_BIG ? sizeof(size_t) : node_data_size(node);
    return at + room > end ? 0 : (room + 1) & ~(size_t)1;
}

static bool is_key(const struct walk *walk, const struct page *page, size_t i)
{
    const struct node *node = node_at(page, i);
    if (page->kind == KIND_LEAF && (node->flags & ~NODE_IS_BIG))
        return false;
    if (page->kind == KIND_BRANCH && i == 0)
        return true; /* it stands for all that is smaller */
    return walk->numbers ? node->key_len == sizeof(size_t)
                         : node->key_len > 0 && node->key_len <= KEY_MAX;
}

/* Nodes fill the page from its end without gaps, in order of their keys, which are all in
 * [low, high). */
static bool are_nodes_sound(const struct walk *walk, const struct page *page, struct key low,
                            struct key high)
{
    size_t n = n_nodes(page), used = 0;
    struct key before = low;
    for (size_t i = 0; i < n; i++) {
        size_t room = node_room(walk, page, i);
        if (!room || !is_key(walk, page, i))
            return false;
        used += room;
        if (page->kind == KIND_BRANCH && i == 0)
            continue;
        struct key key = node_key(node_at(page, i));
        int order = before.bytes ? compare(walk, before, key) : -1;
        if (order > 0 || (order == 0 && i > 0))
            return false;
        before = key;
    }
    if (used != walk->pages->page_bytes - page->upper)
        return false;
    return !high.bytes || !before.bytes || compare(walk, before, high) < 0;
}

static const struct page *sound_page(const struct walk *walk, size_t number, uint16_t kind)
{
    const struct pages *pages = walk->pages;
    if (number < FIRST_PAGE || number > pages->last)
        return NULL;
    const struct page *page = page_at(pages, number);
    return page->number == number && page->kind == kind ? page : NULL;
}

static const struct page *check_page(const struct walk *walk, size_t number, unsigned depth,
                                     struct key low, struct key high)
{
    const struct page *page = sound_page(walk, number, depth == 1 ? KIND_LEAF : KIND_BRANCH);
    size_t fewest = page && page->kind == KIND_BRANCH && !walk->numbers ? 2 : 1;
    if (!page || page->lower < PAGE_HEAD || page->lower % 2 || page->lower > page->upper ||
        page->upper > walk->pages->page_bytes || n_nodes(page) < fewest ||
        !are_nodes_sound(walk, page, low, high))
        return NULL;
    return page;
}

/* ---- data ---- */

#define PAGE_DAMAGED "a page is damaged"
#define VALUE_LOST   "a value is not in its place"

/* False: it is not where its node says. */
static bool find_data(const struct walk *walk, const struct node *node, const void **data)
{
    const struct pages *pages = walk->pages;
    size_t number, size = node_data_size(node);
    *data = node->bytes + node->key_len;
    if (!(node->flags & NODE_IS_BIG))
        return true;
    memcpy(&number, *data, sizeof number);
    const struct page *page = sound_page(walk, number, KIND_OVERFLOW);
    size_t n = (PAGE_HEAD - 1 + size) / pages->page_bytes + 1;
    if (!page || page->n_pages != n || n > pages->last + 1 - number)
        return false;
    *data = (const char *)page + PAGE_HEAD;
    return true;
}

/* A list of pages: how many, then their numbers, which become smaller. */
static bool is_free_list(const struct walk *walk, const struct node *node)
{
    const void *data;
    size_t n, number, before = walk->pages->last + 1, size = node_data_size(node);
    if (!find_data(walk, node, &data) || size < sizeof n)
        return false;
    memcpy(&n, data, sizeof n);
    if (n > size / sizeof n - 1)
        return false;
    for (size_t i = 1; i <= n; i++, before = number) {
        memcpy(&number, (const char *)data + i * sizeof n, sizeof number);
        if (number >= before || number < FIRST_PAGE)
            return false;
    }
    return true;
}

static const char *check_neighbour(const struct walk *walk, const struct page *page, size_t i)
{
    if (i >= n_nodes(page))
        return NULL; /* also of -1 */
    const struct node *node = node_at(page, i);
    const void *data;
    if (!find_data(walk, node, &data))
        return VALUE_LOST;
    return walk->neighbour(node->bytes, node->key_len, data, node_data_size(node));
}

static bool has_prefix(struct key key, struct key prefix)
{
    return key.len >= prefix.len && memcmp(key.bytes, prefix.bytes, prefix.len) == 0;
}

static const char *check_free_lists(const struct walk *walk, const struct page *page)
{
    for (size_t i = 0; i < n_nodes(page); i++)
        if (!is_free_list(walk, node_at(page, i)))
            return "a list of free pages is damaged";
    return NULL;
}

/* The first whose key is not smaller than what is wanted. */
static size_t find_place(const struct walk *walk, const struct page *page)
{
    size_t n = n_nodes(page), i = 0;
    while (i < n && compare(walk, node_key(node_at(page, i)), walk->from) < 0)
        i++;
    return i;
}

static bool is_enough(const struct walk *walk)
{
    return walk->is_prefix && *walk->count == walk->max;
}

static const char *check_values(const struct walk *walk, const struct page *page)
{
    const void *data;
    for (size_t i = find_place(walk, page); i < n_nodes(page) && !is_enough(walk); i++) {
        const struct node *node = node_at(page, i);
        if (!has_prefix(node_key(node), walk->from))
            break;
        if (!find_data(walk, node, &data))
            return VALUE_LOST;
        if (walk->entries)
            walk->entries[*walk->count] =
                (struct page_entry){node->bytes, data, node->key_len, node_data_size(node)};
        ++*walk->count;
    }
    return NULL;
}

static const char *check_value(const struct walk *walk, const struct page *page)
{
    size_t place = find_place(walk, page);
    if (place < n_nodes(page)) {
        const struct node *node = node_at(page, place);
        if (compare(walk, node_key(node), walk->from) == 0)
            return find_data(walk, node, walk->found) ? NULL : VALUE_LOST;
    }
    const char *fault = check_neighbour(walk, page, place - 1);
    return fault ? fault : check_neighbour(walk, page, place);
}

static const char *check_leaf(const struct walk *walk, const struct page *page)
{
    if (walk->numbers)
        return check_free_lists(walk, page);
    return walk->is_prefix ? check_values(walk, page) : check_value(walk, page);
}

/* ---- trees ---- */

/* Whether keys that are wanted may be in [low, high). */
static bool is_wanted(const struct walk *walk, struct key low, struct key high)
{
    if (walk->numbers)
        return true;
    if (high.bytes && compare(walk, high, walk->from) <= 0)
        return false;
    return !low.bytes || compare(walk, low, walk->from) <= 0 ||
           (walk->is_prefix && has_prefix(low, walk->from));
}

/* The keys of a page are in [low, high). */
struct span {
    struct key low, high;
};

static struct span child_span(const struct page *page, size_t i, const struct span *all)
{
    return (struct span){
        i > 0 ? node_key(node_at(page, i)) : all->low,
        i + 1 < n_nodes(page) ? node_key(node_at(page, i + 1)) : all->high,
    };
}

/* This page, and the pages on the way to its smallest key. */
static const char *check_lowest(const struct walk *walk, size_t number, unsigned depth,
                                struct span span)
{
    for (;; depth--) {
        const struct page *page = check_page(walk, number, depth, span.low, span.high);
        if (!page)
            return PAGE_DAMAGED;
        if (depth == 1)
            return NULL;
        number = node_child(node_at(page, 0));
        span = child_span(page, 0, &span);
    }
}

/* A deletion that leaves child i of the page almost empty moves nodes from one beside it, or merges
 * the two, and needs the smallest key of each. */
static const char *check_around(const struct walk *walk, const struct page *page, size_t i,
                                unsigned depth, const struct span *span)
{
    const size_t others[] = {0, i - 1, i + 1};
    const char *fault = NULL;
    for (size_t k = 0; k < 3 && !fault; k++)
        if (others[k] < n_nodes(page)) /* also not -1 */
            fault = check_lowest(walk, node_child(node_at(page, others[k])), depth - 1,
                                 child_span(page, others[k], span));
    return fault;
}

static const char *check_tree(const struct walk *walk, size_t number, unsigned depth,
                              struct span span)
{
    const struct page *page = check_page(walk, number, depth, span.low, span.high);
    const char *fault = NULL;
    if (!page)
        return PAGE_DAMAGED;
    if (depth == 1)
        return check_leaf(walk, page);
    for (size_t i = 0; i < n_nodes(page) && !fault && !is_enough(walk); i++) {
        struct span child = child_span(page, i, &span);
        if (!is_wanted(walk, child.low, child.high))
            continue;
        fault = check_tree(walk, node_child(node_at(page, i)), depth - 1, child);
        if (!fault && walk->is_around)
            fault = check_around(walk, page, i, depth, &span);
    }
    return fault;
}

static const char *check_from_root(const struct walk *walk, const struct page_tree *tree)
{
    const struct span all = {{NULL, 0}, {NULL, 0}};
    return tree->root == NO_PAGE ? NULL : check_tree(walk, tree->root, tree->depth, all);
}

const char *local_pages_check_free(const struct pages *pages)
{
    struct walk walk = {.pages = pages, .numbers = true};
    return check_from_root(&walk, &pages->free);
}

static const char *accept_any(const void *key, size_t key_len, const void *data, size_t size)
{
    (void)key, (void)key_len, (void)data, (void)size;
    return NULL;
}

const char *local_pages_check_key(const void **data, const struct pages *pages, const void *key,
                                  size_t len, page_entry_fn *neighbour)
{
    struct walk walk = {.pages = pages,
                        .from = {key, len},
                        .neighbour = neighbour ? neighbour : accept_any,
                        .found = data};
    *data = NULL;
    return check_from_root(&walk, &pages->main);
}

const char *local_pages_check_prefix(size_t *count, const struct pages *pages, const void *prefix,
                                     size_t len)
{
    return local_pages_check_first(NULL, count, SIZE_MAX, pages, prefix, len);
}

const char *local_pages_check_first(struct page_entry *entries, size_t *count, size_t max,
                                    const struct pages *pages, const void *prefix, size_t len)
{
    struct walk walk = {.pages = pages,
                        .from = {prefix, len},
                        .is_prefix = true,
                        .count = count,
                        .max = max,
                        .entries = entries};
    *count = 0;
    return check_from_root(&walk, &pages->main);
}

const char *local_pages_check_around(const struct pages *pages, const void *key, size_t len)
{
    const void *data = NULL;
    struct walk walk = {.pages = pages,
                        .from = {key, len},
                        .is_around = true,
                        .neighbour = accept_any,
                        .found = &data};
    return check_from_root(&walk, &pages->main);
}
