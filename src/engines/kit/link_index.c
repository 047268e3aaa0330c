/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/kit/link_index.h"

#include <stdint.h>
#include <stdlib.h>

#include "engines/kit/link.h"

#define GROW 4

static struct link_request *const *buckets_of(const struct link_index *index)
{
    return index->many ? index->many : index->few;
}

static size_t size_of(const struct link_index *index)
{
    return index->many ? index->size : LINK_INDEX_FEW;
}

/* The low bits of an address are alike in all of them. */
static size_t place_of(const struct link_index *index, const void *data)
{
    uint64_t hash = (uint64_t)(uintptr_t)data * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash >> 32) & (size_of(index) - 1);
}

static void put(struct link_index *index, struct link_request *r)
{
    struct link_request **at = (struct link_request **)buckets_of(index) + place_of(index, r->data);
    r->same_prev = at;
    r->same_next = *at;
    if (*at)
        (*at)->same_prev = &r->same_next;
    *at = r;
}

/* Without memory the chains become longer. */
static void grow(struct link_index *index)
{
    struct link_index more = {.size = size_of(index) * GROW, .n = index->n};
    more.many = calloc(more.size, sizeof(struct link_request *));
    if (!more.many)
        return;
    for (size_t i = 0; i < size_of(index); i++) {
        for (struct link_request *r = buckets_of(index)[i], *next; r; r = next) {
            next = r->same_next;
            put(&more, r);
        }
    }
    free(index->many);
    *index = more;
}

void link_index_add(struct link_index *index, struct link_request *r)
{
    if (++index->n > size_of(index))
        grow(index);
    put(index, r);
}

void link_index_remove(struct link_index *index, struct link_request *r)
{
    index->n--;
    *r->same_prev = r->same_next;
    if (r->same_next)
        r->same_next->same_prev = r->same_prev;
}

struct link_request *link_index_first(const struct link_index *index, const void *data)
{
    struct link_request *r = buckets_of(index)[place_of(index, data)];
    while (r && r->data != data)
        r = r->same_next;
    return r;
}

struct link_request *link_index_next(const struct link_request *request)
{
    struct link_request *r = request->same_next;
    while (r && r->data != request->data)
        r = r->same_next;
    return r;
}

void link_index_free(struct link_index *index)
{
    free(index->many);
    *index = (struct link_index){0};
}
